/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_pipeline.c - a file of a pipeline, up to an empty line, and behind it results: a file that is refused has a
 * reason, and the expressions and templates of one that is taken read any results. */
#include <assert.h>
#include <stdlib.h>
#include "fuzz/fuzz.h"
#include "pipeline/pipeline.h"

static void use_step(const struct pipeline_step *s, const json_t *results)
{
    const struct pipeline_expr *x[] = { s->when, s->until, s->require };
    struct err e = { 0 };
    char *out;
    size_t n;

    for (int i = 0; i < 3; i++)
        if (x[i] != NULL)
            (void)pipeline_holds(x[i], results);
    if (s->text != NULL && pipeline_fill(&out, &n, s->text, results, &e) == ERR_OK)
        free(out);
    assert(e.code == ERR_OK || e.code == ERR_LIMIT || e.code == ERR_NOMEM);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct str all = { (const char *)data, n };
    const size_t end = str_find(all, 0, STR("\n\n"));
    const struct str file = { all.p, end != SIZE_MAX ? end : n };
    const struct str rest = { all.p + (end != SIZE_MAX ? end + 2 : n), end != SIZE_MAX ? n - end - 2 : 0 };
    struct pipeline *p;
    struct err e = { 0 };
    json_t *v, *results = NULL;

    if (json_parse(&v, file, "pipeline", &e))
        return 0;
    if (pipeline_open(&p, v, &e)) {
        assert(e.code == ERR_FORMAT || e.code == ERR_NOMEM);
    } else {
        if (json_parse(&results, rest, "results", &e))
            results = json_object();
        for (int i = 0; i < pipeline_n_steps(p); i++)
            use_step(pipeline_step_at(p, i), results);
        json_decref(results);
        pipeline_close(p);
    }
    json_decref(v);
    return 0;
}
