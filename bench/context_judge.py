# SPDX-License-Identifier: Apache-2.0
"""context_judge.py - makes requests of items on notes, and judges what was found or answered.

    context_judge.py requests NOTES ITEMS.jsonl > BATCH     a batch of the server; NOTES "": without a context
    context_judge.py found FOUND.jsonl ...                  lines of bench/context_find
    context_judge.py answers ITEMS.jsonl BATCH_OUT          replies to such a batch

Answers are right without their article, capitals and a last full stop. Prints a count and Wilson's interval of 95 %.
"""
import json
import re
import sys


def plain(text):
    return re.sub(r"^(a|an|the) ", "", (text or "").strip(" .\n").lower())


def wilson(k, n, z=1.96):
    mid, half = (k / n + z * z / 2 / n), z * ((k / n * (1 - k / n) + z * z / 4 / n) / n) ** 0.5
    return "%d of %d, %.1f %% (%.1f to %.1f)" % (k, n, 100 * k / n, *[100 * (mid + s * half) / (1 + z * z / n) for s in (-1, 1)])


def right(text, answers):
    return plain(text) in [plain(a) for a in answers]


def rows(path):
    return [json.loads(line) for line in open(path)]


if sys.argv[1] == "requests":
    notes = open(sys.argv[2]).read() if sys.argv[2] else None
    for item in rows(sys.argv[3]):
        body = {"messages": item["messages"], "max_tokens": 60, "temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}
        if notes:
            body["context"] = notes
        print(json.dumps({"custom_id": item["id"], "method": "POST", "url": "/v1/chat/completions", "body": body}))
elif sys.argv[1] == "found":
    all_rows = [row for path in sys.argv[2:] for row in rows(path)]
    if any(row["want"] for row in all_rows):
        print("found", wilson(sum(right(row["text"], row["want"]) for row in all_rows), len(all_rows)))
        print("found something else", sum(row["text"] is not None and not right(row["text"], row["want"]) for row in all_rows))
    else:
        print("recited", sum(row["text"] is not None for row in all_rows), "of", len(all_rows))
else:
    want = {item["id"]: item for item in rows(sys.argv[2])}
    said = {r["custom_id"]: r["response"]["body"]["choices"][0]["message"]["content"] for r in rows(sys.argv[3])}
    print("answered", wilson(sum(right(said.get(i), item["answers"]) for i, item in want.items()), len(want)))
