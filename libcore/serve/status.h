/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - a copy of what a server counts, which another thread may read while a step runs.  room: serve */
#ifndef SERVE_STATUS_H
#define SERVE_STATUS_H
#include "base/reads.h"
#include "gen/gen.h"
#include "run/run.h"
#include "serve/serve.h"

enum { SERVE_BUCKETS = 20 /* of a histogram: up to 1, 2, 4 ... ms, 524 s */ };
struct serve_count {
    uint64_t n, bucket[SERVE_BUCKETS + 1]; /* the last one: longer */
    double sum;
};
struct serve_counts { /* since the start */
    uint64_t requests[SERVE_N_METHODS], errors, cancelled, prompt_tokens, cached_tokens, tokens, drafted, kept, steps;
    uint64_t thought[GEN_WHYS];                  /* answers by why their reasoning ended */
    uint64_t votes, candidates, verifier_tokens; /* requests that were decided by votes, and their answers */
    struct serve_count first_token, between, queue;
};
enum { SERVE_NAMES_BYTES = 72 * RUN_ADAPTERS_MAX };
struct serve_status {
    struct serve_counts m;
    int64_t running, waiting;                                                /* requests */
    int64_t answers_waiting;                                                 /* serve_waiting() */
    int64_t n_seq, held_tokens, kv_rows, kv_used;                            /* n_seq 0: nothing of the run is known */
    int n_adapters, adapters_running;                                        /* attached; in use by requests that run */
    char running_names[SERVE_NAMES_BYTES], waiting_names[SERVE_NAMES_BYTES]; /* of adapters, "a.gguf,b.gguf" */
    char model[200];                                                         /* fit for a label */
    bool vllm_names;
    bool reads_experts;            /* experts is filled in */
    struct io_cache_stats experts; /* run_expert_reads() */
};
void serve_look(const struct serve *s, struct serve_status *out);
/* Metrics as Prometheus text, malloc'ed; NULL when memory is out. */
char *serve_metrics(const struct serve_status *s);
#endif
