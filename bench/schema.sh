#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# schema.sh - how many answers under --schema are JSON that the schema allows, by the judgement of python3-jsonschema.
#
#   bench/schema.sh [-n ANSWERS] [-t TEMPERATURE] [OPTION OF chimere-run ...]
#
# The embedded model answers ANSWERS (500) times at TEMPERATURE (1.5), seeds 1, 2, ..., the schemas below in turn.
# Nothing cuts an answer but --ctx 4096; one that it cuts counts as wrong. Prints a line for each answer that is
# wrong, then the count; the exit status is 4 if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${CHIMERE_BIN:-bin}/chimere-run

n=500 temp=1.5
while getopts n:t: option; do
    case $option in
    n) n=$OPTARG ;;
    t) temp=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ "${1:-}" != -- ] || shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

schemas=0
while read -r schema; do
    printf '%s\n' "$schema" > "$work/$((schemas++)).json"
done << 'END'
{"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":40},"born":{"type":"integer","minimum":1800,"maximum":2100},"works":{"type":"array","items":{"type":"string","maxLength":30},"maxItems":5}},"required":["name","born"],"additionalProperties":false}
{"type":"array","items":{"enum":["red","green",3,null,true,[1,{"a":2}]]},"minItems":2,"maxItems":6}
{"type":"string","format":"date-time"}
{"type":"number","minimum":-2.5,"exclusiveMaximum":1000,"multipleOf":0.25}
{"type":"string","pattern":"^[A-Z][a-z]{2,8}( [a-zé-ü]+){1,3}$","maxLength":24}
{"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"value":{"type":"integer","maximum":99,"minimum":-99},"left":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/leaf"}]},"right":{"$ref":"#/$defs/leaf"}},"required":["value","right"],"additionalProperties":false},"leaf":{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"n":{"type":"number","minimum":0,"maximum":9}},"required":["kind","n"],"additionalProperties":false},{"type":"object","properties":{"kind":{"const":"b"},"s":{"type":"string","maxLength":12}},"required":["kind"],"additionalProperties":false}]}}}
{"type":"object","patternProperties":{"^x_[a-z]{1,4}$":{"type":"boolean"}},"additionalProperties":false,"minProperties":1,"maxProperties":4}
{"type":"array","prefixItems":[{"type":"string","format":"uuid"},{"type":"string","format":"ipv4"},{"type":["integer","null"]}],"items":false,"minItems":3}
{"allOf":[{"type":"object","properties":{"a":{"type":"string","minLength":2,"maxLength":20}},"required":["a"]},{"properties":{"b":{"type":"string","pattern":"[0-9]","maxLength":20}},"required":["b"]}],"unevaluatedProperties":false}
{"type":"object","properties":{"card":{"type":"string","pattern":"^[0-9]{4}$"},"address":{"type":"string","maxLength":20}},"dependentRequired":{"card":["address"]},"additionalProperties":false}
END

for ((i = 1; i <= n; i++)); do
    k=$((i % schemas))
    "$program" --schema "$work/$k.json" -t "$temp" --seed "$i" --think off --json --ctx 4096 \
        -p 'Write a record of a person.' "$@" | jq -c --argjson k $k '{seed, schema: $k, finish_reason, text}'
done > "$work/answers"
python3 - "$work" << 'END'
import json, sys
import jsonschema

work = sys.argv[1]
right = wrong = 0
for line in open(work + "/answers", encoding="utf-8"):
    a = json.loads(line)
    judge = jsonschema.Draft202012Validator(json.load(open(f"{work}/{a['schema']}.json")),
                                            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    try:
        judge.validate(json.loads(a["text"]))
        right += 1
    except (ValueError, jsonschema.ValidationError) as why:
        wrong += 1
        print(f"seed {a['seed']}, schema {a['schema']}, {a['finish_reason']}: {str(why).splitlines()[0]}")
print(f"{right} of {right + wrong} answers are valid")
sys.exit(4 if wrong or not right else 0)
END
