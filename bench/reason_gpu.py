# SPDX-License-Identifier: Apache-2.0
# reason_gpu.py DIRECTORY [SECONDS [ITEMS]] - for reason.md, on a GPU within SECONDS (default 450): rules that end
# reasoning early, on ITEMS (default 1000) fresh items of each of three seeds, for the adapter that thinks too long and
# for the embedded model alone; fewer experts; and whether answers on the GPU have the same bytes with probes that never
# act, alone and among others. Prints tables, and those of each threshold into report.md; a second run goes on with what
# is in the directory. In the environment: BIN (default bin), DEVICE (default cuda), PARALLEL (default 64).
import json
import math
import os
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT, SECONDS, ITEMS = sys.argv[1], float((sys.argv[2:] + [450])[0]), int((sys.argv[3:] + [1000])[0])
BIN = os.path.abspath(os.environ.get("BIN", os.path.join(ROOT, "bin")))
DEVICE = ["--device", os.environ.get("DEVICE", "cuda")]
PARALLEL = os.environ.get("PARALLEL", "64")
MODEL = os.path.join(ROOT, "share/models/chimere-nano-q5_k_m.gguf")
PONDER = ["--lora", os.path.join(ROOT, "share/models/chimere-nano-ponder.gguf")]
SEEDS = (301, 302, 303)  # nothing was tuned on these
REPORT_S = 45  # kept for reports
BEGIN = time.monotonic()


def say(text, everywhere=True):
    """Into report.md, and mostly on standard output, too."""
    with open(path("report.md"), "a") as f:
        f.write(text + "\n")
    if everywhere:
        print(text, flush=True)


def left():
    return SECONDS - (time.monotonic() - BEGIN)


def path(name):
    return os.path.join(OUT, name)


def command(program, *words):
    return [*os.path.join(BIN, program).rsplit(" "), "-m", MODEL, *DEVICE, *words]


def start(words, log):
    return subprocess.Popen(words, stdout=open(path(log + ".json"), "w"), stderr=open(path(log + ".err"), "w"))


def finish(p, log, until):
    """The records that it wrote; it is stopped when there is no more time."""
    try:
        p.wait(max(1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGINT)
        p.wait()
    if p.returncode != 0:
        say(f"{log}: status {p.returncode}: {open(path(log + '.err')).read()[-300:]}")
    return [json.loads(line) for line in open(path(log + ".json")) if line.startswith("{")]


def run(log, *words):
    return finish(start(command(*words), log), log, BEGIN + SECONDS - REPORT_S)


def lines(name):
    return [json.loads(line) for line in open(path(name)) if line.endswith("\n")] if os.path.exists(path(name)) else []


def interval(k, n, z=1.959964):
    p, d = k / n, 1 + z * z / n
    c, h = (p + z * z / (2 * n)) / d, z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / d
    return f"{100 * p:.1f} % [{100 * (c - h):.1f}, {100 * (c + h):.1f}]"


def paired(won, lost, n, z=1.959964):
    """The 95 % interval of the difference, by Agresti and Min: half a pair more in each of the four cells."""
    won, lost, n = won + 0.5, lost + 0.5, n + 2
    d, se = (won - lost) / n, math.sqrt(won + lost - (won - lost) ** 2 / n) / n
    return f"[{100 * (d - z * se):.2f}, {100 * (d + z * se):.2f}]"


def mcnemar(a, b):
    return min(1, 2 * sum(math.comb(a + b, j) for j in range(min(a, b) + 1)) / 2 ** (a + b))


# ---- rules that end reasoning early ----


def reason_words(name, items):
    lora = PONDER if name.startswith("ponder") else []
    return command("chimere-bench reason", items, *lora, "--parallel", PARALLEL, "--traces", path(name + ".traces"), "--json")


def begin_traces(name):
    with open(path(f"items/{name}.jsonl")) as f:
        items = f.readlines()[:ITEMS]
    with open(path(name + ".jsonl"), "w") as f:
        f.writelines(items)
    return start(reason_words(name, path(name + ".jsonl")), name)


def end_traces(name, p):
    """The report; if there was no time for all items, on those that are done."""
    records = finish(p, name, BEGIN + SECONDS - REPORT_S)
    if records:
        return records
    done = {r["id"] for r in lines(name + ".traces")}
    items = [line for line in open(path(name + ".jsonl")) if json.loads(line)["id"] in done]
    os.makedirs(path("done"), exist_ok=True)
    with open(path(f"done/{name}.jsonl"), "w") as f:
        f.writelines(items)
    say(f"{name}: {len(items)} items are done")
    if len(items) < 2:
        return []
    return finish(start(reason_words(name, path(f"done/{name}.jsonl")), name + ".report"), name + ".report", BEGIN + SECONDS)


def row(title, picked, everywhere=True):
    """One setting over the seeds."""
    n = sum(r["n_items"] for r in picked)
    right = sum(r["n_right"] for r in picked)
    none = [sum(r["against_none"][k] for r in picked) for k in ("won", "lost")]
    tokens, rows = (sum(r[k] * r["n_items"] for r in picked) / n for k in ("tokens", "probe_rows"))
    lost = f"{100 * (none[1] - none[0]) / n:.2f} {paired(none[1], none[0], n)}"
    text = f"| {title} | {interval(right, n)} | {tokens:.1f}, {rows:.1f} | {tokens + rows:.1f} | {lost} |"
    if all("against_budget" in r for r in picked):
        b = [r["against_budget"] for r in picked]
        won, lost = sum(x["won"] for x in b), sum(x["lost"] for x in b)
        text += (f" {100 * sum(x['n_right'] for x in b) / n:.1f} % at {sum(x['tokens'] * r['n_items'] for x, r in zip(b, picked)) / n:.1f},"
                 f" +{won} -{lost}, p {mcnemar(won, lost):.2g} |")
    say(text, everywhere)


def show(title, sets):
    """sets: the records of each seed. A rule's threshold is picked for each seed."""
    sets = [s for s in sets if s]
    if not sets:
        return
    say(f"\n## {title}: {sum(s[0]['n_items'] for s in sets)} items reported, {sum(s[0]['n_picked_on'] for s in sets)} to pick on\n")
    say("| rule | right, 95 % | tokens, rows of probes | together | lost to no rule, points, 95 % | equal budget |\n|---|---|---|---|---|---|")
    for rule in ("none", "oracle", "eat", "cgr", "deer", "same", "abf"):
        picked = [r for s in sets for r in s if r.get("rule") == rule and r.get("picked", True)]
        thresholds = ", ".join(f"{r['threshold']:g}" for r in picked if "threshold" in r)
        if picked:
            row(f"{rule} {thresholds}".strip(), picked)
    for rule in ("eat", "cgr", "deer", "same"):  # each threshold alone, which nothing picked
        for x in sorted({r["threshold"] for s in sets for r in s if r.get("rule") == rule}):
            row(f"({rule}:{x:g})", [r for s in sets for r in s if r.get("rule") == rule and r["threshold"] == x], False)


# ---- fewer experts ----


def experts():
    say("\n## Experts\n\n| k | KL, nats | same top | right, 95 % | to 4, points |\n|---|---|---|---|---|")
    sets = [os.path.join(ROOT, "share/eval", s) for s in ("math.jsonl", "code.jsonl")]
    windows = min(40, max(1, ITEMS // 10))
    for k in ("4", "3", "2"):
        kl = run(f"kl-{k}", "chimere-bench kl", "--windows", str(windows), "--experts", k, "--reference", MODEL,
                 os.path.join(ROOT, "share/eval/heldout-docs.txt"), "--json")
        run(f"experts-{k}", "chimere-bench eval", "--experts", k, "--limit", str(ITEMS), "--parallel", PARALLEL,
            "-o", path(f"experts-{k}.answers"), *sets, "--json")
        right = {(r["set"], r["id"]): r["right"] for r in lines(f"experts-{k}.answers")}
        first = right if k == "4" else first
        if not kl or right.keys() != first.keys() or not right:
            continue
        won = sum(right[i] and not first[i] for i in right)
        lost = sum(first[i] and not right[i] for i in right)
        say(f"| {k} | {kl[0]['kl_mean_nats']:.4f} +- {1.96 * kl[0]['kl_mean_se_nats']:.4f} | {100 * kl[0]['same_top_fraction']:.1f} % |"
              f" {interval(sum(right.values()), len(right))} | {100 * (won - lost) / len(right):+.2f} {paired(won, lost, len(right))} |")


# ---- the same bytes ----


def tell(what, these, those):
    """Of what both have; less where time was short."""
    both = list(zip(these, those))
    same = sum(a == b for a, b in both)
    say(f"{'none' if not both else 'same' if same == len(both) else 'DIFFERENT'}: {what}: {same} of {len(both)}")


def texts(name, *options):
    run(name, "chimere-bench eval", path("bytes.jsonl"), *PONDER, *options, "-o", path(name + ".answers"), "--json")
    return {r["id"]: r["text"] for r in lines(name + ".answers")}


def search(name, *options):
    p = subprocess.run(command("chimere-run", "-p", "Kim has 48 pens. Kim buys 3 boxes of 17 pens each. Kim gives 29 away. How many pens does Kim have?",
                               "--temp", "1.3", "--seed", "5", "--json", *options), capture_output=True, text=True)
    with open(path(name + ".json"), "w") as f:
        f.write(p.stdout)
    if p.returncode != 0:
        say(f"{name}: status {p.returncode}: {p.stderr[-300:]}")
        return []
    return [(c["text"], c["tokens"], c["score"]) for c in json.loads(p.stdout.splitlines()[-1])["search"]["candidates"]]


def same_bytes():
    say("\n## The same bytes on the GPU\n")
    with open(path(f"items/ponder-{SEEDS[0]}.jsonl")) as f, open(path("bytes.jsonl"), "w") as to:
        to.writelines(f.readlines()[-min(40, ITEMS):])
    plain = texts("plain", "--parallel", PARALLEL)
    for name, options in (("alone", ["--parallel", "1"]), ("eat", ["--think-stop", "eat:0", "--parallel", PARALLEL]),
                          ("cgr", ["--think-stop", "cgr:1", "--parallel", PARALLEL]),
                          ("cgr-lag", ["--think-stop", "cgr:1", "--think-probe", "every=4,lag=8", "--parallel", PARALLEL]),
                          ("cgr-alone", ["--think-stop", "cgr:1", "--parallel", "1"])):
        other = texts(name, *options) if left() > 2 * REPORT_S else {}
        both = sorted(plain.keys() & other.keys())
        tell(f"answers {name} and plain", [plain[b] for b in both], [other[b] for b in both])
    judge = ["--vote", "weighted", "--verifier", f"cmd:python3 '{ROOT}/bench/recompute.py'"]
    many, tree = search("best16", "--best-of", "16", *judge), search("tree16", "--dvts", "16x4", *judge)
    for n in ("1", "2", "5", "16"):
        tell(f"--best-of {n} and the first of 16", search("best" + n, "--best-of", n, *judge), many)
    tell("--dvts 16x4 again", search("tree16b", "--dvts", "16x4", *judge), tree)
    tell("--dvts 4x4 and the first tree of 16x4", search("tree4", "--dvts", "4x4", *judge), tree)


def main():
    os.makedirs(path("items"), exist_ok=True)
    subprocess.run([sys.executable, os.path.join(ROOT, "share/models/ponder_items.py"), path("items"), "40000", *map(str, SEEDS)], check=True)
    names = [f"{kind}-{seed}" for kind in ("ponder", "sums") for seed in SEEDS]
    asked = {name: begin_traces(name) for name in names}
    same_bytes()
    experts()
    records = {name: end_traces(name, p) for name, p in asked.items()}
    for kind, title in (("ponder", "chimere-nano-ponder"), ("sums", "the embedded model alone")):
        show(title, [records[f"{kind}-{seed}"] for seed in SEEDS])
    say(f"\n{time.monotonic() - BEGIN:.0f} s")


main()
