#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# vectors.bats - an index whose vectors are not a model's: of a command, of a file, of a table of tokens.
load common

make_command() { # NAME LINES-OF-BASH-FOR-EACH-LINE
    printf '#!/bin/bash\necho run >> runs\nwhile IFS= read -r line; do\n    %s\ndone\n%s\n' "$2" "${3:-}" > "$1"
    chmod +x "$1"
}
# A vector of a text: how many a and b it has.
COUNT='printf "%s\n" "$line" >> got; a=${line//[^a]/} b=${line//[^b]/}; echo "[${#a}, ${#b}.0]"'
index() { chimere-engram-build index -q -o x.index "$@"; }
ask() { chimere-engram-build query --vectors only -k 9 "$@" x.index | jq -c '[.text, (.score * 1000 | round / 1000)]' | tr '\n' ' '; }

@test "vectors: a command makes those of texts and questions" {
    make_command embed "$COUNT"
    printf 'aaaa\nbbbb\n\n"a\taab\xc3\xa9\nabbb\n' > in
    index --lines --embed-command './embed "two words"' in
    [ "$(wc -l < runs)" -eq 1 ]
    [ "$(cat got)" = "$(printf '"aaaa"\n"bbbb"\n"\\"a\\taab\xc3\xa9"\n"abbb"')" ]
    cp got all
    [ "$(ask --embed-command ./embed -p aaab)" = '["\"a\taabé",1] ["aaaa",0.949] ["abbb",0.6] ["bbbb",0.316] ' ]
    [ "$(wc -l < runs)" -eq 2 ]
    chimere-engram-build query --bm25 -p aaaa x.index | jq -e '.text == "aaaa"'
    # several questions go to one process; words and vectors together
    printf 'aaab\nabbb\n' | chimere-engram-build query -k 1 --embed-command ./embed x.index |
        jq -se 'map(.text) == ["\"a\taabé", "abbb"]'
    [ "$(wc -l < runs)" -eq 3 ]
    fails 3 "its vectors are from elsewhere: --embed-command" chimere-engram-build query -p a x.index
    make_command longer 'echo "[1, 2, 3]"'
    fails 1 "--embed-command:./longer: text 1: a vector of 3 numbers, not 2" \
        chimere-engram-build query -p a --embed-command ./longer x.index
    chimere-engram-build check x.index
    chimere-engram-build stats -j x.index | jq -e '.dims == 2 and .texts == 4'
}

@test "vectors: a second run asks the command for what is new" {
    make_command embed "$COUNT"
    mkdir d
    seq 1 20 | sed 's/.*/aa & b/' > d/one
    index --chunk 100 --embed-command ./embed d
    n=$(wc -l < got)
    [ "$n" -ge 2 ]
    cp x.index before
    index --chunk 100 --embed-command ./embed d
    cmp x.index before
    [ "$(wc -l < got)" -eq "$n" ]
    printf '# Head\nbbb\n' > d/two.md
    index --chunk 100 --embed-command ./embed d
    [ "$(tail -n +$((n + 1)) got)" = '"Head\nbbb"' ] # the heading stands before the text
    # another command makes all of them
    cp embed other
    rm got
    index --chunk 100 --embed-command ./other d
    [ "$(wc -l < got)" -eq $((n + 1)) ]
}

@test "vectors: a command that fails is named, and the old index stays" {
    printf 'a\nb\nab\n' > in
    make_command embed "$COUNT"
    index --lines --embed-command ./embed in
    cp x.index before
    bad() { # TEXT COMMAND-OF-BASH
        make_command bad "$2" "${3:-}"
        fails 1 "--embed-command:./bad: $1" chimere-engram-build index -f -q -o x.index --embed-time 1 --lines \
            --embed-command ./bad in
        cmp x.index before
    }
    bad 'text 2: a vector of 1 numbers, not 2' '[ "$line" = \"a\" ] && echo "[1,2]" || echo "[1]"'
    bad 'text 1: a vector of 0 numbers' 'echo "[]"'
    bad 'text 1: the line is not a JSON array of numbers' 'echo "[NaN, 1]"'
    bad 'text 1: number 2 of the vector is not finite' 'echo "[1, 1e300]"'
    bad 'text 1: the line is not a JSON array of numbers' 'echo "[1, null]"'
    bad 'text 1: the line is not a JSON array of numbers' 'echo 7'
    bad 'ended with status 3 before text 2 had a vector' 'echo "[1, 2]"; exit 3'
    bad 'ended by signal 9 before text 1 had a vector' 'kill -9 $$'
    bad 'no vector of text 1 after 1 s (--embed-time)' 'sleep 100'
    bad 'closed its standard output before text 1 had a vector' 'exec >&-; sleep 100'
    fails 1 '--embed-command:./no-such: cannot start' chimere-engram-build index -f -o x.index --lines \
        --embed-command ./no-such in
    fails 2 '--embed-command: a quote is not closed' chimere-engram-build index -f -o x.index --lines \
        --embed-command "./embed 'a" in
    fails 2 'do not go together' chimere-engram-build index -o y --embed-command ./embed --vectors none in
    fails 2 'do not go together' chimere-engram-build query --bm25 --embed-command ./embed -p a x.index
}

@test "vectors: those of a file, in the order of the texts" {
    printf 'aaaa\n\nbbbb\n' > in
    printf '[4, 0]\n[0, 4]\r\n' > v
    index --lines --vectors v in
    make_command embed "$COUNT"
    [ "$(ask --embed-command ./embed -p aaab)" = '["aaaa",0.949] ["bbbb",0.316] ' ]
    cp x.index json
    # the texts as they are counted
    chimere-engram-build dump x.index | jq -se 'map([.type, .id, .text, .file, .line]) ==
        [["text", 0, "aaaa", "in", 1], ["text", 1, "bbbb", "in", 3]]'
    chimere-engram-build dump json > texts
    index -f --lines --vectors <(cat v) in
    cmp x.index json
    python3 - <<'END'
import struct
def npy(name, descr, shape, data, order=False):
    head = ("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)).ljust(117) + '\n'
    open(name, 'wb').write(b'\x93NUMPY\x01\0' + struct.pack('<H', len(head)) + head.encode() + data)
npy('v.npy', '<f4', '(2, 2)', struct.pack('<4f', 4, 0, 0, 4))
npy('cut.npy', '<f4', '(2, 2)', struct.pack('<3f', 4, 0, 0))
npy('much.npy', '<f4', '(4611686018427387904, 4)', struct.pack('<4f', 4, 0, 0, 4))
npy('f8.npy', '<f8', '(2, 2)', struct.pack('<4d', 4, 0, 0, 4))
npy('turned.npy', '<f4', '(2, 2)', struct.pack('<4f', 4, 0, 0, 4), True)
npy('flat.npy', '<f4', '(4,)', struct.pack('<4f', 4, 0, 0, 4))
npy('nan.npy', '<f4', '(2, 2)', struct.pack('<4f', 4, 0, 0, float('nan')))
open('head.npy', 'wb').write(b'\x93NUMPY\x02\0\xff\xff\xff\xff')
END
    index -f --lines --vectors v.npy in
    cmp x.index json
    refused() { # TEXT FILE
        fails 3 "$1" chimere-engram-build index -f -q -o x.index --lines --vectors "$2" in
        cmp x.index json
    }
    refused 'cut.npy: 2 vectors of 2 numbers do not fill it' cut.npy
    refused 'vectors of 4 numbers do not fill it' much.npy
    refused 'f8.npy: not an array of little-endian float32' f8.npy
    refused 'turned.npy: not an array of little-endian float32, row by row' turned.npy
    refused 'flat.npy: not an array of two dimensions' flat.npy
    refused 'nan.npy: vector 2: number 2 of the vector is not finite' nan.npy
    refused 'head.npy: its head is damaged' head.npy
    echo '[1, 2]' > one
    refused 'one: 1 vectors for 2 texts' one
    cat v one > three
    refused 'three: more vectors than the 2 texts' three
    printf '[1, 2]\n[1]\n' > bad
    refused 'bad: vector 2: a vector of 1 numbers, not 2' bad
    printf '[1, 2]\n\n' > bad
    refused 'bad: vector 2: the line is not a JSON array' bad
    fails 1 'no-such: cannot open' chimere-engram-build index -f -q -o x.index --lines --vectors no-such in
}

# table.safetensors and tokenizer.json: SentencePiece with the letters a and b, vectors of two numbers.
make_table() {
    python3 - <<'END'
import json, struct
U = '\u2581'
vocab = ['<unk>', '<s>', '</s>'] + ['<0x%02X>' % i for i in range(256)] + [U, 'a', 'b', U + 'a', 'ab', U + 'ab']
tok = {'added_tokens': [{'id': i, 'content': t, 'special': True} for i, t in enumerate(vocab[:3])],
       'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': U},
           {'type': 'Replace', 'pattern': {'String': ' '}, 'content': U}]}, 'pre_tokenizer': None,
       'model': {'type': 'BPE', 'unk_token': '<unk>', 'byte_fallback': True,
           'vocab': {t: i for i, t in enumerate(vocab)}, 'merges': [U + ' a', 'a b', [U + 'a', 'b']]}}
tok['model']['merges'][2] = ' '.join(tok['model']['merges'][2])
json.dump(tok, open('tokenizer.json', 'w'))
tok['model']['merges'] = [m.split(' ') for m in tok['model']['merges']]
tok['normalizer'] = None
tok['pre_tokenizer'] = {'type': 'Metaspace', 'replacement': U, 'prepend_scheme': 'always', 'split': False}
json.dump(tok, open('newer.json', 'w'))
tok['pre_tokenizer'] = {'type': 'ByteLevel'}
json.dump(tok, open('bytes.json', 'w'))
tok['pre_tokenizer'] = None
json.dump(tok, open('no-spaces.json', 'w'))
tok['pre_tokenizer'] = {'type': 'Metaspace', 'replacement': U, 'add_prefix_space': True}
tok['model']['vocab']['b'] = 7
json.dump(tok, open('twice.json', 'w'))
tok['model']['vocab']['b'] = 1 << 62
json.dump(tok, open('far.json', 'w'))
n = len(vocab)
rows = [[0.0, 0.0] for _ in vocab]
rows[vocab.index(U + 'ab')] = [3.0, 0.0]
rows[vocab.index(U)] = [0.0, 1.5]
rows[vocab.index('b')] = [0.0, 2.5]
flat = [x for r in rows for x in r]
def st(name, head, data):
    head = json.dumps(head).encode() if isinstance(head, dict) else head
    open(name, 'wb').write(struct.pack('<Q', len(head)) + head + data)
def matrix(dtype, data, to=None, at=0, shape=None):
    return {'dtype': dtype, 'shape': shape or [n, 2], 'data_offsets': [at, len(data) if to is None else to]}
f4, f2 = struct.pack('<%df' % (2 * n), *flat), struct.pack('<%de' % (2 * n), *flat)
st('f4.safetensors', {'__metadata__': {'format': 'pt'}, 'embedding.weight': matrix('F32', f4)}, f4)
st('f2.safetensors', {'x': matrix('F16', f2)}, f2)
bf = b''.join(struct.pack('<f', x)[2:] for x in flat)
st('bf.safetensors', {'bias': {'dtype': 'F32', 'shape': [1], 'data_offsets': [len(bf), len(bf) + 4]},
    'x': matrix('BF16', bf)}, bf + b'\0\0\0\0')
open('long', 'wb').write(struct.pack('<Q', 1 << 63) + b'{}' + f4)
open('all', 'wb').write(b'\xff' * 64)
open('short', 'wb').write(b'\x08\0\0')
st('json', b'{"x":', f4)
st('list', b'[]', f4)
st('overlap', {'x': matrix('F32', f4), 'y': matrix('F32', f4, at=8, shape=[n - 1, 2])}, f4)
st('hole', {'x': matrix('F32', f4)}, f4 + b'\0')
st('outside', {'x': matrix('F32', f4, to=len(f4) + 8)}, f4)
st('turned', {'x': matrix('F32', f4, at=len(f4), to=0)}, f4)
st('huge', {'x': matrix('F32', f4, shape=[1 << 62, 1 << 62])}, f4)
st('negative', {'x': matrix('F32', f4, shape=[-n, -2])}, f4)
st('other-shape', {'x': matrix('F32', f4, shape=[n - 1, 2])}, f4)
st('two', {'x': matrix('F32', f4), 'y': matrix('F32', f4, at=len(f4), to=2 * len(f4))}, f4 + f4)
st('none', {'x': matrix('F32', f4, shape=[2 * n])}, f4)
st('i64', {'x': matrix('I64', f4, shape=[n, 1])}, f4)
st('no-shape', {'x': {'dtype': 'F32', 'data_offsets': [0, len(f4)]}}, f4)
nan = struct.pack('<%df' % (2 * n), *(flat[:-1] + [float('inf')]))
st('inf', {'x': matrix('F32', nan)}, nan)
st('few', {'x': matrix('F32', f4, shape=[n - 1, 2], to=len(f4) - 8)}, f4[:-8])
END
}
make_embedder() { chimere-engram-build embedder -q -f -o e.gguf --from "$1.safetensors" --tokenizer "${2:-tokenizer.json}"; }

@test "vectors: a table of tokens makes those of texts and questions" {
    make_table
    printf 'ab\n' > in
    for table in 'f4' 'f2 newer.json' bf; do
        make_embedder $table
        rm -f x.index
        index --lines --embedder e.gguf in
        # the tokens of "ab b" are _ab, _ and b: 3, 4 against 3, 0
        [ "$(ask -p 'ab b')" = '["ab",0.6] ' ]
        [ "$(ask --embedder e.gguf -p ab)" = '["ab",1] ' ]
    done
    # the index knows which file it was; another one is refused
    mkdir else && mv e.gguf else
    fails 1 'its embedder (--embedder names another place)' chimere-engram-build query -p ab x.index
    [ "$(ask --embedder else/e.gguf -p ab)" = '["ab",1] ' ]
    make_embedder f4
    fails 3 'its vectors were made with another embedder' chimere-engram-build query -p ab x.index
    fails 3 'not an embedder' chimere-engram-build query --embedder "$CHIMERE_MODEL" -p ab x.index
    fails 3 'were made with an embedder: --embed-command does not fit' \
        chimere-engram-build query --embed-command cat -p ab x.index
    index -f --lines in # a model's
    fails 3 'were made with a model: --embedder does not fit' chimere-engram-build query --embedder e.gguf -p ab x.index
    # a second run makes what is new
    mkdir d && printf 'ab\n\n%0200d\n\nb b\n' 1 > d/a
    index -f --chunk 100 --embedder e.gguf d
    echo ab b > d/b
    chimere-engram-build index -v -o x.index --chunk 100 --embedder e.gguf d 2>&1 | grep -q 'vectors of [1-9]'
    # a text without tokens that say something is near to nothing
    printf 'ab\nzz\n' | index -f --lines --embedder e.gguf -
    chimere-engram-build check x.index
    fails 2 'e.gguf: exists (-f replaces it)' chimere-engram-build embedder -o e.gguf --from f4.safetensors
}

@test "vectors: tables and tokenizers that do harm are refused" {
    make_table
    make_embedder f4
    cp e.gguf before
    refused() { # FILE TEXT [TOKENIZER]
        fails 3 "$2" chimere-engram-build embedder -q -f -o e.gguf --from "$1" --tokenizer "${3:-tokenizer.json}"
        cmp e.gguf before
    }
    refused long 'long: not a .safetensors file: a header of 9223372036854775808 bytes'
    refused all 'a header of 18446744073709551615 bytes'
    refused short 'it is too short'
    refused json 'json: the header: '
    refused list 'its header is not an object of tensors'
    refused overlap 'overlap: tensors overlap'
    refused hole 'has bytes that belong to no tensor'
    refused outside 'tensor x: lies outside of the file'
    refused turned 'tensor x: lies outside of the file'
    refused huge 'tensor x: is larger than the file'
    refused negative 'tensor x: is larger than the file'
    refused other-shape 'its bytes are not those of its shape'
    refused two 'has 2 matrices, not one'
    refused none 'has 0 matrices, not one'
    refused i64 'tensor x: of I64; F32, F16 and BF16 can be read'
    refused no-shape 'tensor x: has no dtype, shape and data_offsets'
    refused inf 'number 1 of row 264 is not finite'
    refused few 'has 264 rows for 265 tokens'
    refused f4.safetensors 'bytes.json: not a tokenizer of SentencePiece' bytes.json
    refused f4.safetensors 'not a tokenizer of SentencePiece' no-spaces.json
    refused f4.safetensors "its number is out of range, or another's" twice.json
    refused f4.safetensors "its number is out of range, or another's" far.json
    echo '{' > bad.json
    refused f4.safetensors 'bad.json: ' bad.json
    fails 3 'rows for' chimere-engram-build embedder -q -f -o e.gguf --from f4.safetensors # of the model
    fails 2 'the table' chimere-engram-build embedder -o y
    fails 1 'no-such: cannot open' chimere-engram-build embedder -o y --from no-such
}

# An index of one text, "ab", whose vector a file of FAISS has.
make_faiss() {
    base64 -d <<< 'KLUv/WTABGUEAIQFQ0hJTVJFQ0wDAPhxQqHNVDc/AAECAAHskQ6N4Jg8kQEKNdeXXSgElvKdAN8GJCNxvlD4AAIAYWIAAQEzklzlrqSxe3cifrNno+wYCgAv
ZGV2L3N0ZGluABYgEDFtHXIov0u4nLyRlfGPlUw/RDGV3EqNS5IoJdOVHQLS3WV3KNDzzc7Ocr7yGSgSd6PHEQ==' |
        zstd -dqo x.index
    base64 -d <<< 'KLUv/SQ1PQEAAkIHDuBtBdYCRXHXAuIrZEoBY7ojmLZtG2z74duGoqsCAO8RBEAC15ddKA==' |
        zstd -dqo x.index.9df29604285d97d7.faiss
}

@test "vectors: an index that needs FAISS is searched by words without it, and its file is checked" {
    make_faiss
    chimere-engram-build query --bm25 -p ab x.index | jq -e '.text == "ab"'
    chimere-engram-build check x.index
    chimere-engram-build stats -j x.index | jq -e '.vectors_file == "x.index.9df29604285d97d7.faiss" and .dims == 2'
    cp x.index.9df29604285d97d7.faiss whole
    printf X | dd of=x.index.9df29604285d97d7.faiss bs=1 seek=50 conv=notrunc status=none
    fails 3 'x.index.9df29604285d97d7.faiss: wrong checksum' chimere-engram-build check x.index
    head -c 40 whole > x.index.9df29604285d97d7.faiss
    fails 3 'wrong checksum' chimere-engram-build check x.index
    rm x.index.9df29604285d97d7.faiss
    fails 1 'x.index.9df29604285d97d7.faiss: cannot open' chimere-engram-build check x.index
    fails 2 'do not go together' chimere-engram-build query --bm25 --faiss nprobe=2 -p ab x.index
    # what a killed run left is removed by the next one
    touch x.index.part{12,y}.faiss x.indexy.part12.faiss x.index.0123456789abcdef.faiss
    chimere-engram-build index -f -q --lines --vectors none -o x.index <<< ab
    [ "$(echo x.*.faiss)" = 'x.index.party.faiss x.indexy.part12.faiss' ]
}

@test "vectors: without FAISS what needs it is refused" {
    make_faiss
    printf 'a\nb\n' > in
    no_faiss() { fails 3 'this build has no FAISS' chimere-engram-build index -q -o y --lines --vectors in --faiss Flat in; }
    no_faiss || { [ "$(wc -l < err)" -eq 1 ] && ! grep -q 'no FAISS' err && skip 'this build has FAISS'; }
    [ ! -e y ]
    fails 3 'its vectors are in a file of FAISS, which this build has not' chimere-engram-build query -p ab x.index
}

@test "vectors: FAISS has those of an index" {
    make_faiss
    make_command embed "$COUNT"
    ! chimere-engram-build query -t 1 --embed-command ./embed -p ab x.index 2>&1 | grep 'which this build has not' ||
        skip 'built without the C interface of FAISS'
    index() { chimere-engram-build index -t 1 -q -o x.index --lines --embed-command ./embed "$@"; }
    ask() { chimere-engram-build query --vectors only -t 1 -k 9 --embed-command ./embed "$@" x.index |
        jq -c '[.text, (.score * 1000 | round / 1000)]' | tr '\n' ' '; }
    [ "$(ask -p ab)" = '["ab",0.99] ' ]
    printf 'aaaa\nbbbb\naab\nabbb\n' > in
    rm x.index* && index in
    ask -p aaab > ours
    for factory in Flat SQ8 IVF1,Flat HNSW8; do
        index -f --faiss "$factory" in
        [ "$(ask -p aaab | sed 's/,[^]]*//g')" = "$(sed 's/,[^]]*//g' ours)" ]
    done
    ask -p aaab --faiss efSearch=9
    fails 3 'FAISS searches its vectors' chimere-engram-build query --flat --embed-command ./embed -p aaab x.index
    chimere-engram-build check x.index x.index.1
    # files that no version needs are removed
    [ "$(ls x.index.*.faiss | wc -l)" -eq 4 ]
    index -f --keep-versions 0 --faiss Flat in
    rm x.index.[1-9]
    index -f --keep-versions 0 --faiss Flat in
    [ "$(ls x.index.*.faiss | wc -l)" -eq 1 ]
    fails 2 'FAISS: ' chimere-engram-build query --faiss no-such=3 --embed-command ./embed -p a x.index
    cp x.index before
    fails 2 "FAISS: could not parse index string no-such" chimere-engram-build index -f -q -o x.index --lines \
        --embed-command ./embed --faiss no-such in
    fails 2 "FAISS: Error: 'nx >= k' failed" chimere-engram-build index -f -q -o x.index --lines \
        --embed-command ./embed --faiss IVF9,Flat in
    cmp x.index before
    [ "$(ls x.index* | wc -l)" -eq 2 ]
    index -f in
    fails 3 'its vectors are not in a file of FAISS' chimere-engram-build query --faiss nprobe=2 --embed-command ./embed -p a x.index
    # another run adds what is new to the file, and what is gone is not found
    again() { chimere-engram-build index -f -t 1 -v -o x.index --lines --embed-command ./embed --faiss "$@" in 2> told; }
    rm x.index*
    for i in $(seq 20); do printf "%${i}s%$((21 - i))s\n" '' _ | tr ' _' ab; done >> in
    again IVF1,Flat && grep -q 'vectors of 0 were there' told
    sed -i '1s/.*/aaaaaaab/; 2d' in
    again IVF1,Flat && grep -q '23 texts, vectors of 22 were there' told
    ask -p bbbb > theirs
    chimere-engram-build index -t 1 -q -o fresh.index --lines --embed-command ./embed in
    [ "$(sed 's/,[^]]*//g' theirs)" = "$(chimere-engram-build query --vectors only -t 1 -k 9 --embed-command ./embed -p bbbb fresh.index |
        jq -c '[.text]' | tr '\n' ' ')" ]
    again IVF1,Flat && grep -q '23 texts, vectors of 23 were there' told
    again SQ8 && grep -q 'vectors of 0 were there' told
    head -12 in > few && mv few in
    again SQ8 && grep -q 'vectors of 0 were there' told # more than a fifth would be of texts that are gone
    chimere-engram-build check x.index x.index.1
}
