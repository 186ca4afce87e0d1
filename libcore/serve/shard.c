/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c - which requests of a batch one of several machines asks.          room: serve */
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

enum { SHARDS_MAX = 1 << 20, DIGITS_MAX = 9 };

/* A whole number without a sign, up to the end or `until`; what follows is at *rest. */
static bool read_number(const char *s, char until, int *out, const char **rest)
{
    const size_t n = strspn(s, "0123456789");

    if (n == 0 || n > DIGITS_MAX || (s[n] != '\0' && s[n] != until))
        return false;
    *out = atoi(s);
    *rest = s + n;
    return true;
}

static enum err_code get_number(int *out, const char *name, const char *(*get)(const char *name), struct err *e)
{
    const char *v = get(name), *rest;

    if (v == NULL)
        return err_set(e, ERR_ARG, "--shard auto: %s is not set", name);
    return read_number(v, '\0', out, &rest) ? ERR_OK
                                            : err_set(e, ERR_ARG, "--shard auto: %s=%.40s is not a number", name, v);
}

static enum err_code out_of_range(const char *name, int i, int n, struct err *e)
{
    return err_set(e, ERR_ARG, "--shard auto/%d: %s is %d", n, name, i);
}

/* All tasks of an array: their numbers go from MIN to MAX by STEP. With n, of them or not, the number itself counts. */
static enum err_code read_slurm(struct serve_shard *out, const char *task, int n, const char *(*get)(const char *name),
                                struct err *e)
{
    int id, min, max, step = 1, count;

    if (get_number(&id, task, get, e))
        return e->code;
    if (n > 0 && (id < 1 || id > n))
        return out_of_range(task, id, n, e);
    *out = (struct serve_shard){ id - 1, n };
    if (n > 0)
        return ERR_OK;
    if (get_number(&min, "SLURM_ARRAY_TASK_MIN", get, e) || get_number(&max, "SLURM_ARRAY_TASK_MAX", get, e) ||
        (get("SLURM_ARRAY_TASK_STEP") != NULL && get_number(&step, "SLURM_ARRAY_TASK_STEP", get, e)))
        return e->code;
    if (step < 1 || id < min || id > max || (id - min) % step != 0 || (max - min) / step >= SHARDS_MAX)
        return err_set(e, ERR_ARG, "--shard auto: task %d is not one of an array from %d to %d by %d", id, min, max,
                       step);
    *out = (struct serve_shard){ (id - min) / step, (max - min) / step + 1 };
    if (get("SLURM_ARRAY_TASK_COUNT") == NULL)
        return ERR_OK;
    if (get_number(&count, "SLURM_ARRAY_TASK_COUNT", get, e))
        return e->code;
    return count == out->n
               ? ERR_OK
               : err_set(e, ERR_ARG, "--shard auto: the array has gaps: --shard auto/N, with tasks from 1 to N");
}

static enum err_code read_auto(struct serve_shard *out, int n, const char *(*get)(const char *name), struct err *e)
{
    static const struct {
        const char *name;
        int from; /* of the first */
    } known[] = { { "SLURM_ARRAY_TASK_ID", 1 }, { "JOB_COMPLETION_INDEX", 0 }, { "PARALLEL_SEQ", 1 } };
    enum { N = sizeof known / sizeof known[0] };
    int found = N, i;

    for (int k = 0; k < N; k++) {
        if (get(known[k].name) == NULL)
            continue;
        if (found < N)
            return err_set(e, ERR_ARG, "--shard auto: both %s and %s are set: --shard I/N", known[found].name,
                           known[k].name);
        found = k;
    }
    if (found == N)
        return err_set(e, ERR_ARG, "--shard auto: none of %s, %s and %s is set", known[0].name, known[1].name,
                       known[2].name);
    if (found == 0)
        return read_slurm(out, known[0].name, n, get, e);
    if (n == 0)
        return err_set(e, ERR_ARG, "--shard auto: beside %s nothing says how many there are: --shard auto/N",
                       known[found].name);
    if (get_number(&i, known[found].name, get, e))
        return e->code;
    if (i < known[found].from || i - known[found].from >= n)
        return out_of_range(known[found].name, i, n, e);
    *out = (struct serve_shard){ i - known[found].from, n };
    return ERR_OK;
}

enum err_code serve_shard(struct serve_shard *out, const char *arg, const char *(*get)(const char *name), struct err *e)
{
    static const char word[] = "auto";
    const char *rest;
    int i = 0, n = 0;

    if (arg == NULL) {
        *out = (struct serve_shard){ 0, 1 };
        return ERR_OK;
    }
    const bool found = strncmp(arg, word, sizeof word - 1) == 0;

    rest = arg + sizeof word - 1;
    if ((!found && !read_number(arg, '/', &i, &rest)) || (!found && *rest == '\0') ||
        (*rest != '\0' && (*rest != '/' || !read_number(rest + 1, '\0', &n, &rest) || n < 1 || n > SHARDS_MAX)) ||
        (!found && (i < 1 || i > n)))
        return err_set(e, ERR_ARG, "--shard %s: not I/N with I from 1 to N, auto or auto/N", arg);
    if (found)
        return read_auto(out, n, get, e);
    *out = (struct serve_shard){ i - 1, n };
    return ERR_OK;
}
