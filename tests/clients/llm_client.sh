#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# llm_client.sh URL LLM - what the real llm program gets of chimere-serve-stdio --listen: a stream, a whole answer, an object of a
# schema, a call of a tool. Run in an empty directory by tests/cli/clients.bats and tests/clients/first_steps.py.
set -euo pipefail
export LLM_USER_PATH=$PWD/llm NO_PROXY='*'
mkdir llm
printf -- '- model_id: chimere\n  model_name: chimere\n  api_base: %s/v1\n  supports_tools: true\n  supports_schema: true\n' "$1" \
    > llm/extra-openai-models.yaml
program=$2
llm() { timeout 120 "$program" -m chimere -o temperature 0 "$@" < /dev/null; }
is_405() { [ "$1" = 405 ] || { echo "not 405: $1"; exit 1; }; }
is_405 "$(llm 'What is 347 + 58?')"
is_405 "$(llm --no-stream 'What is 347 + 58?')"
llm --schema 'n int' 'What is 347 + 58?' | jq -e '.n | type == "number"'
llm --td --functions 'def convert_currency(amount: float, from_currency: str, to_currency: str) -> str:
    "Convert an amount of money from one currency to another."
    return "370 EUR"' 'Convert 400 USD to EUR.' > answer 2> calls
grep -q 'convert_currency' calls
grep -q . answer
