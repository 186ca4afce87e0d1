# SPDX-License-Identifier: Apache-2.0
"""What the real mcp package sees of chimere-serve-stdio --mcp. Run by tests/cli/clients.bats.

mcp_client.py MODE VERSION: MODE is "legacy" (the handshake), "auto", or a version without one.
"""
import os
import sys

import anyio
import mcp

MODE, VERSION = sys.argv[1], sys.argv[2]
LONG = {"type": "array", "items": {"type": "integer"}, "minItems": 2000}
SERVER = mcp.StdioServerParameters(command="chimere-serve-stdio", args=["--mcp", "--parallel", "4"], env=dict(os.environ))


async def calls(client):
    assert client.protocol_version == VERSION, client.protocol_version
    listed = (await client.list_tools()).tools
    assert [t.name for t in listed] == ["generate", "score"]
    seen = []

    async def progress(done, total, message):
        seen.append(done)

    got = await client.call_tool("generate", {"prompt": "What is 347 + 58?", "temperature": 0}, progress_callback=progress)
    assert not got.is_error and got.content[0].text == "405" and got.structured_content["finish_reason"] == "stop"
    assert seen and seen == sorted(seen)
    scores = [(await client.call_tool("score", {"context": "The", "text": t})).structured_content["logprob"]
              for t in (" kernel", "qzx")]
    assert 0 > scores[0] > scores[1], scores
    wrong = await client.call_tool("generate", {"prompt": "x", "temperature": -1})
    assert wrong.is_error and "temperature" in wrong.content[0].text
    try:
        await client.call_tool("nothing", {})
    except mcp.MCPError as e:
        assert e.error.code == -32602
    else:
        raise AssertionError("an unknown tool was called")


async def cancels(client):
    """A call that is cancelled gets no answer, and others go on."""
    with anyio.CancelScope() as scope:
        async def enough(done, total, message):
            scope.cancel()

        await client.call_tool("generate", {"prompt": "x", "reasoning_effort": "none", "schema": LONG}, progress_callback=enough)
    assert scope.cancelled_caught
    answers = {}

    async def ask(i):
        answers[i] = (await client.call_tool("generate", {"prompt": f"Chapter {i}", "raw": True, "max_tokens": 8, "seed": i})
                      ).structured_content["text"]

    async with anyio.create_task_group() as group:
        for i in range(6):
            group.start_soon(ask, i)
    together = dict(answers)
    for i in range(6):
        await ask(i)
    assert together == answers and len(answers) == 6


async def main():
    async with mcp.Client(SERVER, mode=MODE) as client:
        await calls(client)
        await cancels(client)


anyio.run(main)
