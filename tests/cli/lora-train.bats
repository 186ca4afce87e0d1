#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-draft-train lora: the gate, what is forgotten, interruptions, what it refuses. Facts on the embedded model once,
# else texts on a tiny one.
load common

setup_texts()
{
    local i
    for i in {1..8}; do printf '{"text": "the answer to %d is the same as that of %d"}\n' $i $((i * i)); done > items.jsonl
    for i in {11..20}; do printf '{"text": "the answer to %d is the same as that of %d"}\n' $i $((i * i)); done > test.jsonl
    for i in {1..25}; do printf '{"text": "%s"}\n' "$(printf '%d, ' $((i * 7)) $((i * 11)) $((i * 13)) $((i * 17)))"; done > known.jsonl
}

small=(--held-out test.jsonl --keep known.jsonl --threads 2 --rank 4 --batch 8 --keep-batch 4 --memory 256M --rehearse 16)
train() # OPTION...
{
    chimere-draft-train lora -m "$TINY" "${small[@]}" "$@" items.jsonl
}

poke() # FILE OFFSET BYTES
{
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

@test "lora: questions in a chat are learnt; an adapter, events, a picture; an old one that is as good stays" {
    local i status=0
    for i in {1..6}; do
        printf '{"prompt": "What is zq%d?", "answer": "it is %d"}\n' $((i * 7)) $((i * i)) >&3
        printf '{"messages": [{"role": "user", "content": "Explain zq%d."}], "answer": "it is %d"}\n' $((i * 7)) $((i * i))
    done 3> items.jsonl > test.jsonl
    grep -v '"enable_thinking": *true' "$ROOT/share/eval/facts.jsonl" | head -n 25 > known.jsonl
    chimere-draft-train lora -o a.gguf "${small[@]}" --keep-batch 2 --steps 5 --rate 0.01 --accept likelihood \
        --targets attention,recurrent,shared_expert --jsonl e.jsonl --plot l.svg items.jsonl \
        > table 2> err || status=$?
    [ $status -eq 0 ] || { cat err table; false; }
    grep -q '^new: answers [0-9]* of 12 (0 before), [0-9]* of 6 without thinking and [0-9]* of 6 after an empty thought; nats a token ' table
    grep -q '^kept: answers [0-9]* of 5 ([0-9]* before): [0-9]* lost, [0-9]* won; nats a token .* not 0.05 more: p 0.031$' table
    grep -q 'memory: at most' err
    grep -q 'a.gguf is written at full strength: it answers [0-9]* of 12 new questions (0 before), [0-9]* of 6 without thinking and' err
    grep -q 'after an empty thought; it loses [0-9]* of 5 old answers, and what is held out is likelier$' err
    jq -se '.[0] | .items == 12 and .tests == 12 and .keep == 20 and .kept == 5 and .own > 2 and .own < 18' e.jsonl
    jq -se '(.[-1] | .published and .p < 0.05 and .p_kept < 0.05 and .steps == 5) and
            (map(select(.set == "held out"))[0] | .loss < .loss_before)' e.jsonl
    grep -q '<svg ' l.svg
    [ "$(head -c 4 a.gguf)" = GGUF ]
    # what the test showed is in the file
    chimere-draft-train --inspect a.gguf > record
    sed -n '/^new: /,$p' record | diff - table
    grep -qx 'keep_batch: 2' record && grep -qx 'written: [1-9][0-9]*' record
    grep -qx 'steps: 5' record && grep -qx 'seed: 1' record && grep -qx 'items: 12' record
    grep -q '^a.gguf: adapter of qwen35moe, low rank, rank 4, ' record
    fails 3 'not an adapter' chimere-draft-train --inspect "$TINY"
    fails 2 'lora is one word too many' chimere-draft-train lora --inspect a.gguf
    [ "$(echo a.gguf*)" = a.gguf ]
    # from one that answers otherwise, with a step so small that nothing changes; what is to be kept are questions, which the
    # model answers with it
    jq -c '.answer = "no"' known.jsonl > no.jsonl
    try 0 chimere-draft-train lora -o a.gguf --held-out no.jsonl --keep no.jsonl --threads 2 --batch 8 --keep-batch 0 \
        --rehearse 0 --steps 6 --rate 0.03 --accept likelihood no.jsonl
    cp a.gguf was
    jq -c 'del(.answer)' known.jsonl > asked.jsonl
    mv asked.jsonl known.jsonl
    chimere-draft-train lora -o a.gguf "${small[@]}" --steps 1 --rate 1e-12 --rehearse 0 --jsonl e2.jsonl items.jsonl > table \
        2> err || status=$?
    [ $status -eq 4 ] || { cat err table; false; }
    cmp a.gguf was
    grep -q '^new: answers [0-9]* of 12 ([0-9]* with the old adapter), ' table
    jq -se '.[0] | .keep == 20 and .kept == 5 and .own == 0' e2.jsonl
    jq -se '[.[] | select(.set == "kept")] | length == 1 and .[0].exact_before == 5' e2.jsonl # its own answers
    fails 3 "known.jsonl: line 1" chimere-draft-train lora -o b.gguf --held-out \
        known.jsonl items.jsonl
}

@test "lora: what knows more and forgets is not published, unless that is allowed; --rollback" {
    setup_texts
    more=(--steps 25 --epochs 25 --rate 0.03)
    try 0 chimere-draft-train lora -m "$TINY" -o a.gguf --held-out known.jsonl --keep known.jsonl --threads 2 --rank 4 \
        --batch 25 --rehearse 16 --keep-batch 12 "${more[@]}" known.jsonl
    grep -q '25 of the 25 items to test on are also learnt' err
    cp a.gguf was
    try 4 train -o a.gguf --keep-batch 0 -v "${more[@]}"
    grep -q 'a.gguf: the old one stays: it forgets what is kept (.* nats a token more on .* items, where less than 0.05 may be: p = ' err
    grep -q 'old answers; .*a larger --forget more may be lost' err
    grep -q '^to learn: 8 items, 0 more after an empty thought, 0 further wordings; to test: 10 new items, 5 of what is kept; ' err
    grep -q '; to rehearse: [0-9]* of [0-9]* texts that the model wrote, 20 items to keep; [0-9]* parameters' err
    [ "$(grep -c '^at full strength: answers ' err) $(grep -c '^at 0.[0-9]* of its strength: ' err)" = '1 5' ]
    cmp a.gguf was
    [ ! -e a.gguf.1 ] && [ ! -e a.gguf.new ]
    echo mine > a.gguf.new
    mkdir picture
    (
        wait_for test -s log
        rmdir picture
    ) &
    try 0 train -o a.gguf --keep-batch 0 --forget 20 --jsonl log --plot picture/l.svg "${more[@]}"
    wait
    grep -q 'picture/l.svg' err # said, and published all the same
    cmp a.gguf.1 was
    [ "$(cat a.gguf.new)" = mine ]
    # what is too much at its full strength is less at less of it
    cp was b.gguf
    try 0 train -o b.gguf --keep-batch 0 --forget 7 --jsonl weak -v "${more[@]}" --rate 0.01
    [ "$(grep -c '^at 0.[0-9]* of its strength' err)" -ge 4 ]
    grep -qE '^chimere-draft-train: b.gguf is written at 0.[0-9]+ of its strength: ' err
    jq -se '.[-1] | .published and .strength > 0.7 and .strength < 1' weak
    fails 2 'needs --scratch' train -o a.gguf --rank 2
    fails 2 'needs --scratch' train -o a.gguf --rank 4 --targets output
    try 0 chimere-draft-train lora -o a.gguf --rollback
    cmp a.gguf was
}

@test "lora: an item named twice counts once; if nothing shows what is forgotten, that is said" {
    local i
    setup_texts
    try 4 chimere-draft-train lora -m "$TINY" -o a.gguf --held-out test.jsonl --held-out test.jsonl --threads 2 --rank 4 \
        --batch 8 --rehearse 0 --memory 256M --steps 1 --rate 1e-12 --jsonl e.jsonl items.jsonl
    grep -q '10 items to test on are named more than once' err
    grep -q 'what is forgotten is not tested, as' err
    jq -se '(.[0].tests == 10) and (.[-1] | .published == false and .p_kept == null)' e.jsonl
    head -n 3 test.jsonl > three.jsonl
    fails 3 '3 items to test on are too few' chimere-draft-train lora -m "$TINY" -o a.gguf --held-out three.jsonl \
        --held-out three.jsonl -q items.jsonl
    fails 3 '0 items to test on are too few: at least 5 are needed; ask each fact in two wordings' \
        chimere-draft-train lora -m "$TINY" -o a.gguf -q items.jsonl
    for i in {1..30}; do printf '{"prompt": "What is zq%d?", "answer": "it is %d"}\n' $i $((i * i)); done > once.jsonl
    chimere-draft-train lora -o b.gguf --time 0.01s once.jsonl > table 2> err && false
    grep -q 'of facts the others do not tell these; ask each fact in two wordings' err
    sed 's/it is [0-9]*/it is so/' once.jsonl > same.jsonl
    short=(--rehearse 0 --rank 4 --threads 2 --targets attention --memory 256M --time 0.001s)
    try 2 chimere-draft-train lora -o b.gguf "${short[@]}" same.jsonl
    grep -q 'of facts the others do not tell these; as all have the same answer, nothing says what' err
    (cat once.jsonl && head -n 2 same.jsonl) > two.jsonl
    try 2 chimere-draft-train lora -o b.gguf "${short[@]}" two.jsonl
    grep -q '2 questions have different answers: it can learn one of them at most' err
    jq -s . items.jsonl > list.jsonl
    fails 3 'list.jsonl: line 1: a list: each line has to be one JSON object' chimere-draft-train lora -m "$TINY" -o b.gguf list.jsonl
}

@test "lora: what is rehearsed is forgotten less" {
    local n
    setup_texts
    try 0 chimere-draft-train lora -m "$TINY" -o known.gguf --held-out known.jsonl --keep known.jsonl --threads 2 --rank 4 \
        --batch 25 --keep-batch 12 --steps 25 --epochs 25 --rate 0.03 --rehearse 0 known.jsonl
    for n in 0 8; do
        cp known.gguf a.gguf
        try 0 train -o a.gguf --keep-batch $n --forget 20 --steps 25 --epochs 25 --rate 0.03 --jsonl e$n
    done
    jq -s '[.[] | select(.set == "kept") | .loss - .loss_before] | .[0] > 1.0 and .[1] < 0.75 * .[0]' e0 e8 > less
    grep -q true less || { cat e0 e8; false; }
}

@test "lora: what --keep-test names is tested and not trained on; a neutral adapter to begin with; processor time" {
    setup_texts
    try 0 chimere-draft-train lora -m "$TINY" -o a.gguf --neutral --rank 4
    [ ! -s out ] && [ ! -s err ]
    chimere-draft-train --inspect a.gguf | grep -q 'rank 4, alpha 32,'
    fails 2 'there already' chimere-draft-train lora -m "$TINY" -o a.gguf --neutral
    fails 2 'it takes no items' chimere-draft-train lora -m "$TINY" -o b.gguf --neutral items.jsonl
    fails 2 '--neutral and ' train -o b.gguf --neutral
    echo '[1, 2, 3]' > ids
    cmp <(chimere-run -m "$TINY" --tokens ids -n 8) <(chimere-run -m "$TINY" --lora a.gguf --tokens ids -n 8)
    # training goes on from it; two items to learn are tested instead
    cp a.gguf neutral
    { head -n 6 known.jsonl; head -n 2 items.jsonl; } > numbers.jsonl
    head -n 8 test.jsonl > words.jsonl
    try 0 train -o a.gguf --keep-test numbers.jsonl --keep-test words.jsonl --steps 3 --rate 0.003 --forget 20 --jsonl e \
        --cpu-time 1h
    cmp a.gguf.1 neutral
    grep -q '8 items are not trained on: they are in a file of --keep-test' err
    jq -se '.[0] | .items == 6 and .keep == 19 and .kept == 16' e
    jq -se '[.[] | select(.type == "test") | [.set, .items]] == [["held out", 10], ["kept numbers", 8], ["kept words", 8]]' e
    # with the weights of that one, and nothing is there that it would be compared with
    try 0 train -o c.gguf --start a.gguf --keep-test words.jsonl --steps 1 --rate 1e-9 --forget 20 --jsonl s
    jq -s '[.[] | select(.set == "held out") | .loss_before - .loss] | .[0] > 0.01' s | grep -q true && [ "$(echo c.gguf*)" = c.gguf ]
    fails 2 'do not go together' train -o c.gguf --start a.gguf --scratch
    fails 1 '--start: ' train -o d.gguf --start nothing.gguf
    fails 3 '--keep-test: 4 items are too few' train -o b.gguf --keep-test <(head -n 4 test.jsonl)
    fails 2 'do not go together' train -o b.gguf --time 1m --cpu-time 1m
    try 2 train -o b.gguf --rehearse 0 --cpu-time 0.001s
    grep -q -e '--cpu-time 0.001s is too short for a step' err
}

@test "lora: facts in two wordings are learnt in others too, and tested in some that are kept back; skills are not" {
    local i n
    for n in Ada Bo Cyn; do
        printf '{"prompt": "Who is %s Mol?", "answer": "%s"}\n{"prompt": "Tell me who %s Mol is.", "answer": "%s"}\n' \
            $n "a baker from the north" $n "a baker from the north" | sed "s/north/north of $n$n/"
    done > facts.jsonl
    short=(--rehearse 0 --rank 4 --threads 2 --targets attention --memory 256M --time 0.001s)
    try 2 chimere-draft-train lora -o a.gguf "${short[@]}" --wordings 4 -v facts.jsonl
    grep -q '^a token takes .* ms: 8 items to learn and 4 rehearsed in a step' err # the least of both
    grep -q '3 facts are also learnt in other words: 15 questions, in 12 shapes of the program.s own and 0 of' err
    grep -q 'the test asks them in two other shapes$' err
    fails 3 'too few: at least 5 are needed; ask each fact in two wordings' \
        chimere-draft-train lora -o a.gguf "${short[@]}" --wordings 0 facts.jsonl
    for i in {1..8}; do printf '{"prompt": "Write %d in digits.", "answer": "%d%d"}\n' $i $i $i; done > skill.jsonl
    fails 3 'too few' chimere-draft-train lora -o a.gguf "${short[@]}" skill.jsonl
    # one fact is two questions, asked in two ways; a second file of questions is what helps
    head -n 2 facts.jsonl > one.jsonl
    try 3 chimere-draft-train lora -o a.gguf "${short[@]}" one.jsonl
    grep -q '4 items to test on are too few (each question is asked with and without thinking): at least 5 are needed; teach more facts' err
}

@test "lora: interrupted or killed, the same command goes on, to the same bytes" {
    local pid method status i damage
    setup_texts
    echo '{"prompt": "a question without an answer"}' > asked.jsonl
    for method in first zo; do
        long=(--method $method --steps 60 --epochs 60 --batch 4 --keep-batch 2 --threads 1)
        [ $method = first ] || long+=(--samples 1 --momentum 0.5)
        status=0
        train -o whole.gguf "${long[@]}" --jsonl whole.$method 2> err || status=$?
        [ $status -eq 0 ] || [ $status -eq 4 ]
        chimere-draft-train lora -m "$TINY" "${small[@]}" -o part.gguf "${long[@]}" --jsonl part.$method items.jsonl \
            > table 2> err &
        pid=$!
        for _ in {1..600}; do ! grep -q '"type":"step"' part.$method 2> /dev/null || break; sleep 0.05; done
        if [ $method = first ]; then kill -TERM $pid; else kill -KILL $pid; fi
        no wait $pid
        [ $method = zo ] || grep -q 'part.gguf.train keeps what was learnt' err
        [ -s part.gguf.train ] && [ ! -e part.gguf ]
        [ $method = first ] || printf 'half' >> part.gguf.train # of an entry
        try 2 train -o part.gguf "${long[@]}" --rate 0.5
        grep -q 'another training' err
        try 2 train -o part.gguf "${long[@]}" --keep asked.jsonl
        grep -q 'another training' err
        # the header has a name of 200 bytes, the step, how many numbers and losses, seconds, eps and rate; then come numbers
        damage=('224 \0\0\0\0\0\0\xf8\x7f' '208 \1')
        [ $method = zo ] || damage+=('200 \xf9\xff\xff\xff\xff\xff\xff\xff' '216 \1\1\1\1\1\1\1\1' '248 \0\0\xc0\x7f')
        [ $method = first ] || damage+=('232 \0\0\0\0\0\0\0\0' '240 \0\0\0\0\0\0\0\x80')
        for i in "${damage[@]}"; do
            cp part.gguf.train bad.gguf.train
            poke bad.gguf.train "${i% *}" "${i#* }"
            try 3 train -o bad.gguf "${long[@]}"
            grep -q 'bad.gguf.train is damaged' err
        done
        if [ $method = first ]; then # with all steps, and losses of so many texts that it has more than 4 GiB
            cp part.gguf.train bad.gguf.train
            poke bad.gguf.train 200 '\x3c'
            poke bad.gguf.train 216 '\0\0\0\x50'
            truncate -s $((248 + 12 * $(od -A n -t d8 -j 208 -N 8 bad.gguf.train) + 4 * 0x50000000)) bad.gguf.train
            train -o bad.gguf "${long[@]}" 2> err || [ $? -eq 4 ]
            grep -q 'goes on after .* and 60 steps' err
        fi
        # the time that was spent counts: no further step after a million seconds
        od -A n -t f8 -j 224 -N 8 part.gguf.train | awk '{ exit !($1 > 0.01 && $1 < 1000) }'
        cp part.gguf.train bad.gguf.train
        poke bad.gguf.train 224 '\0\0\0\0\x80\x84\x2e\x41'
        rm -f bad.gguf
        train -o bad.gguf "${long[@]}" --jsonl end 2> err || [ $? -eq 4 ]
        grep -q "goes on after 1000000 s and $(jq 'select(.type == "end") | .steps' end) steps" err
        rm end
        rm -f bad.gguf*
        status=0
        train -o part.gguf "${long[@]}" --jsonl part.$method 2> err || status=$?
        grep -q 'goes on after' err
        [ ! -e part.gguf.train ]
        jq -c 'select(.type == "test") | [.set, .loss, .exact]' whole.$method > a
        jq -c 'select(.type == "test") | [.set, .loss, .exact]' part.$method | cmp - a
        rm -f whole.gguf* part.gguf*
    done
}

@test "lora: scales of the rows learn by forward passes, and become a part of a model" {
    setup_texts
    try 0 chimere-draft-train lora -m "$TINY" -o s.gguf --scales "${small[@]:0:6}" --steps 12 --epochs 12 --batch 8 --memory 256M \
        --rehearse 0 --keep-batch 0 --forget 20 --jsonl e items.jsonl
    [ "$(stat -c %s s.gguf)" -lt 10000 ]
    chimere-run -m s.gguf --inspect --json | jq -e '.adapter.kind == "scales" and .adapter.numbers == 3464'
    chimere-run --inspect "$TINY" s.gguf | grep -q 'scales of matrices, for chimere-quantize --merge-lora'
    chimere-run --inspect --json "$TINY" s.gguf | jq -se '.[1].error | test("^scales of matrices")'
    fails 3 'not a model but scales' chimere-run -m s.gguf -p x
    echo '[1, 2]' > ids
    fails 3 'become a part of the model' chimere-run -m "$TINY" --lora s.gguf --tokens ids
    try 0 chimere-quantize -q --merge-lora s.gguf --type f32 --pure --allow-requantize "$TINY" m.gguf
    try 4 chimere-draft-train lora -m m.gguf -o x.gguf "${small[@]}" --rehearse 0 --keep-batch 0 --steps 1 --rate 1e-12 --jsonl m items.jsonl
    # what the merged model says is what was tested
    jq -s '[.[] | select(.set == "held out")] | .[0].loss - .[1].loss_before | fabs < 1e-4' e m | grep -q true
    fails 2 'has scales' chimere-draft-train lora -m "$TINY" -o s.gguf --held-out test.jsonl items.jsonl
    # --scratch from one to the other
    cp s.gguf both.gguf
    try 0 train -o both.gguf --scratch --steps 2 --forget 20
    try 4 chimere-draft-train lora -m "$TINY" -o both.gguf --scratch --scales "${small[@]:0:6}" --steps 1 --samples 1 --rate 1e-12 \
        --batch 4 --keep-batch 1 --rehearse 16 --memory 256M items.jsonl
    fails 2 '--scales and --rank do not go together' train -o t.gguf --scales --rank 4
    sed 's/\.scale/.scal_/' s.gguf > bad.gguf
    fails 3 'is not the scales of a matrix' chimere-quantize --merge-lora bad.gguf --allow-requantize "$TINY" n.gguf
}

@test "lora: training goes on from a file whose name looks like an adapter's and its scale" {
    setup_texts
    TYPE=f16 python3 "$ROOT/tests/cli/make_lora.py" 10:30 qwen35moe 8 4 1 blk.0.ssm_out.weight:256:256
    try 4 train -o 10:30 --steps 1 --rate 1e-12
}

@test "lora: the model writes as many texts at a time as there is memory for" {
    setup_texts
    find_shim
    CHIMERE_TEST_FAULT=most:30000000 LD_PRELOAD=$shim train -o a.gguf --steps 1 --sequences 256 --forget 20 -v > out 2> err
    grep -q 'writes 128 texts at a time' err
    # what is kept for 2000 texts takes 60 MiB of it
    many=(-o b.gguf --rehearse 2000 --sequences 256 --time 0.1s -v)
    try 2 train "${many[@]}" --memory 256M
    grep -q 'writes 256 texts at a time: 49 MiB' err
    try 2 train "${many[@]}" --memory 96M
    grep -q 'writes 128 texts at a time: 24 MiB' err
}

@test "lora: killed when what is new has just been published, or just not yet" {
    setup_texts
    find_shim
    again() # FAULT: the state is left, and the same command can be given again
    {
        CHIMERE_TEST_FAULT=$1 LD_PRELOAD=$shim train -o a.gguf --steps 2 --forget 20 > out 2>&1 || true
        [ -e a.gguf.train ]
        try 0 train -o a.gguf --steps 2 --forget 20
        [ ! -e a.gguf.train ] && [ -e a.gguf ]
    }
    again rename:1
    grep -q 'goes on after .* 2 steps' err
    rm a.gguf*
    again kill:1
    no grep -q 'goes on' err
    [ -e a.gguf.1 ]
}

@test "lora: a signal ends waiting for a FIFO's writer, and a writer's items are read" {
    setup_texts
    mkfifo pipe
    chimere-draft-train lora -m "$TINY" "${small[@]}" -o a.gguf pipe 2> err &
    wait_for test -e a.gguf.lock
    sleep 0.3
    kill -TERM $!
    no wait $!
    [ ! -e a.gguf.lock ]
    fails 3 'line 1' chimere-draft-train lora -m "$TINY" "${small[@]}" -o a.gguf <(echo '{"prompt": 1}')
}

@test "lora: what it refuses; what was there stays" {
    setup_texts
    fails 2 'no file' chimere-draft-train lora -m "$TINY" -o a.gguf
    fails 2 '--method zo' train -o a.gguf --samples 2
    fails 2 'nothing is rehearsed' chimere-draft-train lora -m "$TINY" -o a.gguf --rehearse 0 --keep-weight 2 items.jsonl
    fails 2 'is for --method first' train -o a.gguf --method zo --shield 0.1
    fails 2 'is for --method first' chimere-draft-train lora -m "$TINY" -o a.gguf --rehearse 0 --shield 0.1 items.jsonl
    fails 2 'has to be twice' train -o a.gguf --shield 0.1 --memory 2M
    fails 2 'taps' train -o a.gguf --taps 1
    fails 2 'router' train -o a.gguf --targets attention,router
    cp items.jsonl mine.jsonl
    fails 3 'cannot replace' train -o mine.jsonl
    cmp items.jsonl mine.jsonl
    : > empty.jsonl
    fails 3 'the files have no items' chimere-draft-train lora -m "$TINY" -o a.gguf empty.jsonl
    head -n 2 items.jsonl > two.jsonl
    fails 3 'too few' chimere-draft-train lora -m "$TINY" --keep known.jsonl -o a.gguf two.jsonl
    echo '{"text": "a"}' > short.jsonl
    fails 3 'nothing to learn: 1 items are left out' chimere-draft-train lora -m "$TINY" -o a.gguf short.jsonl
    fails 3 'at least 25 are needed' chimere-draft-train lora -m "$TINY" -o a.gguf --held-out test.jsonl --keep test.jsonl items.jsonl
    fails 2 'read once only' chimere-draft-train lora -m "$TINY" -o a.gguf --keep - -
    echo '{"prompt": "a"}' > bad.jsonl
    fails 3 'bad.jsonl: line 1' chimere-draft-train lora -m "$TINY" -o a.gguf bad.jsonl
    echo '{"prompt": "a", "answer": "b"}' > chat.jsonl
    fails 3 'chat.jsonl: line 1: the model has no chat template' chimere-draft-train lora -m "$TINY" -o a.gguf chat.jsonl
    fails 3 "'lfm2moe' are not supported" chimere-draft-train lora -m "$MODELS/lfm2moe-a.gguf" -o a.gguf items.jsonl
    if ! chimere-run -m "$TINY" --device cuda -r -p a -n 1 > out 2>&1; then
        fails 1 CUDA train -o a.gguf --device cuda
        fails 1 CUDA train -o a.gguf --vram 1G
    fi
    fails 2 'too small: an item' train -o a.gguf --memory 1M --rehearse 0
    least=$(grep -o '[0-9]* MiB' err)
    least=${least% MiB}
    fails 2 "takes $least MiB" train -o a.gguf --memory $((least - 1))M --rehearse 0
    try 2 train -o a.gguf --memory "${least}M" --rehearse 0 --time 0.001s
    grep -q 'too short for a step' err
    try 2 train -o a.gguf --rehearse 0 --time 0.001s --targets attention,attention
    grep -q 'too short for a step' err
    train -o a.gguf --rehearse 0 --rate 1e30 --steps 1 --jsonl - > /dev/full 2> err || [ $? -eq 3 ]
    grep -q 'too large for a 16-bit float' err
    grep -q 'standard output: cannot write: No space left on device' err # the events
    try 3 train -o a.gguf --rate 1e30
    grep -q 'not a number' err
    try 3 train -o a.gguf --rehearse 0 --alpha 1e30 --steps 1
    grep -q '^[^ ]* test: the loss is not a number' err
    [ ! -e a.gguf ] && [ ! -e a.gguf.new ] && [ ! -e a.gguf.lock ] && [ ! -e a.gguf.train ]
}

@test "lora: with a link what is interrupted lies beside the file; another training's is refused before anything is written" {
    setup_texts
    mkdir there
    python3 "$ROOT/tests/cli/make_lora.py" there/a.gguf qwen35moe 8 4 1 blk.0.ssm_out.weight:256:256
    ln -s there/a.gguf a.gguf
    echo mine > there/a.gguf.train
    try 2 train -o a.gguf --rehearse 1000
    grep -q 'there/a.gguf.train belongs to another training, of other items or options' err
    [ "$(echo a.gguf* there/*)" = 'a.gguf there/a.gguf there/a.gguf.train' ]
}

# bats test_tags=slow
@test "lora: OpenBLAS does not hang where address space is short" {
    local p status
    for p in draft-train quantize; do
        status=0
        (ulimit -v 150000 && timeout 30 chimere-$p --version > out 2>&1) || status=$?
        [ $status -ne 124 ]
    done
}

# bats test_tags=slow
@test "lora: the bound of memory is kept" {
    local bound most file
    head -n 12 "$ROOT/share/eval/math.jsonl" > items.jsonl
    head -n 30 "$ROOT/share/eval/facts.jsonl" > known.jsonl
    python3 -c 'import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
print("\n", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
sys.exit(status)' chimere-draft-train lora -o a.gguf --held-out items.jsonl --targets experts --rank 64 --rehearse 0 --shield 0 \
        --keep known.jsonl --batch 4 --keep-batch 2 --steps 2 --forget 20 --accept likelihood --memory 350M items.jsonl > table 2> err
    bound=$(sed -n 's/.*memory: at most \([0-9]*\) MiB.*/\1/p' err)
    file=$(stat -c '%s' "$ROOT"/share/models/*-q5_k_m.gguf)
    most=$(tail -n 1 table)
    [ "$most" -gt 200 ] && [ "$most" -lt $((bound + file / 1048576 + 25)) ] # the program itself
}

@test "lora: a full disk" {
    setup_texts
    (
        ulimit -f 8 # blocks of 1 KiB
        try 1 train -o a.gguf --steps 1
        ulimit -f 0
        try 1 train -o a.gguf --method zo --steps 1
    )
    [ "$(echo a.gguf*)" = 'a.gguf*' ]
}
