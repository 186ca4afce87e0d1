/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.c - files of calibration (calibration.h).                     room: reason */
#include "reason/calibration.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reason/route.h"

enum { KNOTS_MAX = 20000, RULES_MAX = REASON_CLASSES_MAX + 1 /* the default is no class of its own everywhere */ };

/* What holds for a class, or for all questions. */
struct rule {
    const char *name;
    struct reason_threshold threshold;
    struct reason_isotonic right;
};

struct reason_calibration {
    json_t *file;
    uint64_t model;
    struct reason_routes *routes; /* NULL: none */
    struct rule all, class[RULES_MAX];
    int n;
    bool thinks, retrieves, verifies;
    float retrieve_below;
    struct reason_verifier_worth verifier;
};

static bool read_share(const json_t *v, double *out)
{
    *out = json_number_value(v);
    return json_is_number(v) && *out >= 0 && *out <= 1;
}

static enum err_code read_model(struct reason_calibration *c, struct err *e)
{
    struct str s = { 0 };
    uint64_t h = 0;
    bool ok = json_get_str(c->file, "fingerprint", &s) && s.n == 16;

    for (size_t i = 0; i < s.n && ok; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *at = memchr(digits, s.p[i], 16);

        ok = at != NULL;
        h = h << 4 | (uint64_t)(ok ? at - digits : 0);
    }
    c->model = h;
    return ok ? ERR_OK : json_member_fault(e, "fingerprint", "is no number of 16 hexadecimal digits");
}

static enum err_code read_knots(struct reason_isotonic *m, const json_t *v, struct err *e)
{
    const size_t n = json_array_size(v);
    const json_t *one;
    size_t i;

    if (!json_is_array(v) || n > KNOTS_MAX)
        return err_set(e, ERR_FORMAT, "is no array of at most %d knots", KNOTS_MAX);
    m->x = calloc(n + 1, sizeof *m->x);
    m->y = calloc(n + 1, sizeof *m->y);
    if (m->x == NULL || m->y == NULL)
        return err_nomem(e);
    json_array_foreach (v, i, one) {
        if (json_array_size(one) != 2 || !read_share(json_array_get(one, 0), &m->x[i]) ||
            !read_share(json_array_get(one, 1), &m->y[i]) ||
            (i > 0 && (m->x[i] <= m->x[i - 1] || m->y[i] < m->y[i - 1]))) {
            err_set(e, ERR_FORMAT, "is no pair of 0 .. 1 that goes on from the one before it");
            return err_at(e, "/%zu", i);
        }
        m->n = i + 1;
    }
    return ERR_OK;
}

static enum err_code read_threshold(struct reason_threshold *t, const json_t *o, struct err *e)
{
    const json_t *below = json_object_get(o, "below");
    struct str think = { 0 };
    double x = 0;

    if (!json_get_str(o, "think", &think))
        return json_member_fault(e, "think", "is not always, never or below");
    for (int i = REASON_THINKS_ALWAYS; i <= REASON_THINKS_BELOW; i++)
        if (str_is(think, reason_thinks_name((enum reason_thinks)i))) {
            t->thinks = (enum reason_thinks)i;
            if ((i == REASON_THINKS_BELOW) != (below != NULL) || (below != NULL && !read_share(below, &x)))
                return json_member_fault(e, "below", "is no number of 0 .. 1 beside \"think\": \"below\"");
            t->below = (float)x;
            return ERR_OK;
        }
    return json_member_fault(e, "think", "is not always, never or below");
}

static enum err_code read_rule(struct rule *r, const json_t *o, struct err *e)
{
    if (read_threshold(&r->threshold, o, e))
        return e->code;
    return read_knots(&r->right, json_object_get(o, "knots"), e) ? err_at(e, "/knots") : ERR_OK;
}

static enum err_code read_class(struct reason_calibration *c, const json_t *o, struct err *e)
{
    struct rule *r = &c->class[c->n];
    struct str name = { 0 };

    if (json_check_members(o, " name n think below knots ", e))
        return e->code;
    if (!json_get_str(o, "name", &name) || !json_is_name(name))
        return json_member_fault(e, "name", "is no name of letters, digits, - and _");
    for (int i = 0; i < c->n; i++)
        if (str_is(name, c->class[i].name))
            return json_member_fault(e, "name", "another class has it");
    r->name = name.p;
    c->n++;
    return read_rule(r, o, e);
}

static enum err_code read_classes(struct reason_calibration *c, struct err *e)
{
    const json_t *classes = json_object_get(c->file, "classes"), *one;
    json_t *routes = json_object_get(c->file, "routes");
    size_t i;

    if (routes != NULL && reason_routes_open(&c->routes, routes, e))
        return err_at(e, "/routes");
    if (classes != NULL && (!json_is_array(classes) || json_array_size(classes) > RULES_MAX || routes == NULL))
        return json_member_fault(e, "classes", "is no array of at most 65 classes beside \"routes\"");
    json_array_foreach (classes, i, one)
        if (read_class(c, one, e))
            return err_at(e, "/classes/%zu", i);
    return ERR_OK;
}

static enum err_code read_verifier(struct reason_calibration *c, struct err *e)
{
    const json_t *o = json_object_get(c->file, "verifier"), *n = json_object_get(o, "n");
    struct reason_verifier_worth *v = &c->verifier;

    if (o == NULL)
        return ERR_OK;
    if (json_check_members(o, " n area lo hi yes_rate ", e))
        return e->code;
    v->n = json_integer_value(n);
    if (!json_is_integer(n) || v->n < 1)
        return json_member_fault(e, "n", "is no number of answers");
    if (!read_share(json_object_get(o, "area"), &v->area))
        return json_member_fault(e, "area", "is no number of 0 .. 1");
    if (!read_share(json_object_get(o, "lo"), &v->lo))
        return json_member_fault(e, "lo", "is no number of 0 .. 1");
    if (!read_share(json_object_get(o, "hi"), &v->hi))
        return json_member_fault(e, "hi", "is no number of 0 .. 1");
    if (!read_share(json_object_get(o, "yes_rate"), &v->yes_rate))
        return json_member_fault(e, "yes_rate", "is no number of 0 .. 1");
    c->verifies = true;
    return ERR_OK;
}

static enum err_code read_retrieve(struct reason_calibration *c, const json_t *o, struct err *e)
{
    const json_t *below = json_object_get(o, "below");

    if (json_check_members(o, " n below ", e))
        return e->code;
    c->retrieve_below = (float)json_number_value(below);
    c->retrieves = json_is_number(below) && isfinite(c->retrieve_below) && c->retrieve_below <= 0;
    return c->retrieves ? ERR_OK : json_member_fault(e, "below", "is no number up to 0");
}

static enum err_code read_file(struct reason_calibration *c, struct err *e)
{
    const json_t *all = json_object_get(c->file, "all"), *retrieve = json_object_get(c->file, "retrieve");
    struct str type = { 0 };

    if (!json_get_str(c->file, "type", &type) || !str_is(type, "calibration"))
        return json_member_fault(e, "type", "is not \"calibration\": chimere-bench calibrate writes such files");
    if (json_check_members(c->file, " type model fingerprint all routes classes verifier retrieve ", e) ||
        read_model(c, e))
        return e->code;
    c->thinks = all != NULL || retrieve == NULL;
    if (c->thinks && (json_check_members(all, " n think below knots ", e) || read_rule(&c->all, all, e)))
        return err_at(e, "/all");
    if (read_classes(c, e))
        return e->code;
    if (retrieve != NULL && read_retrieve(c, retrieve, e))
        return err_at(e, "/retrieve");
    return read_verifier(c, e) ? err_at(e, "/verifier") : ERR_OK;
}

enum err_code reason_calibration_open(struct reason_calibration **out, json_t *v, struct err *e)
{
    struct reason_calibration *c = calloc(1, sizeof *c);

    if (c == NULL)
        return err_nomem(e);
    c->file = json_incref(v);
    if (read_file(c, e)) {
        reason_calibration_close(c);
        return e->code;
    }
    *out = c;
    return ERR_OK;
}

void reason_calibration_close(struct reason_calibration *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < c->n; i++)
        reason_isotonic_free(&c->class[i].right);
    reason_isotonic_free(&c->all.right);
    reason_routes_close(c->routes);
    json_decref(c->file);
    free(c);
}

uint64_t reason_calibration_model(const struct reason_calibration *c)
{
    return c->model;
}

bool reason_calibration_thinks(const struct reason_calibration *c)
{
    return c->thinks;
}

bool reason_calibration_retrieve(const struct reason_calibration *c, float *below)
{
    *below = c->retrieves ? c->retrieve_below : *below;
    return c->retrieves;
}

enum err_code reason_calibration_find(const struct reason_calibration *c, struct str text, struct reason_advice *out,
                                      struct err *e)
{
    struct reason_route_found found = { .class = -1 };
    const struct rule *r = &c->all;

    *out = (struct reason_advice){ .class = NULL };
    if (c->routes != NULL) {
        if (reason_route_find(c->routes, text, STR(""), &found, e))
            return e->code;
        out->class = found.class >= 0 ? reason_route_name(c->routes, found.class) : reason_routes_default(c->routes);
    }
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->class[i].name, out->class) == 0)
            r = &c->class[i];
    out->threshold = r->threshold;
    out->right = &r->right;
    return ERR_OK;
}

bool reason_calibration_verifier(const struct reason_calibration *c, struct reason_verifier_worth *out)
{
    *out = c->verifier;
    return c->verifies;
}
