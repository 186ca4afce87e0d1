# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# lib.sh - what the filters of this directory share. A filter sets `here` to its directory, then reads this file.
#
# What a log says is data: it is read by jq alone, and never becomes a part of a command, a jq program or a file name.
set -euo pipefail
# The next file that is opened would take the place of a closed descriptor.
# In that of standard error, bash leaves the script itself.
{ : 9>&2; } && [ ! /proc/$$/fd/2 -ef "$0" ] || exec 2> /dev/null
{ : 9<&0; } 2> /dev/null || exec < /dev/null
{ : 9>&1; } 2> /dev/null || exec > /dev/null
export LC_ALL=C.UTF-8
me=$(basename -- "$0")
line_bytes=16777216 # of a line; a longer one is read as one that is no JSON
out='' new='' verbose=''

# Of wrong use, what is wrong.
wrong() # MESSAGE
{
    printf '%s: %s (%s -h: help)\n' "$me" "$1" "$me" >&2
    exit 2
}

bad_option() # OPTION: getopts' name for it
{
    case $1$OPTARG in
    '?h') usage ;;
    :*) wrong "-$OPTARG: needs a value" ;;
    *) wrong "-$OPTARG: is no option" ;;
    esac
}

usage() # the head of the filter's file is its help
{
    sed -n '3,/^[^#]/ { s/^# \{0,1\}//p }' "$0" >&2
    exit 2
}

die() # STATUS MESSAGE
{
    printf '%s: %s\n' "$me" "$2" >&2
    exit "$1"
}

# Nobody else can write it.
is_ours() { [ -O "$1" ] && [ -z "$(find -H "$1" -maxdepth 0 -perm /022)" ]; } # FILE

# Where nightly works, if nothing else is said.
data_dir()
{
    [ -n "${XDG_DATA_HOME:-}${HOME:-}" ] || die 1 'HOME is not set'
    printf '%s\n' "${XDG_DATA_HOME:-$HOME/.local/share}/chimere/nightly"
}

say() { [ -z "$verbose" ] || printf '%s: %s\n' "$me" "$1" >&2; }

need() # PROGRAM ...
{
    local p
    for p; do command -v "$p" > /dev/null || die 1 "$p is not installed"; done
}

clean_up() { rm -rf -- "$tmp" ${new:+"$new"}; }

# Files of this run; with a name in $out, the output goes to a new file beside it.
begin()
{
    need jq
    tmp=$(mktemp -d) || die 1 'no directory for temporary files'
    trap clean_up EXIT
    [ -z "$out" ] || new=$(mktemp -- "$out.XXXXXX" 2> /dev/null) || die 1 "$out: cannot be written"
}

# Standard input to the output. A file is replaced when all of it is on the disk.
deliver()
{
    if [ -z "$out" ]; then
        cat 2> /dev/null || { [ $? -ne 141 ] || exit 141; die 1 'the output cannot be written'; }
    else
        { cat > "$new" && sync -- "$new" && mv -f -- "$new" "$out"; } || die 1 "$out: cannot be written"
        new=''
    fi
}

# jq with the functions of jobs.jq. What it cannot write, on a full disk for example, ends the filter; so does refuse().
run_jq() # OPTION ... PROGRAM [FILE ...]
{
    local status=0
    jq -L "$here" --arg me "$me" "$@" || status=$?
    case $status in 0) ;; 13 | 14) exit $((status - 10)) ;; *) die 1 'jq failed' ;; esac
}

readable() # [FILE ...]
{
    local f
    for f; do [ "$f" = - ] || { { [ -f "$f" ] || [ -p "$f" ]; } && [ -r "$f" ]; } || die 1 "$f: cannot be read"; done
}

# The lines of the files, or of standard input, to $tmp/lines: objects, one a line. Half a line at the end of a file
# does not run into the next file.
read_lines() # [FILE ...]
{
    local n
    readable "$@"
    cut -b "-$line_bytes" -- "$@" | tr '\000' '\001' | run_jq -cR 'include "jobs"; as_object' > "$tmp/lines" || exit
    n=$(grep -c '^{"type":"unreadable"}$' "$tmp/lines") || true
    # The half line of a killed program is no news, a file of something else is.
    [ "$n" -eq 0 ] || { [ -z "$verbose" ] && [ "$n" -lt "$(wc -l < "$tmp/lines")" ]; } ||
        printf '%s: lines that are no JSON object, skipped: %d\n' "$me" "$n" >&2
}

# Requests {"n", "messages"} to replies {"n", "text", "cut", "mean_logprob", "model"} or {"n", "error"}: what the model
# answers with nothing but the messages, at most 64 of the likeliest tokens, no reasoning. Nothing of it is logged.
ask() # REQUESTS REPLIES
{
    need chimere-serve-stdio
    : > "$2"
    [ -s "$1" ] || return 0
    rm -f -- "$tmp/batch.out" "$tmp/batch.out.errors"
    run_jq -c '{custom_id: "\(.n)", method: "POST", url: "/v1/chat/completions", body: {messages, temperature: 0,
        max_tokens: 64, logprobs: true, store: false, examples: false, recite: false,
        chat_template_kwargs: {enable_thinking: false}}}' "$1" > "$tmp/batch"
    chimere-serve-stdio -q ${model:+-m "$model"} --batch "$tmp/batch" -o "$tmp/batch.out" || exit
    : >> "$tmp/batch.out.errors"
    cat -- "$tmp/batch.out" "$tmp/batch.out.errors" | run_jq -c '{n: (.custom_id | tonumber)} +
        (if .response.status_code == 200 then .made_with.model as $model | .response.body.choices[0] |
            {text: .message.content, cut: (.finish_reason == "length"), mean_logprob: (try ([.logprobs.content[].logprob] | add / length) catch null), $model}
         else {error: ((.response.body | .error?.message?) // (.error | .message?) // "no answer")} end)' > "$2"
}
