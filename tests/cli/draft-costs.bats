#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# draft-costs.bats - what drafters cost is kept from one process to the next, and no file of it changes an answer.
load common

answer() # OPTIONS...
{
    try 0 chimere-run -m "${model:-$TINY}" -t 1 -p "What is 51 + 292?" -n 40 "$@"
}
guesses() # OPTIONS...
{
    answer --draft auto -v --json "$@"
    jq -c .token_ids out | cmp - plain
    jq .drafts.drafted out
}

@test "costs are kept: a file of this user alone, used by the next process, and not by one with other threads" {
    export XDG_CACHE_HOME=$PWD/cache
    answer --json
    jq -c .token_ids out > plain
    answer --draft auto
    [ ! -s err ]
    [ "$(stat -c %a cache cache/chimere cache/chimere/draft-* | tr '\n' ' ')" = "700 700 600 " ]
    jq -e '.type == "draft_costs" and (.costs.drafters | length) == 1' cache/chimere/draft-*
    guesses
    grep -q '^drafter  costs from .*/cache/chimere/draft-' err
    guesses -t 2
    no grep -q 'costs from' err
    [ "$(find cache/chimere -type f | wc -l)" -eq 2 ]
    # two at once leave one whole file and nothing else
    rm -r cache/chimere
    chimere-run -m "$TINY" -t 1 -p "What is 51 + 292?" -n 40 --draft auto > other &
    answer --draft auto
    wait $!
    cmp out other
    [ "$(ls -A cache/chimere | wc -l)" -eq 1 ]
    jq -e .costs cache/chimere/draft-*
}

@test "costs are kept: whatever the file says, the answer is the same" {
    local file model=$CHIMERE_MODEL
    export XDG_CACHE_HOME=$PWD/cache
    answer --json
    jq -c .token_ids out > plain
    answer --draft auto
    file=$(echo cache/chimere/draft-*)
    cp "$file" good
    jq -c '.costs.row[] |= 1 | .costs.budget = 12 | .costs.drafters[] |= (.tries = 0 | .call[] |= 0.001 | .kept[] |= 1 | .sure[] |= 1)' \
        good > "$file"
    [ "$(guesses)" -gt 20 ]
    # guesses among an eighth of the tokens are right, too: here those of this answer and of the lowest numbers
    jq -c --slurpfile ids plain '.costs.tokens = ($ids[0] | unique | map(., 100))' "$file" > narrow
    cp narrow "$file"
    [ "$(guesses)" -gt 20 ]
    jq -e '.drafts.kept > 20' out
    jq -c '.costs.row[2:] |= map(9000) | .costs.budget = -9000 | .costs.drafters[].call[] |= 9000' good > "$file"
    [ "$(guesses)" -eq 0 ]
    model=$TINY
    answer --json
    jq -c .token_ids out > plain
    rm "$file"
    answer --draft auto
    file=$(echo cache/chimere/draft-*)
    cp "$file" good
    echo x > "$file"
    answer --draft auto
    [ ! -s err ]
    for text in '' x '{}' '{"key": "1"}' "$(jq -c '.costs.budget = 1e9' good)" "$(jq -c '.costs.tokens = [-1, 2]' good)" "$(jq -c 'del(.costs.drafters[0])' good)" \
        "$(jq -c '.key = "0"' good)" "$(head -c 70000 /dev/zero | tr '\0' '[')"; do
        printf %s "$text" > "$file"
        guesses > /dev/null
        no grep -q 'costs from' err
        jq -e .costs "$file" > /dev/null # written anew
    done
}

@test "costs are kept: not where others can write, and never by a link" {
    export XDG_CACHE_HOME=$PWD/cache
    answer --json
    jq -c .token_ids out > plain
    mkdir -p cache/chimere elsewhere
    chmod 755 cache
    chmod 777 cache/chimere
    guesses > /dev/null
    grep -q 'costs are not kept: .*others can write there' err
    chmod 700 cache/chimere
    chmod 777 cache
    guesses > /dev/null
    grep -q 'costs are not kept' err
    [ -z "$(ls -A cache/chimere)" ]
    chmod 755 cache
    rmdir cache/chimere
    ln -s ../elsewhere cache/chimere
    guesses > /dev/null
    [ -z "$(ls -A elsewhere)" ]
    rm cache/chimere
    answer --draft auto
    file=$(echo cache/chimere/draft-*)
    mv "$file" elsewhere/kept
    ln -s ../../elsewhere/kept "$file"
    cp elsewhere/kept before
    guesses > /dev/null
    no grep -q 'costs from' err
    cmp elsewhere/kept before
    rm "$file"
    mkfifo "$file"
    guesses > /dev/null
    for dir in /dev/null/none relative ''; do
        export XDG_CACHE_HOME=$dir HOME=/dev/null
        answer --draft auto --json
        [ ! -s err ]
        jq -c .token_ids out | cmp - plain
    done
}
