# SPDX-License-Identifier: Apache-2.0
# recompute.py - a verifier for chimere-run --verifier cmd: - a step with "a op b = c" scores 1 if that is right and 0 if not, any other
# step 0.5; a solution the least of its steps.
import json
import re
import sys

RESULT = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b if b else None}
for line in sys.stdin:
    steps = []
    for step in json.loads(line)["steps"]:
        m = re.search(r"(\d+) ([-+*/]) (\d+) = (-?\d+)", step)
        steps.append(0.5 if not m else float(RESULT[m[2]](int(m[1]), int(m[3])) == int(m[4])))
    print(json.dumps({"score": min(steps, default=0.5), "steps": steps}), flush=True)
