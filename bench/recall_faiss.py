#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""recall_faiss.py RECALL_NEAR PROGRAM EMBEDDER TEXTS N DIMS DIR [MAKER:WAY ...] - vectors of texts in our index and in FAISS's.

RECALL_NEAR is bench/recall_near.c, and PROGRAM a chimere-engram-build, both built with the FAISS that is measured beside
faiss-cpu of PyPI, from whose environment this runs. The static table EMBEDDER (chimere-engram-build embedder) makes a
vector of each line of TEXTS in an order drawn with seed 1; of a vector the first DIMS numbers, made to length 1. The first
500 are the queries, the next N are in the index. MAKER: ours, debian or pypi; all ways by default. What is in DIR
already is not made again. All are then searched in turns of 20 queries, one thread. Prints a table: processor seconds to
make and write it, bytes of all files, recall@10 against all vectors compared, and of a search the median and the 95th
percentile of milliseconds, of the processor and of the clock.
"""
import glob
import json
import os
import random
import subprocess
import sys
import time

import faiss
import numpy as np

QUERIES, K, TURN = 500, 10, 20
WAYS = [("ours", "graph", "graph"), ("ours", "graph", "flat")] + [
    (maker, way, search) for way, search in [("Flat", ""), ("IVF1024,Flat", "nprobe=16"), ("IVF1024,Flat", "nprobe=64"),
                                             ("IVF1024,PQ32np", "nprobe=64"), ("HNSW32", "efSearch=128")]
    for maker in ("debian", "pypi")]


def write_vectors(program, embedder, texts, n, dims, work):
    lines = [line for line in open(texts, errors="replace").read().split("\n") if line]
    random.Random(1).shuffle(lines)
    assert len(lines) >= n, "%s has not so many lines" % texts
    with open(work + "/texts", "w") as f:
        f.writelines(line + "\n" for line in lines[:n])
    subprocess.run([program, "index", "-qf", "-t", "1", "--lines", "--embedder", embedder, "--faiss", "Flat", "-o", work + "/x",
                    work + "/texts"], check=True)
    made = glob.glob(work + "/x.*.faiss")[0]
    v = faiss.read_index(made).reconstruct_n(0, n)[:, :dims]
    (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9)).astype(np.float32).tofile(work + "/v")
    os.unlink(made)


def make(near, work, maker, way, n, dims):
    """[processor seconds, bytes] and the path of an index."""
    path = "%s/%s-%d-%s" % (work, maker, n, way)
    if os.path.exists(path + ".made"):
        return json.load(open(path + ".made")), path
    if maker == "pypi":
        v = np.fromfile(work + "/v", np.float32, n * dims, offset=QUERIES * dims * 4).reshape(n, dims)
        start = time.process_time()
        index = faiss.index_factory(dims, way, faiss.METRIC_INNER_PRODUCT)
        index.train(v)
        index.add(v)
        faiss.write_index(index, path)
        made = {"made_s": time.process_time() - start, "bytes": os.path.getsize(path)}
    else:
        made = json.loads(subprocess.run([near, "make", work + "/v", str(QUERIES), str(n), str(dims), path,
                                          *([way] if maker == "debian" else [])],
                                         check=True, capture_output=True, text=True).stdout)
    json.dump(made, open(path + ".made", "w"))
    print(path, made, file=sys.stderr, flush=True)
    return made, path


class Ours:
    def __init__(self, near, work, dims, path, search):
        self.p = subprocess.Popen([near, "search", work + "/v", str(dims), path, search], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)

    def ask(self, q):
        print(q, file=self.p.stdin, flush=True)
        return json.loads(self.p.stdout.readline())


class Pypi:
    def __init__(self, queries, path, search):
        self.queries, self.index = queries, faiss.read_index(path)
        if search:
            faiss.ParameterSpace().set_index_parameters(self.index, search)

    def ask(self, q):
        cpu, wall = time.process_time(), time.monotonic()
        ids = self.index.search(self.queries[q:q + 1], K)[1][0].tolist()
        return {"ids": ids, "cpu": (time.process_time() - cpu) * 1e3, "wall": (time.monotonic() - wall) * 1e3}


def main():
    near, program, embedder, texts, n, dims, work, *only = sys.argv[1:]
    n, dims = int(n), int(dims)
    faiss.omp_set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.makedirs(work, exist_ok=True)
    if not os.path.exists(work + "/v"):
        write_vectors(program, embedder, texts, n + QUERIES, dims, work)
    queries = np.fromfile(work + "/v", np.float32, QUERIES * dims).reshape(QUERIES, dims)
    exact = Pypi(queries, make(near, work, "pypi", "Flat", n, dims)[1], "").index.search(queries, K)[1].tolist()
    ways = [w for w in WAYS if not only or w[0] + ":" + w[1] in only]
    made = [make(near, work, maker, way, n, dims) for maker, way, _ in ways]
    open_ = [Pypi(queries, path, w[2]) if w[0] == "pypi" else Ours(near, work, dims, path, w[2])
             for w, (_, path) in zip(ways, made)]
    said = [[] for _ in ways]
    for start in range(0, QUERIES, TURN):
        for o, s in zip(open_, said):
            s += [o.ask(q) for q in range(start, start + TURN)]
    print("%d vectors of %d numbers, %d queries\n\n| | made, s | size | recall@10 | processor: p50, p95 ms | clock: p50, p95 ms |\n"
          "|---|---|---|---|---|---|" % (n, dims, QUERIES))
    for (maker, way, search), (m, _), s in zip(ways, made, said):
        name = "ours, " + search if maker == "ours" else way + (", " + search if search else "") + (
            ", `--faiss`" if maker == "debian" else ", PyPI's " + faiss.__version__)
        same = sum(len(set(a["ids"]) & set(b)) for a, b in zip(s, exact))
        p = [float(np.quantile([a[clock] for a in s], x)) for clock in ("cpu", "wall") for x in (0.5, 0.95)]
        print("| %s | %.1f | %.1f MB | %.1f %% | %.3f, %.3f | %.3f, %.3f |" %
              (name, m["made_s"], m["bytes"] / 1e6, 100 * same / K / QUERIES, *p))


if __name__ == "__main__":
    main()
