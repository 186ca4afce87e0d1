# SPDX-License-Identifier: Apache-2.0
"""The first steps of public clients with chimere-serve-stdio --listen: what somebody tries on the first day. Run by check.sh.

first_steps.py CLIENT: prints a line for each step of CLIENT: its name, a tab, "pass", "small: WHY" (the server did what it was
asked, the embedded model is too small for the rest) or "fail: WHY". The environment has OPEN and LOCKED, the addresses of a server
without keys and of one with the keys "one" and "two", both with --files, and TOOLS, a file of questions with tools.
"""
import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(sys.executable).parent
OPEN, LOCKED, TOOLS = os.environ["OPEN"], os.environ["LOCKED"], os.environ["TOOLS"]
V1 = OPEN + "/v1"
MODEL = os.environ.get("MODEL", "chimere")
ASK = "What is 347 + 58?"
SUM = [{"role": "user", "content": ASK}]
QUIET = {"chat_template_kwargs": {"enable_thinking": False}}
SECONDS = int(os.environ.get("SECONDS_A_STEP", "600"))


class Small(Exception):
    """The server did its part; the model's answer is not good enough for the client."""


class Steps:
    def __init__(self):
        self.all, self.setup = [], None

    def __call__(self, name):
        return lambda function: self.all.append((name, function)) or function

    def covered(self, names, function):
        """Steps that one run of another script does: they pass or fail together."""
        seen = []

        def once():
            if not seen:
                try:
                    seen.append(function())
                except Exception as e:  # pylint: disable=broad-except
                    seen.append(e)
            if isinstance(seen[0], Exception):
                raise seen[0]
        for name in names:
            self.all.append((name, once))


def late(*_):
    raise TimeoutError(f"no answer in {SECONDS} s")


def run(steps):
    signal.signal(signal.SIGALRM, late)
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # some packages speak on the standard output
    for name, function in steps.all:
        signal.alarm(SECONDS)
        try:
            got = function()
            if asyncio.iscoroutine(got):
                asyncio.run(got)
            said = "pass"
        except Small as e:
            said = f"small: {e}"
        except BaseException as e:  # pylint: disable=broad-except
            if isinstance(e, KeyboardInterrupt):
                raise
            said = f"fail: {type(e).__name__}: {e}"
        signal.alarm(0)
        print(name, " ".join(said.split())[:300], sep="\t", flush=True, file=report)


def script(arguments, **more):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=SECONDS, check=False, **more)
    assert done.returncode == 0, (done.stdout + done.stderr)[-300:]


def check(name, url, *key, check_file):
    with tempfile.TemporaryDirectory() as place:
        script([sys.executable, HERE / name, url, *key, TOOLS, place, check_file.split("-")[-1]])
        wrong = (pathlib.Path(place) / check_file).read_text(encoding="utf-8")
        assert not wrong, wrong[-300:]


def asked():
    """A question with the tools that its answer calls."""
    return json.loads(open(TOOLS, encoding="utf-8").readline())


def convert_currency(amount: float, from_currency: str, to_currency: str) -> str:
    """Convert an amount of money from one currency to another.

    Args:
        amount: the amount
        from_currency: code of the currency that is given
        to_currency: code of the currency that is wanted
    """
    CONVERTED.append((amount, from_currency, to_currency))
    return "370 EUR"


CONVERTED = []
CONVERT = "Convert 400 USD to EUR."


def converted():
    assert CONVERTED, "the tool was not called"
    assert CONVERTED[0] == (400, "USD", "EUR"), CONVERTED
    CONVERTED.clear()


def answer_model():
    import pydantic

    class Answer(pydantic.BaseModel):
        n: int
    return Answer


def of_openai():
    import openai
    import pydantic
    steps = Steps()
    client = openai.OpenAI(base_url=V1, api_key="none", max_retries=0, timeout=60)
    for name, names in {
        "streaming": ["chat", "stream", "usage of a stream", "completions, whole and streamed"],
        "choices": ["n", "several prompts", "seed", "embeddings", "models.list"],
        "tools": ["tools, auto", "tools, strict", "tools, streamed", "stream helper", "round trip of a tool", "tool_choice none"],
        "structured": ["response_format json_schema"],
        "logprobs": ["logprobs"],
        "responses": ["responses.create", "responses.stream", "responses, tools", "responses, next turn", "responses, text.format"],
        "errors": ["kinds of errors", "413"],
        "cancel": ["cancel by closing", "timeout cancels"],
        "threads": ["eight at once"],
    }.items():
        steps.covered(names, lambda name=name: check("openai_client.py", OPEN, check_file=name))
    steps.covered(["files", "batches"], lambda: script([sys.executable, HERE / "openai_batches.py", LOCKED, "one", "two"]))

    def chat(**more):
        return client.chat.completions.create(**{"model": MODEL, "messages": SUM, "temperature": 0, "max_tokens": 800, **more})

    def calls(got):
        return [(c.function.name, json.loads(c.function.arguments)) for c in got.choices[0].message.tool_calls]

    class Flat(pydantic.BaseModel):
        n: int
        why: str

    class Nested(pydantic.BaseModel):
        best: Flat
        sure: bool | None

    @steps("developer role")
    def _():
        assert chat(messages=[{"role": "developer", "content": "Be brief."}] + SUM).choices[0].message.content

    @steps("text parts")
    def _():
        assert chat(messages=[{"role": "user", "content": [{"type": "text", "text": ASK}]}]).choices[0].message.content == "405"

    @steps("stop")
    def _():
        assert chat(stop=["05"], extra_body=QUIET).choices[0].message.content == chat(extra_body=QUIET).choices[0].message.content.split("05")[0]

    @steps("echo")
    def _():
        got = client.completions.create(model=MODEL, prompt="The kernel", echo=True, max_tokens=2)
        assert got.choices[0].text.startswith("The kernel")

    @steps("json_object")
    def _():
        got = chat(response_format={"type": "json_object"}, extra_body=QUIET).choices[0]
        if got.finish_reason == "length":
            raise Small("its object does not end")
        assert isinstance(json.loads(got.message.content), dict)

    @steps("parse, flat")
    def _():
        got = client.chat.completions.parse(model=MODEL, messages=SUM, response_format=Flat, temperature=0, extra_body=QUIET)
        assert type(got.choices[0].message.parsed.n) is int

    @steps("parse, nested")
    def _():
        try:
            got = client.chat.completions.parse(model=MODEL, messages=SUM, response_format=Nested, temperature=0, extra_body=QUIET)
        except openai.LengthFinishReasonError as e:
            raise Small("a text in its object does not end") from e
        assert type(got.choices[0].message.parsed.best.n) is int

    @steps("responses.parse")
    def _():
        got = client.responses.parse(model=MODEL, input=ASK, text_format=Flat, temperature=0, reasoning={"effort": "none"})
        assert type(got.output_parsed.n) is int

    @steps("tool_choice required")
    def _():
        assert calls(chat(messages=asked()["messages"], tools=asked()["tools"], tool_choice="required"))

    @steps("tool_choice with a name")
    def _():
        name = asked()["tools"][0]["function"]["name"]
        got = chat(tools=asked()["tools"], tool_choice={"type": "function", "function": {"name": name}}, extra_body=QUIET)
        assert calls(got)[0][0] == name

    @steps("allowed_tools")
    def _():
        tools = asked()["tools"] + [{"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "function", "function": {"name": "other"}}]}}
        assert calls(chat(tools=tools, tool_choice=choice, extra_body=QUIET)) [0][0] == "other"

    @steps("functions, the old form")
    def _():
        got = chat(messages=asked()["messages"], functions=[t["function"] for t in asked()["tools"]])
        call = got.choices[0].message.function_call
        assert got.choices[0].finish_reason == "function_call" and call.name == asked()["answer"][0]["name"]

    @steps("custom tools")
    def _():
        chat(tools=[{"type": "custom", "custom": {"name": "note"}}])

    @steps("models.retrieve")
    def _():
        name = client.models.list().data[0].id
        assert client.models.retrieve(name).id == name

    @steps("input_tokens.count")
    def _():
        assert client.responses.input_tokens.count(model=MODEL, input=ASK).input_tokens > 5

    @steps("members without effect")
    def _():
        assert chat(verbosity="low", prompt_cache_retention="24h", modalities=["text"], store=False, service_tier="auto",
                    prediction={"type": "content", "content": "405"}, metadata={"a": "b"},
                    prompt_cache_key="a").choices[0].message.content == "405"

    @steps("system_fingerprint")
    def _():
        assert chat(max_tokens=1).system_fingerprint == chat(max_tokens=2).system_fingerprint

    @steps("dimensions")
    def _():
        got = client.embeddings.create(model=MODEL, input="one", dimensions=64).data[0].embedding
        assert len(got) == 64 and abs(sum(v * v for v in got) - 1) < 1e-3

    @steps("context_length_exceeded")
    def _():
        try:
            chat(messages=[{"role": "user", "content": "word " * 20000}])
        except openai.BadRequestError as e:
            assert e.code == "context_length_exceeded", e.body
        else:
            raise AssertionError("taken")

    @steps("base_url without /v1")
    def _():
        bare = openai.OpenAI(base_url=OPEN, api_key="none", max_retries=0, timeout=60)
        assert bare.chat.completions.create(model=MODEL, messages=SUM, temperature=0).choices[0].message.content == "405"

    @steps("AsyncOpenAI")
    async def _():
        many = openai.AsyncOpenAI(base_url=V1, api_key="none", max_retries=0, timeout=60)
        got = await asyncio.gather(*[many.chat.completions.create(model=MODEL, messages=SUM, temperature=0) for _ in range(3)])
        assert [g.choices[0].message.content for g in got] == ["405"] * 3

    for name, more in {"suffix": {"suffix": "."}, "best_of": {"best_of": 2}}.items():
        steps(name)(lambda more=more: client.completions.create(model=MODEL, prompt="The", max_tokens=2, **more) and None)
    steps("previous_response_id")(lambda: client.responses.create(
        model=MODEL, input="And 12 + 30?", previous_response_id=client.responses.create(model=MODEL, input=ASK).id) and None)
    steps("conversations")(lambda: client.conversations.create() and None)
    steps("images in messages")(lambda: chat(messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]) and None)
    return steps


def of_anthropic():
    steps = Steps()
    for name, names in {
        "whole": ["messages.create", "thinking", "system with cache_control", "next turn, cached", "count_tokens", "max_tokens",
                  "stop_sequences", "begun answer"],
        "streams": ["stream, events", "stream helper"],
        "tools": ["tools", "tools, streamed", "tool_result", "tool_choice any, tool, none", "tool runner", "as Claude Code asks"],
        "structured": ["output_config.format"],
        "errors": ["kinds of errors", "keys"],
        "together": ["async, three at once"],
    }.items():
        steps.covered(names, lambda name=name: check("anthropic_client.py", LOCKED, "one", check_file="anthropic-" + name))
    return steps


def of_mcp():
    steps = Steps()
    for names, arguments in [
        (["initialize", "list_tools", "generate", "progress", "score", "wrong arguments", "unknown tool", "cancel", "six at once"],
         ["legacy", "2025-11-25"]),
        (["revision found out"], ["auto", "2026-07-28"]),
        (["2026-07-28 at once"], ["2026-07-28", "2026-07-28"]),
    ]:
        steps.covered(names, lambda arguments=arguments: script([sys.executable, HERE / "mcp_client.py", *arguments]))
    return steps


def of_llm():
    def commands():
        with tempfile.TemporaryDirectory() as place:
            script(["bash", HERE / "llm_client.sh", OPEN, BIN / "llm"], cwd=place)
    steps = Steps()
    steps.covered(["prompt, streamed", "prompt --no-stream", "--schema", "--functions"], commands)
    return steps


def of_litellm():
    import litellm
    steps = Steps()
    Answer = answer_model()

    def chat(provider="openai", base=V1, **more):
        return litellm.completion(**{"model": f"{provider}/{MODEL}", "api_base": base, "api_key": "none", "messages": SUM,
                                     "temperature": 0, "timeout": 60, **more})

    def said(got):
        assert got.choices[0].message.content == "405", got

    steps("completion")(lambda: said(chat()))

    @steps("stream")
    def _():
        assert "".join(c.choices[0].delta.content or "" for c in chat(stream=True)) == "405"

    @steps("tools")
    def _():
        got = chat(messages=asked()["messages"], tools=asked()["tools"]).choices[0].message.tool_calls[0].function
        assert {"name": got.name, "arguments": json.loads(got.arguments)} == asked()["answer"][0]

    @steps("pydantic")
    def _():
        assert type(json.loads(chat(response_format=Answer).choices[0].message.content)["n"]) is int

    @steps("text_completion")
    def _():
        assert litellm.text_completion(model=f"text-completion-openai/{MODEL}", api_base=V1, api_key="none", prompt="The kernel",
                                       max_tokens=5).choices[0].text

    @steps("embedding")
    def _():
        got = litellm.embedding(model=f"openai/{MODEL}", api_base=V1, api_key="none", input=["one", "two"])
        assert len(got.data) == 2

    @steps("responses")
    def _():
        assert "405" in str(litellm.responses(model=f"openai/{MODEL}", api_base=V1, api_key="none", input=ASK, temperature=0).output)

    @steps("Anthropic adapter")
    def _():
        got = asyncio.run(litellm.anthropic.messages.acreate(model=f"openai/{MODEL}", api_base=V1, api_key="none", messages=SUM,
                                                             max_tokens=600, temperature=0))
        assert "405" in str(got)

    steps("provider anthropic")(lambda: said(chat("anthropic", OPEN, max_tokens=600)))
    for provider in ("hosted_vllm", "llamafile", "lm_studio"):
        steps("provider " + provider)(lambda provider=provider: said(chat(provider)))

    @steps("rerank")
    def _():
        got = litellm.rerank(model=f"hosted_vllm/{MODEL}", api_base=OPEN, api_key="none", query="kernel", documents=["a kernel", "tea"])
        assert len(got.results) == 2

    @steps("ContextWindowExceededError")
    def _():
        try:
            chat(messages=[{"role": "user", "content": "word " * 20000}])
        except litellm.ContextWindowExceededError:
            return
        raise AssertionError("taken")

    @steps("cache_control")
    def _():
        said(chat(messages=[{"role": "user", "content": [{"type": "text", "text": ASK, "cache_control": {"type": "ephemeral"}}]}]))
    return steps


def of_langchain():
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
    steps = Steps()
    Answer = answer_model()
    base = {"base_url": V1, "api_key": "none", "model": MODEL}
    chat = ChatOpenAI(**base, temperature=0)
    quiet = ChatOpenAI(**base, temperature=0, extra_body=QUIET)
    answers = ChatOpenAI(**base, temperature=0, use_responses_api=True)

    @steps("invoke")
    def _():
        assert chat.invoke(ASK).content == "405"

    @steps("stream")
    def _():
        assert "".join(c.content for c in chat.stream(ASK)) == "405"

    @steps("ainvoke")
    async def _():
        assert (await ChatOpenAI(**base, temperature=0).ainvoke(ASK)).content == "405"

    @steps("batch")
    def _():
        assert [m.content for m in chat.batch([ASK, ASK])] == ["405", "405"]

    @steps("bind_tools, loop")
    def _():
        bound = chat.bind_tools([tool(convert_currency)])
        talk = [HumanMessage(CONVERT)]
        talk.append(bound.invoke(talk))
        call = talk[-1].tool_calls[0]
        convert_currency(**call["args"])
        converted()
        talk.append(ToolMessage("370 EUR", tool_call_id=call["id"]))
        assert bound.invoke(talk).content

    for how in ("json_schema", "function_calling", "json_mode"):
        def structured(how=how):
            try:
                got = quiet.with_structured_output(Answer, method=how).invoke(ASK + (" Answer in JSON with the member n." if how == "json_mode" else ""))
            except Exception as e:
                if how == "json_mode" and "Failed to parse" in str(e):
                    raise Small("an object without the member that the prompt asks for") from e
                raise
            assert type(got.n) is int
        steps("with_structured_output " + how)(structured)

    @steps("responses")
    def _():
        assert "405" in answers.invoke(ASK).text

    @steps("responses, two turns")
    def _():
        first = answers.invoke(ASK)
        assert answers.invoke([HumanMessage(ASK), first, HumanMessage("And 12 + 30?")]).text

    @steps("embeddings")
    def _():
        assert len(OpenAIEmbeddings(**base, check_embedding_ctx_length=False).embed_documents(["one", "two"])) == 2

    @steps("completions")
    def _():
        assert OpenAI(**base, max_tokens=5).invoke("The kernel")
    return steps


def of_llama_index():
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike
    steps = Steps()
    llm = OpenAILike(model=MODEL, api_base=V1, api_key="none", is_chat_model=True, is_function_calling_model=True, temperature=0,
                     context_window=8192, max_tokens=800)

    @steps("chat")
    def _():
        assert llm.chat([ChatMessage(role="user", content=ASK)]).message.content == "405"

    @steps("complete")
    def _():
        assert llm.complete(ASK).text == "405"

    @steps("stream_chat")
    def _():
        assert "".join(c.delta or "" for c in llm.stream_chat([ChatMessage(role="user", content=ASK)])) == "405"

    @steps("tools")
    def _():
        got = llm.chat_with_tools([FunctionTool.from_defaults(convert_currency)], user_msg=CONVERT)
        assert llm.get_tool_calls_from_response(got)[0].tool_kwargs == {"amount": 400, "from_currency": "USD", "to_currency": "EUR"}

    @steps("embeddings")
    def _():
        assert OpenAILikeEmbedding(model_name=MODEL, api_base=V1, api_key="none").get_text_embedding("one")
    return steps


def of_instructor():
    import instructor
    import openai
    from instructor.core import InstructorRetryException
    steps = Steps()
    Answer = answer_model()
    plain = openai.OpenAI(base_url=V1, api_key="none", max_retries=0, timeout=60)

    def ask(mode, model=Answer, **more):
        client = instructor.from_openai(plain, mode=getattr(instructor.Mode, mode))
        return client.chat.completions.create(model=MODEL, messages=SUM, response_model=model, max_retries=0, temperature=0, **more)

    def small(mode, **more):
        try:
            got = ask(mode, **more)
        except InstructorRetryException as e:
            if isinstance(e.__cause__, openai.APIError) or "Error code" in str(e):
                raise
            raise Small("the text is not what the prompt asks for") from e
        assert got.n is not None
    for mode in ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"):
        steps(mode)(lambda mode=mode: ask(mode, extra_body=QUIET).n and None)
    for mode in ("JSON", "MD_JSON"):
        steps(mode)(lambda mode=mode: small(mode, extra_body=QUIET, max_tokens=300))

    @steps("PARALLEL_TOOLS")
    def _():
        from typing import Iterable
        try:
            got = list(ask("PARALLEL_TOOLS", Iterable[Answer]))
        except InstructorRetryException as e:
            if "No tool calls" not in str(e):
                raise
            raise Small("it answers without a call") from e
        assert type(got[0].n) is int

    @steps("RESPONSES_TOOLS")
    def _():
        client = instructor.from_openai(plain, mode=instructor.Mode.RESPONSES_TOOLS)
        assert type(client.responses.create(model=MODEL, input=ASK, response_model=Answer, max_retries=0).n) is int

    @steps("partial")
    def _():
        client = instructor.from_openai(plain, mode=instructor.Mode.TOOLS)
        got = list(client.chat.completions.create_partial(model=MODEL, messages=SUM, response_model=Answer, max_retries=0,
                                                          temperature=0, extra_body=QUIET))
        assert type(got[-1].n) is int

    @steps("from_provider")
    def _():
        client = instructor.from_provider(f"openai/{MODEL}", base_url=V1, api_key="none")
        assert type(client.chat.completions.create(messages=SUM, response_model=Answer, max_retries=0, extra_body=QUIET).n) is int
    return steps


def of_pydantic_ai():
    from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
    from pydantic_ai.exceptions import UnexpectedModelBehavior
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    steps = Steps()
    Answer = answer_model()
    cold = {"temperature": 0, "max_tokens": 800}
    quiet = {**cold, "extra_body": QUIET}

    def model(kind=OpenAIChatModel):
        return kind(MODEL, provider=OpenAIProvider(base_url=V1, api_key="none"))

    @steps("run")
    async def _():
        assert (await Agent(model(), model_settings=cold).run(ASK)).output == "405"

    @steps("stream")
    async def _():
        async with Agent(model(), model_settings=cold).run_stream(ASK) as got:
            assert await got.get_output() == "405"

    @steps("tools")
    async def _():
        await Agent(model(), model_settings=cold, tools=[convert_currency]).run(CONVERT)
        converted()

    @steps("ToolOutput")
    async def _():
        assert type((await Agent(model(), output_type=ToolOutput(Answer), model_settings=quiet).run(ASK)).output.n) is int

    @steps("NativeOutput")
    async def _():
        assert type((await Agent(model(), output_type=NativeOutput(Answer), model_settings=quiet).run(ASK)).output.n) is int

    @steps("PromptedOutput")
    async def _():
        try:
            await Agent(model(), output_type=PromptedOutput(Answer), model_settings=quiet).run(ASK)
        except UnexpectedModelBehavior as e:
            raise Small("the text is not what the prompt asks for") from e

    @steps("responses")
    async def _():
        assert (await Agent(model(OpenAIResponsesModel), model_settings=cold).run(ASK)).output == "405"
    return steps


def of_openai_agents():
    import openai
    from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, handoff,
                        set_tracing_disabled)
    set_tracing_disabled(True)
    steps = Steps()
    Answer = answer_model()

    def agent(kind=OpenAIChatCompletionsModel, extra=None, **more):
        client = openai.AsyncOpenAI(base_url=V1, api_key="none", max_retries=0, timeout=60)
        return Agent(**{"name": "helper", "model": kind(model=MODEL, openai_client=client), "model_settings": ModelSettings(
            temperature=0, max_tokens=800, extra_body=extra, **more.pop("settings", {})), **more})

    @steps("chat completions model")
    async def _():
        assert (await Runner.run(agent(), ASK)).final_output == "405"

    @steps("responses model")
    async def _():
        assert (await Runner.run(agent(OpenAIResponsesModel), ASK)).final_output == "405"

    @steps("tools")
    async def _():
        await Runner.run(agent(tools=[function_tool(convert_currency)]), CONVERT, max_turns=4)
        converted()

    @steps("output_type")
    async def _():
        assert type((await Runner.run(agent(extra=QUIET, output_type=Answer), ASK)).final_output.n) is int

    @steps("stream")
    async def _():
        got = Runner.run_streamed(agent(), ASK)
        assert [e async for e in got.stream_events()] and got.final_output == "405"

    @steps("handoff")
    async def _():
        sums = agent(name="sums", handoff_description="Answers questions about sums.")
        first = agent(handoffs=[handoff(sums)], settings={"tool_choice": "required"}, extra=QUIET)
        assert (await Runner.run(first, ASK, max_turns=4)).last_agent.name == "sums"
    return steps


def of_dspy():
    import dspy
    steps = Steps()
    lm = dspy.LM(f"openai/{MODEL}", api_base=V1, api_key="none", temperature=0, max_tokens=800, cache=False, num_retries=0)

    @steps("LM")
    def _():
        assert "405" in str(lm(ASK))

    @steps("Predict")
    def _():
        dspy.configure(lm=lm)
        try:
            got = dspy.Predict("question -> answer: int")(question=ASK)
        except Exception as e:
            if "AdapterParseError" in type(e).__name__:
                raise Small("the text is not what the prompt asks for") from e
            raise
        assert got.answer is not None

    @steps("Plain, BootstrapFewShot")
    def _():
        sys.path.insert(0, str(HERE.parents[1] / "share/pipelines"))
        from dspy_plain import Plain
        short = dspy.LM(f"openai/{MODEL}", api_base=V1, api_key="none", temperature=0, max_tokens=40, cache=False, num_retries=0,
                        extra_body={"chat_template_kwargs": {"enable_thinking": False}})
        dspy.configure(lm=short, adapter=Plain())
        sums = [dspy.Example(question=f"What is {a} + {a + 3}?", answer=2 * a + 3).with_inputs("question") for a in range(11, 15)]
        right = lambda wanted, got, trace=None: wanted.answer == got.answer
        found = dspy.BootstrapFewShot(metric=right, max_bootstrapped_demos=2, max_labeled_demos=2).compile(
            dspy.Predict("question -> answer: int"), trainset=sums)
        assert found.demos and isinstance(found(question="What is 20 + 30?").answer, int)
    return steps


def of_guidance():
    import guidance
    steps = Steps()

    @steps("gen")
    def _():
        model = guidance.models.OpenAI(MODEL, base_url=V1, api_key="none", echo=False) if MODEL else None
        with guidance.user():
            model += ASK
        with guidance.assistant():
            model += guidance.gen("answer", max_tokens=400, temperature=0)
        assert model["answer"]
    return steps


def of_outlines():
    import openai
    import outlines
    steps = Steps()
    Answer = answer_model()
    client = openai.OpenAI(base_url=V1, api_key="none", max_retries=0, timeout=60)

    @steps("from_openai, JSON")
    def _():
        assert type(json.loads(outlines.from_openai(client, MODEL)(ASK, Answer, temperature=0))["n"]) is int

    @steps("from_vllm, JSON")
    def _():
        assert type(json.loads(outlines.from_vllm(client, MODEL)(ASK, Answer, temperature=0))["n"]) is int

    @steps("from_vllm, regex")
    def _():
        assert len(outlines.from_vllm(client, MODEL)(ASK, outlines.regex("[0-9]{3}"), temperature=0)) == 3

    @steps("from_vllm, choice")
    def _():
        from typing import Literal
        assert outlines.from_vllm(client, MODEL)(ASK, Literal["yes", "no"], temperature=0) in ("yes", "no")
    return steps


def of_smolagents():
    import smolagents
    steps = Steps()
    model = smolagents.OpenAIServerModel(model_id=MODEL, api_base=V1, api_key="none", temperature=0, max_tokens=800)

    @steps("model")
    def _():
        assert model.generate([smolagents.ChatMessage(role="user", content=[{"type": "text", "text": ASK}])]).content == "405"

    @steps("ToolCallingAgent")
    def _():
        agent = smolagents.ToolCallingAgent(tools=[smolagents.tool(convert_currency)], model=model, max_steps=2, verbosity_level=0)
        agent.run(CONVERT)
        assert any(getattr(s, "tool_calls", None) for s in agent.memory.steps), "no step has a call"
    return steps


def of_strands():
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel
    steps = Steps()

    def model():
        return OpenAIModel(client_args={"base_url": V1, "api_key": "none"}, model_id=MODEL, params={"temperature": 0, "max_tokens": 800})

    @steps("agent")
    def _():
        assert "405" in str(Agent(model=model(), callback_handler=None)(ASK))

    @steps("agent with a tool")
    def _():
        Agent(model=model(), tools=[tool(convert_currency)], callback_handler=None)(CONVERT)
        converted()
    return steps


def of_aider():
    steps = Steps()

    @steps("--message")
    def _():
        with tempfile.TemporaryDirectory() as place:
            (pathlib.Path(place) / "sum.py").write_text("print(1 + 1)\n", encoding="utf-8")
            script([os.environ["AIDER"], "--model", f"openai/{MODEL}", "--openai-api-base", V1, "--openai-api-key", "none", "--message",
                    ASK, "--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable",
                    "--no-auto-lint", "--map-tokens", "0", "--chat-mode", "ask", "--no-gitignore", "--no-show-release-notes",
                    "sum.py"], cwd=place, stdin=subprocess.DEVNULL, env={**os.environ, "HOME": place})
    return steps


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(globals()["of_" + sys.argv[1]]())
