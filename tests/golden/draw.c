/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c - a model with random weights, from a description of some lines: what `make tests` has in the place of files.
 *
 *     draw NAME.draw NAME.gguf [SEED]
 *
 * A line of NAME.draw is one of
 *
 *     # ...                                     a remark
 *     seed N
 *     KEY u32|i32s|u64s|f32|bool|str VALUE...   metadata; i32s and u64s are arrays
 *     tokenizer FILE.gguf                       its tokenizer's metadata
 *     tensor NAME TYPE SHAPE DISTRIBUTION       SHAPE fastest first, as 64x512; `blk.0,2.x` in NAME is two tensors
 *     hash N                                    XXH64 of the file that comes out; without it, or with SEED, it is
 * printed
 *
 * Distributions: `normal SD` (a sum of eight numbers of 16 bits; 8 significant bits, multiples of 2^-20, so exact in
 * BF16 and in F16), `uniform LO HI` (float32), and for quantised types `blocks E`: every bit of a block random, but
 * scales of the whole block are F16 from 2^E up to twice that.
 *
 * An element is a function of the seed, the tensor's name and the element's number, made with integers and single IEEE
 * operations of doubles: the same on every machine. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/rng.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

enum { MAX_TENSORS = 256, MAX_WORDS = 32 };

/* F16 scales in a block: where, and by what power of two they are larger than the description says (a minimum goes with
 * numbers of 4 bits, 8 in the middle). */
static const struct {
    const char *type;
    struct {
        int offset, more;
    } half[2];
} blocks[] = {
    { "iq3_s", { { 0, 0 }, { -1, 0 } } },
    { "q4_k", { { 0, 0 }, { 2, 3 } } },
    { "q6_k", { { 208, 0 }, { -1, 0 } } },
};

struct tensor {
    char name[64];
    int type, n_dims;
    int64_t ne[4];
    char kind; /* of the distribution: its first letter */
    double a, b;
};

static struct tensor tensors[MAX_TENSORS];
static int n_tensors;

static _Noreturn void die(const char *where, const char *what)
{
    (void)fprintf(stderr, "draw: %s: %s\n", where, what);
    exit(1);
}

static void need(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        die("error", e->msg);
}

static double number(const char *text)
{
    char *end = NULL;
    double v = text == NULL ? NAN : strtod(text, &end);

    if (text == NULL || *text == '\0' || *end != '\0')
        die(text == NULL ? "a line" : text, "a number was expected");
    return v;
}

static void metadata(struct gguf_writer *w, char **word, int n, const char *rest)
{
    struct err e = { 0 };
    int32_t list[MAX_WORDS];

    if (strcmp(word[1], "str") == 0) {
        need(gguf_write_str(w, word[0], str_of(rest), &e), &e);
    } else if (strcmp(word[1], "u32") == 0) {
        need(gguf_write_u32(w, word[0], (uint32_t)number(word[2]), &e), &e);
    } else if (strcmp(word[1], "f32") == 0) {
        need(gguf_write_f32(w, word[0], (float)number(word[2]), &e), &e);
    } else if (strcmp(word[1], "bool") == 0) {
        need(gguf_write_bool(w, word[0], number(word[2]) != 0, &e), &e);
    } else if (strcmp(word[1], "i32s") == 0) {
        for (int i = 2; i < n; i++)
            list[i - 2] = (int32_t)number(word[i]);
        need(gguf_write_arr(w, word[0], GGUF_I32, list, (uint64_t)n - 2, &e), &e);
    } else if (strcmp(word[1], "u64s") == 0) {
        uint64_t wide[MAX_WORDS];

        for (int i = 2; i < n; i++)
            wide[i - 2] = strtoull(word[i], NULL, 10);
        need(gguf_write_arr(w, word[0], GGUF_U64, wide, (uint64_t)n - 2, &e), &e);
    } else {
        die(word[0], "no such kind of value");
    }
}

static void tokenizer(struct gguf_writer *w, const char *path)
{
    static const char prefix[] = "tokenizer.";
    struct gguf *g = NULL;
    struct err e = { 0 };

    need(gguf_open(&g, path, &e), &e);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);

        if (kv->key.n > sizeof prefix && memcmp(kv->key.p, prefix, sizeof prefix - 1) == 0)
            need(gguf_write_kv(w, kv, &e), &e);
    }
    gguf_close(g);
}

/* tensor NAME TYPE SHAPE KIND A [B], once for each block in NAME. */
static void listed(char **word, int n)
{
    struct tensor t = { .type = n < 6 ? -1 : quant_find_name(str_of(word[2])) };

    if (t.type < 0)
        die(n < 2 ? "tensor" : word[1], "not NAME TYPE SHAPE DISTRIBUTION, or no such type");
    for (char *p = word[3]; t.n_dims < 4; p++) {
        t.ne[t.n_dims++] = strtoll(p, &p, 10);
        if (*p == '\0')
            break;
    }
    t.kind = word[4][0];
    t.a = number(word[5]);
    t.b = t.kind == 'u' ? number(n < 7 ? NULL : word[6]) : 0;
    char *at = strncmp(word[1], "blk.", 4) == 0 ? word[1] + 4 : NULL, *tail = at == NULL ? NULL : strchr(at, '.');
    do {
        if (n_tensors == MAX_TENSORS)
            die(word[1], "too many tensors");
        if (at == NULL)
            (void)snprintf(t.name, sizeof t.name, "%s", word[1]);
        else
            (void)snprintf(t.name, sizeof t.name, "blk.%ld%s", strtol(at, &at, 10), tail);
        tensors[n_tensors++] = t;
    } while (at != NULL && *at++ == ',');
}

/* Values whose deviation is 1, times sd. */
static float normal(const uint32_t x[4], double sd)
{
    int64_t sum = 0;
    int shift = 0;

    for (int i = 0; i < 4; i++)
        sum += (int64_t)(x[i] & 0xffff) + (int64_t)(x[i] >> 16);
    /* eight times a variance of (2^32 - 1) / 12 */
    double v = (double)(2 * sum - 8 * 65535) * (sd / 107020.5) * 1048576.0; /* in multiples of 2^-20 */
    int64_t m = (int64_t)floor(fabs(v) + 0.5);
    while (m >> shift > 255)
        shift++;
    if (shift > 0)
        m = (m + ((int64_t)1 << (shift - 1))) >> shift << shift;
    return (float)ldexp(v < 0 ? -(double)m : (double)m, -20);
}

/* 1024 + bits, of 10 bits, times 2^(e - 10), as F16; below 2^-14 with fewer bits. */
static uint16_t half(int e, uint32_t bits)
{
    return (uint16_t)(e >= -14 ? (uint32_t)(e + 15) << 10 | bits : (1024 + bits) >> (-14 - e));
}

static void draw_blocks(unsigned char *data, size_t n_bytes, const struct tensor *t, uint64_t seed, uint64_t stream)
{
    const struct quant_type *type = quant_types[t->type];
    size_t k = 0, size = (size_t)type->block_bytes;
    uint32_t x[4];

    while (k < sizeof blocks / sizeof *blocks && strcmp(blocks[k].type, type->name) != 0)
        k++;
    if (k == sizeof blocks / sizeof *blocks)
        die(t->name, "blocks of that type are not drawn");
    for (size_t i = 0; i < n_bytes; i++) {
        if (i % 16 == 0)
            rng_block(x, seed, stream, i / 16);
        data[i] = (unsigned char)(x[i % 16 / 4] >> i % 4 * 8);
    }
    for (size_t at = 0; at < n_bytes; at += size)
        for (int i = 0; i < 2 && blocks[k].half[i].offset >= 0; i++) {
            unsigned char *p = data + at + blocks[k].half[i].offset;
            uint16_t h = half((int)t->a + blocks[k].half[i].more, (p[0] | (uint32_t)p[1] << 8) & 1023);

            p[0] = (unsigned char)h;
            p[1] = (unsigned char)(h >> 8);
        }
}

static void draw(struct gguf_writer *w, const struct tensor *t, uint64_t seed)
{
    const struct quant_type *type = quant_types[t->type];
    const uint64_t stream = io_hash(0, t->name, strlen(t->name));
    int64_t n = 1;
    struct err e = { 0 };

    for (int d = 0; d < t->n_dims; d++)
        n *= t->ne[d];
    const size_t n_bytes = (size_t)(n / type->block_elems * type->block_bytes);
    unsigned char *data = malloc(n_bytes);
    if (data == NULL)
        die(t->name, "no memory");
    if (t->kind == 'b') {
        draw_blocks(data, n_bytes, t, seed, stream);
    } else {
        const size_t each = strcmp(type->name, "f32") == 0 ? 4 : strcmp(type->name, "bf16") == 0 ? 2 : 0;

        if (each == 0 || (each == 2 && t->kind == 'u'))
            die(t->name, "no such distribution for this type");
        for (int64_t i = 0; i < n; i++) {
            uint32_t x[4], bits;

            rng_block(x, seed, stream, (uint64_t)i);
            float v = t->kind == 'n' ? normal(x, t->a) : (float)(t->a + (t->b - t->a) * ((double)x[0] / 4294967296.0));
            memcpy(&bits, &v, sizeof bits);
            bits >>= 8 * (4 - each);
            for (size_t k = 0; k < each; k++)
                data[(size_t)i * each + k] = (unsigned char)(bits >> 8 * k);
        }
    }
    need(gguf_write_data(w, data, n_bytes, &e), &e);
    free(data);
}

int main(int argc, char **argv)
{
    struct gguf_writer *w = NULL;
    struct err e = { 0 };
    uint64_t seed = 0, hash = 0;
    char *text = NULL, *out = NULL;
    size_t n_text = 0, n_out = 0;

    if (argc < 3)
        die("usage", "draw NAME.draw NAME.gguf [SEED]");
    need(io_read_all(&text, &n_text, argv[1], (size_t)1 << 20, NULL, &e), &e);
    need(gguf_write_open(&w, argv[2], &e), &e);
    for (char *line = text, *next; line != NULL && *line != '\0'; line = next) {
        char *word[MAX_WORDS], *rest = line;
        int n = 0;

        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        if (*line == '#' || *line == '\0')
            continue;
        /* a value of text is the rest of the line */
        for (char *save = NULL, *p = strtok_r(line, " ", &save); p != NULL && n < MAX_WORDS;
             p = strtok_r(NULL, " ", &save)) {
            word[n++] = p;
            rest = n == 2 ? save : rest;
            if (n == 2 && strcmp(p, "str") == 0)
                break;
        }
        if (n < 2)
            die(argv[1], "a line of one word");
        if (n == 2 && strcmp(word[0], "seed") == 0)
            seed = strtoull(word[1], NULL, 10);
        else if (n == 2 && strcmp(word[0], "hash") == 0)
            hash = strtoull(word[1], NULL, 16);
        else if (n == 2 && strcmp(word[0], "tokenizer") == 0)
            tokenizer(w, word[1]);
        else if (strcmp(word[0], "tensor") == 0)
            listed(word, n);
        else if (n > 2 || strcmp(word[1], "str") == 0)
            metadata(w, word, n, rest);
        else
            die(word[0], "a line that nobody understands");
    }
    if (argc > 3)
        seed = strtoull(argv[3], NULL, 10);
    for (int i = 0; i < n_tensors; i++)
        need(gguf_write_tensor(w, str_of(tensors[i].name), tensors[i].type, tensors[i].n_dims, tensors[i].ne, &e), &e);
    for (int i = 0; i < n_tensors; i++)
        draw(w, &tensors[i], seed);
    need(gguf_write_commit(w, &e), &e);
    need(io_read_all(&out, &n_out, argv[2], (size_t)1 << 30, NULL, &e), &e);
    const uint64_t got = io_hash(0, out, n_out);
    if (hash == 0 || argc > 3) {
        printf("hash %016" PRIx64 "\n", got);
    } else if (got != hash) {
        (void)remove(argv[2]);
        die(argv[1], "the model that came out has another hash");
    }
    free(out);
    free(text);
    return 0;
}
