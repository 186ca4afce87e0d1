#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes sets like context_sets.py's of other people's prose and questions.

    context_squad.py FILE.json FROM TO DIR [PARAGRAPHS]

FILE.json has the form of SQuAD 1.1. Of its articles FROM .. TO - 1, or of its runs of PARAGRAPHS paragraphs, each becomes a
document DIR/NNN/notes.txt. Every fourth paragraph is left out: its questions are those of none.jsonl. foreign.jsonl has one
question of every other document. Questions on the others are items.jsonl, with all answers that people gave.
"""
import json, os, sys


def write(path, rows):
    with open(path, "w") as f:
        for i, (question, answers) in enumerate(rows):
            f.write(json.dumps({"id": "%s-%d" % (path, i), "messages": [{"role": "user", "content": question}], "answers": answers}) + "\n")


def main():
    path, first, last, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    documents = [a["paragraphs"] for a in json.load(open(path))["data"]]
    if len(sys.argv) > 5:
        run = int(sys.argv[5])
        all_paragraphs = [p for d in documents for p in d]
        documents = [all_paragraphs[i : i + run] for i in range(0, len(all_paragraphs), run)]
    documents = documents[first:last]
    for i, document in enumerate(documents):
        at = "%s/%03d" % (out, i)
        os.makedirs(at, exist_ok=True)
        asked = lambda k: [(q["question"].strip(), sorted({a["text"] for a in q["answers"]})) for q in document[k]["qas"]]
        out_of = [k for k in range(len(document)) if k % 4 == 3]
        with open(at + "/notes.txt", "w") as f:
            f.write("\n\n".join(" ".join(p["context"].split()) for k, p in enumerate(document) if k not in out_of) + "\n")
        write(at + "/items.jsonl", [q for k in range(len(document)) if k not in out_of for q in asked(k)])
        write(at + "/none.jsonl", [(q, []) for k in out_of for q, _ in asked(k)])
        write(at + "/foreign.jsonl", [(d[0]["qas"][0]["question"].strip(), []) for d in documents if d is not document and d[0]["qas"]])


main()
