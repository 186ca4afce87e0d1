# SPDX-License-Identifier: Apache-2.0
# questions.jq - the questions of questions.jsonl, which are requests of the server, as each front end asks them; and what
# each says as {id, text, reasoning, calls, finish}. jq -r -f questions.jq --arg for WHAT

def chat: .method == "chat/completions";
def think_off: .chat_template_kwargs.enable_thinking == false;

# A shell command of chimere-run for each, in a directory where its files may lie.
def file($name): "printf %s \(. | if type == "string" then . else tojson end | @sh) > \($name)\n";
def option: gsub("_"; "-") | if . == "repetition-penalty" then "repeat-penalty" else . end;
def arguments:
    to_entries | map(
        if .key == "messages" then "--messages m.json"
        elif .key == "prompt" and (.value | type) == "array" then "--tokens t.json"
        elif .key == "prompt" then "--raw -p \(.value | @sh)"
        elif .key == "tools" then "--tools tools.json"
        elif .key == "tool_choice" then "--tool-choice \(.value | if type == "object" then .function.name else . end)"
        elif .key == "parallel_tool_calls" then "--one-call"
        elif .key == "chat_template_kwargs" then "--chat-kwargs \(.value | tojson | @sh)"
        elif .key == "response_format" then "--schema schema.json"
        elif .key == "grammar" then "--grammar g.gbnf"
        elif .key == "stop" then [.value] | flatten | map("--stop \(@sh)") | join(" ")
        elif .key == "stop_token_ids" then .value | map("--stop-token \(.)") | join(" ")
        elif .key == "dry_sequence_breakers" then .value | map("--dry-breaker \(@sh)") | join(" ")
        elif .key == "logit_bias" then .value | to_entries
            | map("--logit-bias \(.key)=\(if .value == -100 then "-inf" else .value end)") | join(" ")
        elif .key == "continue_final_message" then "--continue"
        elif .key == "add_generation_prompt" then ""
        elif .value == true then "--\(.key | option)"
        else "--\(.key | option) \(.value | tostring | @sh)" end) | join(" ");
def as_command:
    .id as $id | .body | (.messages // empty | file("m.json")),
    (.tools // empty | file("tools.json")), (.response_format.json_schema.schema // empty | file("schema.json")),
    (.grammar // empty | file("g.gbnf")), (.prompt | arrays | file("t.json")),
    "chimere-run --json \(arguments) | jq -c --arg id \($id | @sh) '. + {id: $id}'";

# Items of a task set: messages and tools are all that they can say.
def is_item: chat and .body.temperature == 0 and
    (.body | keys - ["messages", "tools", "temperature", "chat_template_kwargs"] == []) and
    (.body.chat_template_kwargs // {} | keys - ["enable_thinking"] == []);
def as_item: select(is_item) | {id, check: "exact", answer: "?"} +
    (.body | {messages, tools: (.tools // []), enable_thinking: (think_off | not)});

# ---- what came out ----

def call: {name: .function.name, arguments: (.function.arguments | fromjson)};
def said($text; $reasoning; $calls; $finish):
    {id, text: ($text // ""), reasoning: ($reasoning // ""), calls: ($calls // [] | map(call)),
     finish: (if $finish == "stop_string" or $finish == "tool_calls" then "stop" else $finish end)};
def of_run: said(.text; .reasoning; .tool_calls; .finish_reason);
def of_server: .body.choices[0] as $c |
    said($c.message.content // $c.text; $c.message.reasoning_content; $c.message.tool_calls; $c.finish_reason);
# An answer of chimere-bench eval, as chimere-run --parse has read it.
def of_eval: said(.content; .reasoning; .tool_calls; if .ended then "stop" else "length" end);

if $for == "run" then as_command
elif $for == "stdin" then tojson
elif $for == "batch" then {custom_id: .id, method: "POST", url: "/v1/\(.method)", body} | tojson
elif $for == "http" then "next\nurl = \("\($url)/v1/\(.method)" | tojson)\nheader = \"Content-Type: application/json\"\ndata = \(.body | tojson | tojson)\nwrite-out = \"\\n\""
elif $for == "eval" then as_item | tojson
elif $for == "parse" then
    "{ printf %s \(.text | @sh) | chimere-run --parse qwen3.5 \(if .thinks then "--reasoning-open" else "" end) \(if .tools then "--tools tools.json" else "" end); echo \({id, ended} | tojson | @sh); } | jq -cs add"
elif $for == "of run" then of_run
elif $for == "of server" then of_server
else of_eval end
