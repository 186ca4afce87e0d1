# SPDX-License-Identifier: Apache-2.0
# sums.py - a verifier for chimere-run --verifier cmd: - of programs that sum a list it knows each right line, so it is no verifier that
# anybody has, but a bound of what a search can gain. A step scores 1 if it is the line that comes there, a solution as its last step.
import json
import re
import sys

for line in sys.stdin:
    solution = json.loads(line)
    items = [int(x) for x in re.search(r"\[([\d, ]+)\]", solution["problem"])[1].split(",")]
    name, total, want = re.search(r"print\((\w+)\)", solution["problem"])[1], 0, []
    for item in items:
        want.append(f"{name} = {total} + {item} = {total + item}")
        total += item
    want.append(f"output: {total}")
    steps = [float(i < len(want) and step == want[i]) for i, step in enumerate(solution["steps"])]
    print(json.dumps({"score": steps[-1] if steps else 0.0, "steps": steps}), flush=True)
