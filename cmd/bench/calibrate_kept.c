/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_kept.c - answers of a calibration that was not finished, in FILE.part beside its file.      room: cmd
 *
 * A line for each answer, which counts while its question, the model and the options are the same. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "bench/calibrate.h"

enum { PART_BYTES_MAX = 1 << 30 };

/* What an answer hangs on: the model, how it runs, the prompt, and the task that grades it. */
static enum err_code make_key(const struct calibration_job *j, struct both_side *s, struct err *e)
{
    const struct bench_opts *o = j->b->o;
    char text[256], *item = json_line(s->of->item);
    uint64_t h = j->b->fingerprint;

    if (item == NULL)
        return err_nomem(e);
    (void)snprintf(text, sizeof text, "%d n %" PRId64 " kv %.40s acts %d on %.40s loops %d", (int)s->thinks,
                   o->predict_max, o->model.kv != NULL ? o->model.kv : "", (int)o->model.acts,
                   cli_open_device_kind(&o->model), o->reason.loops);
    h = io_hash(h + (s == &s->of->side[1] ? j->beside_hash : 0), text, strlen(text));
    h = io_hash(h, item, strlen(item));
    s->key = io_hash(h, s->asked->prompt.v, (size_t)s->asked->prompt.n * sizeof *s->asked->prompt.v);
    free(item);
    return ERR_OK;
}

/* The answer in a record; false: it is none. */
static bool take(struct both_side *s, const json_t *r, struct err *e)
{
    const json_t *p = json_object_get(r, "p"), *tokens = json_object_get(r, "tokens");
    json_t *one;
    size_t i;

    if (!json_is_boolean(json_object_get(r, "right")) || !json_is_array(p) || !json_is_array(tokens))
        return false;
    json_array_foreach (p, i, one)
        if (!json_is_number(one) || cli_bench_add_choice(s, (float)json_number_value(one), e))
            return false;
    json_array_foreach (tokens, i, one)
        if (!json_is_integer(one) || text_tokens_push(&s->answer, (int32_t)json_integer_value(one), e))
            return false;
    s->right = json_is_true(json_object_get(r, "right"));
    s->done = true;
    return true;
}

static enum err_code take_line(struct calibration_job *j, struct str line, size_t number, struct err *e)
{
    json_t *r = NULL;
    struct err why = { 0 };
    const char *key;
    enum err_code code = json_parse_own(&r, line, j->part, &why);
    char print[24];

    key = cli_bench_text_in(r, "key");
    if (code == ERR_NOMEM || strcmp(cli_bench_text_in(r, "type"), "calibration-answer") != 0) {
        json_decref(r);
        return code == ERR_NOMEM
                   ? err_nomem(e)
                   : err_set(e, ERR_FORMAT, "%s: line %zu is no answer of a calibration: the file stays as it is",
                             j->part, number);
    }
    for (size_t i = 0; i < 2 * j->n && code == ERR_OK; i++) {
        struct both_side *s = &j->v[i / 2].side[i % 2];

        snprintf(print, sizeof print, "%016" PRIx64, s->key);
        if (s->done || strcmp(print, key) != 0)
            continue;
        if (!take(s, r, &why))
            code = err_set(e, ERR_FORMAT, "%s: line %zu is no answer of a calibration: the file stays as it is",
                           j->part, number);
        j->n_done += code == ERR_OK;
    }
    json_decref(r);
    return code;
}

enum err_code cli_bench_calibrate_resume(struct calibration_job *j, struct err *e)
{
    char *data;
    size_t n, from = 0, number = 0;
    enum err_code code = ERR_OK;

    for (size_t i = 0; i < 2 * j->n; i++)
        if (make_key(j, &j->v[i / 2].side[i % 2], e))
            return e->code;
    j->part = malloc(strlen(j->b->o->out) + 6);
    if (j->part == NULL)
        return err_nomem(e);
    sprintf(j->part, "%s.part", j->b->o->out);
    if (io_open_own(&j->out, j->part, e) || io_read_all(&data, &n, j->part, PART_BYTES_MAX, cli_interrupted, e))
        return e->code;
    for (const char *end; code == ERR_OK && (end = memchr(data + from, '\n', n - from)) != NULL;
         from = (size_t)(end - data) + 1)
        code = take_line(j, (struct str){ data + from, (size_t)(end - data) - from }, ++number, e);
    if (code == ERR_OK && from < n &&
        (number == 0 || ftruncate(j->out, (off_t)from) != 0)) /* a line that was cut off */
        code = number == 0 ? err_set(e, ERR_FORMAT, "%s: is no file of answers of a calibration", j->part)
                           : err_errno(e, ERR_IO, errno, "%s: cannot shorten", j->part);
    free(data);
    if (code == ERR_OK && j->n_done > 0)
        cli_note("%s: has %zu of %zu answers", j->part, j->n_done, 2 * j->n);
    return code;
}

enum err_code cli_bench_calibrate_keep(struct calibration_job *j, const struct both_side *s, struct err *e)
{
    json_t *p = json_array(), *tokens = json_array(), *r;
    struct cli_buf b = { 0 };
    char *line;
    enum err_code code;

    for (size_t i = 0; i < s->n_p; i++)
        json_push(&p, json_real((double)s->p[i]));
    for (int64_t i = 0; i < s->answer.n; i++)
        json_push(&tokens, json_integer(s->answer.v[i]));
    r = json_pack("{s:s, s:o, s:b, s:o, s:o}", "type", "calibration-answer", "key", cli_json_hash(s->key), "right",
                  (int)s->right, "p", p, "tokens", tokens);
    line = r != NULL ? json_line(r) : NULL;
    json_decref(r);
    if (line == NULL)
        return err_nomem(e);
    code = cli_buf_add(&b, str_of(line), e); /* in one piece: what a kill cuts off is the end of the file */
    if (code == ERR_OK)
        code = cli_buf_add(&b, STR("\n"), e);
    if (code == ERR_OK && io_write_all(j->out, b.p, b.n, e))
        code = err_wrap(e, "%s", j->part);
    cli_buf_free(&b);
    free(line);
    return code;
}

void cli_bench_calibrate_forget(struct calibration_job *j, bool whole)
{
    struct stat st;
    const bool empty = j->out >= 0 && fstat(j->out, &st) == 0 && st.st_size == 0;

    if (j->out >= 0 && (whole || empty))
        (void)unlink(j->part);
    else if (j->out >= 0)
        cli_note("%s: has the answers so far, which are not asked again", j->part);
    if (j->out >= 0)
        close(j->out);
    free(j->part);
}
