# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# settings.sh - the settings of nightly: what holds without them, and whether they can be what they are.
model=${CHIMERE_MODEL:-} # the model's file
reload=''                # a command that makes a server read its files again
canary=''                # a command that has to succeed after publication; otherwise a short answer with all files
suite=''                 # a directory of task sets that must not get worse; otherwise suite, or the installed ones
suite_items=200          # at most so many of each set
rehearse=''             # a directory of more items like those of the sets, for the trainer; otherwise rehearse, or the installed ones
cpu_time=30m             # for training: processor time
train=()                 # further options of chimere-draft-train lora
min_pairs=5              # fewer new pairs wait for another night
margin=8 margin_all=4    # percent of right answers that may be lost: of a set, of all
held_out='' more_nats=0.1 # text that an adapter must not make less likely, and nats a token by which it may
slower=10                # percent of the speed that may be lost
guard=on                 # off: no pair is held back because the model is sure of something else
prompts=()               # further options of jobs/prompts
score=()                 # further options of jobs/score
lock_wait=10             # seconds
mains=on_mains           # a command: is this machine on mains?
max_load=''              # with a larger load -t postpones; otherwise the number of processors
settings='model|reload|canary|suite|suite_items|rehearse|cpu_time|train|min_pairs|margin|margin_all|held_out|more_nats|slower|guard'
settings=$settings'|prompts|score|lock_wait|mains|max_load'

# A name of a file holds in every directory; another name of a model stays.
absolute() # VARIABLE
{
    local -n name=$1
    [ "${name#/}" != "$name" ] || [ ! -e "$name" ] || name=$PWD/$name
}

# What the shell has in small letters, except settings: a settings file has no business there.
other_names() { declare -p | grep -oE '^declare -[^ ]+ [a-z][a-zA-Z0-9_]*(=.*)?$' | grep -vE "^declare [^ ]+ ($settings|named)(=|\$)" || true; }

# A settings file is run by this shell, so it has to be this user's alone. What it does to the shell is noticed.
read_settings() # FILE
{
    local file=$1 status=0 named
    [ -f "$file" ] && [ -r "$file" ] || die 1 "$file: cannot be read"
    [ -O "$file" ] || die 1 "$file: belongs to somebody else"
    is_ours "$file" || die 1 "$file: others can write it (chmod 600)"
    named=$(other_names)
    # shellcheck disable=SC2064
    trap "clean_up; printf '%s: %s: ends the shell\n' $me ${file@Q} >&2; exit 2" EXIT
    # shellcheck disable=SC1090
    . "$file" || status=$?
    trap clean_up EXIT
    [ $status -eq 0 ] || die 2 "$file: has a mistake"
    named=$(diff <(printf '%s\n' "$named") <(other_names) | sed -nE 's/^[<>] declare -[^ ]+ ([a-z][a-zA-Z0-9_]*).*/\1/p' | head -n 1) || true
    [ -z "$named" ] || die 2 "$file: $named: is no setting"
    check_settings "$file"
}

check_settings() # FILE
{
    local name whole='^[1-9][0-9]{0,5}$' number='^[0-9]{1,9}([.][0-9]{1,6})?$'
    for name in suite_items min_pairs; do setting "$1" $name "$whole" 'a whole number from 1'; done
    for name in margin margin_all slower; do
        setting "$1" $name '^(100|[0-9]{1,2}([.][0-9]{1,6})?)$' 'a number of percent from 0 to 100'
    done
    for name in more_nats lock_wait; do setting "$1" $name "$number" 'a number from 0'; done
    [ -z "$max_load" ] || setting "$1" max_load "$number" 'a number from 0'
    setting "$1" cpu_time '^[0-9]*[1-9][0-9]*([.][0-9]+)?[smhd]$' 'a time such as 90s, 30m or 2h'
    setting "$1" guard '^(on|off)$' 'on or off'
    setting "$1" mains '[^[:space:]]' 'a command'
    for name in suite rehearse; do [ -z "${!name}" ] || [ -d "${!name}" ] || not_a "$1" $name 'a directory'; done
    [ -z "$held_out" ] || { [ -f "$held_out" ] && [ -r "$held_out" ]; } || not_a "$1" held_out 'a file that can be read'
    for name in train prompts score; do
        [[ $(declare -p $name) =~ ^declare\ -a ]] && [[ ${!name-} != -*[[:space:]]* ]] || not_a "$1" $name "an array such as $name=(--option value)"
    done
}

setting() { [[ ${!2-} =~ $3 ]] || not_a "$1" "$2" "$4"; } # FILE NAME PATTERN WORDS
not_a() { die 2 "$1: $2: $(printf '%.60q' "${!2-}") is not $3"; } # FILE NAME WORDS
