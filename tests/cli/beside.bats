# SPDX-License-Identifier: Apache-2.0
# beside.bats - what stands beside the model of chimere-serve-stdio: tables and an index in requests, and files that are
# opened again on SIGHUP.

load common

adapter() # OUT SEED
{
    python3 "$ROOT/tests/cli/make_lora.py" "$1" qwen35moe 4 2 "$2" blk.3.attn_output.weight:256:256 output.weight:256:4096
}
table() # OUT TEXT
{
    printf 'zorbl - %s\n' "$2" > text
    chimere-engram-build build -f --lines -o "$1" text
}
index() # OUT TEXT
{
    printf 'qvixt: %s\n' "$2" > text
    chimere-engram-build index -f --lines -o "$1" text
}
raw() # ID PROMPT [MEMBERS]
{
    printf '{"id":"%s","method":"completions","body":{"prompt":"%s","max_tokens":12,"temperature":%s}}\n' "$1" "$2" "${TEMP:-0}${3:-}"
}
talk() # ID [MEMBERS]
{
    printf '{"id":"%s","method":"chat/completions","body":{"messages":[{"role":"user","content":"What does qvixt do?"}],"max_tokens":12,"temperature":0,"chat_template_kwargs":{"enable_thinking":false}%s}}\n' "$1" "${2:-}"
}
said() # ID
{
    jq -j "select(.id == \"$1\") | .body.choices[0] | .text // .message.content" out
}
same() # ID COMMAND...: that command writes what the answer is, whose last line it ends
{
    [ "$(said "$1")" = "$("${@:2}" < /dev/null)" ] || { said "$1"; return 1; }
}

# A server on lines, its answers in ./out: started by `start OPTION...`, asked by writing to $in.
start()
{
    mkfifo lines
    chimere-serve-stdio "$@" < lines > out 2> err 3>&- &
    server=$!
    exec {in}> lines
}
stop()
{
    exec {in}>&-
    wait "$server"
    server=
}
ended() { jq -es --arg id "$1" 'any(.[]; .id == $id and (.type == "response" or .type == "end" or .type == "error"))' out > /dev/null; }
ask() # LINE: and waits for its end
{
    printf '%s\n' "$1" >&"$in"
    wait_for ended "$(jq -r .id <<< "$1")"
}
hang_up()
{
    kill -HUP "$server"
}
teardown()
{
    [ -z "${server:-}" ] || kill -KILL "$server" 2> /dev/null || true
}

@test "tables and texts of an index: a request has the bytes of chimere-run, and can do without" {
    table a 'a tool that counts green parrots'
    index f 'removes the last line of a file'
    {
      raw with 'zorbl -'; raw without 'zorbl -' ',"engram":false'; raw weighed 'zorbl -' ',"engram":0.4'; TEMP=1 raw all 'zorbl -' ',"engram":true,"seed":3'
      talk note; talk none ',"examples":false'; talk one ',"examples":1,"engram":false'
      talk parts | sed 's/"What does qvixt do?"/[{"type":"text","text":"What does qvixt do?"}]/'
      raw odd x ',"engram":2'; talk bad ',"examples":101'; raw text x ',"examples":1'; } > lines
    chimere-serve-stdio --engram a --examples f < lines > out
    same with chimere-run -rq -n 12 --engram a -p 'zorbl -'
    said with | grep -q 'counts green parrots'
    same without chimere-run -rq -n 12 -p 'zorbl -'
    same weighed chimere-run -rq -n 12 --engram a:0.4 -p 'zorbl -'
    same all chimere-run -rq -n 12 --engram a --temp 1 --seed 3 -p 'zorbl -'
    same note chimere-run -q -n 12 --think off --engram a --examples f -p 'What does qvixt do?'
    [ "$(said note)" = 'removes the last line of a file' ]
    [ "$(said parts)" = "$(said note)" ]
    same none chimere-run -q -n 12 --think off --engram a -p 'What does qvixt do?'
    same one chimere-run -q -n 12 --think off --examples f:1 -p 'What does qvixt do?'
    jq -es '(.[] | select(.id == "with") | .body.usage.tables[0] | .name == "a" and .matched > 0 and .changed <= .matched and .weight > 0.5) and
            (.[] | select(.id == "without") | .body.usage | has("tables") | not)' out
    jq -es '[.[] | select(.type == "error") | .error.param] == ["/engram", "/examples", "/examples"]' out
    { raw no x ',"engram":0.5'; talk neither ',"examples":true'; raw off x ',"engram":false'; } | chimere-serve-stdio > out
    jq -es '[.[] | select(.type == "error") | .error.param] == ["/engram", "/examples"] and length == 3' out
    fails 3 'another tokenizer' chimere-serve-stdio -m "$TINY" --engram a
    fails 3 'not an index' chimere-serve-stdio --examples text
}

@test "a table of a request's text, and a text that is recited: the bytes of chimere-run, and what is wrong is told" {
    table a 'a tool that counts green parrots'
    index f 'removes the last line of a file'
    printf 'vumpf - a bird that sings at night\n' > doc
    mkdir own-files
    export TMPDIR=$PWD/own-files # other tests have such files elsewhere
    own=',"context_table":"vumpf - a bird that sings at night\n"'
    {
      raw own 'vumpf -' "$own"; raw again 'vumpf -' "$own"; raw both 'zorbl -' "$own"; raw alone 'zorbl -' "$own,\"engram\":false"
      raw less 'vumpf -' "$own,\"engram\":0.3"; raw none 'vumpf -'; talk named; talk many ',"recite":5'; talk off ',"recite":false'
      talk table "$own"; talk quoted | sed 's/What does qvixt do?/& It removes the last line of a file./'
      talk two ',"n":2'; raw empty x ',"context_table":""'; raw number x ',"context_table":1'; talk bad ',"recite":101'
      raw text x ',"recite":true'
      printf '{"id":"big","method":"completions","body":{"prompt":"x","context_table":"%s"}}\n' "$(head -c 1048577 /dev/zero | tr '\0' y)"; } > lines
    chimere-serve-stdio --engram a --recite f --parallel 2 < lines > out
    same own chimere-run -rq -n 12 --engram a --context-table doc -p 'vumpf -'
    said own | grep -q 'sings at night'
    cmp <(said own) <(said again)
    same both chimere-run -rq -n 12 --engram a --context-table doc -p 'zorbl -'
    same alone chimere-run -rq -n 12 --context-table doc -p 'zorbl -'
    same none chimere-run -rq -n 12 --engram a -p 'vumpf -'
    no cmp -s <(said own) <(said less)
    same named chimere-run -q -n 12 --think off --engram a --recite f -p 'What does qvixt do?'
    [ "$(said named)" = 'removes the last line of a file' ]
    cmp <(said named) <(said many)
    cmp <(said named) <(said table)
    [ "$(said two)" = "$(said named)" ]
    same off chimere-run -q -n 12 --think off --engram a -p 'What does qvixt do?'
    same quoted chimere-run -q -n 12 --think off --engram a --recite f -p 'What does qvixt do? It removes the last line of a file.'
    # What says what something is does not say how it is done.
    for asks in what all; do
        jq -nc --arg asks $asks '{text: "qvixt: removes the last line of a file", $asks}' > $asks.jsonl
        chimere-engram-build index -q -o $asks --jsonl $asks.jsonl
        for q in 'What is qvixt?' 'How do I use qvixt?' 'Show qvixt when I ask.' 'qvixt: what is that?'; do
            chimere-run -q -n 1 --think off --json --recite $asks -p "$q" | jq '.notes | length'
        done | paste -sd ' '
    done > recitals
    diff recitals <(printf '1 0 0 1\n1 1 1 1\n')
    jq -es '[.[] | select(.type == "error") | [.id, .error.param]] | sort ==
        [["bad", "/recite"], ["big", "/context_table"], ["empty", "/context_table"], ["number", "/context_table"], ["text", "/recite"]]' out
    { raw own 'vumpf -' "$own"; raw weighed 'vumpf -' "$own,\"engram\":0.3"; talk no ',"recite":true'; } | chimere-serve-stdio > out
    same own chimere-run -rq -n 12 --context-table doc -p 'vumpf -'
    jq -es '[.[] | select(.type == "error") | .error.param] == ["/recite"] and length == 3' out
    raw file 'vumpf -' | chimere-serve-stdio --context-table doc > out
    same file chimere-run -rq -n 12 --context-table doc -p 'vumpf -'
    for i in $(seq 17); do echo --engram a; done > many
    { raw full 'vumpf -' "$own"; raw works 'zorbl -'; } | chimere-serve-stdio $(head -n 16 many) > out # shellcheck disable=SC2046
    jq -es 'map(.type) | sort == ["error", "response"]' out
    : > nothing
    fails 3 'is empty' chimere-serve-stdio --context-table nothing
    fails 3 'not an index' chimere-serve-stdio --recite doc
    [ -z "$(ls own-files)" ]
}

@test "SIGHUP: requests under way keep the old files, later ones have the new" {
    adapter a1 1; adapter a2 2; cp a1 a
    table t 'a tool that counts green parrots'
    index f 'removes the last line of a file'
    long='{"id":"long","method":"completions","body":{"prompt":"The","max_tokens":300,"temperature":0,"ignore_eos":true,"stream":true,"engram":false}}'
    start --lora a --engram t --examples f --parallel 2
    ask "$(raw first 'The' ',"engram":false')"
    ask "$(raw green 'zorbl -' ',"lora":[]')"
    same green chimere-run -rq -n 12 --engram t -p 'zorbl -'
    table t2 'a bird that sings at night'
    index f2 'adds a line to a file'
    printf '%s\n' "$long" >&"$in"
    wait_for grep -q chunk out
    cp a2 new; mv new a; mv t2 t; mv f2 f
    hang_up
    ask "$(raw second 'The' ',"engram":false')"
    ask "$(raw blue 'zorbl -' ',"lora":[]')"
    ask "$(talk note ',"lora":[],"engram":false')"
    wait_for ended long
    [ "$(jq -rs 'map(select(.type != "chunk") | .id) | index("second") < index("long")' out)" = true ]
    same first chimere-run -rq -n 12 --lora a1 -p The
    same second chimere-run -rq -n 12 --lora a2 -p The
    no cmp -s <(said first) <(said second)
    same blue chimere-run -rq -n 12 --engram t -p 'zorbl -'
    no cmp -s <(said green) <(said blue)
    same note chimere-run -q -n 12 --think off --examples f -p 'What does qvixt do?'
    jq -j 'select(.id == "long" and .type == "chunk") | .body.choices[0].text' out |
        cmp - <(chimere-run -rq -n 300 --ignore-eos --lora a1 -p The < /dev/null)
    ask "$(raw third 'The' ',"engram":false')"
    cmp <(said second) <(said third)
    stop
    [ ! -s err ]
}

@test "SIGHUP: what cannot be opened is told, and the old stays" {
    adapter a 1
    table t 'a tool that counts green parrots'
    index f 'removes the last line of a file'
    cp f g
    start --lora a:0.5 --engram t --examples f --recite g --cache-dir kept
    ask "$(raw first 'zorbl -')"
    ask "$(talk one)"
    for i in 1 2 3 4 5 6; do
        rm a; echo no > new; mv new t; echo no > new; mv new f; echo no > new; mv new g
        hang_up
        ask "$(raw "again$i" 'zorbl -')"
        ask "$(talk "two$i")"
        cmp <(said first) <(said "again$i")
        cmp <(said one) <(said "two$i")
        [ "$(grep -c 'what was there stays' err)" -eq $((4 * i)) ]
        : > a
    done
    grep -q -e '--lora: a: ' err && grep -q -e '--engram: t: ' err && grep -q -e '--examples: f: ' err && grep -q -e '--recite: g: ' err
    python3 "$ROOT/tests/cli/make_lora.py" a qwen35moe 4 64 1 output.weight:256:4096 # more ranks than the run has room for
    table new 'a bird that sings at night'; mv new t
    hang_up
    ask "$(raw last 'zorbl -')"
    no cmp -s <(said first) <(said last)
    grep -q 'adapters of 64 ranks' err
    kill -TERM "$server"
    wait "$server"
    server=
}

@test "SIGHUP: questions are answered from the new --context; one that is no text leaves the old" {
    asked() { printf '{"id":"%s","method":"chat/completions","body":{"messages":[{"role":"user","content":"What is vumpf?"}],"max_tokens":12,"temperature":0,"enable_thinking":false}}\n' "$1"; }
    echo 'vumpf: a bird that sings at night' > doc
    start --context doc
    ask "$(asked first)"
    echo 'vumpf: a blue fish' > new; mv new doc; hang_up
    ask "$(asked second)"
    printf 'a\0b' > new; mv new doc; hang_up
    ask "$(asked third)"
    stop
    [ "$(said first)|$(said second)|$(said third)" = 'a bird that sings at night|a blue fish|a blue fish' ]
    grep -q -e '--context: doc: is no text' err
}

@test "SIGHUP: drafters are exchanged under way, and no byte changes" {
    guesser() { python3 "$ROOT/tests/cli/make_lora.py" "$1" qwen35moe 4 2 "$2" blk.8.attn_output.weight:256:256; }
    guesser d 1
    start --draft d --draft-max 2 --parallel 2
    printf '{"id":"long","method":"completions","body":{"prompt":"The","max_tokens":400,"temperature":0,"ignore_eos":true,"stream":true}}\n' >&"$in"
    wait_for grep -q chunk out
    for i in 2 3; do
        guesser new $i; mv new d
        hang_up
        ask "$(raw "short$i" 'The')"
        same "short$i" chimere-run -rq -n 12 -p The
    done
    wait_for ended long
    jq -j 'select(.id == "long" and .type == "chunk") | .body.choices[0].text' out |
        cmp - <(chimere-run -rq -n 400 --ignore-eos -p The < /dev/null)
    [ ! -s err ]
    echo no > new; mv new d
    hang_up
    ask "$(raw last 'The')"
    same last chimere-run -rq -n 12 -p The
    grep -q -e '--draft: d: .*what was there stays' err
    stop
}

@test "SIGHUP: over HTTP, without files, and of a server that ignores it" {
    chimere-serve-stdio --listen unix:s > served 2> err 3>&- &
    server=$!
    wait_for test -s served || { grep -q 'without HTTP' err && skip "built without libmicrohttpd"; }
    for i in 1 2 3; do kill -HUP "$server"; done
    curl -fsS --unix-socket s http://localhost/health | jq -e '.status == "ok"'
    kill -TERM "$server"
    wait "$server"
    server=
    printf '{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x","max_tokens":3000,"ignore_eos":true}}\n' > in.jsonl
    chimere-serve-stdio --batch in.jsonl -o answers 3>&- & # a batch ends by it
    server=$!
    wait_for test -e answers
    sleep 0.3
    kill -HUP "$server"
    local got=0
    wait "$server" || got=$?
    server=
    [ "$got" -eq 129 ]
}
