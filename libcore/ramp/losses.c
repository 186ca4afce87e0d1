/* SPDX-License-Identifier: Apache-2.0 */
/* losses.c - files of losses (losses.h), and what they say of a mix.               room: ramp */
#include "ramp/losses.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "ramp/internal.h"

#define FORMAT   "chimere-losses 1"
#define LOSS_MAX 1e30

/* ---- reading ---- */

static enum err_code read_word(char *out, size_t room, const json_t *o, const char *key, struct err *e)
{
    struct str s;

    bool bad = !json_get_str(o, key, &s) || s.n >= room;

    for (size_t i = 0; !bad && i < s.n; i++)
        bad = (unsigned char)s.p[i] <= ' ' || s.p[i] == 0x7f; /* it is printed, and stands in recipes */
    if (bad)
        return err_set(e, ERR_FORMAT, "\"%s\" is missing or no word", key);
    memcpy(out, s.p, s.n);
    out[s.n] = '\0';
    return ERR_OK;
}

static enum err_code hash(uint64_t *out, const json_t *o, const char *key, struct err *e)
{
    char text[RAMP_WORD];
    char *end;
    uint64_t v;

    if (read_word(text, sizeof text, o, key, e))
        return e->code;
    v = strtoull(text, &end, 16);
    if (end == text || *end != '\0')
        return err_set(e, ERR_FORMAT, "\"%s\" is no hexadecimal number", key);
    *out = v;
    return ERR_OK;
}

static enum err_code whole_number(int64_t *out, const json_t *o, const char *key, int64_t most, struct err *e)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > most)
        return err_set(e, ERR_FORMAT, "\"%s\" is not a number from 1 to %" PRId64, key, most);
    *out = json_integer_value(v);
    return ERR_OK;
}

/* At least 0, and such that sums are finite. */
static enum err_code loss(double *out, const json_t *v, const char *what, struct err *e)
{
    double x = json_is_number(v) ? json_number_value(v) : -1;

    if (!(x >= 0 && x <= LOSS_MAX))
        return err_set(e, ERR_FORMAT, "\"%s\" is not a number from 0 to 1e30", what);
    *out = x;
    return ERR_OK;
}

/* g: NULL if the file may be of any model. */
static enum err_code read_head(struct ramp_losses_head *h, const json_t *o, const struct gguf *g, struct err *e)
{
    struct str format;
    int64_t n_seq;
    const json_t *from = json_object_get(o, "from"); /* older files count all tokens, and have none */

    if (!json_get_str(o, "format", &format) || !str_is(format, FORMAT))
        return err_set(e, ERR_FORMAT, "not a file of losses: its first line has no \"format\": \"" FORMAT "\"");
    if (hash(&h->model, o, "model", e) || read_word(h->method, sizeof h->method, o, "method", e) ||
        read_word(h->text, sizeof h->text, o, "text", e) || hash(&h->text_hash, o, "text_hash", e) ||
        whole_number(&n_seq, o, "sequences", 1 << 20, e) || whole_number(&h->n_tokens, o, "tokens", 1 << 30, e) ||
        read_word(h->effort, sizeof h->effort, o, "effort", e) ||
        read_word(h->probes, sizeof h->probes, o, "probes", e))
        return e->code;
    h->n_seq = (int)n_seq;
    h->from = from != NULL ? json_integer_value(from) : 0;
    if (from != NULL && (!json_is_integer(from) || h->from < 0 || h->from >= h->n_tokens))
        return err_set(e, ERR_FORMAT, "\"from\" is not a number from 0 to %" PRId64, h->n_tokens - 1);
    if (g != NULL && h->model != ramp_fingerprint(g))
        return err_set(e, ERR_FORMAT, "measured on another model than %s", gguf_path(g));
    return ERR_OK;
}

static int type_named(const char *name)
{
    return strlen(name) < RAMP_WORD ? quant_find_name(str_of(name)) : -1;
}

/* Adds to kl, where NAN means that there is no loss yet. */
static enum err_code read_types(double kl_of[QUANT_N], const char *name, const json_t *o, struct err *e)
{
    json_t *kl = json_object_get(o, "kl"), *v;
    const char *key;

    if (!json_is_object(kl) || json_object_size(kl) == 0)
        return err_set(e, ERR_FORMAT, "%.64s: \"kl\" is no object with types", name);
    json_object_foreach (kl, key, v) {
        int type = type_named(key);

        if (type < 0)
            return err_set(e, ERR_FORMAT, "%.32s: not a tensor type", key);
        if (!isnan(kl_of[type])) /* a second line adds types */
            return err_set(e, ERR_FORMAT, "%.64s: %s has a line already", name, key);
        if (loss(&kl_of[type], v, key, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code read_tensor(struct ramp_losses *l, const json_t *o, const struct gguf *g, struct err *e)
{
    char name[128];
    const struct gguf_tensor *t;
    size_t at = 0;

    if (read_word(name, sizeof name, o, "tensor", e))
        return e->code;
    t = gguf_find(g, name);
    if (t == NULL)
        return err_set(e, ERR_FORMAT, "%.64s: the model has no such tensor", name);
    while (gguf_tensor_at(g, at) != t)
        at++;
    l->measured[at] = true;
    return read_types(l->kl[at], name, o, e);
}

static enum err_code read_whole(struct ramp_losses *l, const json_t *o, struct err *e)
{
    char name[RAMP_WORD];
    int type;

    if (read_word(name, sizeof name, o, "whole", e))
        return e->code;
    type = type_named(name);
    if (type < 0)
        return err_set(e, ERR_FORMAT, "%.32s: not a tensor type", name);
    if (!isnan(l->whole[type]) || l->left_out[type])
        return err_set(e, ERR_FORMAT, "%.32s: has a line already", name);
    l->left_out[type] = json_is_true(json_object_get(o, "left_out"));
    if (l->left_out[type])
        return ERR_OK;
    return loss(&l->whole_se[type], json_object_get(o, "se"), "se", e)
               ? e->code
               : loss(&l->whole[type], json_object_get(o, "kl"), "kl", e);
}

static enum err_code read_line(struct ramp_losses *l, struct str line, size_t no, const struct gguf *g, struct err *e)
{
    json_t *o = NULL;
    enum err_code rc = json_parse(&o, line, "", e);

    if (rc == ERR_OK && !json_is_object(o))
        rc = err_set(e, ERR_FORMAT, "not an object");
    if (rc == ERR_OK)
        rc = no == 1                                ? read_head(&l->head, o, g, e)
             : json_object_get(o, "tensor") != NULL ? read_tensor(l, o, g, e)
             : json_object_get(o, "whole") != NULL  ? read_whole(l, o, e)
                                                    : err_set(e, ERR_FORMAT, "neither \"tensor\" nor \"whole\"");
    json_decref(o);
    return rc;
}

/* Room for the losses of g, without any. */
static enum err_code make_room(struct ramp_losses *l, const struct gguf *g, struct err *e)
{
    *l = (struct ramp_losses){ .g = g, .n = gguf_n_tensors(g) };
    l->kl = malloc((l->n + 1) * sizeof *l->kl);
    l->measured = calloc(l->n + 1, sizeof *l->measured);
    if (l->kl == NULL || l->measured == NULL) {
        ramp_losses_close(l);
        return err_nomem(e);
    }
    for (int t = 0; t < QUANT_N; t++) {
        l->whole[t] = l->whole_se[t] = NAN;
        for (size_t i = 0; i < l->n; i++)
            l->kl[i][t] = NAN;
    }
    return ERR_OK;
}

/* The next whole line of a text, which is then what follows. */
static bool next_line(struct str *line, struct str *text)
{
    const char *nl = text->n > 0 ? memchr(text->p, '\n', text->n) : NULL;

    if (nl == NULL)
        return false;
    *line = (struct str){ text->p, (size_t)(nl - text->p) };
    text->p += line->n + 1;
    text->n -= line->n + 1;
    return true;
}

enum err_code ramp_losses_open(struct ramp_losses *out, struct str text, const char *from, const struct gguf *g,
                               struct err *e)
{
    struct ramp_losses l;
    struct str line;
    size_t no = 0;

    if (make_room(&l, g, e))
        return e->code;
    while (next_line(&line, &text)) {
        if (read_line(&l, line, ++no, g, e)) {
            ramp_losses_close(&l);
            return err_wrap(e, "%s:%zu", from, no);
        }
        l.good_bytes += line.n + 1;
    }
    /* The beginning of a first line that was cut off, or something else altogether. */
    if (no == 0 && text.n > 0 && (text.n < 10 || memcmp(text.p, "{\"format\":", 10) != 0)) {
        ramp_losses_close(&l);
        return err_set(e, ERR_FORMAT, "%s: not a file of losses", from);
    }
    *out = l;
    return ERR_OK;
}

/* ---- reading what another model loses ---- */

/* A tensor's role is its name without the layer. What its layers lose together is shared by ours alike. */
struct role {
    char name[128];
    double kl[QUANT_N]; /* of all its tensors; NAN: not measured */
};

struct roles {
    struct role *v;
    size_t n, room;
};

static void role_of(char out[128], struct str tensor)
{
    size_t skip = 0;

    if (ramp_layer_of(tensor) >= 0)
        for (skip = 4; skip < tensor.n && tensor.p[skip] >= '0' && tensor.p[skip] <= '9'; skip++) {
        }
    snprintf(out, 128, "%.*s", (int)(tensor.n - skip < 127 ? tensor.n - skip : 127), tensor.p + skip);
}

static struct role *find_role(const struct roles *r, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->v[i].name, name) == 0)
            return &r->v[i];
    return NULL;
}

static enum err_code read_role(struct roles *r, const json_t *o, struct err *e)
{
    char tensor[128];
    struct role one, *sum;

    if (read_word(tensor, sizeof tensor, o, "tensor", e))
        return e->code;
    for (int t = 0; t < QUANT_N; t++)
        one.kl[t] = NAN;
    if (read_types(one.kl, tensor, o, e))
        return e->code;
    role_of(one.name, str_of(tensor));
    sum = find_role(r, one.name);
    if (sum == NULL) {
        if (memory_room(&r->v, &r->room, r->n + 1, sizeof *r->v, e))
            return e->code;
        r->v[r->n++] = one;
        return ERR_OK;
    }
    for (int t = 0; t < QUANT_N; t++) /* another layer, or more types of one that came before */
        if (!isnan(one.kl[t]))
            sum->kl[t] = isnan(sum->kl[t]) ? one.kl[t] : sum->kl[t] + one.kl[t];
    return ERR_OK;
}

static bool give_roles(struct ramp_losses *l, const struct roles *from)
{
    bool any = false;

    for (size_t i = 0; i < l->n; i++) {
        char name[128], other[128];
        const struct role *role;
        int n = 0;

        role_of(name, gguf_tensor_at(l->g, i)->name);
        role = find_role(from, name);
        if (role == NULL || ramp_is_kept(gguf_tensor_at(l->g, i)))
            continue;
        for (size_t k = 0; k < l->n; k++) {
            role_of(other, gguf_tensor_at(l->g, k)->name);
            n += strcmp(name, other) == 0;
        }
        for (int t = 0; t < QUANT_N; t++)
            l->kl[i][t] = role->kl[t] / n;
        l->measured[i] = any = true;
    }
    return any;
}

static enum err_code read_roles(struct roles *r, struct ramp_losses_head *head, struct str text, const char *from,
                                struct err *e)
{
    struct str line;
    size_t no = 0;

    while (e->code == ERR_OK && next_line(&line, &text)) {
        json_t *o = NULL;

        if (json_parse(&o, line, "", e) == ERR_OK && !json_is_object(o))
            (void)err_set(e, ERR_FORMAT, "not an object");
        else if (e->code == ERR_OK && no == 0)
            (void)read_head(head, o, NULL, e);
        else if (e->code == ERR_OK && json_object_get(o, "tensor") != NULL)
            (void)read_role(r, o, e);
        json_decref(o);
        no++;
    }
    if (e->code == ERR_OK && no == 0)
        return err_set(e, ERR_FORMAT, "%s: is empty, not a file of losses", from);
    return e->code ? err_wrap(e, "%s:%zu", from, no) : ERR_OK;
}

enum err_code ramp_losses_by_role(struct ramp_losses *out, struct str text, const char *from, const struct gguf *g,
                                  struct err *e)
{
    struct ramp_losses l;
    struct roles roles = { 0 };

    if (make_room(&l, g, e))
        return e->code;
    if (read_roles(&roles, &l.head, text, from, e) == ERR_OK && !give_roles(&l, &roles))
        (void)err_set(e, ERR_FORMAT, "%s: measured on a model of which %s has no matrix by the same name", from,
                      gguf_path(g));
    free(roles.v);
    if (e->code)
        ramp_losses_close(&l);
    else
        *out = l;
    return e->code;
}

void ramp_losses_close(struct ramp_losses *l)
{
    free(l->kl);
    free(l->measured);
    *l = (struct ramp_losses){ 0 };
}

/* ---- writing ---- */

static char *dump(json_t *o, bool good)
{
    char *text = good && o != NULL ? json_dump(o, JSON_COMPACT | JSON_REAL_PRECISION(7)) : NULL;

    json_decref(o);
    return text;
}

static bool set_hash(json_t *o, const char *key, uint64_t v)
{
    char text[24];

    snprintf(text, sizeof text, "%016" PRIx64, v);
    return json_object_set_new(o, key, json_string(text)) == 0;
}

char *ramp_losses_head_line(const struct ramp_losses_head *h)
{
    json_t *o = json_object();
    bool good = json_object_set_new(o, "format", json_string(FORMAT)) == 0 && set_hash(o, "model", h->model) &&
                json_object_set_new(o, "method", json_string(h->method)) == 0 &&
                json_object_set_new(o, "text", json_string(h->text)) == 0 && set_hash(o, "text_hash", h->text_hash) &&
                json_object_set_new(o, "sequences", json_integer(h->n_seq)) == 0 &&
                json_object_set_new(o, "tokens", json_integer(h->n_tokens)) == 0 &&
                json_object_set_new(o, "from", json_integer(h->from)) == 0 &&
                json_object_set_new(o, "effort", json_string(h->effort)) == 0 &&
                json_object_set_new(o, "probes", json_string(h->probes)) == 0;

    return dump(o, good);
}

char *ramp_losses_tensor_line(struct str name, const double kl[QUANT_N])
{
    json_t *o = json_object(), *types = json_object();
    bool good = json_object_set_new(o, "tensor", json_bytes(name)) == 0;

    for (int t = 0; t < QUANT_N; t++)
        if (!isnan(kl[t]))
            good &= json_object_set_new(types, quant_types[t]->name, json_real(kl[t])) == 0;
    good &= json_object_set_new(o, "kl", types) == 0;
    return dump(o, good);
}

char *ramp_losses_whole_line(int type, double kl, double se)
{
    json_t *o = json_object();
    bool good = json_object_set_new(o, "whole", json_string(quant_types[type]->name)) == 0;

    if (isnan(kl))
        good &= json_object_set_new(o, "left_out", json_true()) == 0;
    else
        good &= json_object_set_new(o, "kl", json_real(kl)) == 0 && json_object_set_new(o, "se", json_real(se)) == 0;
    return dump(o, good);
}

/* ---- prediction ---- */

/* The model in one type: the sum of its tensors' losses, logarithms of that and of the ratio of what was measured. */
struct anchor {
    double at, ratio, se;
};

static bool anchor_of(struct anchor *a, const struct ramp_losses *l, int type)
{
    double sum = 0;

    if (!(l->whole[type] > 0))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (l->measured[i])
            sum += l->kl[i][ramp_fitting(type, gguf_tensor_at(l->g, i)->ne[0])]; /* NAN: not measured in that */
    if (!(sum > 0))
        return false;
    *a = (struct anchor){ log(sum), log(l->whole[type] / sum), l->whole_se[type] / l->whole[type] };
    return true;
}

double ramp_predict(const struct ramp_losses *l, double sum, double *se)
{
    struct anchor below = { .at = -INFINITY }, above = { .at = INFINITY }, a;
    double x = log(sum), ratio, error;

    *se = 0;
    if (!(sum > 0))
        return 0;
    for (int t = 0; t < QUANT_N; t++) {
        if (!anchor_of(&a, l, t))
            continue;
        if (a.at <= x && a.at > below.at)
            below = a;
        if (a.at > x && a.at < above.at)
            above = a;
    }
    if (below.at == -INFINITY && above.at == INFINITY)
        return sum; /* nothing is known of how they add up: no error either */
    if (below.at == -INFINITY)
        below = above;
    if (above.at == INFINITY)
        above = below;
    double part = above.at > below.at ? (x - below.at) / (above.at - below.at) : 0;

    ratio = (1 - part) * below.ratio + part * above.ratio;
    error = fmax(below.se, above.se) + fabs(above.ratio - below.ratio) / 2;
    *se = sum * exp(ratio) * error;
    return sum * exp(ratio);
}
