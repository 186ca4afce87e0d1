# SPDX-License-Identifier: Apache-2.0
"""context_judge.py - makes requests of items on notes, and judges what was found or answered.

    context_judge.py requests N ITEMS.jsonl ... > BATCH     a batch of the server, of the first N items of each file
    context_judge.py found FOUND.jsonl ...                  lines of bench/context_find
    context_judge.py answers ITEMS.jsonl BATCH_OUT          replies to such a batch
    context_judge.py compare ITEMS.jsonl BEFORE AFTER       what other items lost and won; "right" as in share/eval

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


def messages(path):
    return {r["custom_id"]: r["response"]["body"]["choices"][0]["message"] for r in rows(path)}


def solves(item, message):
    if item["check"] == "tool_call":
        calls = [{"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])} for c in message.get("tool_calls") or []]
        return calls == item["answer"]
    return (message["content"] or "").strip() == item["answer"].strip()


if sys.argv[1] == "requests":
    for path in sys.argv[3:]:
        for item in rows(path)[: int(sys.argv[2])]:
            body = {"messages": item["messages"], "max_tokens": 400, "temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}
            if "tools" in item:
                body["tools"] = item["tools"]
            print(json.dumps({"custom_id": item["id"], "method": "POST", "url": "/v1/chat/completions", "body": body}))
elif sys.argv[1] == "compare":
    items, before, after = {i["id"]: i for i in rows(sys.argv[2])}, messages(sys.argv[3]), messages(sys.argv[4])
    pairs = [(solves(items[i], before[i]), solves(items[i], after[i])) for i in before]
    print("right", wilson(sum(b for b, _ in pairs), len(pairs)), "before,", sum(a for _, a in pairs), "after; lost",
          sum(b and not a for b, a in pairs), "won", sum(a and not b for b, a in pairs), "other text", sum(before[i] != after[i] for i in before))
elif sys.argv[1] == "found":
    all_rows = [row for path in sys.argv[2:] for row in rows(path)]
    if any(row["want"] for row in all_rows):
        print("found", wilson(sum(right(row["text"], row["want"]) for row in all_rows), len(all_rows)))
        print("found something else", sum(row["text"] is not None and not right(row["text"], row["want"]) for row in all_rows))
    else:
        print("recited", sum(row["text"] is not None for row in all_rows), "of", len(all_rows))
else:
    want = {item["id"]: item for item in rows(sys.argv[2])}
    said = {i: message["content"] for i, message in messages(sys.argv[3]).items()}
    print("answered", wilson(sum(right(said.get(i), item["answers"]) for i, item in want.items()), len(want)))
