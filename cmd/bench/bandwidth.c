/* SPDX-License-Identifier: Apache-2.0 */
/* bandwidth.c - how fast a device reads its memory: what every speed is held against. room: cmd
 * (cli_) */
#include <stdlib.h>
#include <string.h>
#include "base/pool.h"
#include "bench/bench.h"
#include "cli/estimate.h"
#include "model/model.h"

int64_t cli_bench_read_bytes(const struct bench *b)
{
    return strncmp(cli_open_device(&b->o->model), "cuda", 4) == 0 ? (int64_t)4 << 30 : (int64_t)512 << 20;
}

enum err_code cli_bench_read_speed(struct bench_spread *out, struct model_reads *r, const struct model_opts *o,
                                   int64_t bytes, struct err *e)
{
    double *v = calloc((size_t)r->reps, sizeof *v);
    enum err_code code;

    if (v == NULL)
        return err_nomem(e);
    r->bytes_per_s = v;
    r->stop = cli_interrupted;
    code = model_read_speed(r, o, bytes, e);
    r->bytes_per_s = NULL;
    if (code == ERR_OK)
        *out = cli_bench_spread(v, r->reps);
    free(v);
    return code;
}

/* One record: with n threads, or of a device that has none. */
static enum err_code measure_threads(struct bench *b, int n, int64_t bytes, bool keep, bool *host, struct err *e)
{
    struct model_opts o = { .device = cli_open_device(&b->o->model), .n_threads = n };
    struct model_reads reads = { .reps = b->o->reps };
    struct bench_spread s;
    char what[64];
    json_t *r;

    if (cli_bench_read_speed(&s, &reads, &o, bytes, e))
        return e->code;
    *host = strcmp(reads.device, "cpu") == 0;
    snprintf(b->device, sizeof b->device, "%s", reads.device);
    snprintf(b->kernels, sizeof b->kernels, "%s", reads.kernels);
    b->n_threads = reads.n_threads;
    if (*host)
        snprintf(what, sizeof what, "read threads=%d buffer=%lldMiB", n, (long long)bytes >> 20);
    else
        snprintf(what, sizeof what, "read device=%s buffer=%lldMiB", reads.device, (long long)bytes >> 20);
    if (keep)
        cli_estimate_keep(reads.device, s.max);
    r = cli_bench_record("bandwidth", what, "read_bytes_per_s", "higher");
    cli_bench_put_spread(r, "read", "_bytes_per_s", s);
    cli_bench_put_noise(r, s);
    cli_bench_int(r, "buffer_bytes", bytes);
    cli_bench_int(r, "reps", b->o->reps);
    if (!*host)
        snprintf(what, sizeof what, "%s", reads.device);
    else
        snprintf(what, sizeof what, "%d", n);
    cli_bench_line(b, "%-8s %10.0f %10.2f %10.2f %10.2f", what, (double)bytes / 1e6, s.median / 1e9, s.min / 1e9,
                   s.max / 1e9);
    return cli_bench_done(b, r, e);
}

enum err_code cli_bench_cmd_bandwidth(struct bench *b, struct err *e)
{
    int most = b->o->model.n_threads > 0 ? b->o->model.n_threads : pool_cpus();
    int64_t bytes = b->o->size_bytes > 0 ? b->o->size_bytes : cli_bench_read_bytes(b);
    /* with all threads and a buffer that caches hold little of it is kept for --plan */
    const bool usual = b->o->model.n_threads <= 0 && bytes >= cli_bench_read_bytes(b);
    bool host = true;

    cli_bench_line(b, "%-8s %10s %10s %10s %10s", "threads", "buffer MB", "GB/s", "least", "most");
    for (int n = 1;; n = 2 * n < most ? 2 * n : most) {
        if (measure_threads(b, n, bytes, n == most && usual, &host, e))
            return e->code;
        if (n == most || !host)
            return ERR_OK;
    }
}
