/* SPDX-License-Identifier: Apache-2.0 */
/* arch_test.c - what metadata may say: every number of every golden model replaced by hostile ones, keys and tensors
 * left out. Each file either runs a step or is refused with one line that names the file; nothing else. */
#include <unistd.h>

#include "golden.h"
#include "model/drafter.h"

static char copy_path[64];

/* How the copy differs from the original. */
struct change {
    const char *key; /* key to replace or leave out; NULL: none */
    bool drop, add;  /* add: a key that is not there, a float */
    double value;
    const char *tensor;  /* tensor to leave out; NULL: none */
    bool turned;         /* not left out: its first two dimensions change places */
    const int64_t *list; /* instead of `value`: n elements; NULL: none */
    uint64_t n;
};

static void put_kv(struct gguf_writer *w, const struct gguf_kv *kv, const struct change *c)
{
    struct err e = { 0 };
    char key[256];
    enum err_code code;

    (void)snprintf(key, sizeof key, "%.*s", (int)kv->key.n, kv->key.p);
    if (c->key == NULL || strcmp(key, c->key) != 0)
        code = gguf_write_kv(w, kv, &e);
    else if (c->drop)
        return;
    else if (c->list != NULL)
        code = gguf_write_arr(w, key, GGUF_I64, c->list, c->n, &e);
    else if (kv->kind == GGUF_ARR) { /* every element */
        int32_t v[256];

        for (uint64_t i = 0; i < kv->n && i < 256; i++)
            v[i] = (int32_t)c->value;
        code = gguf_write_arr(w, key, GGUF_I32, v, kv->n < 256 ? kv->n : 256, &e);
    } else if (kv->kind == GGUF_F32)
        code = gguf_write_f32(w, key, (float)c->value, &e);
    else if (kv->kind == GGUF_BOOL)
        code = gguf_write_bool(w, key, c->value != 0, &e);
    else
        code = gguf_write_u32(w, key, (uint32_t)(int64_t)c->value, &e);
    if (code != ERR_OK)
        fail_msg("%s", e.msg);
}

static void write_copy(const struct gguf *g, const struct change *c)
{
    struct gguf_writer *w = NULL;
    struct err e = { 0 };
    size_t n = gguf_n_tensors(g);

    if (gguf_write_open(&w, copy_path, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        put_kv(w, gguf_kv_at(g, i), c);
    if (c->add && gguf_write_f32(w, c->key, (float)c->value, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            const bool named = c->tensor != NULL && str_is(t->name, c->tensor);
            const int64_t turned[4] = { t->ne[1], t->ne[0], t->ne[2], t->ne[3] };
            enum err_code code;

            if (named && !c->turned)
                continue;
            code = pass == 0 ? gguf_write_tensor(w, t->name, t->type, t->n_dims, named ? turned : t->ne, &e)
                             : gguf_write_data(w, t->data, t->size_bytes, &e);
            if (code != ERR_OK)
                fail_msg("%s", e.msg);
        }
    if (gguf_write_commit(w, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

enum { NEXTN_BLOCK = 3 }; /* of bailingmoe3-a, which a prediction block is a copy of */

static void put_tensor(struct gguf_writer *w, const char *name, const struct gguf_tensor *t, int pass)
{
    struct err e = { 0 };

    if (pass == 0 ? gguf_write_tensor(w, str_of(name), t->type, t->n_dims, t->ne, &e)
                  : gguf_write_data(w, t->data, t->size_bytes, &e))
        fail_msg("%s", e.msg);
}

/* bailingmoe3-a with a block for multi-token prediction behind its layers, but for the tensor `without`. */
static void write_with_nextn(const struct gguf *g, const char *without)
{
    static const float zeros[96 * 48];
    static const struct gguf_tensor own[] = {
        { .name = { "nextn.eh_proj.weight", 20 }, .n_dims = 2, .ne = { 96, 48, 1, 1 } },
        { .name = { "nextn.enorm.weight", 18 }, .n_dims = 1, .ne = { 48, 1, 1, 1 } },
        { .name = { "nextn.hnorm.weight", 18 }, .n_dims = 1, .ne = { 48, 1, 1, 1 } },
        { .name = { "layer_output_norm.weight", 24 }, .n_dims = 1, .ne = { 48, 1, 1, 1 } },
    };
    const struct change five = { .key = "bailingmoe3.block_count", .value = NEXTN_BLOCK + 2 };
    struct gguf_writer *w = NULL;
    struct err e = { 0 };
    char name[128];

    if (gguf_write_open(&w, copy_path, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        put_kv(w, gguf_kv_at(g, i), &five);
    if (gguf_write_u32(w, "bailingmoe3.nextn_predict_layers", 1, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < gguf_n_tensors(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);

            (void)snprintf(name, sizeof name, "%.*s", STR_ARG(t->name));
            put_tensor(w, name, t, pass);
            if (strncmp(name, "blk.3.", 6) != 0)
                continue;
            name[4]++;
            if (strcmp(name, without) != 0)
                put_tensor(w, name, t, pass);
        }
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
            struct gguf_tensor t = own[i];

            t.data = (const unsigned char *)zeros;
            t.size_bytes = (size_t)(t.ne[0] * t.ne[1]) * sizeof *zeros;
            (void)snprintf(name, sizeof name, "blk.4.%.*s", STR_ARG(t.name));
            if (strcmp(name, without) != 0)
                put_tensor(w, name, &t, pass);
        }
    }
    if (gguf_write_commit(w, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

/* Opens the copy and runs a step of three tokens. */
static enum err_code try_copy(struct err *e)
{
    static const int32_t tokens[3] = { 1, 2, 3 };
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct run *r = NULL;
    enum err_code code = ERR_OK;

    e->msg[0] = '\0';
    if (gguf_open(&g, copy_path, e) || model_open(&m, g, &(struct model_opts){ .n_threads = 1 }, e) ||
        run_open(&r, m, &(struct run_opts){ .ctx_tokens = 8, .rows_max = 4, .undo_tokens = 2 }, e) ||
        run_feed(r, 0, tokens, 3, 1, NULL, NULL, NULL, e))
        code = e->code;
    run_close(r);
    model_close(m);
    gguf_close(g);
    return code;
}

static void must_be_clean(const struct gguf *g, const struct change *c, const char *what)
{
    struct err e = { 0 };

    write_copy(g, c);
    enum err_code code = try_copy(&e);
    if (code == ERR_OK)
        return;
    if (code != ERR_FORMAT && code != ERR_UNSUPPORTED && code != ERR_ARG)
        fail_msg("%s: code %d: %s", what, (int)code, e.msg);
    if (e.msg[0] == '\0' || strchr(e.msg, '\n') != NULL)
        fail_msg("%s: not one line: '%s'", what, e.msg);
}

static void hostile_numbers(const char *path)
{
    static const double values[] = { 0, 1, 2, 3, 5, 7, 255, 1024, 65536, 1e6, 4294967295.0, -1, 0.5, 1e30 };
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        char key[256], what[512];

        if (kv->kind == GGUF_STR || (kv->kind == GGUF_ARR && (kv->elem_kind == GGUF_STR || kv->n > 256)) ||
            strncmp(kv->key.p, "tokenizer.", 10) == 0 || strncmp(kv->key.p, "general.", 8) == 0)
            continue;
        (void)snprintf(key, sizeof key, "%.*s", (int)kv->key.n, kv->key.p);
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            (void)snprintf(what, sizeof what, "%s: %s = %g", path, key, values[v]);
            must_be_clean(g, &(struct change){ .key = key, .value = values[v] }, what);
        }
        (void)snprintf(what, sizeof what, "%s: without %s", path, key);
        must_be_clean(g, &(struct change){ .key = key, .drop = true }, what);
    }
    gguf_close(g);
}

/* Each tensor left out in turn: refused by name, except those that a family may lack. */
static void missing_tensors(const char *path)
{
    static const char *const optional[] = { "output.weight", "conv1d.bias", "ssm_norm.weight",
                                            "ssm_dt_norm",   "ssm_b_norm",  "ssm_c_norm" };
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        char name[128];
        bool may = false;

        (void)snprintf(name, sizeof name, "%.*s", (int)gguf_tensor_at(g, i)->name.n, gguf_tensor_at(g, i)->name.p);
        for (size_t j = 0; j < sizeof optional / sizeof optional[0]; j++)
            may = may || strstr(name, optional[j]) != NULL;
        write_copy(g, &(struct change){ .tensor = name });
        enum err_code code = try_copy(&e);
        if (may && code == ERR_OK)
            continue;
        if ((code != ERR_FORMAT && code != ERR_UNSUPPORTED) ||
            (strstr(e.msg, name) == NULL && strstr(e.msg, "not one this architecture uses") == NULL))
            fail_msg("%s without %s: code %d: %s", path, name, (int)code, e.msg);
    }
    gguf_close(g);
}

static void numbers(void **state)
{
    (void)state;
    each_model("tests/golden/models", hostile_numbers);
}

static void tensors(void **state)
{
    (void)state;
    each_model("tests/golden/models", missing_tensors);
}

/* Variants of a family that nobody has tested are refused, whatever else the file says. */
static void variants(void **state)
{
    static const struct {
        const char *model;
        struct change c;
        enum err_code code;
        const char *words;
    } v[] = {
        { "bailingmoe3-a", { .key = "bailingmoe3.kda.safe_gate", .value = 0 }, ERR_UNSUPPORTED, "kda.safe_gate false" },
        { "bailingmoe3-a", { .key = "bailingmoe3.kda.gate_lower_bound", .value = 0 }, ERR_FORMAT, "not below 0" },
        { "bailingmoe3-a",
          { .key = "bailingmoe3.kda.gate_lower_bound", .drop = true },
          ERR_FORMAT,
          "gate_lower_bound is missing" },
        { "bailingmoe3-a",
          { .key = "bailingmoe3.expert_weights_norm", .value = 0 },
          ERR_UNSUPPORTED,
          "expert_weights_norm false" },
        { "bailingmoe3-a",
          { .key = "bailingmoe3.expert_gating_func", .value = 1 },
          ERR_UNSUPPORTED,
          "expert_gating_func 1" },
        { "bailingmoe3-a", { .key = "bailingmoe3.attention.head_count_kv", .value = 2 }, ERR_FORMAT, "head_count_kv" },
        { "bailingmoe3-a",
          { .key = "bailingmoe3.swiglu_clamp_exp", .add = true, .value = 7 },
          ERR_UNSUPPORTED,
          "swiglu_clamp" },
        { "bailingmoe3-a", { .key = "bailingmoe3.swiglu_clamp_shexp", .add = true, .value = 0 }, ERR_OK, "" },
        { "hymba-c",
          { .key = "hymba.meta_token_count", .value = 4 },
          ERR_FORMAT,
          "hymba.vocab_size + hymba.meta_token_count rows" },
        { "hymba-c",
          { .key = "hymba.meta_token_count", .value = 0 },
          ERR_FORMAT,
          "meta_token_count is not a whole number in 1" },
        { "hymba-c", { .key = "hymba.attention.kv_of", .value = 1 }, ERR_FORMAT, "names a layer that comes later" },
        { "hymba-c",
          { .key = "hymba.attention.value_length", .value = 8 },
          ERR_FORMAT,
          "or value_length not twice that" },
        { "hymba-c",
          { .key = "hymba.attention.sliding_window", .value = 0 },
          ERR_FORMAT,
          "sliding_window is not a whole number in 1" },
        { "hymba-c", { .tensor = "blk.2.ssm_dt_norm.weight" }, ERR_FORMAT, "blk.2.ssm_dt_norm.weight is missing" },
        { "zamba2-c",
          { .key = "zamba2.attention.head_count_kv", .value = 0 },
          ERR_FORMAT,
          "head_count_kv is 0 for every layer" },
        { "zamba2-c",
          { .key = "zamba2.attention.head_count_kv", .value = 2 },
          ERR_FORMAT,
          "neither 0 nor attention.head_count" },
        { "zamba2-c",
          { .key = "zamba2.rope.dimension_count", .value = 8 },
          ERR_FORMAT,
          "neither 0 nor attention.key_length" },
        { "zamba2-c",
          { .key = "zamba2.attention.value_length", .value = 8 },
          ERR_FORMAT,
          "are not 2 embedding_length" },
        { "zamba2-c", { .tensor = "blk.0.ssm_norm.weight" }, ERR_FORMAT, "blk.0.ssm_norm.weight is missing" },
        { "zamba2-c", { .tensor = "blk.0.ssm_conv1d.weight", .turned = true }, ERR_FORMAT, "has rows of" },
        { "hymba-c", { .tensor = "blk.0.ssm_a", .turned = true }, ERR_FORMAT, "blk.0.ssm_a has rows of" },
    };
    struct err e = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        char path[256];
        struct gguf *g = NULL;

        (void)snprintf(path, sizeof path, "tests/golden/models/%s.gguf", v[i].model);
        if (gguf_open(&g, path, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        write_copy(g, &v[i].c);
        enum err_code code = try_copy(&e);
        if (code != v[i].code || strstr(e.msg, v[i].words) == NULL)
            fail_msg("%s: %s: code %d: %s", path, v[i].words, (int)code, e.msg);
        gguf_close(g);
    }
}

/* Files of a family that say what this version does not have, or what cannot be. */
static void broken_variants(void **state)
{
    enum { MOST = 4 };
#define KEY(name) .key = "qwen4exp." name
    static const struct {
        struct change change;
        const char *says;
        int64_t list[MOST];
        int n; /* elements; 0: `value` */
    } of[] = {
        { { KEY("hyper_connection.count"), .value = 1 },
          "hyper_connection.count is not a whole number in 2",
          { 0 },
          0 },
        { { .tensor = "per_layer_token_embd.weight" }, "per_layer_token_embd.weight is missing", { 0 }, 0 },
        { { KEY("ple.head_offsets") }, "has 420 rows, but qwen4exp.ple reads 509", { 0, 101, 204, 400 }, 4 },
        { { KEY("ple.head_vocab_sizes") }, "element 2 of qwen4exp.ple.head_vocab_sizes", { 101, 103, 0, 109 }, 4 },
        { { KEY("ple.head_offsets") }, "ple.head_offsets has fewer than 4 elements", { 0, 101, 204 }, 3 },
        { { KEY("ple.layer_multipliers") }, "ple.layer_multipliers has fewer elements", { 3, 5 }, 2 },
        { { KEY("attention.compress_ratios") }, "attention.compress_ratios has fewer than 3 elements", { 0, 0 }, 2 },
        { { KEY("attention.compress_ratios") }, "not 0 in a layer without attention", { 3, 0, 3 }, 3 },
        { { KEY("attention.compress_ratios"), .drop = true }, "attention.compress_ratios has fewer", { 0 }, 0 },
        { { KEY("ple.layers") }, "ple.layers names a layer with attention", { 2 }, 1 },
        { { KEY("ple.layers") }, "ple.layers names 2 layers", { 0, 1 }, 2 },
        { { KEY("attention.indexer.top_k"), .value = 16 }, "top_k is not a multiple", { 0 }, 0 },
        { { KEY("embedding_length_per_layer_input"), .value = 9 }, "is not embedding_length", { 0 }, 0 },
        { { KEY("ple.eos_token_id"), .value = 512 }, "ple.eos_token_id is not a whole number in 0", { 0 }, 0 },
        { { KEY("ple.ngram_size"), .value = 1 }, "ple.ngram_size is not a whole number in 2", { 0 }, 0 },
    };
    struct gguf *g = NULL;
    struct err e = { 0 };

    (void)state;
    if (gguf_open(&g, "tests/golden/models/qwen4exp-s.gguf", &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct change c = of[i].change;

        c.list = of[i].n > 0 ? of[i].list : NULL;
        c.n = (uint64_t)of[i].n;
        write_copy(g, &c);
        enum err_code code = try_copy(&e);
        if ((code != ERR_FORMAT && code != ERR_UNSUPPORTED) || strstr(e.msg, of[i].says) == NULL ||
            strchr(e.msg, '\n') != NULL)
            fail_msg("%s: code %d: %s", of[i].says, (int)code, e.msg);
    }
    gguf_close(g);
}

/* A block for multi-token prediction with latent attention has to be whole, and no drafter uses it. */
static void latent_nextn(void **state)
{
    static const char *const without[] = { "", "blk.4.attn_gate.weight", "blk.4.nextn.hnorm.weight" };
    struct gguf *g = NULL, *copy = NULL;
    struct model *m = NULL;
    struct model_drafter *d = NULL;
    struct err e = { 0 };

    (void)state;
    if (gguf_open(&g, "tests/golden/models/bailingmoe3-a.gguf", &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        write_with_nextn(g, without[i]);
        enum err_code code = try_copy(&e);
        if (code != (i == 0 ? ERR_OK : ERR_FORMAT) || strstr(e.msg, without[i]) == NULL)
            fail_msg("without '%s': code %d: %s", without[i], (int)code, e.msg);
    }
    write_with_nextn(g, "");
    if (gguf_open(&copy, copy_path, &e) ||
        model_open(&m, copy, &(struct model_opts){ .n_threads = 1, .nextn = true }, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(model_info(m)->n_nextn, 0);
    assert_int_equal(model_drafter_mtp(&d, m, NULL, &e), ERR_UNSUPPORTED);
    model_close(m);
    gguf_close(copy);
    gguf_close(g);
}

static void unknown_architecture(void **state)
{
    struct gguf_writer *w = NULL;
    struct err e = { 0 };

    (void)state;
    if (gguf_write_open(&w, copy_path, &e) || gguf_write_str(w, "general.architecture", STR("gpt-9"), &e) ||
        gguf_write_commit(w, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(try_copy(&e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "architecture 'gpt-9' is not known"));
}

static int make_copy_path(void **state)
{
    /* in memory where it can be: every copy is synced */
    (void)snprintf(copy_path, sizeof copy_path, "%s/chimere-arch-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    int fd = mkstemp(copy_path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int drop_copy(void **state)
{
    (void)state;
    return unlink(copy_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),      cmocka_unit_test(tensors),         cmocka_unit_test(variants),
        cmocka_unit_test(latent_nextn), cmocka_unit_test(broken_variants), cmocka_unit_test(unknown_architecture),
    };

    return cmocka_run_group_tests_name("arch", tests, make_copy_path, drop_copy);
}
