# SPDX-License-Identifier: Apache-2.0
"""What the real anthropic package sees of chimere-serve-stdio --listen. Run by tests/cli/clients.bats.

anthropic_client.py URL KEY TOOLS.jsonl DIRECTORY CHECK...: runs checks; DIRECTORY/anthropic-CHECK gets what went wrong,
or nothing.
"""
import asyncio
import json
import sys
import traceback

import anthropic

URL, KEY, TOOLS, DIRECTORY = sys.argv[1:5]
client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
SUM = [{"role": "user", "content": "What is 347 + 58?"}]
USUAL = {"model": "x", "max_tokens": 600, "extra_body": {"temperature": 0}}
OFF = {"type": "disabled"}


def texts(message):
    return "".join(b.text for b in message.content if b.type == "text")


def thoughts(message):
    return "".join(b.thinking for b in message.content if b.type == "thinking")


def blocks(message):
    """What of them goes over the wire: the package adds members of its own to some."""
    known = ("type", "text", "thinking", "signature", "id", "name", "input")
    return [{k: getattr(b, k) for k in known if hasattr(b, k)} for b in message.content]


def item_of(line):
    item = json.loads(line)
    system = [m["content"] for m in item["messages"] if m["role"] == "system"]
    return {"messages": [m for m in item["messages"] if m["role"] != "system"], "system": system[0] if system else "",
            "tools": [{"name": t["function"]["name"], "description": t["function"]["description"],
                       "input_schema": t["function"]["parameters"]} for t in item["tools"]], "answer": item["answer"]}


CONVERTED = []


@anthropic.beta_tool
def convert_currency(amount: float, from_currency: str, to_currency: str) -> str:
    """Convert an amount of money from one currency to another."""
    CONVERTED.append((amount, from_currency, to_currency))
    return "370 EUR"


def whole():
    got = client.messages.create(messages=SUM, **USUAL)
    assert texts(got) == "405" and got.stop_reason == "end_turn" and got.stop_sequence is None
    assert [b.type for b in got.content] == ["thinking", "text"] and got.content[0].signature
    assert got.usage.output_tokens > got.usage.output_tokens_details.thinking_tokens > 0
    none = client.messages.create(messages=SUM, thinking=OFF, **USUAL)
    assert [b.type for b in none.content] == ["text"] and none.usage.output_tokens_details.thinking_tokens == 0
    system = [{"type": "text", "text": "You are terse.", "cache_control": {"type": "ephemeral"}},
              {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;"}]
    first = client.messages.create(messages=SUM, system=system, **USUAL)
    assert first.usage.cache_creation_input_tokens == 0 and first.usage.input_tokens > 0
    # the next turn sends the blocks of this one; what was evaluated for it is not evaluated again
    more = SUM + [{"role": "assistant", "content": first.content}, {"role": "user", "content": "And 12 + 30?"}]
    second = client.messages.create(messages=more, system=system, **USUAL)
    total = second.usage.input_tokens + second.usage.cache_read_input_tokens
    assert second.usage.cache_read_input_tokens > 15
    assert total == client.messages.count_tokens(model="x", messages=more, system=system).input_tokens
    cut = client.messages.create(messages=SUM, **{**USUAL, "max_tokens": 5})
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 5
    stopped = client.messages.create(messages=SUM, thinking=OFF, stop_sequences=["never", texts(none)[1:]], **USUAL)
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == texts(none)[1:]
    assert texts(stopped) == texts(none)[0]
    begun = SUM + [{"role": "assistant", "content": texts(none)[0]}]
    assert texts(client.messages.create(messages=begun, thinking=OFF, **USUAL)) == texts(none)[1:]
    assert client.messages.create(messages=SUM, thinking={"type": "enabled", "budget_tokens": 10}, **USUAL).usage.output_tokens < \
        got.usage.output_tokens


def streams():
    one = client.messages.create(messages=SUM, **USUAL)
    events = list(client.messages.create(messages=SUM, stream=True, **USUAL))
    assert [e.type for e in events if e.type != "content_block_delta"] == [
        "message_start", "content_block_start", "content_block_stop", "content_block_start", "content_block_stop",
        "message_delta", "message_stop"]
    deltas = [e.delta for e in events if e.type == "content_block_delta"]
    assert "".join(d.text for d in deltas if d.type == "text_delta") == texts(one)
    assert [d.signature for d in deltas if d.type == "signature_delta"] == [one.content[0].signature]
    with client.messages.stream(messages=SUM, **USUAL) as stream:
        assert "".join(stream.text_stream) == texts(one)
        end = stream.get_final_message()
    assert blocks(end) == blocks(one) and end.stop_reason == "end_turn"
    assert end.usage.output_tokens == one.usage.output_tokens
    hidden = {"type": "enabled", "budget_tokens": 500, "display": "omitted"}
    with client.messages.stream(messages=SUM, thinking=hidden, **USUAL) as stream:
        end = stream.get_final_message()
    assert thoughts(end) == "" and end.content[0].signature == one.content[0].signature and texts(end) == texts(one)


def tools():
    item = item_of(open(TOOLS, encoding="utf-8").readline())
    asked = {"messages": item["messages"], "system": item["system"], "tools": item["tools"]}
    got = client.messages.create(**asked, **USUAL)
    calls = [b for b in got.content if b.type == "tool_use"]
    assert got.stop_reason == "tool_use" and [{"name": c.name, "arguments": c.input} for c in calls] == item["answer"]
    with client.messages.stream(**asked, **USUAL) as stream:
        parts = "".join(e.partial_json for e in stream if e.type == "input_json")
        assert json.loads(parts) == calls[0].input and blocks(stream.get_final_message()) == blocks(got)
    result = {"type": "tool_result", "tool_use_id": calls[0].id, "is_error": True,
              "content": [{"type": "text", "text": "no such lesson"}]}
    asked["messages"] = item["messages"] + [{"role": "assistant", "content": got.content},
                                            {"role": "user", "content": [result, {"type": "text", "text": "Why?"}]}]
    end = client.messages.create(**asked, **USUAL)
    assert texts(end) and end.usage.cache_read_input_tokens > 100
    name = item["tools"][-1]["name"]
    for choice in ({"type": "any"}, {"type": "tool", "name": name, "disable_parallel_tool_use": True}):
        due = client.messages.create(messages=[{"role": "user", "content": "Hello."}], tools=item["tools"],
                                     tool_choice=choice, thinking=OFF, **USUAL)
        due = [b for b in due.content if b.type == "tool_use"]
        assert due and (choice["type"] == "any" or [c.name for c in due] == [name])
    none = client.messages.create(**{**asked, "messages": item["messages"]}, tool_choice={"type": "none"}, **USUAL)
    assert none.stop_reason != "tool_use"
    # the package's own loop of calls, which asks for a thread first
    runner = client.beta.messages.tool_runner(
        messages=[{"role": "user", "content": "Convert 400 USD to EUR."}], tools=[convert_currency], max_iterations=3, **USUAL)
    turns = [m.stop_reason for m in runner]
    assert turns[0] == "tool_use" and CONVERTED == [(400, "USD", "EUR")], (turns, CONVERTED)
    # as Claude Code asks: many tools, marks for a cache, names of betas, who the user is
    many = [{**item["tools"][0], "name": f"tool_{i}", "cache_control": {"type": "ephemeral"}} for i in range(20)]
    big = client.beta.messages.create(
        messages=item["messages"], tools=many, betas=["claude-code-20250219", "interleaved-thinking-2025-05-14"],
        metadata={"user_id": "user_1_account__session_2"}, thinking=OFF, max_tokens=5, model="x",
        system=[{"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})
    assert big.usage.input_tokens > 1000


def structured():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    held = client.messages.create(messages=SUM, thinking=OFF, output_config={
        "effort": "low", "format": {"type": "json_schema", "schema": schema}}, **USUAL)
    assert type(json.loads(texts(held))["n"]) is int


def errors():
    text = {"type": "text", "text": "x"}
    wrong = [
        (anthropic.BadRequestError, "/temperature", {"extra_body": {"temperature": -1}}),
        (anthropic.BadRequestError, "/messages", {"messages": []}),
        (anthropic.BadRequestError, "/nonsense", {"extra_body": {"nonsense": 1}}),
        (anthropic.BadRequestError, "/max_tokens", {"max_tokens": -5}),
        (anthropic.BadRequestError, "/stop_sequences/1", {"stop_sequences": ["a", ""]}),
        (anthropic.BadRequestError, "/tools/0/type", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        (anthropic.BadRequestError, "/messages/0/content/1",
         {"messages": [{"role": "user", "content": [text, {"type": "image", "source": {"type": "url", "url": "x"}}]}]}),
        (anthropic.RequestTooLargeError if hasattr(anthropic, "RequestTooLargeError") else anthropic.APIStatusError, None,
         {"messages": [{"role": "user", "content": "a" * (17 << 20)}]}),
    ]
    for kind, param, more in wrong:
        try:
            client.messages.create(**{"model": "x", "max_tokens": 5, "messages": SUM, **more})
        except kind as e:
            assert e.body["type"] == "error" and e.body["error"]["message"], e.body
            assert e.body["error"].get("param") == param, e.body
            assert e.body["error"]["type"] == ("invalid_request_error" if param else "request_too_large"), e.body
        else:
            raise AssertionError(f"{param} was taken")
    stranger = anthropic.Anthropic(base_url=URL, api_key="wrong", max_retries=0)
    try:
        stranger.messages.create(messages=SUM, **USUAL)
    except anthropic.AuthenticationError as e:
        assert e.body["error"]["type"] == "authentication_error", e.body
    else:
        raise AssertionError("a wrong key was taken")
    bearer = anthropic.Anthropic(base_url=URL, auth_token=KEY, api_key=None, max_retries=0)
    assert bearer.messages.count_tokens(model="x", messages=SUM).input_tokens > 0


def together():
    async def ask():
        many = anthropic.AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
        plain = many.messages.create(messages=SUM, **USUAL)

        async def stream():
            async with many.messages.stream(messages=SUM, **USUAL) as s:
                return await s.get_final_message()
        return await asyncio.gather(plain, stream(), stream())
    got = asyncio.run(ask())
    assert [texts(m) for m in got] == ["405"] * 3 and len({m.id for m in got}) == 3


for check in sys.argv[5:]:
    try:
        globals()[check]()
        wrong = ""
    except Exception:  # pylint: disable=broad-except
        wrong = traceback.format_exc()
    with open(f"{DIRECTORY}/anthropic-{check}", "w", encoding="utf-8") as f:
        f.write(wrong)
