/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c - reference outputs of a GGUF model by llama.cpp's library, in float32.
 *
 *     reference MODEL.gguf PROMPTS OUT          writes OUT/NAME/...; PROMPTS has short.i32, a.i32, b.i32, long.i32
 *     reference MODEL.gguf PROMPTS OUT --check  compares with what OUT/NAME has, and writes nothing
 *
 * The weights are widened to float32 first, by ggml's own decoders, so that activations are not rounded to what the
 * weights' type goes with. README.md here has the command that builds this, and the files that it writes. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ggml.h"
#include "gguf.h"
#include "llama.h"

enum { N_CTX = 512, N_GREEDY = 32, LAST_ROWS = 4, PATH_BYTES = 4096 };

static struct {
    struct llama_model *model;
    struct llama_context *ctx;
    const char *prompts, *out, *name;
    int64_t n_vocab, n_embd, n_layer;
    bool check;
    float *hidden;                    /* [1 + layers + 1][rows][n_embd] while they are wanted, else NULL; with streams
                                       * [1 + layers][rows][streams * n_embd], then [rows][n_embd] */
    const struct ggml_tensor *scores; /* of blocks, the last ones that were seen */
    int64_t streams;                  /* of hyper-connections; 1: there are none */
    float block;                      /* as `choice`, of blocks of positions */
    int64_t rows;
    bool begun;     /* the input of layer 0 was seen in this pass */
    int64_t n_used; /* experts of each token; 0: there are none */
    float choice;   /* by which the last expert chosen was ahead of the first one left out, at least */
} ref;

static void die(const char *what, const char *of)
{
    (void)fprintf(stderr, "reference: %s: %s\n", of, what);
    exit(1);
}

static void *grab(size_t n)
{
    void *p = calloc(1, n);

    if (p == NULL)
        die("no memory", "reference");
    return p;
}

/* A file of 4-byte values; *n gets their number. */
static void *words(const char *path, int64_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;

    if (f == NULL || fstat(fileno(f), &st) != 0)
        die("cannot be read", path);
    void *v = grab((size_t)st.st_size + 4);
    if (fread(v, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
        die("cannot be read", path);
    (void)fclose(f);
    *n = st.st_size / 4;
    return v;
}

/* Writes n values to OUT/NAME/FILE, or says how far those there are away. */
static void put(const char *file, const void *v, int64_t n, bool numbers)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof path, "%s/%s/%s", ref.out, ref.name, file);
    if (!ref.check) {
        FILE *f = fopen(path, "wb");

        if (f == NULL || fwrite(v, 4, (size_t)n, f) != (size_t)n || fclose(f) != 0)
            die("cannot be written", path);
        return;
    }
    int64_t n_old = 0;
    void *old = words(path, &n_old);

    if (n_old < n || (n_old > n && !numbers))
        die("has another length", path);
    const float *last = (const float *)old + (n_old - n); /* the larger set has more rows */
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, numbers ? fabs((double)((const float *)v)[i] - (double)last[i])
                                    : (double)(((const int32_t *)v)[i] != ((const int32_t *)old)[i]));
    printf("%-18s %-20s %s %.2e\n", ref.name, file, numbers ? "largest difference" : "others (0: none)  ", worst);
    free(old);
}

/* MODEL with every tensor in float32. */
static void widen(const char *path, const char *to)
{
    struct ggml_context *in = NULL;
    struct gguf_context *g = gguf_init_from_file(path, (struct gguf_init_params){ .ctx = &in });
    struct gguf_context *h = gguf_init_empty();
    struct ggml_init_params room = { .mem_size = (size_t)1 << 28 };
    struct ggml_context *wide = ggml_init(room);

    if (g == NULL || wide == NULL)
        die("is no GGUF file", path);
    gguf_set_kv(h, g);
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        const struct ggml_tensor *t = ggml_get_tensor(in, gguf_get_tensor_name(g, i));
        struct ggml_tensor *u = ggml_new_tensor(wide, GGML_TYPE_F32, ggml_n_dims(t), t->ne);

        ggml_set_name(u, t->name);
        if (t->type == GGML_TYPE_F32)
            memcpy(u->data, t->data, ggml_nbytes(t));
        else
            ggml_get_type_traits(t->type)->to_float(t->data, u->data, ggml_nelements(t));
        gguf_add_tensor(h, u);
    }
    gguf_set_val_u32(h, "general.file_type", 0);
    if (!gguf_write_to_file(h, to, false))
        die("cannot be written", to);
    gguf_free(g);
    gguf_free(h);
    ggml_free(in);
    ggml_free(wide);
}

static int falling(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

/* The n largest of each row of t are chosen: by how much, at least. What is not finite is masked. */
static void choices(const struct ggml_tensor *t, int64_t n, float *least)
{
    float row[N_CTX];

    if (t->type != GGML_TYPE_F32 || !ggml_is_contiguous(t) || t->ne[0] > N_CTX || t->ne[0] <= n)
        die("choices of another shape", t->name);
    for (int64_t i = 0; i < ggml_nrows(t); i++) {
        memcpy(row, (const float *)t->data + i * t->ne[0], (size_t)t->ne[0] * sizeof *row);
        qsort(row, (size_t)t->ne[0], sizeof *row, falling);
        if (row[n] > -1e30f)
            *least = fminf(*least, row[n - 1] - row[n]);
    }
}

/* Row 0 of the hidden rows is what the first norm reads, row 1 + l the output of layer l, the last the final norm. */
static bool look(struct ggml_tensor *t, bool ask, void *unused)
{
    const struct ggml_tensor *from = t;
    int64_t row = -1, layer;
    int end = 0;

    (void)unused;
    if (ref.n_used > 0 && strncmp(t->name, "ffn_moe_argsort-", 16) == 0) {
        if (!ask)
            choices(t->src[0], ref.n_used, &ref.choice);
        return true;
    }
    if (strncmp(t->name, "indexer_score-", 14) == 0) {
        ref.scores = t;
        return true;
    }
    if (strncmp(t->name, "indexer_top_k-", 14) == 0) {
        if (!ask && ref.scores != NULL && ref.scores->ne[0] > t->ne[0])
            choices(ref.scores, t->ne[0], &ref.block);
        return true;
    }
    if (ref.hidden == NULL)
        return false;
    if (strcmp(t->name, "hc_init") == 0) {
        row = 0;
    } else if (ref.streams == 1 && strcmp(t->name, "norm-0") == 0 && !ref.begun) {
        row = 0;
        from = t->src[0];
    } else if ((sscanf(t->name, "l_out-%" SCNd64 "%n", &layer, &end) == 1 ||
                sscanf(t->name, "l_last-%" SCNd64 "%n", &layer, &end) == 1 ||
                sscanf(t->name, "nemotron_h_block_out-%" SCNd64 "%n", &layer, &end) == 1) &&
               t->name[end] == '\0') {
        row = 1 + layer; /* of two the later one */
    } else if (strcmp(t->name, "result_norm") == 0) {
        row = 1 + ref.n_layer;
    }
    if (row < 0 || ask)
        return row >= 0;
    int64_t width = row <= ref.n_layer ? ref.streams * ref.n_embd : ref.n_embd;
    if (from->type != GGML_TYPE_F32 || ggml_nelements(from) != ref.rows * width || !ggml_is_contiguous(from))
        die("hidden rows of another shape", from->name);
    memcpy(ref.hidden + row * ref.rows * ref.streams * ref.n_embd, from->data, ggml_nbytes(from));
    ref.begun = true;
    return true;
}

/* Logits of all n ids, from an empty context. */
static float *logits(const int32_t *ids, int64_t n)
{
    struct llama_batch batch = llama_batch_init((int32_t)n, 0, 1);
    float *all = grab((size_t)(n * ref.n_vocab) * sizeof *all);

    llama_memory_clear(llama_get_memory(ref.ctx), true);
    batch.n_tokens = (int32_t)n;
    for (int32_t i = 0; i < n; i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    if (llama_decode(ref.ctx, batch) != 0)
        die("does not decode", ref.name);
    for (int32_t i = 0; i < n; i++)
        memcpy(all + i * ref.n_vocab, llama_get_logits_ith(ref.ctx, i), (size_t)ref.n_vocab * sizeof *all);
    llama_batch_free(batch);
    return all;
}

/* The last `keep` rows (0: all) of the logits of a prompt, to FILE. Returns all of them; *n gets how many. */
static float *prompt(const char *which, int64_t keep, const char *file, int64_t *n)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof path, "%s/%s.i32", ref.prompts, which);
    int32_t *ids = words(path, n);
    ref.rows = *n;
    float *all = logits(ids, *n);
    keep = keep == 0 ? *n : keep;
    put(file, all + (*n - keep) * ref.n_vocab, keep * ref.n_vocab, true);
    free(ids);
    return all;
}

static void greedy(void)
{
    char path[PATH_BYTES];
    int64_t n = 0;
    float nearest = INFINITY;
    int32_t chosen[N_GREEDY];

    (void)snprintf(path, sizeof path, "%s/a.i32", ref.prompts);
    int32_t *prompt_ids = words(path, &n), *ids = grab((size_t)(n + N_GREEDY) * sizeof *ids);
    memcpy(ids, prompt_ids, (size_t)n * sizeof *ids);
    for (int32_t i = 0; i < N_GREEDY; i++, n++) {
        float *all = logits(ids, n), *last = all + (n - 1) * ref.n_vocab, second = -INFINITY;
        int32_t best = 0;

        for (int32_t k = 1; k < ref.n_vocab; k++)
            best = last[k] > last[best] ? k : best;
        for (int32_t k = 0; k < ref.n_vocab; k++)
            second = k != best && last[k] > second ? last[k] : second;
        nearest = fminf(nearest, last[best] - second);
        chosen[i] = ids[n] = best;
        free(all);
    }
    put("greedy.i32", chosen, N_GREEDY, false);
    int distinct = 0;
    for (int i = 0; i < N_GREEDY; i++) {
        bool seen = false;

        for (int k = 0; k < i; k++)
            seen |= chosen[k] == chosen[i];
        distinct += !seen;
    }
    printf("%-18s greedy: the best leads by %.4f or more, %d of %d tokens differ\n", ref.name, (double)nearest,
           distinct, N_GREEDY);
    free(ids);
    free(prompt_ids);
}

static void describe(const float *v, int64_t n)
{
    double sum = 0, squares = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    sum /= (double)n;
    if (ref.block < INFINITY)
        printf("%-18s a block of positions is chosen by %.1e or more\n", ref.name, (double)ref.block);
    if (ref.n_used > 0)
        printf("%-18s an expert is chosen by %.1e or more\n", ref.name, (double)ref.choice);
    printf("%-18s standard deviation of the logits on a: %.3f\n", ref.name, sqrt(squares / (double)n - sum * sum));
}

static void quiet(enum ggml_log_level level, const char *text, void *unused)
{
    (void)unused;
    if (level == GGML_LOG_LEVEL_ERROR)
        (void)fputs(text, stderr);
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 5 || (argc == 5 && strcmp(argv[4], "--check") != 0))
        die("reference MODEL.gguf PROMPTS OUT [--check]", "usage");
    const char *file = strrchr(argv[1], '/') == NULL ? argv[1] : strrchr(argv[1], '/') + 1;
    char name[256], type[256], wide[PATH_BYTES];
    int64_t n = 0;

    /* NAME.gguf or NAME.TYPE.gguf */
    if (sscanf(file, "%255[^.].%255[^.]", name, type) != 2)
        die("not NAME.gguf or NAME.TYPE.gguf", file);
    ref.prompts = argv[2];
    ref.out = argv[3];
    ref.name = name;
    ref.check = argc == 5;
    (void)snprintf(wide, sizeof wide, "%s/%s.float32", ref.out, file);
    llama_log_set(quiet, NULL);
    widen(argv[1], wide);
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    ref.model = llama_model_load_from_file(wide, mp);
    (void)remove(wide);
    if (ref.model == NULL)
        die("does not load", file);
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = cp.n_batch = cp.n_ubatch = N_CTX;
    cp.n_threads = cp.n_threads_batch = 1;
    cp.type_k = cp.type_v = GGML_TYPE_F32;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    cp.cb_eval = look;
    ref.ctx = llama_init_from_model(ref.model, cp);
    if (ref.ctx == NULL)
        die("no context", file);
    char key[192], text[128];
    if (llama_model_meta_val_str(ref.model, "general.architecture", text, sizeof text) > 0) {
        (void)snprintf(key, sizeof key, "%s.expert_used_count", text);
        ref.n_used = llama_model_meta_val_str(ref.model, key, text, sizeof text) > 0 ? strtoll(text, NULL, 10) : 0;
    }
    if (llama_model_meta_val_str(ref.model, "general.architecture", text, sizeof text) > 0) {
        (void)snprintf(key, sizeof key, "%s.hyper_connection.count", text);
        ref.streams = llama_model_meta_val_str(ref.model, key, text, sizeof text) > 0 ? strtoll(text, NULL, 10) : 1;
    }
    ref.choice = ref.block = INFINITY;
    ref.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(ref.model));
    ref.n_embd = llama_model_n_embd(ref.model);
    ref.n_layer = llama_model_n_layer(ref.model);
    if (strcmp(type, "gguf") != 0) {
        (void)snprintf(wide, sizeof wide, "%s.a.logits.f32", type);
        float *a = prompt("a", LAST_ROWS, wide, &n);

        describe(a, n * ref.n_vocab);
        free(a);
        return 0;
    }
    int64_t n_layers = (ref.n_layer + 1) * 9 * ref.streams * ref.n_embd; /* short has nine tokens */
    int64_t n_hidden = n_layers + 9 * ref.n_embd;
    ref.hidden = grab((size_t)n_hidden * sizeof *ref.hidden);
    free(prompt("short", 0, "short.logits.f32", &n));
    put("short.hidden.f32", ref.hidden, ref.streams > 1 ? n_layers : n_hidden, true);
    if (ref.streams > 1)
        put("short.final.f32", ref.hidden + n_layers, 9 * ref.n_embd, true);
    free(ref.hidden);
    ref.hidden = NULL;
    free(prompt("b", LAST_ROWS, "b.logits.f32", &n));
    free(prompt("long", LAST_ROWS, "long.logits.f32", &n));
    greedy();
    float *a = prompt("a", LAST_ROWS, "a.logits.f32", &n);
    describe(a, n * ref.n_vocab);
    free(a);
    return 0;
}
