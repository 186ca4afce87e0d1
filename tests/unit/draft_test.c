/* SPDX-License-Identifier: Apache-2.0 */
/* draft_test.c - drafters behind the generation engine: with the embedded model they keep as many
 * guesses in each step as another implementation's do; answers are the same with every drafter;
 * files that do not fit are refused. */
#include <unistd.h>

#include "draft/internal.h"
#include "part.h"
#include "adapt/adapt.h"
#include "gen_rig.h"
#include "chat/chat.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/rng.h"
#include "engram/build.h"
#include "engram/mix.h"
#include "model/drafter.h"
#include "text/marks.h"
#include "text/text.h"

#define NANO "share/models/chimere-nano-q5_k_m.gguf"

enum { SEQS = 4, ANSWER = 240 };

/* A drafter between the engine and what it asks, which counts the tokens of each step. */
struct counter {
    struct draft *d;
    int step[ANSWER], n; /* after the step that ended the prompt */
    int reading;         /* tokens of the prompt that are left */
};

static void count_begin(void *of, int seq, const int32_t *token, int64_t n)
{
    struct counter *c = of;

    c->n = 0;
    c->reading -= (int)n;
    draft_hook.begin(c->d, seq, token, n);
}

static enum err_code count_guess(void *of, struct gen_guess *g, int n, const struct gen_cost *cost, struct err *e)
{
    return draft_hook.guess(((struct counter *)of)->d, g, n, cost, e);
}

static void count_settle(void *of, int seq, const int32_t *token, int n, int n_guessed, int n_kept)
{
    struct counter *c = of;

    if (c->reading > 0)
        c->reading -= n;
    else if (c->n < ANSWER)
        c->step[c->n++] = n_kept + 1;
    draft_hook.settle(c->d, seq, token, n, n_guessed, n_kept);
}

static const struct gen_drafter counter = { count_begin, count_guess, count_settle };

/* A model with drafters. */
struct desk {
    struct gguf *g;
    struct text *text;
    struct model *m;
    struct run *r;
    struct draft *d;
};

/* o: names, n_max, always. */
static enum err_code desk_open(struct desk *k, const char *model, const struct draft_opts *o, enum quant_acts_type acts,
                               struct err *e)
{
    const struct model_opts mo = { .device = test_device(), .n_threads = 2, .acts = acts, .nextn = true };
    struct draft_opts d = *o;
    int layer[DRAFT_TAPS_MAX];
    struct run_opts ro = { .ctx_tokens = 1024, .n_seq = SEQS, .draft_max = GEN_DRAFT_MAX, .tap_layers = layer };

    memset(k, 0, sizeof *k);
    must(gguf_open(&k->g, model, e), e);
    must(text_open(&k->text, k->g, e), e);
    must(model_open(&k->m, k->g, &mo, e), e);
    d.model = k->m;
    d.gguf = k->g;
    d.device = test_device();
    d.n_threads = 1;
    if (draft_open(&k->d, &d, e) != ERR_OK)
        return e->code;
    ro.n_taps = draft_taps(k->d, layer);
    must(run_open(&k->r, k->m, &ro, e), e);
    return draft_attach(k->d, k->r, e);
}

static void desk_close(struct desk *k)
{
    draft_close(k->d);
    run_close(k->r);
    model_close(k->m);
    text_close(k->text);
    gguf_close(k->g);
}

/* Items of a task set as tokens of their prompts. */
static void prompt_of(struct desk *k, const char *set, int item, struct text_tokens *out)
{
    char path[256], line[65536];
    struct err e = { 0 };
    json_t *it = NULL, *extra;
    struct chat *c;
    bool thinking;
    FILE *f;

    (void)snprintf(path, sizeof path, "share/eval/%s.jsonl", set);
    f = fopen(path, "r");
    assert_non_null(f);
    for (int i = 0; i <= item; i++)
        assert_non_null(fgets(line, sizeof line, f));
    (void)fclose(f);
    must(json_parse(&it, str_of(line), path, &e), &e);
    extra = json_pack("{s:O}", "enable_thinking", json_object_get(it, "enable_thinking"));
    must(chat_open(&c, k->text, (struct str){ 0 }, &e), &e);
    out->n = 0;
    must(chat_render(c,
                     &(struct chat_prompt){ .messages = json_object_get(it, "messages"),
                                            .tools = json_object_get(it, "tools"),
                                            .extra = extra,
                                            .generate = true },
                     out, &thinking, &e),
         &e);
    chat_close(c);
    json_decref(extra);
    json_decref(it);
}

/* ---- counts ---- */

static bool there(const char *path)
{
    return access(path, R_OK) == 0;
}

/* The embedded model's drafter in BF16, of which the one in the repository was made: beside the golden data. */
static bool nano_dflash(char path[1024])
{
    const char *goldens = getenv("GOLDENS");

    if (goldens == NULL || *goldens == '\0')
        return false;
    (void)snprintf(path, 1024, "%s/../models/chimere-nano-dflash.gguf", goldens);
    return there(path);
}

/* Answers one prompt; the tokens of each step are in c. */
static void answer(struct desk *k, struct gen *g, struct counter *c, const char *set, int item)
{
    struct gen_request q = gen_defaults();
    struct text_tokens p = { 0 };
    struct gen_event ev;
    struct err e = { 0 };
    int64_t id;

    prompt_of(k, set, item, &p);
    q.prompt = p.v;
    q.n_prompt = p.n;
    q.predict_max = ANSWER;
    c->reading = (int)p.n;
    must(gen_submit(g, &q, &id, &e), &e);
    while (gen_busy(g)) {
        must(gen_step(g, &e), &e);
        while (gen_next(g, &ev))
            ;
    }
    text_tokens_free(&p);
}

/* What a second implementation counted over the same weights, dequantised (the first token is the
 * prompt's). */
static const struct counted {
    const char *set;
    int item;
    int block;
    int step[20]; /* 0: the end */
} counts[] = {
    { "math", 0, 16, { 16, 16, 16, 16, 16, 16, 16, 4 } },
    { "math", 0, 8, { 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4 } },
    { "code", 0, 16, { 16, 16 } },
    { "code", 0, 8, { 8, 8, 8, 8 } },
    { "tools", 1, 16, { 16, 14, 15, 9, 16, 16, 6 } },
    { "tools", 1, 8, { 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4 } },
    { "verify", 0, 16, { 16, 16, 12, 14, 16, 16, 16, 12 } },
    { "verify", 0, 8, { 8, 8, 8, 8, 8, 8, 8, 2, 8, 8, 8, 8, 8, 8, 8, 4 } },
    { "facts", 0, 16, { 13, 1, 3, 5, 7 } },
    { "facts", 0, 8, { 8, 5, 1, 3, 5, 7 } },
};

static void check_counts(struct desk *k, int block)
{
    struct counter c = { .d = k->d };
    struct err e = { 0 };
    struct gen *g;

    must(gen_open(&g, &(struct gen_opts){ .run = k->r, .text = k->text, .drafter = &counter, .drafter_of = &c }, &e),
         &e);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const struct counted *w = &counts[i];
        int n = 0;

        if (w->block != block)
            continue;
        answer(k, g, &c, w->set, w->item);
        while (n < 20 && w->step[n] > 0)
            n++;
        assert_int_equal(c.n, n);
        for (int j = 0; j < n; j++)
            if (c.step[j] != w->step[j])
                fail_msg("%s-%04d, block %d, step %d: %d tokens, not %d", w->set, w->item, block, j, c.step[j],
                         w->step[j]);
    }
    gen_close(g);
}

static void dflash_counts(void **state)
{
    static char path[1024];
    const char *names[] = { path };

    (void)state;
    if (!nano_dflash(path))
        skip();
    for (int block = 16; block >= 8; block /= 2) {
        const struct draft_opts o = { .names = names, .n_names = 1, .n_max = block - 1, .always = true };
        struct err e = { 0 };
        struct desk k;

        must(desk_open(&k, NANO, &o, QUANT_ACTS_F32, &e), &e);
        check_counts(&k, block);
        desk_close(&k);
    }
}

/* Tokens a step over the first items of a set. */
static double tokens_a_step(const char *name, int n_max, const char *set, int items)
{
    const struct draft_opts o = { .names = &name, .n_names = 1, .n_max = n_max, .always = true };
    struct err e = { 0 };
    struct desk k;
    struct gen *g;
    int tokens = 0, steps = 0;

    must(desk_open(&k, NANO, &o, QUANT_ACTS_F32, &e), &e);
    struct counter c = { .d = k.d };
    must(gen_open(&g, &(struct gen_opts){ .run = k.r, .text = k.text, .drafter = &counter, .drafter_of = &c }, &e), &e);
    for (int i = 0; i < items; i++) {
        answer(&k, g, &c, set, i);
        for (int j = 0; j < c.n; j++)
            tokens += c.step[j];
        steps += c.n;
    }
    gen_close(g);
    desk_close(&k);
    return (double)tokens / steps;
}

/* The other implementation has 1.99 and 1.06 for these 40 items. */
static void mtp_and_ngram_counts(void **state)
{
    (void)state;
    if (SANITIZED)
        skip(); /* same_answers() drafts with both, too */
    assert_int_equal((int)(100 * tokens_a_step("mtp", 4, "facts", 40) + 0.5), 199);
    assert_int_equal((int)(100 * tokens_a_step("ngram", 15, "facts", 40) + 0.5), 106);
}

/* An adapter of the block is what guesses: one that adds nothing leaves the counts as they are, one that adds noise to
 * what the block is given makes nearly every guess wrong. */
static void mtp_adapter_counts(void **state)
{
    enum { RANK = 4, IN = 512, OUT = 256, ITEMS = SANITIZED ? 2 : 5 };
    const struct adapter_mat eh_proj = {
        .name = "blk.8.nextn.eh_proj.weight", .n_in = IN, .n_out = OUT, .n_mat = 1, .rank = RANK
    };
    char path[] = "/tmp/chimere-draft-XXXXXX";
    const int fd = mkstemp(path);
    struct adapter *a;
    struct err e = { 0 };
    double alone;

    (void)state;
    assert_true(fd >= 0 && close(fd) == 0);
    must(adapter_make(&a, "qwen35moe", RANK, &eh_proj, 1, &e), &e);
    for (int i = 0; i < RANK * IN; i++)
        a->mat[0].a[i] = rng_gauss(1, 0, (uint64_t)i);
    must(adapter_write(a, path, "f32", &e), &e);
    alone = tokens_a_step("mtp", 4, "facts", ITEMS);
    assert_true(alone > 1.5);
    assert_float_equal(tokens_a_step(path, 4, "facts", ITEMS), alone, 0);
    for (int i = 0; i < RANK * OUT; i++)
        a->mat[0].b[i] = rng_gauss(2, 0, (uint64_t)i);
    must(adapter_write(a, path, "f32", &e), &e);
    assert_true(tokens_a_step(path, 4, "facts", ITEMS) < 1.1);
    adapter_close(a);
    unlink(path);
}

/* ---- the same answers ---- */

enum { ITEMS = 3 }; /* one of each set */

/* Answers to items of several sets at once, then again with a word more, so that prompts begin
 * alike. Hash of all tokens. */
static uint64_t answers(struct desk *k, float temp, struct gen_stats *sum)
{
    static const char *const set[] = { "math", "facts-context", "code" };
    uint64_t hash[2 * ITEMS + 1] = { 0 }, all = 0;
    struct err e = { 0 };
    struct gen *g;

    *sum = (struct gen_stats){ 0 };
    must(gen_open(&g,
                  &(struct gen_opts){
                      .run = k->r, .text = k->text, .drafter = k->d != NULL ? &draft_hook : NULL, .drafter_of = k->d },
                  &e),
         &e);
    for (int i = 0; i < 2 * ITEMS; i++) {
        struct gen_request q = gen_defaults();
        struct text_tokens p = { 0 };
        int64_t id;

        prompt_of(k, set[i % 3], i % ITEMS, &p);
        if (i >= ITEMS)
            must(text_encode(k->text, STR("The answer"), 0, &p, &e), &e);
        q.prompt = p.v;
        q.n_prompt = p.n;
        q.predict_max = SANITIZED ? 24 : 60;
        q.sample.temp = temp;
        q.sample.seed = 3;
        q.sample.stream = (uint64_t)i;
        must(gen_submit(g, &q, &id, &e), &e);
        text_tokens_free(&p);
    }
    while (gen_busy(g)) {
        struct gen_event ev;

        must(gen_step(g, &e), &e);
        while (gen_next(g, &ev)) {
            if (ev.kind == GEN_TOKEN)
                hash[ev.id] = (hash[ev.id] ^ (uint64_t)(uint32_t)ev.pick.token) * 0x100000001b3u;
            if (ev.kind == GEN_END) {
                assert_true(ev.end != GEN_FAILED);
                sum->drafted += ev.stats.drafted;
                sum->kept += ev.stats.kept;
            }
        }
    }
    gen_close(g);
    for (int i = 1; i <= 2 * ITEMS; i++)
        all = (all ^ hash[i]) * 0x9e3779b97f4a7c15u;
    return all;
}

static void same_answers(void **state)
{
    static const char *const all[] = { "ngram", "mtp", NANO, "share/models/chimere-nano-dflash.gguf" };
    const int n = sizeof all / sizeof *all;
    struct gen_stats sum;
    struct err e = { 0 };
    struct desk k;
    uint64_t plain[2];

    (void)state;
    must(desk_open(&k, NANO, &(struct draft_opts){ .n_names = 0 }, test_acts(), &e), &e);
    for (int t = 0; t < 2; t++)
        plain[t] = answers(&k, (float)t * 0.8f, &sum);
    desk_close(&k);
    /* each alone in every step; then all, where they pay: or, with a sanitizer, in every step */
    for (int i = SANITIZED ? n : 0; i <= n; i++) {
        const struct draft_opts o = { .names = i < n ? all + i : all,
                                      .n_names = i < n ? 1 : n,
                                      .always = i < n || SANITIZED };

        must(desk_open(&k, NANO, &o, test_acts(), &e), &e);
        for (int t = SANITIZED ? 1 : 0; t < 2; t++) {
            if (answers(&k, (float)t * 0.8f, &sum) != plain[t])
                fail_msg("answers at temperature %g are others with %s", t * 0.8, i < n ? all[i] : "all drafters");
            print_message("%-40s temp %g: %lld of %lld guesses kept\n", i < n ? all[i] : "all", t * 0.8,
                          (long long)sum.kept, (long long)sum.drafted);
            assert_true(i == n || sum.kept > 0);
        }
        desk_close(&k);
    }
}

/* ---- a table of n-grams, which guesses, or takes part in the choice ---- */

enum { ASKED = 7, SAID = 200 };
static char table_path[] = "/tmp/chimere-draft-XXXXXX";
static int32_t said[ASKED + 1][SAID]; /* what the last answers were, with the end of their prompts */
static int n_said[ASKED + 1];

static void say(int64_t id, const int32_t *token, int n)
{
    for (int i = 0; i < n && n_said[id] < SAID; i++)
        said[id][n_said[id]++] = token[i];
}

/* A table of what was said. */
static void open_table(struct engram_mix *mix, struct engram **table)
{
    struct engram_build_opts o = { .tokenizer = 1, .order = 8, .memory_bytes = 1 << 20 };
    const char *path = table_path;
    struct engram_builder *b;
    struct err e = { 0 };

    must(pool_open(&o.pool, 1, &e), &e);
    must(engram_build_open(&b, table_path, &o, &e), &e);
    for (int id = 1; id <= ASKED; id++) {
        for (int i = 0; i < n_said[id]; i++)
            must(engram_build_tokens(b, &said[id][i], 1, &e), &e);
        must(engram_build_end(b, &e), &e);
    }
    must(engram_build_commit(b, NULL, &e), &e);
    pool_close(o.pool);
    must(engram_open(table, &path, 1, &(struct engram_opts){ 0 }, &e), &e);
    *mix = (struct engram_mix){ .table = *table, .ceiling = { 0.95f }, .n_vocab = INT32_MAX, .space = -1 };
}

/* Chat answers that reason. Hash of all tokens. Without a table the third token behind the reasoning is not noted as
 * said. */
static uint64_t chat_answers(struct desk *k, const struct engram_mix *mix, int64_t *kept, int64_t *reasons)
{
    uint64_t all = 0;
    struct err e = { 0 };
    struct text_marks marks;
    struct gen *g;

    *kept = *reasons = 0;
    must(chat_marks_of(&marks, "hermes", k->text, &e), &e);
    must(gen_open(&g,
                  &(struct gen_opts){
                      .run = k->r, .text = k->text, .drafter = k->d != NULL ? &draft_hook : NULL, .drafter_of = k->d },
                  &e),
         &e);
    for (int i = 0; i < 4; i++) {
        struct gen_request q = gen_defaults();
        struct text_tokens p = { 0 };
        struct gen_event ev;
        int behind = 0;
        int64_t id;

        prompt_of(k, i < 2 ? "math" : "facts", i % 2, &p);
        q.prompt = p.v;
        q.n_prompt = p.n;
        q.predict_max = 160;
        q.chat = q.thinking = true;
        q.part_marks = &marks;
        q.memory = mix != NULL ? &engram_memory : NULL;
        q.memory_of = mix;
        must(gen_submit(g, &q, &id, &e), &e);
        if (mix == NULL) {
            n_said[id] = 0;
            say(id, p.v + p.n - 8, 8);
        }
        text_tokens_free(&p);
        while (gen_busy(g)) {
            must(gen_step(g, &e), &e);
            while (gen_next(g, &ev)) {
                if (ev.kind == GEN_TOKEN) {
                    all = (all ^ (uint64_t)(uint32_t)ev.pick.token) * 0x100000001b3u;
                    *reasons += ev.closes;
                    behind += ev.closes || behind > 0;
                    if (mix == NULL && behind != 4)
                        say(id, &ev.pick.token, 1);
                }
                *kept += ev.kind == GEN_END ? ev.stats.kept : 0;
            }
        }
    }
    gen_close(g);
    return all;
}

/* Guesses may go beyond the end of the reasoning, where a table begins to count, and changes what is said. */
static void same_with_table(void **state)
{
    static const char *const name[] = { "ngram", "mtp", "engram" };
    struct engram *other;
    struct engram_mix mix;
    struct err e = { 0 };
    struct desk k;
    uint64_t plain, mixed;
    int64_t kept, reasons;

    (void)state;
    memset(n_said, 0, sizeof n_said);
    must(desk_open(&k, NANO, &(struct draft_opts){ .n_names = 0 }, test_acts(), &e), &e);
    plain = chat_answers(&k, NULL, &kept, &reasons);
    assert_true(reasons >= 2);
    open_table(&mix, &other);
    mixed = chat_answers(&k, &mix, &kept, &reasons);
    assert_true(mixed != plain);
    desk_close(&k);
    for (int i = SANITIZED ? 2 : 0; i < 3; i++) {
        const struct draft_opts o = { .names = name + i, .n_names = 1, .tables = &mix, .always = true };

        must(desk_open(&k, NANO, &o, test_acts(), &e), &e);
        if (chat_answers(&k, &mix, &kept, &reasons) != mixed)
            fail_msg("answers with a table are others with %s", name[i]);
        print_message("%s beside a table: %lld kept\n", name[i], (long long)kept);
        assert_true(kept > 0);
        desk_close(&k);
    }
    engram_close(other);
}

/* ---- every family ---- */

/* Answers to prompts that begin alike or not, some of them sampled. Hash of all tokens. */
static uint64_t family_answers(struct desk *k, int64_t *kept)
{
    static const char *const name[] = { "a", "b", "long", "short" };
    uint64_t hash[ASKED + 1] = { 0 }, all = 0;
    struct err e = { 0 };
    struct gen *g;

    *kept = 0;
    must(gen_open(&g,
                  &(struct gen_opts){
                      .run = k->r, .end_token = -1, .drafter = k->d != NULL ? &draft_hook : NULL, .drafter_of = k->d },
                  &e),
         &e);
    for (int i = 0; i < ASKED; i++) {
        struct gen_request q = gen_defaults();
        char path[256];
        int64_t n = 0, id;
        int32_t *ids;

        (void)snprintf(path, sizeof path, "tests/golden/models/%s.i32", name[i % 4]);
        ids = words_of(path, &n);
        assert_non_null(ids);
        q.prompt = ids;
        q.n_prompt = i < 4 ? n : n / 2 + i;
        q.predict_max = 20;
        q.sample.temp = i % 2 == 0 ? 0 : 0.7f;
        q.sample.seed = 11;
        q.sample.stream = (uint64_t)i;
        must(gen_submit(g, &q, &id, &e), &e);
        n_said[id] = 0;
        say(id, ids + q.n_prompt - 2, 2);
        free(ids);
    }
    while (gen_busy(g)) {
        struct gen_event ev;

        must(gen_step(g, &e), &e);
        while (gen_next(g, &ev)) {
            if (ev.kind == GEN_TOKEN)
                hash[ev.id] = (hash[ev.id] ^ (uint64_t)(uint32_t)ev.pick.token) * 0x100000001b3u;
            if (ev.kind == GEN_TOKEN)
                say(ev.id, &ev.pick.token, 1);
            *kept += ev.kind == GEN_END ? ev.stats.kept : 0;
        }
    }
    gen_close(g);
    for (int i = 1; i <= ASKED; i++)
        all = (all ^ hash[i]) * 0x9e3779b97f4a7c15u;
    return all;
}

/* A model that guesses for itself; n-grams; a table of its answers; a drafter with random weights, where it fits. */
static void family(const char *path)
{
    const char *names[] = { path, "engram", "ngram", "tests/golden/draft/dflash-a.gguf" };
    struct engram *table;
    struct engram_mix mix;
    struct err e = { 0 };
    struct desk k;
    int64_t kept;
    uint64_t plain;

    must(desk_open(&k, path, &(struct draft_opts){ .n_names = 0 }, test_acts(), &e), &e);
    plain = family_answers(&k, &kept);
    desk_close(&k);
    open_table(&mix, &table);
    for (int i = 0; i < 4; i++) {
        const struct draft_opts o = { .names = names + i, .n_names = 1, .always = true, .tables = &mix };

        if (desk_open(&k, path, &o, test_acts(), &e) == ERR_OK) {
            if (family_answers(&k, &kept) != plain)
                fail_msg("%s: answers are others with %s", path, names[i]);
            print_message("%-50s %-40s %lld kept\n", path, names[i], (long long)kept);
            assert_true(i > 1 || kept > 0);
        } else if (i < 3) {
            fail_msg("%s", e.msg);
        }
        desk_close(&k);
    }
    engram_close(table);
}

static void families(void **state)
{
    (void)state;
    each_model("tests/golden/models", family);
}

/* ---- files that do not fit ---- */

/* What is changed in a copy of a drafter. */
struct change {
    const char *key; /* number, list or tensor; NULL: nothing */
    int64_t value;
    enum { SET_U32, SET_LIST, DROP, SET_TOKEN, SET_NE0, ADD_TENSOR } how;
    const char *why; /* in the message */
};

static void copy_kv(struct gguf_writer *w, const struct gguf_kv *kv, const struct change *c, struct err *e)
{
    const int32_t list[2] = { 1, (int32_t)c->value };
    static struct str token[65536];
    struct gguf_strs it = gguf_strs(kv);
    uint64_t n = 0;

    if (!str_is(kv->key, c->key)) {
        must(gguf_write_kv(w, kv, e), e);
    } else if (c->how == SET_U32) {
        must(gguf_write_u32(w, c->key, (uint32_t)c->value, e), e);
    } else if (c->how == SET_LIST) {
        must(gguf_write_arr(w, c->key, GGUF_I32, list, c->value == 0 ? 0 : 2, e), e);
    } else if (c->how == SET_TOKEN) {
        while (n < 65536 && gguf_strs_next(&it, &token[n]))
            n++;
        token[c->value] = STR("another");
        must(gguf_write_strs(w, c->key, token, n, e), e);
    }
}

static void write_changed(const char *from, const char *to, const struct change *c)
{
    struct err e = { 0 };
    struct gguf *g;
    struct gguf_writer *w;

    must(gguf_open(&g, from, &e), &e);
    must(gguf_write_open(&w, to, &e), &e);
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        copy_kv(w, gguf_kv_at(g, i), c, &e);
    for (int data = 0; data < 2; data++) {
        for (size_t i = 0; i < gguf_n_tensors(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            const bool it = str_is(t->name, c->key);
            int64_t ne[4] = { t->ne[0], t->ne[1], t->ne[2], t->ne[3] };
            size_t bytes = t->size_bytes;

            if (it && c->how == DROP)
                continue;
            if (it && c->how == SET_NE0) {
                bytes = bytes / (size_t)ne[0] * (size_t)c->value;
                ne[0] = c->value;
            }
            if (data == 0)
                must(gguf_write_tensor(w, t->name, t->type, t->n_dims, ne, &e), &e);
            else
                must(gguf_write_data(w, bytes <= t->size_bytes ? t->data : NULL, bytes, &e), &e);
        }
        if (c->how == ADD_TENSOR && data == 0)
            must(gguf_write_tensor(w, str_of(c->key), QUANT_f32, 1, &c->value, &e), &e);
        else if (c->how == ADD_TENSOR)
            must(gguf_write_data(w, NULL, (size_t)c->value * sizeof(float), &e), &e);
    }
    must(gguf_write_commit(w, &e), &e);
    gguf_close(g);
}

static void refused(const char *model, const char *name, enum err_code code, const char *why)
{
    const struct draft_opts o = { .names = &name, .n_names = 1 };
    struct err e = { 0 };
    struct desk k;
    enum err_code got = desk_open(&k, model, &o, test_acts(), &e);

    if (code == ERR_OK ? got != ERR_OK
                       : got == ERR_OK || strstr(e.msg, why) == NULL || (code != ERR_FORMAT && got != code))
        fail_msg("%s with %s: %d, %s", model, name, (int)got, e.msg);
    desk_close(&k);
}

static void bad_files(void **state)
{
    static const char from[] = "tests/golden/draft/dflash-a.gguf", model[] = "tests/golden/models/qwen35moe-a.gguf";
    static const struct change change[] = {
        { "tokenizer.ggml.tokens", 7, SET_TOKEN, "another tokenizer" },
        { "tokenizer.ggml.tokens", 0, DROP, "no tokens" },
        { "dflash.embedding_length", 128, SET_U32, "128 elements" },
        { "dflash.embedding_length", 0, SET_U32, "embedding_length" },
        { "dflash.block_count", 3, SET_U32, "blk.2" },
        { "dflash.block_count", 1, SET_U32, "blk.1" },
        { "dflash.block_count", 1 << 30, SET_U32, "block_count" },
        { "dflash.block_size", 1, SET_U32, "block_size" },
        { "dflash.target_layers", 7, SET_LIST, "target_layers" },
        { "dflash.target_layers", -1, SET_LIST, "target_layers" },
        { "dflash.target_layers", 0, SET_LIST, "target_layers" },
        { "dflash.target_layers", 0, DROP, "target_layers" },
        { "dflash.target_layers", 2, SET_LIST, "fc.weight" },
        { "tokenizer.ggml.mask_token_id", 512, SET_U32, "mask_token_id" },
        { "tokenizer.ggml.mask_token_id", 0, DROP, "mask_token_id" },
        { "dflash.attention.head_count", 3, SET_U32, "head_count" },
        { "dflash.attention.key_length", 22, SET_U32, "attn_q" },
        { "dflash.attention.key_length", 23, SET_U32, "dimension_count" },
        { "dflash.feed_forward_length", 79, SET_U32, "ffn_" },
        { "blk.1.ffn_down.weight", 0, DROP, "blk.1.ffn_down.weight" },
        { "blk.0.attn_q.weight", 32, SET_NE0, "blk.0.attn_q.weight" },
        { "fc.weight", 128, SET_NE0, "fc.weight" },
        { "blk.0.attn_q.bias", 96, ADD_TENSOR, "blk.0.attn_q.bias" },
    };
    char path[] = "/tmp/chimere-draft-XXXXXX";
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    write_changed(from, path, &(struct change){ "", 0, DROP, "" });
    refused(model, path, ERR_OK, "");
    for (size_t i = 0; i < sizeof change / sizeof change[0]; i++) {
        write_changed(from, path, &change[i]);
        refused(model, path, ERR_FORMAT, change[i].why);
    }
    (void)unlink(path);
    refused(NANO, from, ERR_FORMAT, "another tokenizer");
    refused(model, "mtp", ERR_UNSUPPORTED, "multi-token-prediction");
    refused(model, "dflash", ERR_ARG, "path");
    refused(model, "engram", ERR_ARG, "tables");
    refused(model, "no such drafter", ERR_ARG, "neither auto");
    refused(model, "./no such drafter", ERR_IO, "no such drafter");
}

/* "auto" takes a DFlash drafter that lies beside the model and is called like it. */
static void auto_finds(void **state)
{
    static const struct {
        const char *model, *drafter;
        bool found;
    } names[] = {
        { "a-model-q4_k.gguf", "a-model-dflash.gguf", true },  { "a-model-q4_k.gguf", "a-dflash.gguf", true },
        { "a.model.gguf", "a.model-dflash.gguf", true },       { "a-model-q4_k.gguf", "a-mode-dflash.gguf", false },
        { "a-model-q4_k.gguf", "another-dflash.gguf", false }, { "model", "model-dflash.gguf", false },
    };
    const char *name = "auto";
    const struct draft_opts o = { .names = &name, .n_names = 1 };
    char dir[] = "/tmp/chimere-draft-XXXXXX", here[1024], target[2048], model[256], drafter[256];
    struct err e = { 0 };

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_non_null(getcwd(here, sizeof here));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct draft_stats st[DRAFT_OPEN_MAX];
        struct desk k;

        (void)snprintf(model, sizeof model, "%s/%s", dir, names[i].model);
        (void)snprintf(drafter, sizeof drafter, "%s/%s", dir, names[i].drafter);
        (void)snprintf(target, sizeof target, "%s/tests/golden/models/qwen35moe-a.gguf", here);
        assert_int_equal(symlink(target, model), 0);
        (void)snprintf(target, sizeof target, "%s/tests/golden/draft/dflash-a.gguf", here);
        assert_int_equal(symlink(target, drafter), 0);
        must(desk_open(&k, model, &o, test_acts(), &e), &e);
        assert_int_equal(draft_stats(k.d, st, DRAFT_OPEN_MAX), names[i].found ? 2 : 1);
        assert_string_equal(st[names[i].found].name, names[i].found ? drafter : "ngram");
        desk_close(&k);
        (void)unlink(model);
        (void)unlink(drafter);
    }
    (void)rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_finds),           cmocka_unit_test(bad_files),          cmocka_unit_test(dflash_counts),
        cmocka_unit_test(mtp_and_ngram_counts), cmocka_unit_test(mtp_adapter_counts), cmocka_unit_test(same_answers),
        cmocka_unit_test(same_with_table),      cmocka_unit_test(families),
    };
    const int fd = mkstemp(table_path);
    int failed;

    assert_true(fd >= 0);
    (void)close(fd);
    failed = cmocka_run_group_tests_name("draft", tests, NULL, NULL);
    (void)unlink(table_path);
    return failed;
}
