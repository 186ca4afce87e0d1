#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpus.sh - one GPU and two beside it: are the bytes the same, and how fast is what (bench/gpus.md).
# usage: bench/gpus.sh OUT [bytes] [speed]   OUT: a folder for the log and the records; both parts unless named
# In the environment: ONE and TWO, the devices (cuda:0 and cuda:0,cuda:1); GOLDENS, more models; DIR, a folder with room
# for a model (/dev/shm); SHAPES, lines of NAME and MIX; VRAM, memory of a card; PROMPTS, SEQS, REPS, ROUNDS, PART_S,
# seconds for a part (120).
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1 one=${ONE:-cuda:0} two=${TWO:-cuda:0,cuda:1} dir=${DIR:-/dev/shm} bin=${BIN:-bin}
shift
mkdir -p "$out"
exec > >(tee -a "$out/gpus.txt") 2>&1
export CHIMERE_MODEL=${CHIMERE_MODEL:-share/models/chimere-nano-q5_k_m.gguf}
bad=0
tell() { echo "$*" >&2; [ "$1" = ok ] || bad=1; }

# An answer's tokens and log-probabilities.
answer() # DEVICE OPTION ...
{
    local device=$1
    shift
    "$bin/chimere-run" -q --device "$device" --json --logprobs 5 "$@" < /dev/null | jq -cS '{text, token_ids, logprobs, finish_reason}'
}

# The same command on one device and on two.
same() # NAME OPTION ...
{
    local name=$1
    shift
    if ! answer "$one" "$@" > "$out/one.json" || ! answer "$two" "$@" > "$out/two.json"; then tell FAILED "$name: an error"
    elif [ "$(wc -c < "$out/one.json")" -lt 100 ] || ! cmp -s "$out/one.json" "$out/two.json"; then tell FAILED "$name: other bytes"
    else tell ok "$name"; fi
}

bytes()
{
    local m text
    text=$(head -c 9000 man/chimere-run.1)
    jq -nc '[range(5; 301)]' > "$out/ids.json"
    same 'a question' -p 'What is the capital of France?' -n 64
    same 'a prompt of 3,000 tokens' --raw -p "$text" -n 64 -c 4096
    same 'the same in steps of 256' --raw -p "$text" -n 64 -c 4096 --chunk 256
    same 'KV types q8_0 and q4_0' --raw -p "$text" -n 64 -c 4096 --kv q8_0,q4_0
    same 'activations of 8 bits' -p 'Tell me a story.' -n 300 --ignore-eos --acts i8
    same 'a draft model' -p 'Tell me a story.' -n 300 --ignore-eos --draft share/models/chimere-nano-dflash.gguf
    same 'four answers' -p 'What is 12 + 30?' -n 64 --best-of 4 --temp 0.7 --seed 3
    for m in "${GOLDENS:-tests/golden}"/models*/*.gguf; do
        same "$(basename "$m" .gguf)" -m "$m" --tokens "$out/ids.json" -n 24 --ignore-eos
    done
    # A conversation of some 2,000 tokens, in one session file that each kind of machine goes on with.
    rm -f "$out"/*.session
    for who in "$one" "$two"; do
        for ((i = 1; i <= 8; i++)); do
            "$bin/chimere-run" -q --device "$who" --session "$out/$who.session" -c 4096 -n 250 --ignore-eos -p "And then? ($i)" < /dev/null
        done > "$out/$who.chat"
    done
    if cmp "$out/$one.chat" "$out/$two.chat"; then tell ok "a conversation of $(wc -c < "$out/$two.chat") bytes"
    else tell FAILED 'a conversation'; fi
    for who in "$one" "$two"; do
        cp "$out/$one.session" "$out/moved.session"
        "$bin/chimere-run" -q --device "$who" --session "$out/moved.session" -c 4096 -n 64 -p 'And the end?' < /dev/null > "$out/moved.${who//[:,]/-}"
    done
    if cmp "$out/moved.${one//[:,]/-}" "$out/moved.${two//[:,]/-}"; then tell ok 'a session moved from one to two'
    else tell FAILED 'a session moved'; fi
    if "$bin/chimere-run" -q --device cpu --session "$out/moved.session" -c 4096 -n 16 -p 'Why?' < /dev/null > /dev/null
    then tell ok 'and from two to none'; else tell FAILED 'a session on the CPU'; fi
    rm -f "$out"/*.session "$out"/*.chat "$out"/moved.* "$out"/*.json
}

speed()
{
    local shape mix file device round
    while read -r shape mix; do
        file=$dir/chimere-gpus-$shape.gguf
        [ -f "$file" ] || "$bin/chimere-bench" synth --shape "$shape" --mix "$mix" --write "$file" > /dev/null
        for ((round = 1; round <= ${ROUNDS:-2}; round++)); do
            for device in "$one" "$two"; do
                timeout -s INT "${PART_S:-120}" "$bin/chimere-bench" speed -m "$file" --device "$device" \
                    ${VRAM:+--vram "$VRAM"} --kv f16 --prompt "${PROMPTS:-4096,16384}" --depth 0 --rows 1 \
                    --seqs "${SEQS:-1,16}" --tokens 64 --reps "${REPS:-3}" --json |
                    jq -c --argjson round "$round" --arg devices "$device" '. + {round: $round, devices: $devices}' ||
                    tell FAILED "$shape on $device"
            done
        done
        [ -n "${KEEP:-}" ] || rm -f "$file"
    done <<< "${SHAPES:-qwen3.6-35b-a3b q4k}" > "$out/speed.jsonl"
    jq -rs --arg one "$one" 'def median: sort | .[length / 2 | floor];
        map(select(.type == "speed" and .metric)) | group_by([.model.name, .case])[] | .[0].metric as $m |
        (map(select(.devices == $one)[$m]) | median) as $a | (map(select(.devices != $one)[$m]) | median) as $b |
        (if .[0].better == "lower" then $a / $b else $b / $a end * 1000 | round / 1000) as $ratio |
        "\(.[0].case): \($m) \($a) on one, \($b) on two: \($ratio)"' "$out/speed.jsonl" ||
        tell FAILED 'no speeds'
}

[ $# -gt 0 ] || set -- bytes speed
for part; do
    case $part in
    bytes) bytes ;;
    speed) speed ;;
    *) echo "gpus.sh: no part $part" >&2 && exit 2 ;;
    esac
done
exit $bad
