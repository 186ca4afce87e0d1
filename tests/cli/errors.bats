#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What goes wrong: one line on stderr, nothing on stdout, the right exit status.
load common

# A GGUF version 3 header: number of tensors, number of keys; then pieces follow by hand.
le() # BYTES NUMBER
{
    local i n=$2
    for ((i = 0; i < $1; i++)); do
        # shellcheck disable=SC2059
        printf "\\x$(printf %02x $((n & 255)))"
        n=$((n >> 8))
    done
}
text() { le 8 ${#1}; printf %s "$1"; }
header() { printf GGUF; le 4 3; le 8 "$1"; le 8 "$2"; }

@test "an output is no file that another option names in a list" {
    cp "$ROOT/tests/golden/draft/dflash-a.gguf" d.gguf
    cp d.gguf l.gguf
    fails 2 'is also the file of --draft' chimere-run --draft d.gguf --logits d.gguf -p x
    fails 2 'is also the file of --lora' chimere-run --lora l.gguf:0.5 --logits l.gguf -p x
    cmp d.gguf l.gguf
    cmp d.gguf "$ROOT/tests/golden/draft/dflash-a.gguf"
}

@test "usage" {
    fails 2 "unknown option --nonsense" chimere-run --nonsense
    fails 2 "unknown option -Z" chimere-run -Z
    fails 2 "-p: needs an argument" chimere-run -p
    fails 2 "--raw=yes" chimere-run --raw=yes
    fails 2 "-nmany: -n takes a number" chimere-run -nmany
    fails 2 "-n many: not a number" chimere-run -n many
    fails 2 "-n -2: must be at least -1" chimere-run -n -2
    fails 2 "leave it out for the default" chimere-run -c 0
    fails 2 "-n 12kk: not a number" chimere-run -n 12kk
    fails 2 "too large" chimere-run -n 9223372036854775807k
    fails 2 "too large" chimere-run --seed 18446744073709551615
    fails 2 "--top-k 3G: must be from -1 to 2147483647 (0, -1: off)" chimere-run --top-k 3G
    fails 2 "--top-k -2: must be at least -1 (0, -1: off)" chimere-run --top-k -2
    fails 2 "--threads 0: must be from 1 to 512 (default: one for each processor)" chimere-run --threads 0
    fails 2 "-c 0: must be at least 1 (default 512)" chimere-bench ppl -c 0
    fails 2 "--parallel 0: must be from 1 to 1024 (default 4)" chimere-serve-stdio --parallel 0
    fails 2 "--temp hot: not a number" chimere-run --temp hot
    fails 2 "not a number" chimere-run --temp nan
    fails 2 "--think maybe: not one of on|off" chimere-run --think maybe
    fails 2 "not one of bash|zsh|fish" chimere-run --completion tcsh
}

@test "names that are ambiguous, nearly right, or of llama.cpp" {
    fails 2 "--se: ambiguous: --session, --session-ro, --seed" chimere-run --se 5 --raw -p hi -n 1
    [ ! -e 5 ]
    for word in --dry --top --th --m --t; do fails 2 "$word: ambiguous" chimere-run $word 1 -p x; done
    try 0 chimere-run --tokeni -p x
    fails 2 "did you mean --predict?" chimere-run --perdict 5
    fails 2 "did you mean --top-k?" chimere-run --topk 5
    fails 2 "did you mean --predict?" chimere-run --n-predic 5
    fails 2 "did you mean --system?" chimere-run --system_prompt x
    fails 2 "did you mean --port?" chimere-serve-stdio --ports 5
    fails 2 "--gpu: use --device cuda" chimere-run --gpu
    fails 2 "-t 0.8: -t is the number of threads; did you mean --temp 0.8?" chimere-run -t 0.8 -p x
    fails 2 "-s 42: did you mean --seed 42?" chimere-run -s 42 -p x
    for word in -no-cnv --no-conversation; do fails 2 "$word: " chimere-run $word -p x; done
    for word in -ngl -ctk -ctv -hf -f; do fails 2 "$word: " chimere-run $word q8_0 -p x; done
    try 0 chimere-bench speed -p 512 -h
    chimere-run --raw -p 'The kernel' -n 4 --temp 0 > want
    chimere-run --raw -p 'The kernel' --n-predict 4 --temperature 0 --ctx-size 64 --seed -1 > got
    cmp want got
    chimere-run --raw -p 'The kernel' -n 4 --repeat-penalty 1 --repeat-last-n 8 -t 1 | cmp - want
    chimere-run --think -p 'What is 2 + 2?' --show-prompt > got
    chimere-run --think on -p 'What is 2 + 2?' --show-prompt | cmp - got
}

@test "words of other programs: commands, names of models, a grammar in place of its file" {
    fails 2 'run: no such file, and no command: use chimere-run -m FILE' chimere-run run qwen3 hi
    fails 2 'pull: no such file, and no command: use chimere-run -hf' chimere-run pull qwen3
    fails 2 'serve: no such file, and no command: use chimere-serve-stdio --listen' chimere-serve-stdio serve
    echo 'What is 2 + 2?' > run # a file is a file
    [ "$(chimere-run --think=off run)" = "$(chimere-run --think=off -p 'What is 2 + 2?')" ]
    fails 2 'compare: not a command; did you mean eval --compare?' chimere-bench compare a b
    fails 1 'llama3: cannot open: No such file or directory (names are looked for where CHIMERE_MODELS says)' chimere-run -m llama3 -p x
    fails 2 'takes the name of a file' chimere-run --grammar 'root ::= "a"' -p x
    # help is pointed to where the message has not said what to type
    fails 2 'unknown option --xyzzy (chimere-run -h lists the options)' chimere-run --xyzzy
    fails 2 'did you mean --predict?' chimere-run --perdict 5
    [ "$(grep -c 'lists the options' err)" -eq 0 ]
    # a plan for more than the model was trained for says so, once
    try 0 chimere-run --plan --vram 24G --ctx 256k
    [ "$(cat err)" = 'chimere-run: --ctx 262144: the model was trained for contexts of 4096 tokens' ]
    grep -q '^plan for cuda, 24 GiB (25.770 GB) of its memory' out
    try 0 chimere-run --plan --ctx 4k
    [ ! -s err ]
}

@test "messages name options as they were typed" {
    fails 2 '-n has no effect with --tokenize' chimere-run -n 5 --tokenize -p x
    fails 2 '--pred has no effect with --tokenize' chimere-run --pred 5 --tokenize -p x
    fails 2 '--n-predict has no effect with --tokenize' chimere-run --n-predict=5 --tokenize -p x
    fails 2 '-n does not belong to speed: it is for eval' chimere-bench speed -n 5
    fails 2 '--ctx: a context of 104857600 tokens for 1 sequence is not in 1 .. 16777216' chimere-run -c 100M -p x
}

@test "empty names, and numbers that cannot be" {
    fails 2 "-m '': the name is empty" chimere-run -m '' -p x
    fails 2 "--kv '': KV type" chimere-run --kv '' -p x
    fails 1 ": '': cannot open" chimere-run --lora '' -p x
    fails 2 "--type '': neither" chimere-quantize --type '' "$TINY" out.gguf
    fails 1 ": '': cannot open" chimere-quantize --type f32 '' out.gguf
    fails 2 "--logits '': the name is empty" chimere-run --logits '' -p x
    fails 2 "--repeat-penalty" chimere-run --repeat-penalty 0 -p x
    fails 2 "--top-p" chimere-run --top-p 2 --temp 1 -p x
    fails 2 "--logprobs 5000: the model has 4096 tokens" chimere-run --raw --logprobs 5000 --json -p x -n 1
    fails 2 "--temp" chimere-run --temp=-1 -p x
}

@test "options in the environment" {
    chimere-run --raw -p 'The kernel' -n 4 > want
    CHIMERE_OPTS='--raw -n 2' chimere-run -n 4 -p 'The kernel' | cmp - want
    printf 'The kernel' > prompt
    chimere-run --raw -n 20 prompt > all
    stop=$(cut -d ' ' -f 4-5 all) # of the answer: two words
    chimere-run --raw -n 20 --stop "$stop" prompt > want
    [ "$(cat want)" = "$(cut -d ' ' -f 1-3 all) " ]
    CHIMERE_OPTS="-r -n 20 --stop '$stop'" chimere-run prompt | cmp - want
    CHIMERE_OPTS="-r -n 20 --stop ${stop/ /\\ }" chimere-run prompt | cmp - want
    CHIMERE_OPTS='--nonsense' fails 2 "unknown option CHIMERE_OPTS: --nonsense" chimere-run -p x
    CHIMERE_OPTS='-n x' fails 2 "CHIMERE_OPTS: -n x: not a number" chimere-run -p x
    CHIMERE_OPTS='word' fails 2 "only options" chimere-run -p x
    CHIMERE_OPTS="-s 'x" fails 2 "quote" chimere-run -p x
    CHIMERE_OPTS='-n' fails 2 "chimere-run: CHIMERE_OPTS: -n: needs an argument" chimere-run -p x
    CHIMERE_OPTS='-ngl x' fails 2 "chimere-run: CHIMERE_OPTS: -ngl: use" chimere-run -p x
    CHIMERE_OPTS="-c ''" fails 2 "CHIMERE_OPTS: -c '': not a number" chimere-run -p x
    CHIMERE_OPTS='--kv q9' fails 2 "chimere-run: --kv q9: KV type 'q9' is not one of f32, f16, q8_0, q4_0; --kv is from CHIMERE_OPTS" chimere-run -p x
    # What says what one call does is typed.
    for one in '-p x' '--messages x' '--tokens x' -i --tokenize --detokenize --show-prompt --inspect --show --plan '--render x' --check \
        '--parse x' '--batch x' --mcp -h; do
        for program in chimere-run chimere-serve-stdio; do
            CHIMERE_OPTS=$one fails 2 'does not belong in a variable of defaults' $program
        done
    done
    CHIMERE_OPTS='--engram gone' fails 1 'gone: cannot open: No such file or directory; --engram is from CHIMERE_OPTS' chimere-run --raw -p x
    CHIMERE_OPTS='--parser none' fails 2 '; --parser is from CHIMERE_OPTS' chimere-run -p x -n 1
    CHIMERE_OPTS='--draft none' fails 2 "drafter 'none' is neither auto, ngram, mtp or engram nor a file here; --draft is from CHIMERE_OPTS" \
        chimere-run -p x -n 1
    fails 2 '-t 0.5: not a number' chimere-engram-build build -t 0.5
    CHIMERE_OPTS='-m gone' fails 1 'where CHIMERE_MODELS says); --model is from CHIMERE_OPTS' chimere-serve-stdio
    CHIMERE_OPTS='-c 1' fails 1 '; --ctx is from CHIMERE_OPTS' chimere-run --raw -p 'The kernel'
    CHIMERE_OPTS='--temp 0' fails 2 '--top-p has no effect at temperature 0: it needs --temp; --temp is from CHIMERE_OPTS' chimere-run --top-p 0.9 -p x
    CHIMERE_OPTS='-q' try 0 chimere-run --raw -v -n 1 -p x
    grep -q '^model' err
    # Help needs no defaults.
    for bad in "'" '-p x' '-n'; do
        CHIMERE_OPTS=$bad try 0 chimere-run -h
        [ ! -s err ]
    done
    for program in chimere-run chimere-serve-stdio; do
        for ask in -h -V --version --help=sampling '--completion bash' --help-json; do
            # shellcheck disable=SC2086
            CHIMERE_OPTS=--nonsense try 0 $program $ask
            [ ! -s err ]
        done
    done
    CHIMERE_OPTS=--nonsense fails 2 "CHIMERE_OPTS: --nonsense" chimere-run -s -h -p x
}

@test "a flag of defaults is taken back by what is typed" {
    ln -s "$CHIMERE_MODEL" m.gguf
    echo '--raw --no-mmap' > m.gguf.opts
    chimere-run --show-prompt -p x > want
    CHIMERE_OPTS=--raw chimere-run --show-prompt --raw=off -p x | cmp - want
    chimere-run -m m.gguf --show-prompt --raw=off -p x | cmp - want
    CHIMERE_OPTS=--raw=off chimere-run -m m.gguf --show-prompt -p x | cmp - want
    chimere-run -m m.gguf -p x -n 1 -v --raw=off --no-mmap=off --think off 2> err
    no grep -q '^options' err
    CHIMERE_OPTS=--raw=off chimere-run --raw=on --raw=off --raw -n 1 -p x --json | jq -e '.usage.prompt_tokens == 1'
    fails 2 '--raw: takes no argument but =off, which takes it back: --raw=no' chimere-run --raw=no -p x
    fails 2 '--mmap: weights are mapped unless --no-mmap is given; --no-mmap=off takes back' chimere-run --mmap -p x
}

@test "options that do not go together" {
    fails 2 "--tokenize and --inspect do not go together" chimere-run --tokenize --inspect
    fails 2 "-j and --jsonl do not go together" chimere-run -j --jsonl -p x
    fails 2 "--json and --jsonl" chimere-run --json --jsonl -p x
    fails 2 "-p has no effect with --inspect" chimere-run --inspect -p x
    fails 2 "--logits-last needs --logits" chimere-run --logits-last 3 -p x
    fails 2 "--logprobs needs --json or --jsonl" chimere-run --logprobs 3 -p x
    fails 2 "-p has no effect with --tokens" chimere-run --tokens ids.json -p x
    fails 2 "file: a prompt has no effect with --tokens" chimere-run --tokens ids.json file
    fails 2 "--system has no effect with --raw" chimere-run --raw --system x -p x
    fails 2 "--json has no effect with --tokenize" chimere-run --tokenize --json -p x
    fails 2 "--stop: the text is empty" chimere-run --stop '' -p x
}

@test "an option that can have no effect is refused, where it was typed" {
    while IFS='|' read -r says words; do
        # shellcheck disable=SC2086
        fails 2 "$says" chimere-run $words
    done << 'END'
--plain has no effect in a chat|--plain -p x
--plain has no effect with --show-prompt|--plain --show-prompt -p x
--think has no effect with --raw|--raw --think off -p x
--reasoning has no effect with --raw|--raw --reasoning none -p x
--reasoning-budget has no effect with --raw|--raw --reasoning-budget 3 -p x
-n has no effect with --tokenize|--tokenize -n 3 -p x
--temp has no effect with --tokenize|--tokenize --temp 1 -p x
--stop has no effect with --detokenize|--detokenize --stop a
--logit-bias has no effect with --show-prompt|--show-prompt --logit-bias 1=1 -p x
--kv has no effect with --tokenize|--tokenize --kv nonsense -p x
--kv has no effect with --inspect|--inspect --kv nonsense
-n has no effect with --inspect|--inspect -n 3
-c has no effect with --parse|--parse hermes -c 100
-m has no effect with --parse|--parse hermes -m x
-m has no effect with --check|--check --regex a -m x
--raw has no effect with --inspect|--inspect --raw
-t has no effect with --tokenize|--tokenize -t 2 -p x
-t has no effect with --inspect|--inspect -t 2
-s has no effect with --inspect|--inspect -s x
--tool-choice has no effect with --inspect|--inspect --tool-choice none
--template has no effect with --plan|--plan --template x
--parser has no effect with --show-prompt|--show-prompt --parser hermes -p x
--engram has no effect with --detokenize|--detokenize --engram x
--chat-kwargs has no effect with --show|--show --session s --chat-kwargs {}
--session-ro has no effect with --show|--show --session s --session-ro
--draft has no effect with --show|--show --session s --draft ngram
--reasoning-budget has no effect with --think off|--think off --reasoning-budget 9 -p x
--tool-choice needs --tools or --messages|--tool-choice none -p x
--engram-thinking has no effect with --raw|--raw --engram e --engram-thinking -p x
--think has no effect with --tokens|--tokens x --think off
--json and --stream do not go together|--json --stream -p x
--dry-base needs --dry-multiplier|--dry-base 2 -p x
--penalty-last-n needs --repeat-penalty, --presence-penalty or --frequency-penalty|--penalty-last-n 8 -p x
--draft-max needs --draft or --engram-drafts|--draft-max 3 -p x
--top-p has no effect at temperature 0|--top-p 0.9 --seed 1 -p x
--top-k has no effect at temperature 0|--top-k 9 -p x
--min-p has no effect at temperature 0|--min-p 0.1 -p x
--typical has no effect at temperature 0|--typical 0.9 -p x
--device: cpu:1: there is one device cpu|--device cpu:1 -p x
END
    # --temp 0 switches cuts off on purpose.
    CHIMERE_OPTS='--temp 0.8 --top-p 0.9' try 0 chimere-run --raw --temp 0 -n 1 -p x
    try 0 chimere-run --raw --seed 7 -n 1 -p x < /dev/null
    [ "$(cat err)" = 'chimere-run: --seed has no effect at temperature 0: it needs --temp' ]
}

@test "options of the environment that have no effect are ignored" {
    all='--raw --system s --tools t --tool-choice required --template t --chat-kwargs x --think off --reasoning-budget 5
        --parser hermes --examples e --plain --session s --session-ro --drop-oldest -n 1 --schema s --grammar g --regex r --stop x
        --ignore-eos --reasoning none --stream --json --jsonl --logprobs 3 --temp 1 --top-k 3 --top-p 0.5 --min-p 0.1 --typical 0.5
        --repeat-penalty 2 --penalty-last-n 3 --dry-multiplier 1 --dry-base 2 --logit-bias 1=1 --seed 2 --draft mtp --draft-max 3
        --engram e --engram-thinking -c 64 -t 1 --vram 8G --kv nonsense --chunk 4 --acts i8 --no-mmap --repack off
        --expert-profile p --vars v --now x --reasoning-open --logits l --logits-last 3 --lora l'
    aside() { CHIMERE_OPTS=$all try 0 chimere-run "$@"; }
    chimere-run --raw --tokenize -p 'The kernel' > want
    aside --tokenize -p 'The kernel'
    cmp out want
    aside --detokenize want
    [ "$(cat out)" = 'The kernel' ]
    aside --inspect
    jq -e '.type == "inspect"' out
    printf 12 > twelve
    echo '{"type": "integer"}' > s
    CHIMERE_OPTS=${all/--grammar g --regex r/} try 0 chimere-run --check < twelve
    CHIMERE_OPTS=${all/--tools t/} try 0 chimere-run --parse hermes < twelve
    CHIMERE_OPTS='--raw --session s --logits l' try 0 chimere-run --show-prompt -p 'The kernel'
    echo 'Hi {{ x }}' > hi
    echo '{"x": 1}' > v
    CHIMERE_OPTS=${all/--now x/} try 0 chimere-run --render hi
    [ "$(cat out)" = 'Hi 1' ]
    # What was typed excludes the other.
    chimere-run -s 'Be terse.' --think off -n 3 -p 'What is 2 + 2?' > want
    CHIMERE_OPTS='--raw --plain' chimere-run -s 'Be terse.' --think off -n 3 -p 'What is 2 + 2?' | cmp - want
    chimere-run --raw -n 3 -p 'The kernel' > want
    CHIMERE_OPTS='-s x --chat-kwargs {} --tool-choice none --vram 8G' chimere-run --device cpu --raw -n 3 -p 'The kernel' | cmp - want
    CHIMERE_OPTS='--raw' chimere-run --think off -p x --show-prompt > want.chat
    grep -q assistant want.chat
    chimere-run --think off -n 3 -p 'What is 2 + 2?' > want.chat
    CHIMERE_OPTS='--raw --reasoning-budget 0' chimere-run --think off -n 3 -p 'What is 2 + 2?' | cmp - want.chat
    chimere-run --reasoning-budget 1 -n 3 -p 'What is 2 + 2?' > want.chat
    CHIMERE_OPTS='--raw --think off' chimere-run --reasoning-budget 1 -n 3 -p 'What is 2 + 2?' | cmp - want.chat
    echo '{"type": "integer"}' > form
    CHIMERE_OPTS='--tool-choice required' try 0 chimere-run --raw -n 3 --schema form -p 'The kernel'
    CHIMERE_OPTS='--jsonl --stream --logprobs 2' chimere-run --json --raw -n 3 -p 'The kernel' | jq -e '.type == "completion" and (.logprobs | length == 3)'
    CHIMERE_OPTS='--logprobs 2 --logits-last 3 --draft-max 2' chimere-run --raw -n 3 -p 'The kernel' | cmp - want
    CHIMERE_OPTS='--json --jsonl' try 0 chimere-run --raw -n 3 -p 'The kernel'
    jq -e '.type == "completion"' out
    [ ! -e l ]
    [ ! -e p ]
    fails 2 '--nonsense' env CHIMERE_OPTS='--nonsense' chimere-run --inspect
}

@test "chimere-run and chimere-serve-stdio leave each other's options aside" {
    words_of() { "$1" --help-json | jq -r '.options[] | select(.name | test("^(help|version|completion)") | not) |
        "--" + .name + if .arg == null or (.arg | startswith("[")) then "" elif .arg | test("\\|") then " " + (.arg | split("|")[0]) else " 1" end'; }
    words_of chimere-run > run
    words_of chimere-serve-stdio > serve
    local typed='prompt|messages|tokens'
    typed+='|interactive|tokenize|detokenize|show-prompt|render|show|inspect|check|parse|pipeline|pipeline-state|plan|batch|merge|mcp'
    for list in run serve; do grep -vE "^--($typed)( |\$)" $list > some; mv some $list; done
    CHIMERE_OPTS=$(comm -13 <(sort serve) <(sort run) | tr '\n' ' ') try 0 chimere-serve-stdio < /dev/null
    CHIMERE_OPTS="$(comm -23 <(sort serve) <(sort run) | tr '\n' ' ')" try 0 chimere-run --inspect
    CHIMERE_OPTS='-r -jnonsense --think --system-prompt=x --n-predict 3 -s y' try 0 chimere-serve-stdio < /dev/null
    CHIMERE_OPTS='--nonsense' fails 2 'CHIMERE_OPTS: --nonsense' chimere-serve-stdio
    fails 2 'unknown option --raw' chimere-serve-stdio --raw
    # Where one of them needs another one, as well.
    CHIMERE_OPTS='--drain 3 --cors x --cache-size 5 --lenient --errors x --shard 1/2 --vram 8G' try 0 chimere-serve-stdio --device cpu < /dev/null
    fails 2 '--timeout needs --listen' chimere-serve-stdio --timeout 3
    fails 2 'these end at once' chimere-serve-stdio --mcp --drain 3
    CHIMERE_OPTS='--listen unix:s' fails 1 'none: cannot open' chimere-serve-stdio --batch none -o out.jsonl
    CHIMERE_OPTS='--listen unix:s' try 0 chimere-serve-stdio --mcp < /dev/null
}

@test "values that the sampler or the run refuses" {
    fails 2 "top" chimere-run -p x -n 1 --top-p 2
    fails 2 "temp" chimere-run -p x -n 1 --temp=-1
    fails 2 "--logit-bias 5: not" chimere-run -p x -n 1 --logit-bias 5
    for bias in 99999=1 5+ 5- 5+-1 5=1x 5nan +5=1 -5=1 5=nan 5=inf 5+1e39 ''; do
        fails 2 "--logit-bias ${bias:-''}: not ID=NUMBER" chimere-run --raw -p x -n 1 --logit-bias="$bias"
    done
    for bias in 72=50 72+50 72=+5e1; do [ "$(chimere-run --raw -p x -n 1 --json --logit-bias $bias | jq -c .token_ids)" = '[72]' ]; done
    first=$(chimere-run --raw -p x -n 1 --json | jq '.token_ids[0]')
    for bias in $first-50 $first-inf $first=-inf; do
        [ "$(chimere-run --raw -p x -n 1 --json --logit-bias "$bias" | jq '.token_ids[0]')" -ne "$first" ]
    done
    fails 2 "f33" chimere-run -p x -n 1 --kv f33
    fails 2 "no device named 'gpu'; there are cpu, " chimere-run -p x -n 1 --device gpu
    # an odd name is refused before anything is read
    for device in cpu:0 cudax cuda:99999999999999999999 ''; do
        fails 2 "--device: " chimere-run -m no -p x -n 1 --device "$device"
        for command in dflash mtp lora; do
            fails 2 "--device: " chimere-draft-train $command -m no -o no.gguf --device "$device" no
        done
        fails 2 "--device: " chimere-serve-stdio -m no --device "$device"
        fails 2 "--device: " chimere-bench speed -m no --device "$device"
        fails 2 "--device: " chimere-engram-build index -m no -o i --device "$device" no
        fails 2 "--device: " chimere-quantize --measure l --device "$device" no
    done
}

@test "model files" {
    fails 1 "nowhere.gguf: " chimere-run -m nowhere.gguf -p x
    CHIMERE_MODEL=nowhere.gguf fails 1 "nowhere.gguf: " chimere-run -p x
    fails 1 "chimere-run: " chimere-run -m . -p x
    : > empty.gguf
    fails 3 "empty.gguf: " chimere-run -m empty.gguf -p x
    echo 'This is no model but some text, long enough for a header.' > text.gguf
    fails 3 "text.gguf: offset 0: " chimere-run -m text.gguf -p x
    head -c 100000 "$TINY" > cut.gguf
    fails 3 "cut.gguf: " chimere-run -m cut.gguf --inspect
    head -c 50 "$TINY" > shorter.gguf
    fails 3 "shorter.gguf: " chimere-run -m shorter.gguf --inspect
}

@test "a model of another family" {
    { header 0 1; text general.architecture; le 4 8; text strange; } > strange.gguf
    try 0 chimere-run -m strange.gguf --inspect
    fails 3 "strange.gguf" chimere-run -m strange.gguf -p x
    echo '[1]' > ids.json
    fails 3 "not known to this version, which has " chimere-run -m strange.gguf --tokens ids.json
    grep -q qwen35moe err
}

@test "no model at all" {
    mkdir -p prefix/bin
    cp "$PROGRAM" prefix/bin/
    unset CHIMERE_MODEL
    fails 2 "CHIMERE_MODEL" prefix/bin/chimere-run -p x
    grep -q "prefix/{share/chimere/models,share/models}/" err
    mkdir -p prefix/share/models prefix/share/chimere/models
    cp "$TINY" prefix/share/models/chimere-nano-q5_k_m.gguf
    try 0 prefix/bin/chimere-run --inspect
    cp "$TINY" prefix/share/chimere/models/chimere-nano-q5_k_m.gguf
    try 0 prefix/bin/chimere-run --inspect
    grep -q '^file .*/prefix/share/chimere/models/' out
}

@test "prompts" {
    fails 1 "no-such-file: " chimere-run no-such-file
    fails 2 "the prompt is empty" chimere-run --raw -p ''
    echo '[1, 2, 3, 4, 5, 6, 7, 8, 9]' > nine.json
    fails 1 "the prompt has 9 tokens, the context 8 (--ctx sets it; 4096 are what" chimere-run --tokens nine.json --ctx 8
    jq -n '[range(4097) | 1]' > long.json
    fails 1 "the context 4096 (all that the model was trained for)" chimere-run --tokens long.json
    fails 3 'not a model but a drafter, for --draft' chimere-run -m "$ROOT/share/models/chimere-nano-dflash.gguf" -p x
}

@test "an empty prompt is never answered" {
    : > empty
    printf ' \n\t\n' > blank
    echo '[{"role": "user", "content": ""}]' > m.json
    for file in empty blank /dev/null; do
        fails 2 "the prompt is empty" chimere-run < $file
        fails 2 "the prompt is empty" chimere-run $file
        fails 2 "the prompt is empty" chimere-run --session s < $file
        fails 2 "the prompt is empty" chimere-run --messages m.json - < $file
        [ ! -e s ]
    done
    fails 2 "the prompt is empty" chimere-run -p ''
    fails 2 "the prompt is empty" chimere-run --raw < empty
    fails 2 "the prompt is empty" chimere-run --session s -p ''
    [ ! -e s ]
    chimere-run --session s -n 2 -p hi > /dev/null 2>&1
    cp s before
    fails 2 "the prompt is empty" chimere-run --session s < empty
    cmp s before
    chimere-run --raw --session r -n 2 -p hi > /dev/null
    cp r before
    fails 2 "the prompt is empty" chimere-run --raw --session r < empty
    cmp r before
    try 0 chimere-run --raw --session r -n 2 -p ''
    try 0 chimere-run --messages m.json --think off -n 2
    # Beside other text it is told: what should write it may have failed.
    try 0 chimere-run --raw -p hi -n 0 - < empty
    [ "$(cat err)" = 'chimere-run: standard input: is empty' ]
    try 0 chimere-run --raw -n 0 m.json empty
    [ "$(cat err)" = 'chimere-run: empty: is empty' ]
    fails 3 'empty: is empty' chimere-run --template empty -p x
    fails 3 'empty: is empty' chimere-serve-stdio --template empty
}

@test "JSON input" {
    echo '[1, 2' > broken.json
    fails 3 "broken.json" chimere-run --tokens broken.json
    fails 3 "broken.json" chimere-run --messages broken.json
    echo '{"a": 1, "a": 2}' > twice.json
    fails 3 "twice.json" chimere-run --messages twice.json
    echo '{"tokens": [1]}' > object.json
    fails 3 "object.json: not a JSON array of token ids" chimere-run --tokens object.json
    fails 3 "object.json: neither an array" chimere-run --messages object.json
    fails 3 "object.json: not an array of tools" chimere-run -p x --tools object.json
    echo '[1, "two"]' > word.json
    fails 3 "word.json: item 1 " chimere-run --tokens word.json
    echo '[1, -2]' > negative.json
    fails 3 "negative.json: item 1 " chimere-run --tokens negative.json
    echo '[1, 99999]' > large.json
    fails 3 "large.json: token 1 is 99999, the model has 4096" chimere-run --tokens large.json
    echo '[]' > empty.json
    fails 2 "the prompt is empty" chimere-run --tokens empty.json
    echo '[{"role": "wizard", "content": "x"}]' > wizard.json
    fails 3 "message" chimere-run --messages wizard.json
    fails 3 "" chimere-run --detokenize -p 'nonsense'
}

@test "output files" {
    echo '[1, 2, 3]' > ids.json
    fails 1 "nowhere/out.f32" chimere-run --tokens ids.json -n 0 --logits nowhere/out.f32
}

cut_is_named() # PROCESS: it ends, and the file that was cut is named
{
    local status=0
    wait "$1" || status=$?
    cat err
    [ $status -eq 3 ] && [ "$(cat err)" = "chimere-run: $(realpath cut.gguf): file changed or was cut while it was in use" ]
}

@test "a model file that is cut while the program waits for the prompt" {
    cp "$TINY" cut.gguf
    mkfifo prompt
    chimere-run -m cut.gguf --raw -n 2 < prompt > out 2> err &
    exec 9> prompt
    wait_for grep -q cut.gguf "/proc/$!/maps"
    truncate -s 65536 cut.gguf
    (echo hello >&9) || true # it may have ended
    exec 9>&-
    cut_is_named $!
}

@test "a model file that is cut before threads copy its weights, and one that is replaced" {
    mkfifo prompt
    for how in cut replaced; do
        cp "$CHIMERE_MODEL" cut.gguf
        chimere-run -m cut.gguf --no-mmap --threads 4 --raw -n 2 < prompt > out 2> err &
        exec 9> prompt
        wait_for grep -q cut.gguf "/proc/$!/maps"
        if [ $how = cut ]; then
            truncate -s 65536 cut.gguf
        else
            cp "$TINY" new && mv new cut.gguf
        fi
        (echo hello >&9) || [ $how = cut ] # then it may have ended
        exec 9>&-
        if [ $how = cut ]; then cut_is_named $!; else wait $!; fi
    done
    echo hello | chimere-run --raw -n 2 | cmp out - # of the file that was opened
}

@test "a drafter that is cut while an answer is written" {
    cp "$ROOT/share/models/chimere-nano-dflash.gguf" cut.gguf
    chimere-run --raw -p hello -n 3500 --ignore-eos --draft cut.gguf > out 2> err &
    wait_for test -s out
    truncate -s 65536 cut.gguf
    cut_is_named $!
}

@test "JSON by other programs: a byte order mark is read, \\u0000 is a character of a message" {
    printf '\xef\xbb\xbf[1, 2, 3]' > mark.json
    chimere-run --detokenize mark.json > got
    echo '[1, 2, 3]' | chimere-run --detokenize | cmp - got
    echo '[{"role": "user", "content": "a\u0000b"}]' > nul.json
    try 0 chimere-run --messages nul.json --show-prompt
    grep -qaP 'a\x00b' out
    echo '["a\u0000b"]' > nul.json
    fails 3 '\u0000 is not allowed' chimere-run --tokens nul.json
    no grep -q JSON_ALLOW err
}

@test "ids beyond the vocabulary are an error wherever ids are read" {
    echo '[0, 4096, 1]' > ids.json
    fails 3 "token 1 is 4096, the model has 4096" chimere-run --tokens ids.json
    fails 3 "token 1 is 4096, the model has 4096" chimere-run --detokenize ids.json
}

@test "a call without arguments is written as text or as null" {
    for none in '""' null '{}' '"{}"'; do
        cat > m.json << END
[{"role":"user","content":"t"},{"role":"assistant","tool_calls":[{"function":{"name":"now","arguments":$none}}]},{"role":"tool","content":"noon"}]
END
        chimere-run --messages m.json --show-prompt > got
        [ -e want ] || cp got want
        cmp want got
    done
}

@test "progress keeps to the width of a terminal and tells rate and time" {
    command -v script > /dev/null || skip "script is not installed"
    local n=${CHIMERE_TEST_PROGRAMS:+800} # takes long enough for a line, with a sanitizer, too
    n=${n:-2496}
    seq "$n" | jq -cs . > ids.json
    for columns in 34 100; do
        script -qec "stty cols $columns; exec chimere-run --tokens ids.json -n 1 --chunk 16 > answer" typescript > /dev/null < /dev/null
        tr '\r' '\n' < typescript | sed 's/\x1b\[K//' | grep '^prompt: ' > lines
        [ "$(awk -v c=$columns 'length >= c' lines | wc -l)" -eq 0 ]
        # where a field does not fit it is left out
        [ $columns -ne 34 ] || [ "$(grep -vcE "^prompt: [0-9]+ of $n tokens(, [0-9.]+/s)?\$" lines)" -eq 0 ]
    done
    grep -qE "^prompt: [0-9]+ of $n tokens, [0-9.]+/s, [0-9]+:[0-9][0-9] left\$" lines
    # a terminal that cannot clear a line gets none
    for term in '' dumb; do
        TERM=$term script -qec "exec chimere-run --tokens ids.json -n 1 --chunk 16 > answer" typescript > /dev/null < /dev/null
        grep -v '^Script ' typescript > shown || true
        no grep -q prompt: shown
        sed 's/\r$//' shown | no grep -q $'[\033\r]'
    done
}

@test "an answer that goes to a file is counted on the terminal" {
    command -v script > /dev/null || skip "script is not installed"
    local n=${CHIMERE_TEST_PROGRAMS:+400}
    script -qec "exec chimere-run --reasoning none --think off --ignore-eos -n ${n:-1500} -p hi > answer" typescript > /dev/null < /dev/null
    [ -s answer ]
    tr '\r' '\n' < typescript | sed 's/\x1b\[K//' | grep -qE '^[0-9]+ tokens, [0-9.]+/s$'
}
