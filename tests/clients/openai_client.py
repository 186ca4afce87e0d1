# SPDX-License-Identifier: Apache-2.0
"""What the real openai package sees of chimere-serve-stdio --listen. Run by tests/cli/clients.bats.

openai_client.py URL TOOLS.jsonl DIRECTORY CHECK...: runs checks; DIRECTORY/CHECK gets what went wrong, or nothing.
"""
import json
import sys
import threading
import time
import traceback
import urllib.request

import openai

URL, TOOLS, DIRECTORY = sys.argv[1:4]
client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=60)
SUM = [{"role": "user", "content": "What is 347 + 58?"}]
LONG = {"ignore_eos": True}


def metric(name):
    text = urllib.request.urlopen(URL + "/metrics").read().decode()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("chimere_" + name + " ")))


def wait_for(condition):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited ten seconds")


def streaming():
    whole = client.chat.completions.create(model="x", messages=SUM, temperature=0)
    assert whole.choices[0].message.content == "405" and whole.choices[0].finish_reason == "stop"
    text = thoughts = ""
    usage = finish = None
    for chunk in client.chat.completions.create(model="x", messages=SUM, temperature=0, stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            thoughts += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
    assert text == "405" and thoughts == whole.choices[0].message.reasoning_content and finish == "stop"
    assert usage.completion_tokens == whole.usage.completion_tokens
    parts = list(client.completions.create(model="x", prompt="The kernel", temperature=0, max_tokens=8, stream=True))
    one = client.completions.create(model="x", prompt="The kernel", temperature=0, max_tokens=8)
    assert "".join(p.choices[0].text for p in parts) == one.choices[0].text != ""
    assert parts[-1].choices[0].finish_reason == "length"


def choices():
    many = client.completions.create(model="x", prompt=["The", "A"], n=2, max_tokens=5, seed=4, temperature=1)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    again = client.completions.create(model="x", prompt=["The", "A"], n=2, max_tokens=5, seed=4, temperature=1)
    assert [c.text for c in many.choices] == [c.text for c in again.choices]
    vectors = client.embeddings.create(model="x", input=["one", "two"]).data  # base64 on the wire
    assert len(vectors) == 2 and abs(sum(v * v for v in vectors[0].embedding) - 1) < 1e-3
    plain = client.embeddings.create(model="x", input="one", encoding_format="float").data[0].embedding
    assert max(abs(a - b) for a, b in zip(plain, vectors[0].embedding)) < 1e-5
    assert client.models.list().data[0].object == "model"


def called(item, **more):
    return client.chat.completions.create(model="x", messages=item["messages"], tools=item["tools"], temperature=0, **more)


def tools():
    items = [json.loads(line) for line in open(TOOLS, encoding="utf-8")][:12]
    right = 0
    for item in items:
        answer = called(item).choices[0]
        calls = [{"name": c.function.name, "arguments": json.loads(c.function.arguments)}
                 for c in answer.message.tool_calls or []]
        right += (calls or answer.message.content) == item["answer"]
        assert all(c["name"] in [t["function"]["name"] for t in item["tools"]] for c in calls)
        assert answer.finish_reason == ("tool_calls" if calls else "stop")
    assert right >= 11, right
    item = items[0]
    one = called(item).choices[0].message
    parts, finish = {}, None
    for chunk in called(item, stream=True):
        finish = chunk.choices[0].finish_reason or finish
        for c in chunk.choices[0].delta.tool_calls or []:
            if c.index not in parts:
                assert c.id == one.tool_calls[c.index].id and c.type == "function" and c.function.arguments == ""
                parts[c.index] = [c.function.name]
            else:
                assert c.id is None and c.function.name is None and c.function.arguments
                parts[c.index].append(c.function.arguments)
    assert finish == "tool_calls" and len(parts) == len(one.tool_calls) and len(parts[0]) > 3
    assert [(p[0], "".join(p[1:])) for p in parts.values()] == [(c.function.name, c.function.arguments) for c in one.tool_calls]
    strict = [{**t, "function": {**t["function"], "strict": True}} for t in item["tools"]]
    with client.chat.completions.stream(model="x", messages=item["messages"], tools=strict, temperature=0) as stream:
        deltas = [e.arguments_delta for e in stream if e.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert "".join(deltas) == final.function.arguments == one.tool_calls[0].function.arguments and final.id == one.tool_calls[0].id
    back = item["messages"] + [one.model_dump(exclude_none=True),
                               {"role": "tool", "tool_call_id": one.tool_calls[0].id, "content": '{"ok": true}'}]
    end = client.chat.completions.create(model="x", messages=back, tools=item["tools"], temperature=0)
    assert end.choices[0].message.content and end.usage.prompt_tokens > 0
    none = called(item, tool_choice="none", max_tokens=400).choices[0].message
    assert not none.tool_calls


def structured():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "why": {"enum": ["sum", "guess"]}},
              "required": ["n", "why"], "additionalProperties": False}
    for seed in range(4):
        answer = client.chat.completions.create(
            model="x", messages=SUM, temperature=1.5, seed=seed,
            response_format={"type": "json_schema", "json_schema": {"name": "sum", "schema": schema, "strict": True}},
            extra_body={"chat_template_kwargs": {"enable_thinking": seed % 2 == 1}})
        if answer.choices[0].finish_reason == "stop":
            value = json.loads(answer.choices[0].message.content)
            assert set(value) == {"n", "why"} and type(value["n"]) is int and value["why"] in ("sum", "guess")
    assert answer.id


def logprobs():
    answer = client.chat.completions.create(model="x", messages=SUM, temperature=0, logprobs=True, top_logprobs=3,
                                            extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    tokens = answer.choices[0].logprobs.content
    assert "".join(bytes(t.bytes).decode() for t in tokens).startswith(answer.choices[0].message.content)
    for t in tokens:
        assert t.logprob <= 0 and len(t.top_logprobs) == 3 and t.top_logprobs[0].token == t.token
        assert t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob >= t.top_logprobs[2].logprob
    text = client.completions.create(model="x", prompt="The", max_tokens=3, temperature=0, logprobs=2)
    assert len(text.choices[0].logprobs.token_logprobs) == 3
    streamed = [t.token for chunk in client.chat.completions.create(
        model="x", messages=SUM, temperature=0, logprobs=True, top_logprobs=3, stream=True,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}})
        for t in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else [])]
    assert streamed == [t.token for t in tokens]


def errors():
    for kind, param, call in [
        (openai.BadRequestError, "/temperature", lambda: client.completions.create(model="x", prompt="a", temperature=-1)),
        (openai.BadRequestError, "/messages", lambda: client.chat.completions.create(model="x", messages=[])),
        (openai.BadRequestError, "/nonsense", lambda: client.completions.create(model="x", prompt="a", extra_body={"nonsense": 1})),
        (openai.NotFoundError, None, lambda: client.images.generate(prompt="a")),
        (openai.APIStatusError, None, lambda: client.completions.create(model="x", prompt="a" * (17 << 20))),
    ]:
        try:
            call()
        except kind as e:
            assert e.body["message"] and e.body["param"] == param, e.body
        else:
            raise AssertionError(f"no {kind.__name__}")
    assert client.completions.create(model="x", prompt="a", max_tokens=1).choices


def responses():
    whole = client.responses.create(model="x", input=SUM, temperature=0)
    chat = client.chat.completions.create(model="x", messages=SUM, temperature=0)
    assert whole.output_text == "405" == chat.choices[0].message.content and whole.status == "completed"
    assert [o.type for o in whole.output] == ["reasoning", "message"]
    assert whole.output[0].content[0].text == chat.choices[0].message.reasoning_content
    assert whole.usage.output_tokens == chat.usage.completion_tokens
    events = list(client.responses.create(model="x", input=SUM, temperature=0, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type.split(".", 1)[1] for e in events if ".delta" not in e.type] == [
        "created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.done", "content_part.done",
        "output_item.done", "output_item.added", "content_part.added", "output_text.done", "content_part.done",
        "output_item.done", "completed"]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "405"
    assert events[-1].response.output_text == "405" and events[-1].response.usage.output_tokens == whole.usage.output_tokens
    with client.responses.stream(model="x", input=SUM, temperature=0) as stream:
        assert [e.type for e in stream][-1] == "response.completed" and stream.get_final_response().output_text == "405"
    # the next turn sends the items of this one; what was evaluated for it is not evaluated again
    more = SUM + [o.model_dump(exclude_none=True) for o in whole.output] + [{"role": "user", "content": "And 12 + 30?"}]
    assert client.responses.create(model="x", input=more, max_output_tokens=5).usage.input_tokens_details.cached_tokens > 15
    short = client.responses.create(model="x", input="Hello", instructions="Be brief.", max_output_tokens=5)
    assert short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens"
    item = json.loads(open(TOOLS, encoding="utf-8").readline())
    known = [{"type": "function", **t["function"]} for t in item["tools"]]
    for stream in (False, True):
        got = client.responses.create(model="x", input=item["messages"], tools=known, temperature=0, stream=stream)
        got = [e for e in got][-1].response if stream else got
        calls = [o for o in got.output if o.type == "function_call"]
        assert [{"name": c.name, "arguments": json.loads(c.arguments)} for c in calls] == item["answer"]
    with client.responses.stream(model="x", input=item["messages"], tools=known, temperature=0) as stream:
        deltas = [e for e in stream if e.type.startswith("response.function_call_arguments.")]
        assert stream.get_final_response().output[-1].arguments == calls[0].arguments == deltas[-1].arguments
    assert len(deltas) > 3 and "".join(e.delta for e in deltas[:-1]) == calls[0].arguments
    back = item["messages"] + [o.model_dump(exclude_none=True) for o in got.output] + [
        {"type": "function_call_output", "call_id": calls[0].call_id, "output": '{"ok": true}'}]
    assert client.responses.create(model="x", input=back, tools=known, temperature=0).output_text
    must = client.responses.create(model="x", input="Hello.", tools=known, tool_choice={"type": "function", "name": known[0]["name"]},
                                   temperature=0, reasoning={"effort": "none"})
    assert must.output[-1].name == known[0]["name"]
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    held = client.responses.create(model="x", input=SUM, temperature=0, reasoning={"effort": "none"},
                                   text={"format": {"type": "json_schema", "name": "sum", "schema": schema, "strict": True}})
    assert type(json.loads(held.output_text)["n"]) is int
    for param, more in [("/previous_response_id", {"previous_response_id": "resp_1"}), ("/tools/0/type", {"tools": [{"type": "web_search"}]}),
                        ("/max_output_tokens", {"max_output_tokens": -2}), ("/temperature", {"temperature": -1}),
                        ("/background", {"background": True}), ("/messages", {"extra_body": {"messages": []}}),
                        ("/input/0/content/0/type", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
                        ("/text/format/type", {"text": {"format": {"type": "strange"}}}), ("/reasoning/effort", {"reasoning": {"effort": "huge"}})]:
        try:
            client.responses.create(model="x", **{"input": "x", **more})
        except openai.BadRequestError as e:
            assert e.body["param"] == param, (param, e.body)
        else:
            raise AssertionError(f"{param} was taken")


def cancel():
    before = metric("cancelled_total")
    stream = client.completions.create(model="x", prompt="The", max_tokens=3000, stream=True, extra_body=LONG)
    next(iter(stream))
    stream.close()
    wait_for(lambda: metric("cancelled_total") == before + 1)
    try:
        client.completions.create(model="x", prompt="The", max_tokens=3000, extra_body=LONG, timeout=0.5)
    except openai.APITimeoutError:
        pass
    wait_for(lambda: metric("cancelled_total") == before + 2)
    wait_for(lambda: metric("requests_running") == 0)


def threads():
    """Eight clients at once: each answer is the one that it gets alone."""
    def ask(i):
        got[i] = client.completions.create(model="x", prompt=f"Chapter {i}", max_tokens=16, seed=i, temperature=1).choices[0].text
    got = {}
    work = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in work:
        t.start()
    for t in work:
        t.join()
    together = dict(got)
    for i in range(8):
        ask(i)
    assert together == got


for check in sys.argv[4:]:
    try:
        globals()[check]()
        wrong = ""
    except Exception:  # pylint: disable=broad-except
        wrong = traceback.format_exc()
    with open(f"{DIRECTORY}/{check}", "w", encoding="utf-8") as f:
        f.write(wrong)
