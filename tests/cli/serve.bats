# SPDX-License-Identifier: Apache-2.0
# serve.bats - chimere-serve-stdio(1): requests as lines, batches that are killed and gone on with.

load common

ask() # LINE...: replies in `out`
{
    printf '%s\n' "$@" | chimere-serve-stdio > out 2> err
}
chat() # ID BODY
{
    printf '{"id":"%s","method":"chat/completions","body":{"messages":[{"role":"user","content":"What is 347 + 58?"}],"temperature":%s}}\n' "$1" "$2"
}

@test "a chat, a completion, tokens and back, models, health, metrics" {
    ask "$(chat a 0)" '{"id":2,"method":"completions","body":{"prompt":"The kernel","max_tokens":6,"temperature":0}}' \
        '{"id":"t","method":"tokenize","body":{"text":"The kernel"}}' '{"id":"d","method":"detokenize","body":{"tokens":[257,309]}}' \
        '{"id":"m","method":"models"}' '{"id":"h","method":"health"}' '{"id":"x","method":"metrics"}'
    [ "$(wc -l < out)" -eq 7 ]
    [ ! -s err ]
    jq -es '.[] | select(.id == "a") | .body.choices[0] | .message.content == "405" and .finish_reason == "stop" and
            (.message.reasoning_content | test("347"))' out
    want=$(chimere-run --raw -p 'The kernel' -n 6; echo .)
    [ "$(jq -rs '.[] | select(.id == 2) | .body.choices[0].text' out; echo .)" = "${want%.}
." ]
    [ "$(jq -cs '.[] | select(.id == "t") | .body.tokens' out)" = "$(printf 'The kernel' | chimere-run --tokenize)" ]
    jq -es '.[] | select(.id == "m") | .body.data[0].object == "model"' out
    jq -es '.[] | select(.id == "h") | .body.status == "ok"' out
    jq -es '.[] | select(.id == "x") | .body.text | test("chimere_requests_total")' out
}

@test "a stream adds up to the whole answer, and ends with its usage" {
    ask "$(chat s '0,"stream":true,"stream_options":{"include_usage":true}')" "$(chat w 0)"
    [ "$(jq -rs '[.[] | select(.id == "s" and .type == "chunk") | .body.choices[0].delta.content // ""] | add' out)" = 405 ]
    [ "$(jq -rs '[.[] | select(.id == "s" and .type == "chunk") | .body.choices[0].delta.reasoning_content // ""] | add' out)" = \
        "$(jq -rs '.[] | select(.id == "w") | .body.choices[0].message.reasoning_content' out)" ]
    jq -es '[.[] | select(.id == "s")] | .[-1].type == "end" and .[-2].body.usage.completion_tokens > 60 and .[-2].body.choices == []' out
}

@test "the same request gets the same answer alone and beside others" {
    for i in 1 2 3 4 5 6 7 8; do
        printf '{"id":%d,"method":"completions","body":{"prompt":"Chapter %d","max_tokens":20,"temperature":1,"seed":%d}}\n' $i $i $i
    done > lines
    chimere-serve-stdio --parallel 5 < lines | jq -c 'select(.type == "response") | [.id, .body.choices[0].text]' | sort > many
    [ "$(wc -l < many)" -eq 8 ]
    while read -r line; do
        printf '%s\n' "$line" | chimere-serve-stdio --parallel 1 | jq -c '[.id, .body.choices[0].text]'
    done < lines | sort > alone
    diff alone many
}

@test "structured output, choices, logprobs, embeddings" {
    ask "$(chat j '1.5,"seed":1,"chat_template_kwargs":{"enable_thinking":false},"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}}')" \
        '{"id":"n","method":"completions","body":{"prompt":"The","n":3,"max_tokens":5,"seed":4}}' \
        '{"id":"l","method":"completions","body":{"prompt":"The","max_tokens":2,"logprobs":3,"temperature":0}}' \
        '{"id":"e","method":"embeddings","body":{"input":["one","two"]}}' '{"id":"b","method":"embeddings","body":{"input":"one","encoding_format":"base64"}}'
    jq -es '.[] | select(.id == "j") | .body.choices[0].message.content | fromjson | keys == ["n"] and (.n | type == "number")' out
    jq -es '.[] | select(.id == "n") | .body.choices | length == 3 and ([.[].text] | unique | length) > 1' out
    jq -es '.[] | select(.id == "l") | .body.choices[0].logprobs | (.tokens | length) == 2 and (.top_logprobs[0] | length) == 3' out
    jq -es '.[] | select(.id == "e") | .body.data | length == 2 and ([.[0].embedding[] | . * .] | add | . > 0.999 and . < 1.001)' out
    jq -es '.[] | select(.id == "b") | .body.data[0].embedding | type == "string"' out
}

@test "embeddings of the layer and without the scale that an index has; rerank by words" {
    printf '%s\n' 'cp copies files and directories' 'The kernel schedules threads' 'ls lists what a directory holds' > texts
    chimere-engram-build index --lines -o t.index texts
    jq -nc --rawfile t texts '{id: 1, method: "embeddings", body: {input: ($t | split("\n")[:3]), embd_normalize: -1}},
        {id: 2, method: "embeddings", body: {input: "x", embd_normalize: 1}},
        {id: 3, method: "rerank", body: {query: "what copies a directory?", documents: ($t | split("\n")[:3] | .[1] |= {text: .}), top_n: 2, return_documents: true}},
        {id: 4, method: "rerank", body: {query: "x", documents: ["a", 3]}}, {id: 5, method: "rerank", body: {query: "x", documents: []}},
        {id: 6, method: "rerank", body: {query: "x", documents: ["a"], top_n: 0}}, {id: 7, method: "rerank", body: {query: "", documents: ["a", "b"]}}' > lines
    chimere-serve-stdio --embed-layer 1 < lines > out # a quarter of 8 layers, as the index
    # The index has the mean of all texts, and each text's vector without it, at length 1 (chimere-index(5)).
    jq -c 'select(.id == 1) | .body.data[].embedding' out > vectors
    od -An -v -t f4 -w1024 -j 512 t.index | head -n 4 | jq -sc '[limit(1024; .[])] | [.[:256], .[256:512], .[512:768], .[768:1024]]' > index
    jq -es '.[0] as $index | .[1:] as $v | [range(256) | . as $d | ($v | map(.[$d]) | add / 3)] as $mean |
        [range(3) | . as $i | [range(256) | $v[$i][.] - $mean[.]] | (map(. * .) | add | sqrt) as $n | map(. / $n)] as $want |
        [[$index[0], $mean], [$index[1], $want[0]], [$index[2], $want[1]], [$index[3], $want[2]]] |
        all(.[]; . as [$a, $b] | all(range(256); $a[.] - $b[.] | fabs < 1e-5))' index vectors
    jq -es 'map({key: "\(.id)", value: .}) | from_entries | (.["2"].error.param == "/embd_normalize") and
        (.["3"].body.results | map(.index) == [0, 2] and .[0].relevance_score > .[1].relevance_score and .[1].relevance_score > 0
            and .[0].relevance_score < 1 and .[0].document.text == "cp copies files and directories") and
        ([.["4", "5", "6"].error.param] == ["/documents/1", "/documents", "/top_n"]) and
        (.["7"].body.results == [{index: 0, relevance_score: 0}, {index: 1, relevance_score: 0}])' out
    fails 2 '--embed-layer 8: the model has layers 0 to 7' chimere-serve-stdio --embed-layer 8
}

@test "what is wrong is said with its place, and the others go on" {
    ask 'no json' '[1]' '{"method":"models"}' '{"id":1,"method":"nothing"}' '{"id":2,"method":"chat/completions","body":{}}' \
        '{"id":3,"method":"chat/completions","body":{"messages":[{"role":"user","content":"x"}],"foo/bar":1}}' \
        '{"id":4,"method":"completions","body":{"prompt":"x","temperature":-1}}' \
        '{"id":5,"method":"completions","body":{"prompt":[5,99999]}}' '{"id":6,"method":"completions","body":{"prompt":"x","max_tokens":1}}' \
        '{"id":7,"method":"chat/completions","body":{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"strange"}}}}}'
    [ "$(jq -s '[.[] | select(.type == "error")] | length' out)" -eq 9 ]
    jq -es '.[] | select(.id == 3) | .error.param == "/foo~1bar"' out
    jq -es '.[] | select(.id == 4) | .error.param == "/temperature"' out
    jq -es '.[] | select(.id == 6) | .type == "response"' out
    jq -es '.[] | select(.id == 7) | .error.param | startswith("/response_format")' out
    ask '{"id":3,"method":"completions","body":{"prompt":"x","max_tokens":1,"foo":1}}'
    jq -e '.type == "error"' out
    printf '%s\n' '{"id":3,"method":"completions","body":{"prompt":"x","max_tokens":1,"foo":1}}' | chimere-serve-stdio --lenient | jq -e '.type == "response"'
}

# at POINTER METHOD BODY: that is what is wrong with it
at()
{
    places+=("$1")
    printf '{"id":%d,"method":"%s","body":%s}\n' "${#places[@]}" "$2" "$3" >> lines
}
at_chat() # POINTER MEMBERS
{
    at "$1" chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1,$2}"
}
at_message() # POINTER MESSAGE
{
    at "/messages/1$1" chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},$2]}"
}

@test "the pointer of what is wrong is whole, and members that are not known are errors at any depth" {
    places=()
    local call='{"type":"function","function":{"name":"f"' tool='"tools":[{"type":"function","function":{"name":"e"}},{"type":"function","function":{"name":"f"'
    at_message /contnet '{"role":"user","content":"x","contnet":"y"}'
    at_message /content '{"role":"user"}'
    at_message /role '{"content":"x"}'
    at_message "" '{"role":"stranger","content":"x"}'
    at_message "" 5
    at_message /content/1/type '{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url"}]}'
    at_message /content/0/txt '{"role":"user","content":[{"type":"text","text":"x","txt":1}]}'
    at_message /tool_calls/0/function/name '{"role":"assistant","tool_calls":[{"type":"function","function":{"nme":"f"}}]}'
    at_message /tool_calls/1/function/arguments "{\"role\":\"assistant\",\"tool_calls\":[$call}},$call,\"arguments\":\"{\"}}]}"
    at_message /tool_calls/0/function/a~1b~0 "{\"role\":\"assistant\",\"tool_calls\":[$call,\"a/b~\":1}}]}"
    at_chat /tools/1/function/nme "${tool},\"nme\":1}}]"
    at_chat /tools/1/function/parameters/properties/x/type "${tool},\"parameters\":{\"properties\":{\"x\":{\"type\":\"strng\"}}}}}],\"tool_choice\":\"required\""
    at_chat '/tools/1/function/parameters/properties/a~1b: c/type' "${tool},\"parameters\":{\"properties\":{\"a/b: c\":{\"type\":\"strng\"}}}}}],\"tool_choice\":\"required\""
    at_chat /tool_choice/function/name "${tool}}}],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"
    at_chat /tool_choice/function/nm "${tool}}}],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\",\"nm\":1}}"
    at_chat /response_format/json_schema/foo '"response_format":{"type":"json_schema","json_schema":{"schema":{},"foo":1}}'
    at_chat /response_format/json_schema/schema '"response_format":{"type":"json_schema","json_schema":{}}'
    at_chat /response_format/schema/items/type '"response_format":{"type":"json_object","schema":{"items":{"type":"strng"}}}'
    at_chat /structured_outputs/json/type '"structured_outputs":{"json":{"type":"strng"}}'
    at_chat /structured_outputs/structural_tag '"structured_outputs":{"structural_tag":{}}'
    at_chat /structured_outputs '"structured_outputs":{"json":null}'
    at_chat /guided_json '"guided_json":"{"'
    at_chat /guided_choice '"guided_choice":["a",5]'
    at_chat /guided_regex '"guided_regex":"["'
    at_chat /json_schema/type '"json_schema":{"type":"strng"}'
    at_chat /grammar '"guided_regex":"a","grammar":"root ::= [a]"'
    at_chat /tool_choice/allowed_tools/tools/1 "${tool}}}],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[$call}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}}"
    at_chat /tool_choice/allowed_tools/mode "${tool}}}],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"none\",\"tools\":[$call}}]}}"
    at_chat /functions/0/nme '"functions":[{"name":"f","nme":1}]'
    at_chat /functions/0/parameters/properties/a/type '"functions":[{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"strng"}}}}],"function_call":{"name":"f"}'
    at_chat /function_call/name '"functions":[{"name":"f"}],"function_call":{"name":"g"}'
    at /function_call apply-template '{"messages":[{"role":"user","content":"x"}],"functions":[{"name":"f"}],"function_call":"sometimes"}'
    at_chat /functions "${tool}}}],\"functions\":[{\"name\":\"f\"}]"
    at_chat /function_call '"function_call":"auto"'
    # what others have, with a value that would mean something
    at_chat /best_of '"best_of":65'
    at_chat /store '"store":true'
    at_chat /id_slot '"id_slot":3'
    at_chat /modalities '"modalities":["text","audio"]'
    at_chat /mirostat '"mirostat":2'
    at_chat /skip_special_tokens '"skip_special_tokens":false'
    at /max_tokens completions '{"prompt":"x","max_tokens":2.5}'
    at /max_tokens completions '{"prompt":"x","max_tokens":-2}'
    at /suffix completions '{"prompt":"x","suffix":"y"}'
    at /dimensions embeddings '{"input":"x","dimensions":64}'
    at /conversation responses '{"input":"x","conversation":"c"}'
    at /previous_response_id responses '{"input":"x","previous_response_id":"r"}'
    at /store responses '{"input":"x","store":true}'
    # contradictions
    at_chat /reasoning_budget '"reasoning_budget":5,"reasoning_effort":"none"'
    at_chat /reasoning_budget '"reasoning_budget":5,"enable_thinking":false'
    at_chat /enable_thinking '"reasoning_budget":0,"enable_thinking":true'
    at_chat /min_tokens '"min_tokens":5'
    at_chat /dry_base '"dry_base":2'
    at_chat /dry_sequence_breakers '"dry_sequence_breakers":["x"]'
    at_chat /repeat_last_n '"repeat_last_n":5'
    at_chat /n_predict '"n_predict":5'
    at_chat /regex '"regex":""'
    at_chat /response_format/json_schema/schema/items/pattern '"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"array","items":{"type":"string","pattern":"["}}}}'
    at_chat /response_format/json_schema/schema/required '"response_format":{"type":"json_schema","json_schema":{"schema":{"required":"a"}}}'
    at_chat '/response_format/json_schema/schema/$defs/a: b~0/type' '"response_format":{"type":"json_schema","json_schema":{"schema":{"$ref":"#/$defs/a: b~0","$defs":{"a: b~":{"type":"strng"}}}}}'
    at_chat /stop/1 '"stop":["a",5]'
    at_chat /stop_token_ids/1 '"stop_token_ids":[1,99999]'
    at_chat /stop_token_ids '"stop_token_ids":5'
    at_chat /min_tokens '"min_tokens":-1'
    at_chat /dry_multiplier '"dry_multiplier":-1'
    at_chat /dry_base '"dry_multiplier":1,"dry_base":0.5'
    at_chat /dry_allowed_length '"dry_multiplier":1,"dry_allowed_length":2000'
    at_chat /dry_penalty_last_n '"dry_multiplier":1,"dry_penalty_last_n":1.5'
    at_chat /dry_sequence_breakers/0 '"dry_multiplier":1,"dry_sequence_breakers":[""]'
    at_chat /penalty_last_n '"penalty_last_n":-2'
    at_chat /repeat_last_n '"penalty_last_n":5,"repeat_last_n":5'
    at_chat /grammar '"grammar":"root ::= x"'
    at_chat /logit_bias/0 '"logit_bias":[["x",1]]'
    at_chat /logit_bias/1 '"logit_bias":[[1,false],[1,true]]'
    at_chat /logit_bias/1 '"logit_bias":[[1,false],[-1,1]]'
    at_chat /response_format '"response_format":"json_object"'
    at_chat /response_format/json_schema '"response_format":{"type":"json_schema","schema":null}'
    at_chat /regex '"regex":"["'
    at_chat /response_format '"regex":"a","response_format":{"type":"json_object"}'
    at_chat /grammar '"regex":"a","grammar":"root ::= [a]"'
    at_chat /tool_choice "${tool}}}],\"tool_choice\":\"required\",\"regex\":\"a\""
    at_chat /messages/0 '"continue_final_message":true'
    at_chat /add_generation_prompt '"continue_final_message":true,"add_generation_prompt":true'
    at_chat /logit_bias/x '"logit_bias":{"5":1,"x":1}'
    at_chat /stream_options/include '"stream":true,"stream_options":{"include":true}'
    at_chat /lora/0/scale '"lora":[{"id":0}]'
    at_chat /lora/0/id '"lora":[{"id":0,"scale":1}]'
    at_chat /chat_template_kwargs '"chat_template_kwargs":{"messages":[]}'
    at /prompt/1 completions '{"prompt":[1,-1]}'
    at /prompt/1/2 completions '{"prompt":["x",[1,2,null]]}'
    at /input/1 embeddings '{"input":["x",""]}'
    at /tokens/2 detokenize '{"tokens":[1,2,1e9]}'
    at /txt tokenize '{"text":"x","txt":1}'
    at /x health '{"x":1}'
    at /input/1/contnet responses '{"input":[{"role":"user","content":"x"},{"role":"user","content":"x","contnet":1}]}'
    at /input/0/content/0/type responses '{"input":[{"role":"user","content":[{"type":"input_image","text":"x"}]}]}'
    at /input/2 responses '{"instructions":"x","input":[{"role":"user","content":"x"},{"role":"user","content":"x"},{"role":"stranger","content":"x"}]}'
    at /tools/0/parameters/properties/x/type responses '{"input":"x","tool_choice":"required","tools":[{"type":"function","name":"f","parameters":{"properties":{"x":{"type":"strng"}}}}]}'
    at /text/format/schema/items/type responses '{"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"array","items":{"type":"strng"}}}}}'
    at /text/format/foo responses '{"input":"x","text":{"format":{"type":"text","foo":1}}}'
    at /max_tokens messages '{"messages":[{"role":"user","content":"x"}]}'
    at /messages/1/content messages '{"max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"user"}]}'
    at /tools/0/input_schema/properties/x/type messages '{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"any"},"tools":[{"name":"f","input_schema":{"properties":{"x":{"type":"strng"}}}}]}'
    at /output_config/format/schema/items/type messages '{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":{"type":"array","items":{"type":"strng"}}}}}'
    at /tool_choice messages/count_tokens '{"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"any"}}'
    at /reasoning/effort responses '{"input":"x","reasoning":{"effort":"much"}}'
    # what has no meaning without another member, or beside it
    at_chat /top_logprobs '"top_logprobs":2'
    at_chat /top_logprobs '"logprobs":false,"top_logprobs":2'
    at_chat /logprobs '"logprobs":2'
    at /logprobs completions '{"prompt":"x","logprobs":true}'
    at_chat /stream_options '"stream_options":{"include_usage":true}'
    at_chat /tool_choice '"tool_choice":"auto"'
    at_chat /parallel_tool_calls '"parallel_tool_calls":true'
    at_chat /max_tokens '"max_completion_tokens":2'
    at_chat /repetition_penalty '"repetition_penalty":1,"repeat_penalty":1'
    at_chat /chat_template_kwargs '"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true}'
    at /echo completions '{"prompt":"x","echo":true,"stream":true}'
    at /include/0 responses '{"input":"x","include":["message.output_text.logprobs"]}'
    chimere-serve-stdio < lines > out
    [ "$(jq -s length out)" -eq "${#places[@]}" ]
    for i in "${!places[@]}"; do
        [ "$(jq -rs --argjson id $((i + 1)) '.[] | select(.id == $id) | .error.param' out)" = "${places[i]}" ] ||
            { sed -n "$((i + 1))p" lines; grep "\"id\":$((i + 1))," out; return 1; }
    done
    [ "$(jq -rs 'map(select(.status != 400)) | length' out)" -eq 0 ]
    ask '{"id":1,"method":"health","bdy":{}}' '{"id":2,"method":"health","client":5}' '{"id":3,"method":"cancel","body":{"id":9,"x/":1}}'
    [ "$(jq -rs 'map(.error.param) | join(" ")' out)" = '/bdy /client /x~1' ]
    printf '%s\n' '{"id":1,"method":"chat/completions","x":1,"body":{"messages":[{"role":"user","content":"x","contnet":1}],"max_tokens":1,"response_format":{"type":"text","foo":1}}}' |
        chimere-serve-stdio --lenient | jq -e '.type == "response"'
}

@test "members of other interfaces: done, or without effect and named with -v" {
    body() # ID MEMBERS: a short chat without reasoning
    {
        printf '{"id":"%s","method":"chat/completions","body":{"messages":[{"role":"user","content":"hi"}],"temperature":0,"enable_thinking":false,%s}}\n' "$1" "$2"
    }
    tools=$(jq -c . "$ROOT/share/demo/tools.json")
    asked='"messages":[{"role":"user","content":"Can you convert 315 GBP to EUR?"}],"temperature":0'
    called='"messages":[{"role":"user","content":"Can you convert 315 GBP to EUR?"},{"role":"assistant","content":null,"function_call":{"name":"convert_currency","arguments":"{\"amount\":315}"}},{"role":"function","name":"convert_currency","content":"360"}],"temperature":0'
    {
        body plain '"seed":1'
        body idle '"cache_prompt":true,"id_slot":-1,"verbosity":"low","keep_alive":"5m","prediction":{"type":"content","content":"x"},"modalities":["text"],"store":false,"n_predict":-1,"mirostat":0,"logit_bias":null,"seed":1.0'
        body choice '"structured_outputs":{"choice":["no\"w","never"]}'
        body guided '"guided_regex":"[0-9]{3}"'
        body json '"guided_json":"{\"type\":\"boolean\"}"'
        body object '"response_format":{"type":"json_object","schema":{"enum":[12]}}'
        body top '"json_schema":{"const":"a\nb"}'
        body two '"max_tokens":2.0,"ignore_eos":true,"timings_per_token":true'
        body off '"dry_multiplier":0,"dry_base":2,"max_tokens":1'
        echo '{"id":"parts","method":"chat/completions","body":{"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}],"max_tokens":1}}'
        echo '{"id":"back","method":"chat/completions","body":{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo","reasoning":"I greet."},{"role":"user","content":"hi"}],"max_tokens":1}}'
        echo "{\"id\":\"allowed\",\"method\":\"chat/completions\",\"body\":{$asked,\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"convert_currency\"}}]}},\"tools\":$tools}}"
        echo "{\"id\":\"old\",\"method\":\"chat/completions\",\"body\":{$asked,\"functions\":$(jq -c 'map(.function)' <<< "$tools"),\"function_call\":{\"name\":\"convert_currency\"}}}"
        echo "{\"id\":\"stream\",\"method\":\"chat/completions\",\"body\":{$asked,\"functions\":$(jq -c 'map(.function)' <<< "$tools"),\"stream\":true,\"return_progress\":true}}"
        echo "{\"id\":\"turn\",\"method\":\"chat/completions\",\"body\":{$called,\"functions\":$(jq -c 'map(.function)' <<< "$tools")}}"
        echo "{\"id\":\"tools\",\"method\":\"chat/completions\",\"body\":{$(sed 's/"function_call":\(.*\)},{"role":"function","name":"convert_currency"/"tool_calls":[{"type":"function","id":"c","function":\1}]},{"role":"tool","tool_call_id":"c"/' <<< "$called"),\"tools\":$tools}}"
        jq -nc --argjson t "$tools" '{id: "responses", method: "responses", body: {input: "Can you convert 315 GBP to EUR?", temperature: 0, tools: [$t[].function | .type = "function"],
            tool_choice: {type: "allowed_tools", mode: "required", tools: [{type: "function", name: "convert_currency"}]},
            text: {verbosity: "low", format: {type: "json_schema", name: "n", schema: {type: "object"}}}, store: false}}'
    } | chimere-serve-stdio -v > out 2> err
    jq -es 'map(select(.type == "response") | {(.id): .body}) | add as $r | ($r | map_values(.choices[0].message.content?)) as $text |
        ($text.idle == $text.plain) and ($r.idle.system_fingerprint | test("^fp_[0-9a-f]{16}$")) and
        ($text | [.choice, .guided, .json, .object, .top] as $v | ($v[0] | IN("no\"w", "never")) and ($v[1] | test("^[0-9]{3}$")) and
            ($v[2] | IN("true", "false")) and $v[3:] == ["12", "\"a\\nb\""]) and
        ($r.two | .usage.completion_tokens == 2 and .usage.completion_tokens_details.reasoning_tokens == 0 and
            (.timings | .prompt_n + .cache_n == $r.two.usage.prompt_tokens and .predicted_n == 2 and .prompt_ms > 0 and .predicted_per_second > 0)) and
        ($r.plain | has("timings") | not) and ($r.back.usage.prompt_tokens > $r.parts.usage.prompt_tokens) and
        ($r.allowed.choices[0] | .finish_reason == "tool_calls" and .message.tool_calls[0].function.name == "convert_currency") and
        ($r.old.choices[0] | .finish_reason == "function_call" and .message.function_call == $r.allowed.choices[0].message.tool_calls[0].function and
            (.message | has("tool_calls") | not)) and
        ($r.turn.choices[0].message.content == $r.tools.choices[0].message.content) and ($r.turn.usage.prompt_tokens == $r.tools.usage.prompt_tokens) and
        ($r.responses.output[-1] | .type == "function_call" and .name == "convert_currency")' out
    jq -es 'map(select(.id == "stream" and .type == "chunk") | .body) | (map(.choices[0].delta.function_call.arguments // "") | add | fromjson == {amount: 315, from_currency: "GBP", to_currency: "EUR"}) and
        .[-1].choices[0].finish_reason == "function_call" and (map(.prompt_progress // empty)[-1] | .processed == .total)' out
    for name in cache_prompt id_slot verbosity keep_alive prediction modalities store mirostat cache_control; do
        [ "$(grep -c "without effect: $name\$" err)" -eq 1 ]
    done
}

@test "reasoning: none, a little" {
    ask "$(chat r '0,"reasoning_budget":0')" "$(chat p '0,"reasoning_budget":3')"
    jq -es '.[] | select(.id == "r") | .body.choices[0].message | has("reasoning_content") == false and (.content | length > 0)' out
    jq -es '.[] | select(.id == "p") | .body.choices[0].message.reasoning_content | length | . > 0 and . < 40' out
    # A model that opens it itself, as chimere-run does it; a template without reasoning.
    own='{% for m in messages %}<|im_start|>{{ m.role }}{{ "\n" + m.content }}<|im_end|>{{ "\n" }}{% endfor %}<|im_start|>assistant{{ "\n" }}'
    printf '%s' "$own{# <think> </think> #}" > own
    printf '%s' "$own" > plain
    chat o '0,"reasoning_budget":6,"logit_bias":{"4090":15}' | chimere-serve-stdio --template own > out
    chimere-run --template own -p 'What is 347 + 58?' --reasoning-budget 6 --logit-bias 4090=15 --json > want
    jq -e --slurpfile w want '.body.choices[0].message.content == $w[0].text and
        .body.usage.completion_tokens_details.reasoning_tokens == 9 and $w[0].usage.reasoning_tokens == 9' out
    chat o '0,"reasoning_budget":6' | chimere-serve-stdio --template plain | jq -e '.status == 400 and .error.param == "/reasoning_budget"'
}

@test "cancel, and an id that is in use" {
    ask '{"id":"long","method":"completions","body":{"prompt":"x","max_tokens":3000,"ignore_eos":true}}' \
        '{"id":"long","method":"health"}' '{"id":"c","method":"cancel","body":{"id":"long"}}' '{"id":"d","method":"cancel","body":{"id":"none"}}'
    jq -es '[.[] | select(.id == "long")] | map(.type) | sort == ["cancelled", "error"]' out
    jq -es '.[] | select(.id == "c") | .body.found == true' out
    jq -es '.[] | select(.id == "d") | .body.found == false' out
    ask '{"id":1,"method":"health"}' '{"id":"c","method":"cancel","body":{"id":1}}' # its reply is ready, and nobody took it
    jq -es 'map(.id) | sort == [1, "c"]' out
}

@test "hostile lines: long, not UTF-8, empty, many" {
    { head -c 20000000 /dev/zero | tr '\0' a; echo; printf '\xff\xfe\n\n  \n'; echo '{"id":1,"method":"health"}'; } | chimere-serve-stdio > out
    [ "$(wc -l < out)" -eq 3 ]
    jq -es '[.[] | select(.type == "error")] | length == 2 and .[0].status == 413' out
    printf '%s\n' '{"id":"a\u0000b","method":"health"}' '{"id":7,"method":"tokenize","body":{"text":"x","model":"\u0000"}}' |
        chimere-serve-stdio | jq -ces '[.[] | [.id, .type]] == [["a\u0000b", "error"], [7, "error"]]'
    # what no value can hold costs its line, not the id; a limit of a schema may be larger than any number
    ask '{"id":1,"method":"completions","body":{"prompt":"a","seed":18446744073709551615}}' \
        '{"id":2,"method":"chat/completions","body":{"messages":[{"role":"user","content":"cut \ud83d"}]}}' \
        '{"id":3,"method":"completions","body":{"prompt":"a","temperature":1e400}}' \
        '{"id":4,"method":"completions","body":{"prompt":"a","temperature":0,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"integer","minimum":0,"maximum":18446744073709551615}}}}}'
    jq -es 'map({(.id | tostring): .}) | add | (map_values(.error.param) == {"1":"/seed","2":"/messages/0/content","3":"/temperature","4":null}) and
        (.["1"].error.message | endswith("body/seed: a whole number of more than 64 bits")) and (.["4"].body.choices[0].text | test("^[0-9]+$"))' out
    yes 'x' | head -n 20000 | chimere-serve-stdio > out
    [ "$(wc -l < out)" -eq 20000 ]
    printf '{"id":1,"method":"health"}' | chimere-serve-stdio | jq -e '.body.status == "ok"' # no newline at the end
}

@test "a NUL character in texts that the model reads" {
    said='[{"role":"user","content":"x"},{"role":"assistant","content":"y\u0000z","reasoning_content":"\u0000"},{"role":"user","content":"x"}]'
    ask '{"id":1,"method":"tokenize","body":{"text":"a\u0000b"}}' '{"id":2,"method":"tokenize","body":{"text":"a"}}' \
        "{\"id\":3,\"method\":\"chat/completions\",\"body\":{\"messages\":$said,\"max_tokens\":1}}" \
        "{\"id\":4,\"method\":\"chat/completions\",\"body\":{\"messages\":${said//z/},\"max_tokens\":1}}" \
        '{"id":5,"method":"responses","body":{"input":[{"role":"user","content":[{"type":"input_text","text":"\u0000"}]}],"max_output_tokens":1}}' \
        '{"id":6,"method":"completions","body":{"prompt":["a\u0000b"],"max_tokens":1}}' \
        '{"id":7,"method":"chat/completions","body":{"messages":[{"role":"user\u0000","content":"x"}]}}'
    jq -es 'map({key: "\(.id)", value: .}) | from_entries |
        (.["1"].body.tokens | length) > (.["2"].body.tokens | length) and
        .["3"].body.usage.prompt_tokens == .["4"].body.usage.prompt_tokens + 1 and
        .["5"].type == "response" and .["6"].type == "response" and
        (.["7"].error.message | endswith("\\u0000 is not allowed in \"role\""))' out
    ask "$(jq -c '{id: 1, method: "detokenize", body: {tokens: .body.tokens}}' <<< "$(grep '"id":1,' out)")"
    jq -e '.body.text == "a\u0000b"' out
}

# hostile STATUS METHOD BODY: the server says that status and goes on; 200 is a response or a stream that ends.
hostile()
{
    cases+=("$1")
    printf '{"id":%d,"method":"%s","body":%s}\n' "${#cases[@]}" "$2" "$3" >> lines
}
talk() # MEMBERS [STATUS]
{
    hostile "${2:-400}" chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":2,$1}"
}
go_on()
{
    hostile "${2:-400}" completions "{\"prompt\":\"x\",\"max_tokens\":2,$1}"
}

@test "hostile bodies: each has its reply, and the server goes on" {
    cases=()
    local key tool='{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}'
    printf -v key '%0159d\xc3\xa9\xc3\xa9' 0 # the pointer ends within a character
    go_on "\"$key\":1"
    go_on "\"$(printf '~%.0s' {1..200})\":1"
    talk '"tools":[1]'
    talk '"tools":[{"type":"function","function":{"name":5}}]'
    talk "\"tools\":[$tool],\"tool_choice\":\"required\"" 200
    talk "\"tools\":[$tool],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}" 200
    talk "\"tools\":[$tool],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"
    talk "\"tools\":[$tool],\"tool_choice\":\"required\",\"response_format\":{\"type\":\"json_object\"}" 200 # it is for texts
    talk '"tool_choice":"required"'
    talk '"tools":[{"type":"function","function":{"name":"f","parameters":{"type":7}}}],"tool_choice":"required"'
    talk '"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"strng"}}}}}],"tool_choice":"required"'
    talk "\"tools\":[$tool,$tool],\"tool_choice\":\"none\",\"parallel_tool_calls\":false" 200
    talk '"logprobs":true,"top_logprobs":3' 200 # the answer ends in its reasoning, which has none
    talk '"logprobs":true,"top_logprobs":3,"stream":true,"n":2' 200
    hostile 400 chat/completions '{"messages":[1]}'
    talk '"response_format":{"type":"json_schema","json_schema":{"schema":{"$ref":"#"}}}'
    talk '"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"string","pattern":"["}}}'
    talk '"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"array","minItems":1000000000000}}}'
    talk '"response_format":{"type":"json_schema","json_schema":{"schema":false}}'
    talk '"response_format":[]'
    talk '"chat_template_kwargs":{"messages":[],"tools":5,"bos_token":{"a":[]},"":1}'
    talk '"reasoning_effort":5'
    talk '"stream":true,"stream_options":{"include_usage":1}'
    hostile 400 completions '{"prompt":[[]]}'
    hostile 400 completions '{"prompt":["x",1]}'
    hostile 400 completions '{"prompt":[-1]}'
    hostile 400 completions '{"prompt":[null]}'
    go_on '"n":0'
    go_on '"n":64' 200
    go_on '"stop":["","x"]'
    go_on '"logit_bias":{"1":1e308}'
    go_on '"logit_bias":{"+1":1}'
    go_on '"logit_bias":{" 1":1}'
    go_on '"logit_bias":{"99999999999999999999":1}'
    hostile 400 completions '{"prompt":"x","max_tokens":-2}'
    go_on '"temperature":1e-30,"typical_p":1e-9,"repeat_penalty":0.001,"frequency_penalty":100' 200
    go_on '"echo":true,"stream":true'
    go_on '"logprobs":21'
    hostile 400 embeddings '{"input":["x",""]}'
    hostile 200 embeddings '{"input":[[1,2],"x"]}'
    hostile 400 responses '{}'
    hostile 400 responses '{"input":[]}'
    hostile 400 responses '{"input":[1]}'
    hostile 400 responses '{"input":[{"type":"function_call","name":"f"}]}'
    hostile 400 responses '{"input":[{"type":"function_call_output","output":{}}]}'
    hostile 400 responses '{"input":[{"type":"function_call_output","output":"x"}]}'
    hostile 400 responses '{"input":"x","max_tokens":1}'
    hostile 400 responses '{"input":[{"role":5,"content":"x"}]}'
    hostile 400 responses '{"input":"x","instructions":[]}'
    hostile 400 responses '{"input":"x","tools":{}}'
    hostile 400 responses '{"input":"x","tools":[{"type":"function"}],"tool_choice":"required"}'
    hostile 400 responses '{"input":"x","n":2}'
    hostile 400 responses '{"input":"x","text":{"format":{"type":"json_schema"}}}'
    hostile 200 responses '{"input":"x","max_output_tokens":1,"stream":true,"top_logprobs":0,"n":1,"store":false,"include":["x"]}'
    hostile 200 responses '{"input":[{"type":"reasoning","summary":[]},{"role":"user","content":[]},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}],"max_output_tokens":1}'
    hostile 400 messages '[]'
    hostile 400 messages '{"max_tokens":1,"messages":[1]}'
    hostile 400 messages '{"max_tokens":1,"messages":[{"role":"user","content":[1]}]}'
    hostile 400 messages '{"max_tokens":1,"messages":[{"role":"user","content":[]}]}'
    hostile 400 messages '{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[5]}]}]}'
    hostile 400 messages '{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[{}]}'
    hostile 400 messages '{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}]}'
    hostile 400 messages/count_tokens '{"messages":{}}'
    hostile 200 messages '{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"","name":"","input":{}}]},{"role":"user","content":"x"}],"stream":true}'
    hostile 400 detokenize '{"tokens":[1.5]}'
    hostile 400 tokenize '[]'
    chimere-serve-stdio --alias "$(printf 'm\xff')" < lines > out
    [ "${#cases[@]}" -ge 30 ]
    for i in "${!cases[@]}"; do
        jq -es --argjson id $((i + 1)) --argjson status "${cases[i]}" '[.[] | select(.id == $id)] | length > 0 and
            (.[-1] | if $status == 200 then .type == "end" or .type == "response" else .type == "error" and .status == $status end)' \
            out > /dev/null || { sed -n "$((i + 1))p" lines; grep "\"id\":$((i + 1))," out; return 1; }
    done
}

batch()
{
    for i in $(seq 1 "$1"); do
        printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":{"prompt":"Chapter %d","max_tokens":12,"temperature":1,"seed":%d}}\n' "$i" "$i" "$i"
    done
}

@test "a batch, killed again and again, has each answer once" {
    batch 40 > in.jsonl
    echo '{"custom_id":"bad","method":"POST","url":"/v1/completions","body":{"prompt":""}}' >> in.jsonl
    chimere-serve-stdio --batch in.jsonl -o whole.jsonl
    [ "$(wc -l < whole.jsonl)" -eq 40 ]
    jq -e '.custom_id == "bad" and .response.status_code == 400' whole.jsonl.errors
    for i in $(seq "${CHIMERE_TEST_PROGRAMS:-25}"); do
        timeout -s KILL "0.$((RANDOM % 20 + 5))" chimere-serve-stdio --batch in.jsonl -o out.jsonl || true
    done 2> /dev/null
    chimere-serve-stdio --batch in.jsonl -o out.jsonl
    [ "$(jq -r .custom_id out.jsonl | sort | uniq -d | wc -l)" -eq 0 ]
    diff <(jq -c '[.custom_id, .response.body.choices[0].text]' whole.jsonl | sort) <(jq -c '[.custom_id, .response.body.choices[0].text]' out.jsonl | sort)
    sed -i '1s/"text":"/&\\u0000/' out.jsonl # an answer may have any character
    jq -es '.[0].response.body.choices[0].text[:1] == "\u0000"' out.jsonl
    cp out.jsonl before
    chimere-serve-stdio --batch in.jsonl -o out.jsonl
    cmp before out.jsonl
    batch 1 | sed 's/"max_tokens":12/"max_tokens":1500,"ignore_eos":true/' > one.jsonl
    chimere-serve-stdio --batch one.jsonl -o gone 2> why &
    wait_for test -e gone.errors
    rm gone
    wait $! && return 1
    grep -q 'gone: was moved or removed' why
}

@test "members as clients of other servers send them mean the same here" {
    local odd
    ask() { jq -nc --arg m "{$1}" '{messages: [{role: "user", content: "What is 2 + 2?"}], max_tokens: 4, temperature: 0,
        chat_template_kwargs: {enable_thinking: false}} + ($m | fromjson) | {id: 1, method: "chat/completions", body: .}'; }
    answer() { ask "$1" | chimere-serve-stdio | jq -c '.body.choices[0].message.content // .'; }
    [ "$(answer '')" = '"4"' ]
    local four
    four=$(chimere-run --tokenize -p 4 --no-stdin | jq '.[0]')
    [ "$(answer "\"logit_bias\":[[$four,false]]")" = "$(answer "\"logit_bias\":{\"$four\":-100}")" ]
    no [ "$(answer "\"logit_bias\":[[$four,false]]")" = '"4"' ]
    [ "$(answer '"response_format":{"type":"json_schema","schema":{"const":17}}')" = '"17"' ]
    [ "$(answer '"response_format":{"type":"json_schema","json_schema":{"schema":{"const":18,"nullable":false}}}')" = '"18"' ]
    for odd in '"max_tokens":-1' '"grammar":""' '"penalize_nl":true' '"logit_bias":[]' '"seed":-1' '"stop":[]' '"top_k":-1' '"tools":[]' \
        '"tools":[{"function":{"name":"f","parameters":null,"strict":null}}]' '"max_tokens":4.0' '"n":null' '"tools":null'; do
        [ "$(answer "$odd")" = '"4"' ] || { echo "$odd: $(answer "$odd")"; false; }
    done
}

@test "a batch in shards; what is refused before anything is done" {
    batch 10 > in.jsonl
    # The last line lacks its end alone, or more; several on one line are no answers of ours.
    chimere-serve-stdio --batch in.jsonl -o out.jsonl
    cp out.jsonl before
    truncate -s -1 out.jsonl
    try 0 chimere-serve-stdio --batch in.jsonl -o out.jsonl
    cmp out.jsonl before
    no grep -q 'cut off' err
    truncate -s -5 out.jsonl
    try 0 chimere-serve-stdio --batch in.jsonl -o out.jsonl
    grep -q 'out.jsonl: its last line was cut off, and is asked again' err
    tr -d '\n' < out.jsonl > joined
    cp joined before
    fails 3 'joined: line 1' chimere-serve-stdio --batch in.jsonl -o joined
    cmp joined before
    for i in 1 2 3; do chimere-serve-stdio --batch in.jsonl -o "out$i" --shard "$i/3"; done
    [ "$(cat out1 out2 out3 | jq -r .custom_id | sort -u | wc -l)" -eq 10 ]
    for shard in 0/3 4/3 +1/3 1/+3 1/3x 1; do
        fails 2 "shard $shard: not I/N" chimere-serve-stdio --batch in.jsonl -o new --shard "$shard"
    done
    # A value that cannot be held refuses its request alone; a custom_id may be a number.
    batch 3 | sed '1s/"q1"/7/; 2s/"seed":2/"seed":9223372036854775808/' > held.jsonl
    fails 4 '1 of 3 requests were refused' chimere-serve-stdio --strict --batch held.jsonl -o held
    jq -ces 'sort_by(.response.request_id) | map(.custom_id) == [7, "q3"]' held
    jq -e '.custom_id == "q2" and .response.status_code == 400 and .response.body.error.param == "/seed"' held.errors
    cp held before
    chimere-serve-stdio --batch held.jsonl -o held && cmp held before
    { batch 2; batch 1; } > twice.jsonl
    fails 3 'custom_id "q1" comes a second time' chimere-serve-stdio --batch twice.jsonl -o new
    [ ! -e new ]
    printf 'my notes\nlast line' > notes
    fails 3 'notes: line 1' chimere-serve-stdio --batch in.jsonl -o notes
    [ "$(cat notes)" = "$(printf 'my notes\nlast line')" ]
    echo '{"custom_id":"a","url":"/v1/files","body":{}}' > odd.jsonl
    echo '{"custom_id":"a","url":"/v1/completions","body":{},"metod":1}' > more.jsonl
    fails 3 'line 1: "metod" is not a member' chimere-serve-stdio --batch more.jsonl -o new
    fails 3 'url is not' chimere-serve-stdio --batch odd.jsonl -o new
    for id in true 1.5 '["a"]'; do
        echo "{\"custom_id\":$id,\"url\":\"/v1/completions\",\"body\":{}}" > odd.jsonl
        fails 3 'line 1: custom_id is neither a text nor a whole number' chimere-serve-stdio --batch odd.jsonl -o new
    done
    echo '{"custom_id":"","url":"/v1/completions","body":{}}' > odd.jsonl
    fails 3 'line 1: no custom_id' chimere-serve-stdio --batch odd.jsonl -o new
    fails 2 '--batch needs --output' chimere-serve-stdio --batch in.jsonl
}

# question ID TEXT: a line of a batch
question()
{
    jq -nc --arg id "$1" --arg t "$2" '{custom_id: $id, method: "POST", url: "/v1/chat/completions", body: {messages: [{role: "user", content: $t}], temperature: 0}}'
}
content() # FILE: what was answered, by id
{
    jq -r '.custom_id + " " + .response.body.choices[0].message.content' "$1" | sort
}

@test "a batch that goes on: what was another request is asked again, what other settings made is refused" {
    { question a 'What is 2 + 3?'; question b 'What is 347 + 58?'; } > in.jsonl
    chimere-serve-stdio --batch in.jsonl -o out.jsonl
    [ "$(content out.jsonl)" = "$(printf 'a 5\nb 405')" ]
    { question a 'What is 7 + 7?'; question b 'What is 347 + 58?' | jq -c 'del(.method) | .body |= (to_entries | reverse | from_entries)'; } > in.jsonl
    grep '"b"' out.jsonl > kept
    try 0 chimere-serve-stdio --batch in.jsonl -o out.jsonl
    grep -q 'in.jsonl: 1 of its requests were others when they were answered, and are asked again' err
    [ "$(content out.jsonl)" = "$(printf 'a 14\nb 405')" ] # each once
    grep '"b"' out.jsonl | cmp - kept
    question a 'What is 7 + 7?' | jq -c '.url = "/v1/responses" | .body = {input: "What is 7 + 7?", temperature: 0}' > other.jsonl
    grep '"a"' out.jsonl > one
    chimere-serve-stdio --batch other.jsonl -o one
    jq -es 'length == 1 and .[0].response.body.object == "response"' one
    [ -z "$(find . -name '.*.tmp')" ]
    # Each kind of setting; more threads and drafts change no answer.
    cp out.jsonl before
    echo 'a text' > text
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}' > own.jinja
    while read -r what opts; do
        # shellcheck disable=SC2086
        fails 3 "out.jsonl: line 1: was made with $what" chimere-serve-stdio --batch in.jsonl -o out.jsonl $opts
    done << END
another -m $TINY
other -n 3
other --alias x
other --top-k 3
other -c 900
other --context-table text
other --template own.jinja
END
    jq -c 'del(.made_with)' before > out.jsonl
    fails 3 'out.jsonl: line 1: was made with settings that it does not name' chimere-serve-stdio --batch in.jsonl -o out.jsonl
    cp before out.jsonl
    try 0 chimere-serve-stdio --batch in.jsonl -o out.jsonl -t 2 --draft ngram --parallel 1 --lenient
    cmp before out.jsonl
}

@test "a batch with refused requests says so; mended ones are asked" {
    { question a 'What is 2 + 3?'; question b 'x' | jq -c '.body.temperature = -1'; question c 'x' | jq -c '.body.foo = 1'; } > in.jsonl
    try 0 chimere-serve-stdio --batch in.jsonl -o out.jsonl
    [ "$(cat err)" = 'chimere-serve-stdio: 2 of 3 requests were refused, see out.jsonl.errors' ]
    try 4 chimere-serve-stdio --batch in.jsonl -o out.jsonl --strict # they are still there
    [ "$(jq -r .custom_id out.jsonl.errors | tr '\n' ' ')" = 'b c ' ]
    { question a 'What is 2 + 3?'; question b 'What is 347 + 58?'; question c 'x' | jq -c '.body.foo = 1'; } > in.jsonl
    try 4 chimere-serve-stdio --batch in.jsonl -o out.jsonl --strict
    grep -q '1 of 3 requests were refused' err
    [ "$(content out.jsonl)" = "$(printf 'a 5\nb 405')" ]
    [ "$(jq -r .custom_id out.jsonl.errors | tr '\n' ' ')" = 'c ' ]
    { question a 'What is 2 + 3?'; question b 'What is 347 + 58?'; question c 'What is 7 + 7?'; } > in.jsonl
    try 0 chimere-serve-stdio --batch in.jsonl -o out.jsonl --strict
    [ ! -s err ] && [ ! -s out.jsonl.errors ] && [ "$(wc -l < out.jsonl)" -eq 3 ]
    # What other settings refused is asked again.
    question a 'What is 2 + 3?' > in.jsonl
    try 4 chimere-serve-stdio --batch in.jsonl -o small --strict -c 8
    try 0 chimere-serve-stdio --batch in.jsonl -o small --strict
    [ "$(content small)" = 'a 5' ] && [ ! -s small.errors ]
    fails 2 '--strict needs --batch' chimere-serve-stdio --strict
}

@test "tool_choice: a call comes where one is asked for" {
    local tools i
    tools=$(jq -c . "$ROOT/share/demo/tools.json")
    for i in 1 2 3 4 5 6; do
        printf '{"id":%d,"method":"chat/completions","body":{"messages":[{"role":"user","content":"Hello."}],"tools":%s,"tool_choice":"required","temperature":1.5,"seed":%d,"max_tokens":900,"chat_template_kwargs":{"enable_thinking":%s}}}\n' \
            $i "$tools" $i "$([ $((i % 2)) = 0 ] && echo true || echo false)"
    done > lines
    chimere-serve-stdio < lines > out
    jq -es 'length == 6 and all(.[].body.choices[0]; .finish_reason == "length" or (.finish_reason == "tool_calls" and
        (.message.tool_calls | length >= 1 and all(.[]; .function.arguments | fromjson | type == "object"))))' out
    jq -es 'any(.[].body.choices[0]; .finish_reason == "tool_calls")' out
}

@test "mixed requests at 16 sequences, some cancelled: each answer is the one alone" {
    local n=${CHIMERE_TEST_PROGRAMS:+120}
    timeout 120 python3 "$ROOT/tests/clients/soak.py" "${n:=200}" 16 30 > soaked
    jq -e ".requests == $n and .cancelled > 0" soaked
}

@test "guesses ahead change the speed alone" {
    timeout 120 python3 "$ROOT/tests/clients/soak.py" 60 8 10 --draft auto > soaked
    jq -e '.requests == 60 and .drafted > 0' soaked # how many depends on what they cost; the first ones tell
    fails 2 "needs --draft" chimere-serve-stdio --draft-max 2
    fails 2 "only chimere-run drafts from tables" chimere-serve-stdio --draft engram
    CHIMERE_OPTS='--draft engram' try 0 chimere-serve-stdio --draft off < /dev/null
    fails 3 "another tokenizer" chimere-serve-stdio --draft "$TINY"
}

@test "what answers are made with is looked at before the first request" {
    fails 2 "--parser: no parser is called 'none'" chimere-serve-stdio --parser none
    : > empty
    printf '{{ raise_exception("no") }}' > raises
    printf 'Hello.' > deaf
    fails 3 'empty: is empty' chimere-serve-stdio --template empty
    fails 3 '--template raises: template: line 1' chimere-serve-stdio --template raises
    fails 3 '--template deaf: does not show' chimere-serve-stdio --template deaf
    fails 2 'name is empty' chimere-serve-stdio --alias ''
}

@test "a stream sends the arguments of a call as they are written" {
    jq -c --argjson t "$(jq -c . "$ROOT/share/demo/tools.json")" '{id, method, body: ({tools: $t, tool_choice: "required",
            temperature: 0} + .body)} | if .method == "responses" then .body.tools[] |= .function + {type: "function"} else . end' > in << 'END'
{"id":"whole","method":"chat/completions","body":{"messages":[{"role":"user","content":"315 GBP to EUR?"}]}}
{"id":"flow","method":"chat/completions","body":{"messages":[{"role":"user","content":"315 GBP to EUR?"}],"stream":true}}
{"id":"cut","method":"chat/completions","body":{"messages":[{"role":"user","content":"315 GBP to EUR?"}],"stream":true,"max_tokens":40}}
{"id":"items","method":"responses","body":{"input":"315 GBP to EUR?","stream":true}}
{"id":"short","method":"responses","body":{"input":"315 GBP to EUR?","stream":true,"reasoning":{"effort":"none"},"max_output_tokens":20}}
END
    chimere-serve-stdio < in > out
    jq -es 'map(select(.body)) | (map(select(.id == "whole"))[0].body.choices[0].message.tool_calls[0]) as $c |
            map(select(.id == "flow") | .body.choices[0]) as $f | ($f | map(.delta.tool_calls[]?)) as $d |
            $d[0] == {index: 0, id: $c.id, type: "function", function: {name: $c.function.name, arguments: ""}} and
            ($d | length) > 4 and all($d[1:][]; keys == ["function", "index"] and (.function | keys) == ["arguments"]) and
            ($d | map(.function.arguments) | add) == $c.function.arguments and $f[-1].finish_reason == "tool_calls"' out
    jq -es 'map(select(.id == "cut" and .body) | .body.choices[0]) | .[-1].finish_reason == "length" and
            (map(.delta.tool_calls[]?.function.arguments) | add | try (fromjson | false) catch true)' out
    jq -es '(map(select(.id == "whole"))[0].body.choices[0].message.tool_calls[0].function.arguments) as $a |
            map(select(.id == "items" and .body).body) as $e | ($e | map(select(.type == "response.function_call_arguments.delta").delta)) as $d |
            ($d | length) > 4 and ($d | add) == $a and ($e[-1].response.output[-1] | .arguments == $a and .status == "completed") and
            ($e | map(select(.type == "response.function_call_arguments.done").arguments)) == [$a]' out
    jq -es 'map(select(.id == "short" and .body).body) | .[-1] as $last | $last.type == "response.incomplete" and
            ($last.response.output[-1] | .type == "function_call" and .status == "incomplete") and
            (map(select(.type == "response.function_call_arguments.delta").delta) | add) == $last.response.output[-1].arguments and
            all(.[]; .type != "response.function_call_arguments.done")' out
}

@test "a call has an id that no earlier one has" {
    local tools call said i
    tools=$(jq -c . "$ROOT/share/demo/tools.json")
    said='{"role":"user","content":"Can you convert 315 GBP to EUR?"}'
    for i in 1 2 3; do # each turn has the calls before it
        jq -nc --argjson m "[$said]" --argjson t "$tools" '{id: 1, method: "chat/completions", body: {messages: $m, tools: $t, tool_choice: "required", parallel_tool_calls: false, temperature: 0, max_tokens: 300, chat_template_kwargs: {enable_thinking: false}}}' > line
        chimere-serve-stdio < line > "out$i"
        call=$(jq -c '.body.choices[0].message.tool_calls' "out$i")
        jq -r '.[0].id' <<< "$call" >> ids
        said="$said,{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":$call},{\"role\":\"tool\",\"tool_call_id\":\"$(tail -n 1 ids)\",\"content\":\"366.70\"},{\"role\":\"user\",\"content\":\"And 20 EUR to USD?\"}"
    done
    [ "$(sort -u ids | wc -l)" -eq 3 ] && [ "$(wc -l < ids)" -eq 3 ]
    [ "$(chimere-serve-stdio < line | jq -r '.body.choices[0].message.tool_calls[0].id')" = "$(tail -n 1 ids)" ]
}

@test "characters that end a line for some readers are escaped" {
    for i in 2028 2029 0085; do
        printf '{"id":"a\\u%s","method":"detokenize","body":{"tokens":[]}}\n' "$i"
    done > lines
    chimere-serve-stdio < lines > out
    [ "$(grep -c '"id":"a\\u\(2028\|2029\|0085\)"' out)" -eq 3 ]
    jq -es 'map(.id) == ["a\u2028", "a\u2029", "a\u0085"]' out
}

@test "a prompt that is too long has the code that clients look for" {
    printf '%s\n' '{"id":1,"method":"chat/completions","body":{"messages":[{"role":"user","content":"one two three four five"}]}}' \
        '{"id":2,"method":"completions","body":{"prompt":["x","one two three four five six seven eight nine ten"]}}' > lines
    chimere-serve-stdio -c 8 < lines | jq -es 'map(.error | [.code, .type]) |
        . == [["context_length_exceeded", "invalid_request_error"], ["context_length_exceeded", "invalid_request_error"]]'
    ask '{"id":1,"method":"tokenize","body":{"text":"x","x":1}}'
    jq -e '.error | .code == null and .param == "/x"' out
}

@test "a request for which there is no room fails alone" {
    printf '%s\n' '{"id":1,"method":"completions","body":{"prompt":"x","max_tokens":2,"context_table":"a text"}}' \
        '{"id":2,"method":"completions","body":{"prompt":"x","max_tokens":2}}' > lines
    TMPDIR=$PWD/none try 0 chimere-serve-stdio < lines
    jq -es 'map([.id, .type, .status]) | sort == [[1, "error", 507], [2, "response", 200]]' out
}

@test "tables of requests have a limit: who finds no memory waits, equal texts have one table" {
    for i in 1 2 3 4; do # the first two have one text; 4 needs none
        printf '{"id":%d,"method":"completions","body":{"prompt":"x","max_tokens":%d,"ignore_eos":true%s}}\n' $i \
            $((i < 3 ? 60 : 1)) "$([ $i = 4 ] || echo ",\"context_table\":\"the text $((i / 3))\"")"
    done > lines
    chimere-serve-stdio --table-memory 1 < lines > out
    [ "$(jq -c .id out | tr '\n' ' ')" = '4 1 2 3 ' ] || [ "$(jq -c .id out | tr '\n' ' ')" = '4 2 1 3 ' ]
    jq -es 'all(.type == "response")' out
    chimere-serve-stdio < lines | jq -c .id | tr '\n' ' ' | grep -q '^[34] [34] '
}
