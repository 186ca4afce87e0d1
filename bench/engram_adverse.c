/* SPDX-License-Identifier: Apache-2.0 */
/* engram_adverse.c - a table that misleads about a text.
 *
 *   engram_adverse TEXT TABLE SEED SHARE RUN
 *
 * The table predicts each token from the 8 before it. For a SHARE of the tokens, 0 to 1, the prediction is wrong:
 * another token of the text, drawn by SEED. Right and wrong predictions come in runs of RUN tokens, so that the
 * table earns trust and then loses it. bench/engram-weigh.sh builds and runs this. */
#include <stdio.h>
#include <stdlib.h>
#include "base/io.h"
#include "base/pool.h"
#include "base/rng.h"
#include "engram/build.h"
#include "gguf/gguf.h"
#include "text/text.h"

static struct err e;

static void must(enum err_code code)
{
    if (code == ERR_OK)
        return;
    fprintf(stderr, "engram_adverse: %s\n", e.msg);
    exit(1);
}

enum { TEXT_BYTES_MAX = 64 << 20, DRAWS_OF_RUN = 1, DRAWS_OF_TOKEN = 2 };

int main(int argc, char **argv)
{
    const char *model = getenv("CHIMERE_MODEL");
    struct engram_builder *b;
    struct text_tokens ids = { 0 };
    struct text *text;
    struct gguf *g;
    struct pool *pool;
    char *said;
    size_t n;

    if (argc != 6) {
        fprintf(stderr, "usage: engram_adverse TEXT TABLE SEED SHARE RUN\n");
        return 2;
    }
    const uint64_t seed = strtoull(argv[3], NULL, 10), run = strtoull(argv[5], NULL, 10);
    const double share = atof(argv[4]);

    must(gguf_open(&g, model != NULL ? model : "share/models/chimere-nano-q5_k_m.gguf", &e));
    must(text_open(&text, g, &e));
    must(io_read_all(&said, &n, argv[1], TEXT_BYTES_MAX, NULL, &e));
    must(text_encode(text, (struct str){ said, n }, 0, &ids, &e));
    must(pool_open(&pool, 2, &e));
    must(engram_build_open(&b, argv[2],
                           &(struct engram_build_opts){ .tokenizer = text_fingerprint(g),
                                                        .day = 20000,
                                                        .order = ENGRAM_ORDER_MAX,
                                                        .memory_bytes = TEXT_BYTES_MAX,
                                                        .pool = pool },
                           &e));
    for (int64_t i = ENGRAM_ORDER_MAX; i < ids.n; i++) {
        int32_t doc[ENGRAM_ORDER_MAX + 1];
        uint64_t draw = (uint64_t)i;

        for (int k = 0; k <= ENGRAM_ORDER_MAX; k++)
            doc[k] = ids.v[i - ENGRAM_ORDER_MAX + k];
        if (rng_unit(seed, DRAWS_OF_RUN, (uint64_t)i / run) < share)
            while (doc[ENGRAM_ORDER_MAX] == ids.v[i])
                doc[ENGRAM_ORDER_MAX] = ids.v[(int64_t)(rng_unit(seed, DRAWS_OF_TOKEN, draw++) * (double)ids.n)];
        must(engram_build_tokens(b, doc, ENGRAM_ORDER_MAX + 1, &e));
        must(engram_build_end(b, &e));
    }
    must(engram_build_commit(b, NULL, &e));
    return 0;
}
