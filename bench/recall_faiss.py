# SPDX-License-Identifier: Apache-2.0
"""recall_faiss.py - the graph of an index of texts beside FAISS's HNSW and flat index, the same vectors, one thread each.

usage: recall_faiss.py RECALL_NEAR [TEXTS [QUERIES]]    RECALL_NEAR: bench/recall_near.c, built; needs faiss-cpu and numpy

Random vectors around 1,000 centres, each minus the mean and of length 1 as an index keeps them; processor time. FAISS has
links and widths like those of libcore/recall/graph.c, and a wider search, too.
"""
import json
import subprocess
import sys
import tempfile
import time

import faiss
import numpy as np

faiss.omp_set_num_threads(1)
n, n_query, k = int((sys.argv + ["", "100000"])[2] or 100000), int((sys.argv + ["", "", "300"])[3] or 300), 10
for dims in (64, 256):
    rng = np.random.default_rng(1)
    centre = rng.standard_normal((1000, dims))
    v = centre[rng.integers(0, 1000, n + n_query)] + 0.5 * rng.standard_normal((n + n_query, dims))
    v = v.astype(np.float32)
    with tempfile.TemporaryDirectory() as work:
        v.tofile(work + "/v")
        print(subprocess.run([sys.argv[1], work + "/v", str(n), str(n_query), str(dims), work + "/i"], check=True,
                             capture_output=True, text=True).stdout, end="", flush=True)
    v -= v[:n].mean(axis=0)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    flat = faiss.IndexFlatIP(dims)
    flat.add(v[:n])
    flat_ms, want = [], []
    for q in v[n:]:
        start = time.process_time()
        want.append(flat.search(q[None], k)[1][0])
        flat_ms.append((time.process_time() - start) * 1e3)
    graph = faiss.IndexHNSWFlat(dims, 16, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 128
    start = time.process_time()
    graph.add(v[:n])
    made = time.process_time() - start
    for ef in (64, 128):
        graph.hnsw.efSearch = ef
        ms, found = [], 0
        for q, w in zip(v[n:], want):
            start = time.process_time()
            have = graph.search(q[None], k)[1][0]
            ms.append((time.process_time() - start) * 1e3)
            found += len(set(have) & set(w))
        print(json.dumps({"of": f"faiss {faiss.__version__}", "dims": dims, "search": ef, "made_s": round(made, 1),
                          "recall": found / k / n_query, "p50_ms": round(float(np.quantile(ms, 0.5)), 3),
                          "p99_ms": round(float(np.quantile(ms, 0.99)), 3),
                          "flat_p50_ms": round(float(np.quantile(flat_ms, 0.5)), 2),
                          "flat_p99_ms": round(float(np.quantile(flat_ms, 0.99)), 2)}), flush=True)
