/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_drafter.c - any bytes as a DFlash drafter of a small model: refused with one line of text,
 * or it guesses. Run from the repository's root. */
#include <assert.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "gguf/parse.h"
#include "model/drafter.h"
#include "model/model.h"
#include "run/run.h"
#include "run/taps.h"

enum { TOKENS = 5 };
static struct model *model;
static struct run *run;

/* The model, and a step of it, which leaves the rows of all layers. */
static void set_up(void)
{
    static const int layer[] = { 0, 1, 2, 3, 4, 5 };
    static const int32_t token[TOKENS] = { 1, 7, 300, 12, 9 };
    const struct run_opts ro = { .ctx_tokens = 64, .tap_layers = layer, .n_taps = 6 };
    struct gguf *g;
    struct err e = { 0 };

    assert(gguf_open(&g, "tests/golden/models/qwen35moe-a.gguf", &e) == ERR_OK);
    assert(model_open(&model, g, &(struct model_opts){ .n_threads = 1 }, &e) == ERR_OK);
    assert(run_open(&run, model, &ro, &e) == ERR_OK);
    assert(run_feed(run, 0, token, TOKENS, 1, NULL, NULL, NULL, &e) == ERR_OK);
}

static void guess(struct model_drafter *d)
{
    int32_t token[MODEL_GUESSES_MAX];
    float p[MODEL_GUESSES_MAX];
    const struct model_drafter_ask ask = { 0, 9, model_drafter_info(d)->n_max, token, p };
    struct model_drafter_row row[TOKENS];
    struct err e = { 0 };

    for (int i = 0; i < TOKENS; i++)
        row[i] = (struct model_drafter_row){ 0, false, i, 0 };
    if (model_drafter_reserve(d, 1, 64, 8, &e) != ERR_OK) {
        assert(e.code == ERR_NOMEM);
        return;
    }
    assert(model_drafter_run(d, run_taps(run), row, TOKENS, &ask, 1, &e) == ERR_OK);
    for (int i = 0; i < ask.n; i++)
        assert(token[i] >= -1 && token[i] < model_info(model)->n_vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gguf *g = NULL;
    struct model_drafter *d = NULL;
    struct err e = { 0 };

    if (run == NULL)
        set_up();
    if (gguf_parse(&g, "input", data, n, &e) == ERR_OK && model_drafter_dflash(&d, model, g, &e) == ERR_OK)
        guess(d);
    else
        assert(d == NULL && strncmp(e.msg, "input", 5) == 0 && strchr(e.msg, '\n') == NULL);
    model_drafter_close(d);
    gguf_close(g);
    return 0;
}
