# SPDX-License-Identifier: Apache-2.0
# cache.bats - chimere-serve-stdio --cache-dir: conversations that outlast the server.

load common

# turn N: the first N user turns of a conversation, each answer the one that was given before; a reply to ./out
conversation() # SEED...: messages as an array
{
    jq -nc --arg t "$1" '[{role: "system", content: "Be brief. The words kernel, memory, process, thread, signal, socket, file, page and cache may occur."},
        {role: "user", content: ("What is 347 + 58? " + $t)}]'
}
answer() # DIRECTORY MESSAGES OPTION...
{
    jq -nc --argjson m "$2" '{id: 1, method: "chat/completions", body: {messages: $m, temperature: 0, max_tokens: 60}}' |
        chimere-serve-stdio --cache-dir "$1" "${@:3}" > out 2> err
    jq -e '.type == "response"' out > /dev/null || { cat out err; return 1; }
}
cached() { jq .body.usage.prompt_tokens_details.cached_tokens out; }
more() # MESSAGES: with the answer and another question
{
    jq -c --argjson m "$1" '$m + [.body.choices[0].message, {role: "user", content: "And 12 + 30?"}]' out
}

@test "several devices find what one has kept, and the other way round" {
    first=$(conversation one)
    answer dir "$first" --device cpu,cpu --split rows
    second=$(more "$first")
    answer none "$second" && want=$(jq -c '[.body.choices, .body.system_fingerprint]' out)
    for device in cpu cpu,cpu cpu,cpu,cpu; do
        cp -r dir copy
        answer copy "$second" --device $device
        [ "$(cached)" -ge 40 ]
        [ "$(jq -c '[.body.choices, .body.system_fingerprint]' out)" = "$want" ]
        rm -r copy
    done
}

@test "conversations outlast the server: cached tokens, the same answer, one file" {
    first=$(conversation one)
    answer dir "$first"
    [ "$(cached)" -eq 0 ]
    [ "$(stat -c %a dir)" = 700 ]
    second=$(more "$first")
    answer none "$second" && want=$(jq -c .body.choices out)
    answer dir "$second"
    [ "$(cached)" -ge 40 ]
    [ "$(jq -c .body.choices out)" = "$want" ]
    [ "$(ls dir | wc -l)" -eq 1 ]
    answer dir "$(more "$second")"
    [ "$(cached)" -ge 60 ]
    [ "$(ls dir | wc -l)" -eq 1 ]
    answer dir "$(conversation two)" # begins alike, and is another one
    [ "$(ls dir | wc -l)" -eq 2 ]
    answer dir "$second"
    [ "$(jq -c .body.choices out)" = "$want" ]
}

@test "a conversation through one server is one file, others have their own" {
    coproc SERVER { chimere-serve-stdio --cache-dir dir --parallel 2 2> err; }
    local in=${SERVER[1]} from=${SERVER[0]} server=$SERVER_PID line messages
    for about in one two; do
        messages=$(conversation $about)
        for turn in 1 2 3; do
            jq -nc --argjson m "$messages" '{id: 1, method: "chat/completions", body: {messages: $m, temperature: 0, max_tokens: 60}}' >&"$in"
            read -r -u "$from" line
            echo "$line" > out
            messages=$(more "$messages")
        done
    done
    exec {in}>&-
    wait "$server"
    [ "$(ls dir | wc -l)" -eq 2 ]
}

@test "what the directory holds is not trusted: damage, other options, other files, no room" {
    first=$(conversation one)
    answer dir "$first" && want=$(jq -c .body.choices out)
    second=$(more "$first")
    file=$(ls dir/*)
    answer dir "$first" --acts f32
    [ "$(cached)" -eq 0 ]
    rm dir/*; answer dir "$first"
    file=$(ls dir/*)
    for at in 20 300 2000 $(($(stat -c %s "$file") - 30)); do
        cp "$file" keep
        printf '\x55\xaa\x55' | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
        answer dir "$first"
        [ "$(jq -c .body.choices out)" = "$want" ]
        rm -f dir/*
        cp keep "$file"
    done
    head -c 3000 keep > "$file" # cut
    answer dir "$first"
    [ "$(jq -c .body.choices out)" = "$want" ]
    touch "dir/.chimere-1.session.$$-0.tmp" dir/.chimere-2.session.2147483000-0.tmp dir/.mine.tmp dir/.mine.2147483000-0.tmp
    printf '' | chimere-serve-stdio --cache-dir dir # at its start it removes what a killed one left
    [ ! -e dir/.chimere-2.session.2147483000-0.tmp ]
    echo mine > dir/notes
    mkdir dir/chimere-0000000000000000.session
    ln -s /dev/zero dir/chimere-0000000000000001.session
    answer dir "$second"
    answer dir "$second"
    answer dir "$(conversation three)" --cache-size 1
    grep -q -e '--cache-size 1: a conversation takes [0-9]* bytes, and is not kept' err && [ "$(wc -l < err)" -eq 1 ]
    [ "$(cat dir/notes)" = mine ]
    [ "$(ls -A dir | grep -c 'tmp$')" -eq 3 ] # of one that lives, and not ours
    [ "$(find dir -type f -name '*.session' | wc -l)" -eq 0 ]
    fails 1 'not a directory' chimere-serve-stdio --cache-dir dir/notes
    fails 2 'needs --cache-dir' chimere-serve-stdio --cache-size 5M
}

@test "conversations of several servers in one directory, some of them killed" {
    for i in 1 2 3 4 5 6; do conversation "number $i" > "m$i"; done
    for i in 1 2 3 4 5 6; do answer alone "$(cat "m$i")"; jq -c .body.choices out > "want$i"; done
    rm -r alone
    local rounds=${CHIMERE_TEST_PROGRAMS:+2}
    for ((round = 1; round <= ${rounds:-3}; round++)); do
        jobs=()
        for p in 1 2 3; do
            for i in 1 2 3 4 5 6; do
                jq -nc --argjson m "$(cat "m$i")" --argjson i "$i" '{id: $i, method: "chat/completions", body: {messages: $m, temperature: 0, max_tokens: 60}}'
            done > "asked$p"
            timeout -s KILL "$((p < 3 ? 60 : 1))" chimere-serve-stdio --cache-dir shared --parallel 2 < "asked$p" > "said$p" 2> "err$p" &
            jobs+=($!)
        done
        for j in "${jobs[@]}"; do wait "$j" || true; done 2> /dev/null
        for p in 1 2; do
            [ ! -s "err$p" ]
            for i in 1 2 3 4 5 6; do
                diff "want$i" <(jq -c "select(.id == $i) | .body.choices" "said$p")
            done
        done
    done
    jq -es 'any(.[]; .body.usage.prompt_tokens_details.cached_tokens > 40)' said1
}
