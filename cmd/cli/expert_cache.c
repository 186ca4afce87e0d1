/* SPDX-License-Identifier: Apache-2.0 */
/* expert_cache.c - reports of a cache of experts.                                       room: cmd */
#include "cli/expert_cache.h"

#include <inttypes.h>

#include "model/model.h"

json_t *cli_cache_json(const struct io_cache_stats *now, const struct io_cache_stats *from)
{
    const struct io_cache_stats none = { 0 };

    from = from != NULL ? from : &none;
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:b}", "hits",
                     (json_int_t)(now->hits - from->hits), "reads", (json_int_t)(now->reads - from->reads),
                     "reads_ahead", (json_int_t)(now->ahead - from->ahead), "read_bytes",
                     (json_int_t)(now->bytes - from->bytes), "wait_ms", (double)(now->wait_ns - from->wait_ns) / 1e6,
                     "memory_bytes", (json_int_t)now->memory, "expert_bytes", (json_int_t)now->expert_bytes, "slots",
                     (json_int_t)now->slots, "experts", (json_int_t)now->experts, "kept", (json_int_t)now->kept,
                     "direct", now->direct);
}

void cli_cache_note(const struct model *m)
{
    struct io_cache_stats s;

    if (!model_cache_stats(m, &s))
        return;
    cli_note("experts  read from the file as they are used: %.2f GB hold %" PRId64 " of %" PRId64 ", %.2f GB",
             (double)s.memory / 1e9, s.slots, s.experts, (double)s.expert_bytes / 1e9);
    if (s.kept > 0)
        cli_note("         %" PRId64 " that were used most stay once read", s.kept);
    if (!s.direct)
        cli_note("         through the page cache: the file system does not read past it");
}

void cli_cache_note_reads(const struct model *m)
{
    struct io_cache_stats s;

    if (!model_cache_stats(m, &s))
        return;
    cli_note("experts  %" PRIu64 " in memory, %" PRIu64 " read (%" PRIu64 " of them ahead), %.1f MB, waited %.1f ms",
             s.hits, s.reads, s.ahead, (double)s.bytes / 1e6, (double)s.wait_ns / 1e6);
}

void cli_cache_warn(const struct model *m, int64_t cache_bytes)
{
    struct io_cache_stats s;

    if (cache_bytes > 0 && !model_cache_stats(m, &s))
        cli_warn("--expert-cache has no effect: the CPU computes no routed experts of this model");
}
