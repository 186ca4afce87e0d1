#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The rules between options: each row of a program's table, as --help-json prints it, refuses what it says.
load common

# refuses_both COMMAND... A B: two options, with their arguments in $words
refuses_both()
{
    local a=${*: -2:1} b=${*: -1}
    # shellcheck disable=SC2086
    fails 2 'do not go together' "${@:1:$#-2}" ${words[$a]} ${words[$b]} || return 1
    grep -qF -e "--$a" err && grep -qF -e "--$b" err
}

# every_rule PROGRAM [COMMAND]: the command is for rules that are of all of them
every_rule()
{
    local -A words=()
    local name word rule option others command other n=0 p=$1

    "$p" --help-json > help.json
    while IFS='|' read -r name word; do
        words[$name]=$word
    done < <(jq -r '.options[] | select(.section != "About the program") | .name + "|--" + .name +
        if .arg == null then "" elif .arg | test("[|]") then " " + (.arg | split("|")[0])
        elif .arg == "bytes" then " 2M" elif .name == "tokens" then " 32" else " 16" end' help.json)
    while IFS='|' read -r rule option others command; do
        command=${command:-$2}
        case $rule in
            needs)
                # shellcheck disable=SC2086
                fails 2 "${option:+--}${option:-$command} needs --${others%% *}" "$p" $command ${option:+${words[$option]}}
                ;;
            excludes)
                for other in $others; do
                    # shellcheck disable=SC2086
                    [ "$other" = "$option" ] || refuses_both "$p" $command "$option" "$other"
                done
                ;;
            excludes_all_but)
                for other in "${!words[@]}"; do
                    # shellcheck disable=SC2086
                    case " $option $others " in *" $other "*) ;; *) refuses_both "$p" $command "$option" "$other" ;; esac
                done
                ;;
        esac
        n=$((n + 1))
    done < <(jq -r '.rules[] | . as $r | (if .options == [] then "" else .options[] end) |
        [$r.rule, ., ($r.others | join(" ")), $r.commands[0] // ""] | join("|")' help.json)
    [ $n -ge 3 ]
}

@test "chimere-run" { every_rule chimere-run ''; }
@test "chimere-serve-stdio" { every_rule chimere-serve-stdio ''; }
@test "chimere-bench" { every_rule chimere-bench speed; }
@test "chimere-quantize" { every_rule chimere-quantize ''; }
@test "chimere-engram-build" { every_rule chimere-engram-build build; }
@test "chimere-draft-train" { every_rule chimere-draft-train dflash; }
