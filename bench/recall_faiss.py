#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""recall_faiss.py RECALL_NEAR PROGRAM EMBEDDER TEXTS N DIMS [WAY ...] - vectors of texts in our index and in FAISS's, one thread.

RECALL_NEAR is bench/recall_near.c, and PROGRAM a chimere-engram-build, both built with the FAISS that is measured beside
faiss-cpu of PyPI, from whose environment this runs. The static table EMBEDDER (chimere-engram-build embedder) makes a
vector of each line of TEXTS: N of them, in an order drawn with seed 1, and 300 more are the queries; of a vector the first
DIMS numbers, made to length 1. WAY: graph, or a factory of FAISS; all by default. Prints a table: processor seconds to make
it and to write it, bytes of the file (ours with the rest of the index, 70 bytes a text), recall@10 against all vectors
compared, and milliseconds of processor time of a search.
"""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import faiss
import numpy as np

QUERIES, K = 300, 10
WAYS = [("Flat", ""), ("IVF1024,Flat", "nprobe=16"), ("IVF1024,Flat", "nprobe=64"), ("IVF1024,PQ32", "nprobe=64"),
        ("HNSW32", "efSearch=128"), ("graph", "")]


def vectors(program, embedder, path, n, dims, work):
    lines = [line for line in open(path, errors="replace").read().split("\n") if line]
    random.Random(1).shuffle(lines)
    assert len(lines) >= n + QUERIES, "%s has not so many lines" % path
    with open(work + "/texts", "w") as f:
        f.writelines(line + "\n" for line in lines[:n + QUERIES])
    subprocess.run([program, "index", "-q", "-t", "1", "--lines", "--embedder", embedder, "--faiss", "Flat", "-o", work + "/x",
                    work + "/texts"], check=True)
    index = faiss.read_index(glob.glob(work + "/x.*.faiss")[0])
    v = index.reconstruct_n(0, n + QUERIES)[:, :dims]
    return np.ascontiguousarray(v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9), dtype=np.float32)


def row(name, found, want, made, size, p50, p99):
    same = sum(len(set(a) & set(b)) for a, b in zip(found, want))
    print("| %s | %.1f | %.1f MB | %.1f %% | %.3f, %.3f |" % (name, made, size / 1e6, 100 * same / K / QUERIES, p50, p99), flush=True)


def pypi(v, n, factory, search, path):
    index = faiss.index_factory(v.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    start = time.process_time()
    index.train(v[:n])
    index.add(v[:n])
    faiss.write_index(index, path)
    made = time.process_time() - start
    if search:
        faiss.ParameterSpace().set_index_parameters(index, search)
    ms, found = [], []
    for q in v[n:]:
        start = time.process_time()
        found.append(index.search(q[None], K)[1][0].tolist())
        ms.append((time.process_time() - start) * 1e3)
    return found, made, os.path.getsize(path), float(np.quantile(ms, 0.5)), float(np.quantile(ms, 0.99))


def main():
    near, program, embedder, texts, n, dims, *only = sys.argv[1:]
    n, dims = int(n), int(dims)
    faiss.omp_set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as work:
        v = vectors(program, embedder, texts, n, dims, work)
        v.tofile(work + "/v")
        print("%d vectors of %d numbers, %d queries\n\n| | made, s | size | recall@10 | p50, p99 ms |\n|---|---|---|---|---|" %
              (n, dims, QUERIES))
        want = pypi(v, n, "Flat", "", work + "/p")[0]
        for way, search in WAYS:
            if only and way not in only:
                continue
            out = subprocess.run([near, work + "/v", str(n), str(QUERIES), str(dims), work + "/i",
                                  *([way, search] if way != "graph" else [])], check=True, capture_output=True, text=True).stdout
            for r in map(json.loads, out.splitlines()):
                name = way + (", " + search if search else "") + ", `--faiss`" if way != "graph" else "ours, " + r["of"]
                row(name, r["ids"], want, r["made_s"], r["bytes"], r["p50_ms"], r["p99_ms"])
            if way != "graph":
                found, *rest = pypi(v, n, way, search, work + "/p")
                row(way + (", " + search if search else "") + ", PyPI's " + faiss.__version__, found, want, *rest)


if __name__ == "__main__":
    main()
