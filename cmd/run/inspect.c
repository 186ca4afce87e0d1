/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.c - what is in a model file, from its header alone.              room: cmd
 *
 * No weight of a model is read, so it takes as long for 35 billion parameters as for 35 million; an adapter is, to say
 * whether it can be used. What the file says goes to a terminal only with control characters made visible.
 */
#include <inttypes.h>
#include <string.h>
#include "adapt/adapt.h"
#include "cli/adapters.h"
#include "cli/cli.h"
#include "gguf/gguf.h"
#include "quant/quant.h"
#include "run/model_list.h"

#define FIRST_ITEMS  6  /* shown of an array */
#define TEXT_BYTES   72 /* shown of a string */
#define NAME_COLUMNS 36

static const char *const kind_names[] = { "u8",   "i8",  "u16", "i16", "u32", "i32", "f32",
                                          "bool", "str", "arr", "u64", "i64", "f64" };

/* What a tensor is for, by its name: the first row whose text is in it. */
static const struct {
    const char *part, *class;
} classes[] = {
    { "norm", "norm" },           { "token_embd", "embedding" },
    { "_exps.", "experts" },      { "_shexp.", "shared_expert" },
    { "ffn_gate_inp", "router" }, { "exp_probs_b", "router" },
    { "ssm_", "recurrent" },      { "shortconv.", "recurrent" },
    { "attn_", "attention" },     { "ffn_", "feed_forward" },
    { "output", "output" },       { "", "other" },
};
#define N_CLASSES (sizeof classes / sizeof *classes)

struct sum {
    uint64_t tensors, bytes;
    double elements; /* whole numbers below 2^53 */
};

struct sums {
    const struct gguf *gguf;
    struct sum type[QUANT_N], class[N_CLASSES + 1], all; /* the last class: the MTP block */
    int64_t nextn_from;                                  /* first layer of the MTP block */
};

static double elements(const struct gguf_tensor *t)
{
    return (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2] * (double)t->ne[3];
}

static double bits(double n_bytes, double n_elements)
{
    return n_elements > 0 ? n_bytes * 8 / n_elements : 0;
}

static void add_tensor(struct sum *s, const struct gguf_tensor *t)
{
    s->tensors++;
    s->bytes += t->size_bytes;
    s->elements += elements(t);
}

/* N of "blk.N.", or -1. */
static int64_t layer_of(struct str name)
{
    int64_t n = 0;
    size_t i = 4;

    if (name.n < 6 || memcmp(name.p, "blk.", 4) != 0)
        return -1;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && n < INT32_MAX; i++)
        n = n * 10 + (name.p[i] - '0');
    return i < name.n && name.p[i] == '.' ? n : -1;
}

/* Gated delta net layers name some of their matrices as attention does. */
static bool in_recurrent_layer(const struct gguf *g, struct str name)
{
    char other[64];

    if (!str_has(name, "attn_qkv") && !str_has(name, "attn_gate"))
        return false;
    snprintf(other, sizeof other, "blk.%" PRId64 ".ssm_out.weight", layer_of(name));
    return gguf_find(g, other) != NULL;
}

/* Rows with one name are one class: the index of the first of them. */
static size_t class_of(const struct sums *sums, struct str name)
{
    size_t i = 0, same = 0;

    if (layer_of(name) >= sums->nextn_from)
        return N_CLASSES;
    if (in_recurrent_layer(sums->gguf, name))
        name = STR("ssm_");
    while (!str_has(name, classes[i].part))
        i++;
    while (strcmp(classes[same].class, classes[i].class) != 0)
        same++;
    return same;
}

static const char *class_name(size_t i)
{
    return i < N_CLASSES ? classes[i].class : "mtp";
}

static void sum_up(struct sums *s, const struct gguf *g)
{
    struct str arch = { "", 0 };
    uint32_t blocks = 0, nextn = 0;
    char key[160];

    *s = (struct sums){ .gguf = g, .nextn_from = INT64_MAX };
    gguf_str(g, "general.architecture", &arch);
    snprintf(key, sizeof key, "%.*s.block_count", (int)(arch.n < 99 ? arch.n : 99), arch.p);
    gguf_u32(g, key, &blocks);
    snprintf(key, sizeof key, "%.*s.nextn_predict_layers", (int)(arch.n < 99 ? arch.n : 99), arch.p);
    gguf_u32(g, key, &nextn);
    if (nextn > 0 && nextn < blocks)
        s->nextn_from = (int64_t)blocks - (int64_t)nextn;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        add_tensor(&s->type[t->type], t);
        add_tensor(&s->class[class_of(s, t->name)], t);
        add_tensor(&s->all, t);
    }
}

/* One line of printable text, cut between characters. */
static void print_text(struct str s)
{
    size_t n = s.n < TEXT_BYTES ? s.n : TEXT_BYTES;

    while (n < s.n && n > 0 && ((unsigned char)s.p[n] & 0xC0) == 0x80)
        n--;
    for (size_t i = 0, bytes; i<n; i += bytes> 0 ? bytes : 1) {
        unsigned char c = (unsigned char)s.p[i];

        bytes = str_utf8((struct str){ s.p + i, n - i });
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c < 0x20 || c == 0x7F || bytes == 0)
            printf("\\x%02x", c);
        else if (c == 0xC2 && (unsigned char)s.p[i + 1] < 0xA0) /* a control character, too */
            printf("\\x%02x\\x%02x", c, (unsigned char)s.p[i + 1]);
        else
            fwrite(s.p + i, 1, bytes, stdout);
    }
    if (n < s.n)
        printf("... (%zu bytes)", s.n);
}

static void print_number(const struct gguf_kv *kv, uint64_t i)
{
    int64_t n;
    uint64_t u;
    double x;

    if (kv->elem_kind == GGUF_U64 && gguf_kv_u64(kv, i, &u)) {
        printf("%" PRIu64, u);
    } else if (kv->elem_kind != GGUF_F32 && kv->elem_kind != GGUF_F64 && gguf_kv_i64(kv, i, &n)) {
        if (kv->elem_kind == GGUF_BOOL)
            fputs(n ? "true" : "false", stdout);
        else
            printf("%" PRId64, n);
    } else if (gguf_kv_f64(kv, i, &x)) {
        printf("%.9g", x);
    }
}

static void print_kv(const struct gguf_kv *kv)
{
    struct gguf_strs it = gguf_strs(kv);
    struct str s;

    fputs("  ", stdout);
    print_text(kv->key);
    fputs(" = ", stdout);
    if (kv->kind == GGUF_ARR)
        printf("%s[%" PRIu64 "] ", kind_names[kv->elem_kind], kv->n);
    for (uint64_t i = 0; i < kv->n && i < FIRST_ITEMS; i++) {
        if (i)
            fputs(", ", stdout);
        if (kv->elem_kind != GGUF_STR)
            print_number(kv, i);
        else if (gguf_strs_next(&it, &s))
            print_text(s);
    }
    puts(kv->n > FIRST_ITEMS ? ", ..." : "");
}

static void print_sum(const char *name, const struct sum *s)
{
    if (s->tensors > 0)
        printf("  %-14s %5" PRIu64 " tensors %15.0f weights %15" PRIu64 " bytes %8.3f bits\n", name, s->tensors,
               s->elements, s->bytes, bits((double)s->bytes, s->elements));
}

static void inspect_text(const struct gguf *g, const struct sums *s)
{
    struct adapter *a;
    struct err why;

    fputs("file ", stdout);
    print_text(str_of(gguf_path(g)));
    printf(", %zu bytes\n", gguf_file_bytes(g));
    if (cli_adapter_what(g) != NULL && adapter_open(&a, gguf_path(g), &why) == ERR_OK) {
        if (adapter_is_scales(a))
            printf("scales of matrices for models of architecture %s: %zu matrices, %" PRId64 " numbers\n", a->arch,
                   a->n, adapter_floats(a));
        else
            printf("a LoRA adapter for models of architecture %s: rank %d, alpha %g, %zu matrices, %" PRId64
                   " numbers\n",
                   a->arch, adapter_rank(a), (double)a->alpha, a->n, adapter_floats(a));
        adapter_close(a);
    } else if (cli_adapter_what(g) != NULL) {
        printf("an adapter that cannot be used: %s\n", why.msg);
    }
    printf("\nmetadata: %zu\n", gguf_n_kv(g));
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        print_kv(gguf_kv_at(g, i));
    printf("\ntensors: %zu\n", gguf_n_tensors(g));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char shape[96];
        int n = 0;

        for (int d = 0; d < t->n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRId64, d ? " x " : "", t->ne[d]);
        fputs("  ", stdout);
        print_text(t->name);
        printf("%*s %-8s %-22s %13zu bytes\n", t->name.n < NAME_COLUMNS ? (int)(NAME_COLUMNS - t->name.n) : 0, "",
               quant_types[t->type]->name, shape, t->size_bytes);
    }
    printf("\nby type\n");
    for (size_t i = 0; i < QUANT_N; i++)
        print_sum(quant_types[i]->name, &s->type[i]);
    printf("\nby use\n");
    for (size_t i = 0; i <= N_CLASSES; i++)
        print_sum(class_name(i), &s->class[i]);
    printf("\n");
    print_sum("all", &s->all);
}

static json_t *json_item(const struct gguf_kv *kv, uint64_t i)
{
    int64_t n;
    uint64_t u;
    double x;
    char digits[24];

    if (kv->elem_kind == GGUF_BOOL && gguf_kv_i64(kv, i, &n))
        return json_boolean(n != 0);
    if (kv->elem_kind == GGUF_U64 && gguf_kv_u64(kv, i, &u) && u > INT64_MAX) {
        (void)snprintf(digits, sizeof digits, "%" PRIu64, u);
        return json_string(digits);
    }
    if (kv->elem_kind != GGUF_F32 && kv->elem_kind != GGUF_F64 && gguf_kv_i64(kv, i, &n))
        return json_integer(n);
    return gguf_kv_f64(kv, i, &x) ? cli_json_real(x) : json_null();
}

static json_t *json_kv(const struct gguf_kv *kv)
{
    json_t *o = json_object(), *first = json_array();
    struct gguf_strs it = gguf_strs(kv);
    struct str s;
    bool ok = o != NULL && first != NULL;

    for (uint64_t i = 0; ok && i < kv->n && i < FIRST_ITEMS; i++) {
        json_t *item = kv->elem_kind != GGUF_STR ? json_item(kv, i)
                       : gguf_strs_next(&it, &s) ? json_bytes(s)
                                                 : json_null();

        ok = item != NULL && json_array_append_new(first, item) == 0;
    }
    ok = ok && cli_json_set(o, "kind", json_string(kind_names[kv->kind]));
    if (ok && kv->kind == GGUF_ARR)
        ok = cli_json_set(o, "elem_kind", json_string(kind_names[kv->elem_kind])) &&
             cli_json_set(o, "n", json_integer((json_int_t)kv->n)) && cli_json_set(o, "first", json_incref(first));
    else if (ok)
        ok = cli_json_set(o, "value", json_incref(json_array_get(first, 0)));
    json_decref(first);
    return json_if(ok, o);
}

static json_t *json_tensor(const struct sums *s, const struct gguf_tensor *t)
{
    json_t *ne = json_array();

    for (int d = 0; d < t->n_dims; d++)
        json_push(&ne, json_integer(t->ne[d]));
    return json_pack("{s:o, s:s, s:o, s:I, s:f, s:s}", "name", json_bytes(t->name), "quant", quant_types[t->type]->name,
                     "ne", ne, "bytes", (json_int_t)t->size_bytes, "bits_per_weight",
                     bits((double)t->size_bytes, elements(t)), "use", class_name(class_of(s, t->name)));
}

static json_t *json_sum(const struct sum *s)
{
    return json_pack("{s:I, s:I, s:I, s:f}", "n_tensors", (json_int_t)s->tensors, "n_weights", (json_int_t)s->elements,
                     "bytes", (json_int_t)s->bytes, "bits_per_weight", bits((double)s->bytes, s->elements));
}

/* Adds sums[i] under its name when there is something in it. */
static bool set_sum(json_t *o, const char *name, const struct sum *s)
{
    return s->tensors == 0 || cli_json_set(o, name, json_sum(s));
}

static bool fill_json(json_t *meta, json_t *tensors, json_t *types, json_t *uses, const struct gguf *g,
                      const struct sums *s)
{
    bool ok = meta != NULL && tensors != NULL && types != NULL && uses != NULL;

    for (size_t i = 0; ok && i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        json_t *v = json_kv(kv);

        ok = v != NULL && json_object_setn_new(meta, kv->key.p, kv->key.n, v) == 0;
    }
    for (size_t i = 0; ok && i < gguf_n_tensors(g); i++) {
        json_t *v = json_tensor(s, gguf_tensor_at(g, i));

        ok = v != NULL && json_array_append_new(tensors, v) == 0;
    }
    for (size_t i = 0; ok && i < QUANT_N; i++)
        ok = set_sum(types, quant_types[i]->name, &s->type[i]);
    for (size_t i = 0; ok && i <= N_CLASSES; i++)
        ok = set_sum(uses, class_name(i), &s->class[i]);
    return ok;
}

/* What it is, or why it cannot be used. */
static json_t *json_adapter(const struct gguf *g)
{
    struct adapter *a;
    struct err why;
    json_t *o;

    if (adapter_open(&a, gguf_path(g), &why))
        return json_pack("{s:o}", "error", json_bytes(str_of(why.msg)));
    o = json_pack("{s:s, s:o, s:i, s:f, s:I, s:I}", "kind", adapter_is_scales(a) ? "scales" : "lora", "architecture",
                  json_bytes(str_of(a->arch)), "rank", adapter_rank(a), "alpha", (double)a->alpha, "matrices",
                  (json_int_t)a->n, "numbers", (json_int_t)adapter_floats(a));
    adapter_close(a);
    return o;
}

static enum err_code inspect_json(const struct gguf *g, const struct sums *s, struct err *e)
{
    json_t *top = json_object(), *meta = json_object(), *tensors = json_array();
    json_t *types = json_object(), *uses = json_object();
    bool ok = top != NULL && fill_json(meta, tensors, types, uses, g, s) &&
              cli_json_set(top, "type", json_string("inspect")) &&
              cli_json_set(top, "file", json_bytes(str_of(gguf_path(g)))) &&
              cli_json_set(top, "file_bytes", json_integer((json_int_t)gguf_file_bytes(g))) &&
              (cli_adapter_what(g) == NULL || cli_json_set(top, "adapter", json_adapter(g))) &&
              cli_json_set(top, "total", json_sum(&s->all)) && cli_json_set(top, "metadata", json_incref(meta)) &&
              cli_json_set(top, "tensors", json_incref(tensors)) && cli_json_set(top, "by_quant", json_incref(types)) &&
              cli_json_set(top, "by_use", json_incref(uses));

    json_decref(meta);
    json_decref(tensors);
    json_decref(types);
    json_decref(uses);
    return cli_json_line(json_if(ok, top), e);
}

enum err_code cli_inspect(const struct gguf *g, bool json, struct err *e)
{
    struct sums s;

    sum_up(&s, g);
    if (json)
        return inspect_json(g, &s, e);
    inspect_text(g, &s);
    return cli_flush_stdout(e);
}
