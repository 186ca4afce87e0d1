# SPDX-License-Identifier: Apache-2.0
"""Files and batches of chimere-serve-stdio --files, as the real openai package uses them. Run by tests/cli/clients.bats.

openai_batches.py URL KEY OTHER_KEY
"""
import json
import sys
import time

import openai

URL, KEY, OTHER = sys.argv[1:4]
mine, others = (openai.OpenAI(base_url=URL + "/v1", api_key=k, max_retries=0, timeout=60) for k in (KEY, OTHER))


def lines(*bodies, url="/v1/completions"):
    return "".join(json.dumps({"custom_id": f"q{i}", "method": "POST", "url": url, "body": body}) + "\n"
                   for i, body in enumerate(bodies)).encode()


def upload(content, client=mine):
    return client.files.create(file=("requests.jsonl", content), purpose="batch")


def start(file, **more):
    return mine.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h", **more)


def end_of(batch):
    for _ in range(600):
        batch = mine.batches.retrieve(batch.id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(0.05)
    raise AssertionError(batch)


def refused(kind, param, call):
    try:
        call()
    except kind as e:
        assert e.body["message"] and e.body["param"] == param, e.body
    else:
        raise AssertionError(f"no {kind.__name__}")


def prompts(n, **more):
    return [{"model": "x", "prompt": f"Number {i}", "max_tokens": 4, "temperature": 0, **more} for i in range(n)]


# files
content = lines(*prompts(5), {"prompt": "", "max_tokens": 1})
file = upload(content)
assert file.bytes == len(content) and file.filename == "requests.jsonl" and file.purpose == "batch"
assert mine.files.retrieve(file.id) == file and mine.files.content(file.id).read() == content
assert [f.id for f in mine.files.list()] == [file.id] and not list(others.files.list())
for call in (others.files.retrieve, others.files.content, others.files.delete, mine.files.retrieve):
    refused(openai.NotFoundError, None, lambda: call(file.id if call.__self__ is others.files else "file-0"))
refused(openai.BadRequestError, "/purpose", lambda: mine.files.create(file=b"x", purpose="assistants"))
refused(openai.BadRequestError, "/file", lambda: upload(b""))

# a batch: answers as those that are asked for alone, and an error
batch = end_of(start(file, metadata={"who": "me"}))
assert batch.status == "completed" and batch.metadata == {"who": "me"} and batch.errors is None
counts = batch.request_counts
assert (counts.total, counts.completed, counts.failed) == (6, 5, 1), counts
assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at <= batch.expires_at
answers = {a["custom_id"]: a for a in map(json.loads, mine.files.content(batch.output_file_id).text.splitlines())}
assert sorted(answers) == [f"q{i}" for i in range(5)]
for i, body in enumerate(prompts(5)):
    response = answers[f"q{i}"]["response"]
    alone = mine.completions.create(**body)
    assert response["status_code"] == 200 and response["body"]["choices"][0]["text"] == alone.choices[0].text
[wrong] = map(json.loads, mine.files.content(batch.error_file_id).text.splitlines())
assert wrong["custom_id"] == "q5" and wrong["response"]["body"]["error"]["param"] == "/prompt"
refused(openai.ConflictError, None, lambda: mine.batches.cancel(batch.id))
refused(openai.NotFoundError, None, lambda: others.batches.retrieve(batch.id))
refused(openai.NotFoundError, None, lambda: others.files.content(batch.output_file_id))

# a batch that is cancelled; others are answered beside it, and it reads its file up to its end
long = upload(lines(*prompts(40, max_tokens=3000, ignore_eos=True)))
running = start(long)
while mine.batches.retrieve(running.id).status == "validating":
    pass
assert mine.completions.create(model="x", prompt="The", max_tokens=2).choices[0].text
refused(openai.ConflictError, None, lambda: mine.files.delete(long.id))
assert mine.batches.cancel(running.id).status == "cancelling"
running = end_of(running)
assert running.status == "cancelled" and running.cancelled_at and running.request_counts.total == 40
assert mine.files.delete(long.id).deleted
refused(openai.NotFoundError, None, lambda: mine.files.retrieve(long.id))

# what is wrong with a file is said by line
failed = end_of(start(upload(b'{"custom_id":1}\n' + lines({"prompt": "a"}) + b"no JSON\n")))
assert failed.status == "failed" and failed.failed_at and [e.line for e in failed.errors.data] == [1, 3], failed
failed = end_of(start(upload(lines({"prompt": "a"}, url="/v1/embeddings"))))
assert failed.status == "failed" and "/v1/completions" in failed.errors.data[0].message
for param, more in [("/input_file_id", {"input_file_id": "file-0"}), ("/endpoint", {"endpoint": "/v1/models"}),
                    ("/completion_window", {"completion_window": "24"}), ("/metadata", {"metadata": {"a": 1}})]:
    refused(openai.BadRequestError, param, lambda: mine.batches.create(
        **{"input_file_id": file.id, "endpoint": "/v1/completions", "completion_window": "24h", **more}))

# lists come in parts, the newest first
ids = [b.id for b in mine.batches.list(limit=1)]
assert len(ids) == 4 and ids[2:] == [running.id, batch.id] and not list(others.batches.list())
page = mine.batches.list(limit=2)
assert page.has_more and [b.id for b in page.data] == ids[:2]
assert [b.id for b in mine.batches.list(after=ids[1], limit=2).data] == ids[2:]
assert [f.id for f in mine.files.list(order="asc", limit=1)][0] == file.id
assert {f.id for f in mine.files.list(purpose="batch_output")} == {batch.output_file_id, batch.error_file_id}
