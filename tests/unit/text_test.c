/* SPDX-License-Identifier: Apache-2.0 */
/* text_test.c - the room text: tokenizers against stored vectors, streams, hostile vocabularies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "base/io.h"
#include "gguf/gguf.h"
#include "text/vocab.h"

#define HERE           "tests/golden/tokenizer"
#define FILE_BYTES_MAX (64U << 20)
#define LINES_MAX      1024
#define COLUMNS        7

static struct text *open_text(const char *dir, const char *file)
{
    char path[512];
    struct gguf *g = NULL;
    struct text *t = NULL;
    struct err e = { 0 };

    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (gguf_open(&g, path, &e) != ERR_OK || text_open(&t, g, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    gguf_close(g);
    return t;
}

/* Lines of a file with tabs; column pointers into *data. */
static int read_table(char **data, char *rows[][COLUMNS], const char *dir, const char *name)
{
    char path[512], *save = NULL;
    size_t n_bytes;
    struct err e = { 0 };
    int n = 0;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (io_read_all(data, &n_bytes, path, FILE_BYTES_MAX, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (char *line = strtok_r(*data, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '#')
            continue;
        assert_true(n < LINES_MAX);
        for (int c = 0; c < COLUMNS; c++) {
            rows[n][c] = line;
            line += strcspn(line, "\t");
            if (*line == '\t')
                *line++ = '\0';
        }
        n++;
    }
    return n;
}

static int hex_digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static struct str unhex(const char *hex, char *out)
{
    size_t n = 0;

    for (; hex[0] != '\0' && strcmp(hex, "empty") != 0; hex += 2)
        out[n++] = (char)(hex_digit(hex[0]) * 16 + hex_digit(hex[1]));
    return (struct str){ out, n };
}

static void check_ids(const char *name, const char *string, const char *column, const struct text_tokens *got,
                      const char *want)
{
    int64_t n = 0;
    bool same = true;

    for (const char *p = strcmp(want, "empty") == 0 ? "" : want; *p != '\0'; n++) {
        char *end;
        long id = strtol(p, &end, 10);
        same = same && n < got->n && got->v[n] == id;
        p = *end == ',' ? end + 1 : end;
    }
    if (!same || n != got->n) {
        char line[1024] = "";
        for (int64_t i = 0; i < got->n && strlen(line) < sizeof line - 20; i++)
            snprintf(line + strlen(line), 20, i ? ",%d" : "%d", got->v[i]);
        fail_msg("%s, string %s, %s: want %s, got %s", name, string, column, want, line);
    }
}

/* All strings of a directory against one vocabulary; lossy: the stored text went through a
 * clean-up. */
static void check_vocabulary(const char *dir, const char *gguf, const char *name, bool lossy)
{
    static char *rows[LINES_MAX][COLUMNS], *strings[LINES_MAX][COLUMNS];
    static const struct {
        int column;
        unsigned flags;
        const char *what;
    } ways[] = { { 3, TEXT_SPECIAL, "specials" }, { 4, TEXT_SPECIAL | TEXT_ADD, "add" }, { 5, 0, "as text" } };
    char file[128], *data, *text_data, buf[4096], want[8192];
    struct text *t = open_text(dir, gguf);
    struct err e = { 0 };

    snprintf(file, sizeof file, "%s.tsv", name);
    int n = read_table(&data, rows, dir, file);
    assert_int_equal(read_table(&text_data, strings, dir, "strings.tsv"), n);
    assert_true(n > 100);
    for (int i = 0; i < n; i++) {
        struct str s = unhex(strings[i][2], buf);
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            struct text_tokens got = { 0 };
            assert_int_equal(text_encode(t, s, ways[k].flags, &got, &e), ERR_OK);
            if (strcmp(rows[i][ways[k].column], "-") != 0)
                check_ids(name, rows[i][0], ways[k].what, &got, rows[i][ways[k].column]);
            if (k == 0 && strcmp(rows[i][3], "-") != 0 && !(lossy && strstr(buf, " '") != NULL)) {
                char *back;
                size_t back_n;
                struct str w = unhex(rows[i][6], want);
                assert_int_equal(text_decode(t, got.v, got.n, TEXT_SPECIAL, &back, &back_n, &e), ERR_OK);
                assert_int_equal(back_n, w.n);
                assert_memory_equal(back, w.p, w.n);
                free(back);
            }
            text_tokens_free(&got);
        }
    }
    free(data);
    free(text_data);
    text_close(t);
}

static void test_own_vocabularies(void **state)
{
    (void)state;
    check_vocabulary(HERE, "tiny-qwen35.gguf", "tiny-qwen35", false);
    check_vocabulary(HERE, "tiny-qwen2.gguf", "tiny-qwen2", false);
}

/* The real vocabularies, where the environment says they are. */
static const char *goldens(const char *sub, char *buf, size_t n)
{
    const char *dir = getenv("GOLDENS");

    if (dir == NULL || dir[0] == '\0')
        skip();
    snprintf(buf, n, "%s/%s", dir, sub);
    if (access(buf, R_OK) != 0)
        skip();
    return buf;
}

static void test_real_vocabularies(void **state)
{
    char buf[512];
    const char *dir = goldens("tokenizer", buf, sizeof buf);

    (void)state;
    check_vocabulary(dir, "ggml-vocab-gpt-2.gguf", "gpt-2", true);
    check_vocabulary(dir, "ggml-vocab-starcoder.gguf", "starcoder", true);
    check_vocabulary(dir, "ggml-vocab-deepseek-coder.gguf", "deepseek-coder", false);
    check_vocabulary(dir, "ggml-vocab-llama-spm.gguf", "llama-spm", false);
    check_vocabulary(dir, "ggml-vocab-phi-3.gguf", "phi-3", false);
}

/* Piece lengths of a split, as text. */
struct lengths {
    char *line;
    size_t n, bytes;
};

static enum err_code note_length(void *ctx, struct str piece)
{
    struct lengths *l = ctx;

    assert_true(piece.n > 0);
    l->bytes += piece.n;
    if (l->line != NULL)
        l->n += (size_t)snprintf(l->line + l->n, 16, l->n > 0 ? ",%zu" : "%zu", piece.n);
    return ERR_OK;
}

static struct text_split *open_split(const char *name)
{
    struct text_split *sp = NULL;
    struct text_pretok flags;
    struct err e = { 0 };

    if (text_split_open(&sp, &flags, str_of(name), &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return sp;
}

/* A string with a letter of Unicode 15, and PCRE2's tables are older: it splits where no table
 * says. */
static bool too_new(struct str s)
{
    char version[64] = "";

    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    for (size_t i = 0; i + 4 <= s.n; i++)
        if (memcmp(s.p + i, "\xF0\xB1\x8D\x90", 4) == 0)
            return strtol(version, NULL, 10) < 15;
    return false;
}

/* Either library's pieces will do: they differ where Unicode tables and case folding do. */
static void check_splits(const char *dir, const char *name)
{
    static char *rows[LINES_MAX][COLUMNS], *strings[LINES_MAX][COLUMNS];
    char file[128], *data, *text_data, buf[4096], line[8192];
    struct err e = { 0 };

    snprintf(file, sizeof file, "%s.split.tsv", name);
    int n = read_table(&data, rows, dir, file), n_strings = read_table(&text_data, strings, dir, "strings.tsv");
    struct text_split *sp = open_split(strncmp(name, "tiny-", 5) == 0 ? name + 5 : name);
    assert_true(n > 100 && n <= n_strings);
    for (int i = 0; i < n; i++) {
        struct lengths l = { .line = line };
        long at = strtol(rows[i][0], NULL, 10);
        assert_true(at >= 0 && at < n_strings);
        struct str s = unhex(strings[at][2], buf);
        if (strcmp(strings[at][1], "text") != 0 || too_new(s))
            continue;
        assert_int_equal(text_split_run(sp, s, note_length, &l, &e), ERR_OK);
        snprintf(line + l.n, 8, l.n > 0 ? "" : "empty");
        if (strcmp(line, rows[i][1]) != 0 && strcmp(line, rows[i][2]) != 0)
            fail_msg("%s, string %ld: want %s or %s, got %s", name, at, rows[i][1], rows[i][2], line);
    }
    text_split_close(sp);
    free(data);
    free(text_data);
}

static void test_own_splits(void **state)
{
    (void)state;
    check_splits(HERE, "tiny-qwen35");
    check_splits(HERE, "tiny-qwen2");
}

static void test_real_splits(void **state)
{
    char buf[512];
    const char *dir = goldens("tokenizer", buf, sizeof buf);

    (void)state;
    check_splits(dir, "gpt-2");
    check_splits(dir, "starcoder");
    check_splits(dir, "deepseek-coder");
}

/* llama.cpp's published pairs: texts, and ids by the original tokenizers. */
static void check_published(const char *dir, const char *file)
{
    char name[128], path[512], *in, *out, *save = NULL;
    static const char gap[] = "\n__ggml_vocab_test__\n";
    size_t n;
    struct err e = { 0 };
    struct text *t = open_text(dir, file);

    snprintf(name, sizeof name, "%s/%s.inp", dir, file);
    assert_int_equal(io_read_all(&in, &n, name, FILE_BYTES_MAX, NULL, &e), ERR_OK);
    snprintf(path, sizeof path, "%s/%s.out", dir, file);
    assert_int_equal(io_read_all(&out, &n, path, FILE_BYTES_MAX, NULL, &e), ERR_OK);
    char *line = out;
    for (char *text = in; text != NULL;) {
        char *end = strstr(text, gap), *eol = strchr(line, '\n'), ids[16384] = "";
        struct text_tokens got = { 0 };
        assert_non_null(eol);
        if (end != NULL)
            *end = '\0';
        *eol = '\0';
        for (char *id = strtok_r(line, " ", &save); id != NULL; id = strtok_r(NULL, " ", &save))
            snprintf(ids + strlen(ids), sizeof ids - strlen(ids), ids[0] ? ",%s" : "%s", id);
        assert_int_equal(text_encode(t, str_of(text), 0, &got, &e), ERR_OK);
        check_ids(file, text, "published", &got, ids);
        text_tokens_free(&got);
        line = eol + 1;
        text = end != NULL && end[sizeof gap - 1] != '\0' ? end + sizeof gap - 1 : NULL;
    }
    free(in);
    free(out);
    text_close(t);
}

static void test_published_pairs(void **state)
{
    static const char *const names[] = { "gpt-2", "starcoder", "deepseek-coder", "llama-spm", "phi-3" };
    char buf[512], file[128];
    const char *dir = goldens("tokenizer", buf, sizeof buf);

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(file, sizeof file, "ggml-vocab-%s.gguf", names[i]);
        check_published(dir, file);
    }
}

static const char *const pretoks[] = {
#define SPLIT(id, ...)
#define PRETOK(name, split, whole, bos) name,
#include "text/pretoks.def"
};

#define LONG_BYTES (200U << 10)

/* A text of LONG_BYTES that repeats `unit`, then `end`; malloc'ed. */
static struct str repeated(const char *unit, const char *end)
{
    size_t n = strlen(unit), count = LONG_BYTES / n, n_end = strlen(end);
    char *p = malloc(count * n + n_end);

    assert_non_null(p);
    for (size_t i = 0; i < count; i++)
        memcpy(p + i * n, unit, n);
    memcpy(p + count * n, end, n_end);
    return (struct str){ p, count * n + n_end };
}

static const struct {
    const char *unit, *end;
} runs[] = {
    { "a", "" },
    { "A", "" },
    { "Ab", "" },
    { " ", "" },
    { " ", "x" },
    { " ", "\xE6\xBC\xA2" },
    { "\n", "" },
    { " ", "\n" },
    { "\xCC\x81", "" },
    { "a\xCC\x81", "" },
    { "7", "" },
    { "!", "" },
    { "! ", "" },
    { "'", "" },
    { " \t", "7" },
    { "\xE6\xBC\xA2", "" },
    { "\xE6\xBC\xA2 ", "" },
    { "\xE2\x80\xA8", "x" },
    { "\r\n", " " },
    { "\xED\xA0\x80", "" },
};

/* Long runs of one kind are the worst that a backtracking matcher can meet: no limit may be hit,
 * and what would be quadratic would not come back. */
static void test_long_runs(void **state)
{
    struct err e = { 0 };
    struct text *t = open_text(HERE, "tiny-qwen35.gguf");

    (void)state;
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        struct str s = repeated(runs[r].unit, runs[r].end);
        struct text_tokens got = { 0 };
        char *back;
        size_t n;
        for (size_t i = 0; i < sizeof pretoks / sizeof pretoks[0]; i++) {
            struct text_split *sp = open_split(pretoks[i]);
            struct lengths l = { 0 };
            if (text_split_run(sp, s, note_length, &l, &e) != ERR_OK)
                fail_msg("%s, run %zu: %s", pretoks[i], r, e.msg);
            assert_int_equal(l.bytes, s.n);
            text_split_close(sp);
        }
        assert_int_equal(text_encode(t, s, 0, &got, &e), ERR_OK);
        assert_int_equal(text_decode(t, got.v, got.n, 0, &back, &n, &e), ERR_OK);
        assert_int_equal(n, s.n);
        assert_memory_equal(back, s.p, n);
        free(back);
        text_tokens_free(&got);
        free((char *)(uintptr_t)s.p);
    }
    text_close(t);
}

/* Names that several files use, and what their patterns must tell apart. */
static void test_patterns(void **state)
{
    static const struct {
        const char *pre, *text, *lengths;
    } cases[] = {
        { "llama-bpe", "12345 don't", "3,2,4,2" },
        { "qwen2", "12 don't", "1,1,4,2" },
        { "gpt-2", "12345 don't", "5,4,2" },
        { "gpt-2", "DON'T", "3,1,1" },
        { "starcoder", " 12 a", "1,1,1,2" },
        { "falcon", "a==b12345", "1,2,1,3,2" },
        { "default", "a==b12345", "1,2,1,3,2" },
        { "tekken", "helloWorld HTTPServer 12", "5,5,11,1,1,1" },
        { "gpt-4o", "it's THE'S a/b", "4,6,2,2" },
        { "kimi-k2",
          "a\xE6\xBC\xA2\xE6\xBC\xA2"
          "b c's",
          "1,6,1,4" },
        { "kimi-k2", "  \xE6\xBC\xA2", "1,1,3" },
        { "kimi-k2", "a\xE3\x80\x82", "1,3" },
        { "kimi-k2",
          "\xE3\x80\x82"
          "a",
          "4" }, /* U+3002 belongs to several scripts */
        { "deepseek-llm", "ab 12345  \xE6\xBC\xA2", "2,1,5,2,3" },
        { "deepseek-llm", "ab  ", "2,2" },
        { "deepseek-v3", "12345 a.b", "3,2,2,2" },
        { "seed-coder", "!\n", "1,1" },
        { "bailingmoe", "a\n\n", "1,2" },
        { "qwen35", "x\xE1\xA0\x8E y", "1,3,2" }, /* U+180E is no space */
    };
    struct err e = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256] = "";
        struct lengths l = { .line = line };
        struct text_split *sp = open_split(cases[i].pre);
        assert_int_equal(text_split_run(sp, str_of(cases[i].text), note_length, &l, &e), ERR_OK);
        if (strcmp(line, cases[i].lengths) != 0)
            fail_msg("%s on \"%s\": want %s, got %s", cases[i].pre, cases[i].text, cases[i].lengths, line);
        text_split_close(sp);
    }
}

/* Feeds each byte of s as a token of its own, or all of s as the vocabulary cuts it. *stop: which stop string; -1:
 * none. */
static void stream(const struct text *t, const struct str *stops, size_t n_stops, struct str s, bool bytes, char *out,
                   int *stop)
{
    struct text_stream *st = NULL;
    struct text_tokens ids = { 0 };
    struct str ready;
    struct err e = { 0 };
    size_t n = 0, len;
    bool stopped = false;

    assert_int_equal(text_stream_open(&st, t, stops, n_stops, &e), ERR_OK);
    for (size_t i = 0; bytes && i < s.n; i++)
        assert_int_equal(text_tokens_push(&ids, t->byte_id[(unsigned char)s.p[i]], &e), ERR_OK);
    if (!bytes)
        assert_int_equal(text_encode(t, s, TEXT_SPECIAL, &ids, &e), ERR_OK);
    for (int64_t i = 0; i <= ids.n; i++) {
        if (i == ids.n)
            ready = text_stream_flush(st);
        else
            assert_int_equal(text_stream_push(st, ids.v[i], &ready, &stopped, &e), ERR_OK);
        for (size_t k = 0; k < ready.n; k += len)
            assert_true(text_utf8_get(ready.p + k, ready.n - k, &len) != TEXT_BAD || len == 3);
        memcpy(out + n, ready.p, ready.n);
        n += ready.n;
    }
    out[n] = '\0';
    *stop = stopped ? (int)text_stream_stop(st) : -1;
    text_tokens_free(&ids);
    text_stream_close(st);
}

static void test_stream(void **state)
{
    static const struct {
        const char *in, *stops[3], *out;
        int stop;
    } cases[] = {
        { "plain text", { NULL }, "plain text", -1 },
        { "\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80.", { NULL }, "\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80.", -1 },
        { "cut STOP here", { "STOP" }, "cut ", 0 },
        { "cut STO", { "STOP" }, "cut STO", -1 },
        { "SSTOPS", { "STOP" }, "S", 0 },
        { "STSTOP", { "STOP" }, "ST", 0 },
        { "abc", { "abc", "b" }, "a", 1 },
        { "xab", { "b", "ab" }, "x", 1 },
        { "aab", { "ab", "aab" }, "", 1 },
        { "one\n\ntwo", { "\n\n", "two" }, "one", 0 },
        { "one\ntwo", { "\n\n", "zwei" }, "one\ntwo", -1 },
        { "\xC3\xA9\xC3\xA8", { "\xC3\xA8" }, "\xC3\xA9", 0 },
        { "\xC3\xA9\xC3\xAA", { "\xC3\xA8" }, "\xC3\xA9\xC3\xAA", -1 },
        { "hidden<|im_end|>", { NULL }, "hidden", -1 },
    };
    struct text *t = open_text(HERE, "tiny-qwen35.gguf");
    char out[256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct str stops[3];
        size_t n = 0;
        for (; n < 3 && cases[i].stops[n] != NULL; n++)
            stops[n] = str_of(cases[i].stops[n]);
        for (int bytes = 0; bytes < 2; bytes++) {
            int stop;
            if (bytes && strstr(cases[i].in, "<|") != NULL)
                continue;
            stream(t, stops, n, str_of(cases[i].in), bytes, out, &stop);
            assert_string_equal(out, cases[i].out);
            assert_int_equal(stop, cases[i].stop);
        }
    }
    text_close(t);
}

/* A text of bytes as tokens, cut at every place: the parts add up to it, and each is whole characters. */
static void test_stream_in_parts(void **state)
{
    static const char text[] = "a\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80z";
    struct text *t = open_text(HERE, "tiny-qwen35.gguf");
    int32_t ids[sizeof text];
    const int64_t n = sizeof text - 1;

    (void)state;
    for (int64_t i = 0; i < n; i++)
        ids[i] = t->byte_id[(unsigned char)text[i]];
    for (int64_t cut = 0; cut <= n; cut++) {
        char out[sizeof text] = "";
        size_t used = 0;

        for (int part = 0; part < 2; part++) {
            struct text_stream *st;
            struct err e = { 0 };
            struct str ready;
            bool stopped;

            assert_int_equal(text_stream_open(&st, t, NULL, 0, &e), ERR_OK);
            text_stream_follows(st, ids, part * cut);
            for (int64_t i = part * cut; i < (part ? n : cut); i++) {
                assert_int_equal(text_stream_push(st, ids[i], &ready, &stopped, &e), ERR_OK);
                assert_true(used + ready.n < sizeof out);
                memcpy(out + used, ready.p, ready.n);
                used += ready.n;
            }
            text_stream_leave(st);
            assert_int_equal(text_stream_flush(st).n, 0);
            text_stream_close(st);
        }
        assert_string_equal(out, text);
    }
    text_close(t);
}

static void test_stream_bad_bytes(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "\xFF", "\xEF\xBF\xBD" },
        { "a\xC3(b", "a\xEF\xBF\xBD(b" },
        { "\xE2\x82", "\xEF\xBF\xBD\xEF\xBF\xBD" },
        { "\xF0\x9F\x98"
          "a",
          "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
          "a" },
        { "\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD" },
        { "\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD" },
        { "\xC3\xC3\xA9", "\xEF\xBF\xBD\xC3\xA9" },
    };
    struct text *t = open_text(HERE, "tiny-qwen35.gguf");
    struct text_stream *st = NULL;
    struct str bad[] = { STR("\xA9") }, none[] = { STR("") };
    char out[256];
    int stop;
    struct err e = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stream(t, NULL, 0, str_of(cases[i].in), true, out, &stop);
        assert_string_equal(out, cases[i].out);
    }
    assert_int_equal(text_stream_open(&st, t, bad, 1, &e), ERR_ARG);
    assert_int_equal(text_stream_open(&st, t, none, 1, &e), ERR_ARG);
    text_stream_close(NULL);
    text_close(t);
}

static void test_tokens(void **state)
{
    struct text *t = open_text(HERE, "tiny-qwen35.gguf");
    const struct text_info *info = text_info(t);
    char *pieces, *rows[LINES_MAX][COLUMNS], buf[256];

    (void)state;
    int n = read_table(&pieces, rows, HERE, "tiny-qwen35.pieces.tsv");
    assert_int_equal(info->n_tokens, 512);
    for (int i = 0; i < n; i++) {
        struct str want = unhex(rows[i][1], buf);
        int32_t id = (int32_t)strtol(rows[i][0], NULL, 10);
        if (t->tok[id].type == TOKEN_UNUSED)
            want.n = 0;
        assert_int_equal(text_piece(t, id).n, want.n);
        assert_memory_equal(text_piece(t, id).p, want.p, want.n);
    }
    free(pieces);
    assert_int_equal(info->bos, -1);
    assert_int_equal(info->eos, 486);
    assert_int_equal(info->pad, 484);
    assert_false(info->add_bos);
    assert_int_equal(info->chat_template.n, 0);
    assert_int_equal(text_find(t, "<|im_start|>"), 485);
    assert_int_equal(text_find(t, " "), 220);
    assert_int_equal(text_find(t, "\n"), 198);
    assert_int_equal(text_find(t, "no such token"), -1);
    assert_true(text_is_end(t, 484) && text_is_end(t, 486) && !text_is_end(t, 485));
    assert_true(text_is_control(t, 485) && !text_is_control(t, 508) && !text_is_control(t, 0));
    assert_int_equal(text_piece(t, -1).n + text_piece(t, 512).n, 0);
    assert_false(text_is_end(t, -1) || text_is_end(t, 512) || text_is_control(t, 1 << 30));
    text_close(t);
    text_close(NULL);
}

/* A vocabulary to write: 256 byte tokens, then those named; members at 0 mean what is usual. */
struct vocab {
    const char *model, *pre, *tokens[8], *merges[8];
    int types[8], n_types; /* of all tokens: n_types beyond 256 */
    int n_scores;
    float scores[8]; /* beyond 256 */
    int64_t eos;     /* -1: not given */
    const char *name;
    bool no_prefix, trim;
};

static enum err_code open_vocab(const struct vocab *v, struct text **out, struct err *e)
{
    char path[] = "/tmp/text_test_XXXXXX";
    static char spell[256][4];
    struct str tokens[264], merges[8];
    int32_t types[264];
    float scores[300] = { 0 };
    uint64_t n = 256, n_merges = 0;
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;
    int fd = mkstemp(path);
    enum err_code rc;

    assert_true(fd >= 0);
    close(fd);
    for (size_t b = 0; b < 256; b++)
        tokens[b] = (struct str){ spell[b], text_byte_spell(spell[b], (unsigned char)b) };
    for (; n < 264 && v->tokens[n - 256] != NULL; n++)
        tokens[n] = str_of(v->tokens[n - 256]);
    for (int i = 0; i < 264; i++)
        types[i] = i < 256 || v->types[i - 256] == 0 ? TOKEN_NORMAL : v->types[i - 256];
    for (; n_merges < 8 && v->merges[n_merges] != NULL; n_merges++)
        merges[n_merges] = str_of(v->merges[n_merges]);
    assert_int_equal(gguf_write_open(&w, path, e), ERR_OK);
    assert_int_equal(gguf_write_str(w, "general.architecture", str_of("x"), e), ERR_OK);
    if (v->name != NULL)
        assert_int_equal(gguf_write_str(w, "general.name", str_of(v->name), e), ERR_OK);
    if (v->model != NULL)
        assert_int_equal(gguf_write_str(w, "tokenizer.ggml.model", str_of(v->model), e), ERR_OK);
    if (v->pre != NULL)
        assert_int_equal(gguf_write_str(w, "tokenizer.ggml.pre", str_of(v->pre), e), ERR_OK);
    assert_int_equal(gguf_write_strs(w, "tokenizer.ggml.tokens", tokens, n, e), ERR_OK);
    if (v->n_types >= 0)
        assert_int_equal(gguf_write_arr(w, "tokenizer.ggml.token_type", GGUF_I32, types,
                                        v->n_types > 0 ? (uint64_t)v->n_types : n, e),
                         ERR_OK);
    memcpy(scores + 256, v->scores, sizeof v->scores);
    if (v->no_prefix)
        assert_int_equal(gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", false, e), ERR_OK);
    if (v->trim)
        assert_int_equal(gguf_write_bool(w, "tokenizer.ggml.remove_extra_whitespaces", true, e), ERR_OK);
    if (v->n_scores > 0)
        assert_int_equal(gguf_write_arr(w, "tokenizer.ggml.scores", GGUF_F32, scores, (uint64_t)v->n_scores, e),
                         ERR_OK);
    if (n_merges > 0)
        assert_int_equal(gguf_write_strs(w, "tokenizer.ggml.merges", merges, n_merges, e), ERR_OK);
    if (v->eos >= 0)
        assert_int_equal(gguf_write_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)v->eos, e), ERR_OK);
    assert_int_equal(gguf_write_commit(w, e), ERR_OK);
    rc = gguf_open(&g, path, e);
    if (rc == ERR_OK)
        rc = text_open(out, g, e);
    gguf_close(g);
    unlink(path);
    return rc;
}

static void test_hostile_vocabularies(void **state)
{
    static const struct {
        struct vocab v;
        enum err_code rc;
        const char *says;
    } cases[] = {
        { { .eos = -1 }, ERR_UNSUPPORTED, "no tokenizer" },
        { { .model = "t5", .eos = -1 }, ERR_UNSUPPORTED, "\"t5\"" },
        { { .model = "bert", .eos = -1 }, ERR_UNSUPPORTED, "\"bert\"" },
        { { .model = "gpt2", .pre = "no-such", .merges = { "a b" }, .tokens = { "ab" }, .eos = -1 },
          ERR_UNSUPPORTED,
          "\"no-such\"" },
        { { .model = "gpt2", .eos = -1 }, ERR_FORMAT, "tokenizer.ggml.merges: missing" },
        { { .model = "gpt2", .merges = { "a b" }, .eos = -1 }, ERR_FORMAT, "merges[0]: \"a b\" names a token" },
        { { .model = "gpt2", .merges = { "a b", "ab zz" }, .tokens = { "ab" }, .eos = -1 }, ERR_FORMAT, "merges[1]" },
        { { .model = "gpt2", .merges = { "ab" }, .tokens = { "ab" }, .eos = -1 }, ERR_FORMAT, "not a pair" },
        { { .model = "gpt2", .merges = { " b" }, .tokens = { "ab" }, .eos = -1 }, ERR_FORMAT, "not a pair" },
        { { .model = "gpt2", .merges = { "a b" }, .tokens = { "ab" }, .n_types = 256, .eos = -1 },
          ERR_FORMAT,
          "token_type: not one for each of 257" },
        { { .model = "gpt2", .merges = { "a b" }, .tokens = { "ab" }, .eos = 257 }, ERR_FORMAT, "eos_token_id" },
        { { .model = "llama", .tokens = { "ab" }, .eos = -1 }, ERR_FORMAT, "scores: missing" },
        { { .model = "llama", .tokens = { "ab" }, .n_scores = 258, .eos = -1 }, ERR_FORMAT, "scores: not one" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text *t = NULL;
        struct err e = { 0 };
        assert_int_equal(open_vocab(&cases[i].v, &t, &e), cases[i].rc);
        assert_null(t);
        assert_null(strchr(e.msg, '\n'));
        if (strstr(e.msg, cases[i].says) == NULL)
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, e.msg, cases[i].says);
    }
}

static void encodes(const struct text *t, const char *s, unsigned flags, const char *want)
{
    struct text_tokens got = { 0 };
    struct err e = { 0 };

    assert_int_equal(text_encode(t, str_of(s), flags, &got, &e), ERR_OK);
    check_ids("made", s, "ids", &got, want);
    text_tokens_free(&got);
}

/* Small vocabularies that hold one rule each. */
static void test_rules(void **state)
{
    struct text *t = NULL;
    struct err e = { 0 };
    const struct vocab rank = {
        .model = "gpt2", .tokens = { "ab", "bc", "abc", "aa" }, .eos = 0, .merges = { "b c", "a b", "a bc", "a a" }
    };
    const struct vocab whole = {
        .model = "gpt2", .pre = "llama-bpe", .tokens = { "ab", "abc" }, .eos = -1, .merges = { "a b" }
    };
    const struct vocab special = { .model = "gpt2",
                                   .tokens = { "<a", "<a>", "a><", "ab", "</s>" },
                                   .eos = -1,
                                   .types = { TOKEN_USER, TOKEN_CONTROL, TOKEN_USER },
                                   .merges = { "a b" } };
    const struct vocab phi = { .model = "llama",
                               .tokens = { "<|end|>", "\xE2\x96\x81" },
                               .n_scores = 258,
                               .eos = -1,
                               .types = { TOKEN_CONTROL },
                               .name = "Phi-3 mini" };

    (void)state;
    assert_int_equal(open_vocab(&rank, &t, &e), ERR_OK);
    encodes(t, "abc", 0, "258");
    encodes(t, "aaaaa", 0, "259,259,97");
    assert_true(text_is_end(t, 0));
    text_close(t);
    assert_int_equal(open_vocab(&whole, &t, &e), ERR_OK);
    encodes(t, "abc ab", 0, "257,32,256");
    assert_true(text_info(t)->add_bos);
    text_close(t);
    assert_int_equal(open_vocab(&special, &t, &e), ERR_OK);
    encodes(t, "<a><", TEXT_SPECIAL, "257,60");
    encodes(t, "<a><", 0, "256,62,60");
    encodes(t, "a><a", 0, "258,97");
    encodes(t, "</s>", TEXT_SPECIAL, "260");
    assert_true(text_is_end(t, 260) && text_is_control(t, 260));
    text_close(t);
    assert_int_equal(open_vocab(&phi, &t, &e), ERR_OK);
    encodes(t, "<|end|> \n<|end|>", TEXT_SPECIAL, "256,256");
    text_close(t);
}

static void decodes(const struct text *t, const int32_t *ids, int64_t n, unsigned flags, const char *want)
{
    struct err e = { 0 };
    char *got = NULL;
    size_t len;

    assert_int_equal(text_decode(t, ids, n, flags, &got, &len, &e), ERR_OK);
    assert_string_equal(got, want);
    assert_int_equal(len, strlen(want));
    free(got);
}

static void test_spm_rules(void **state)
{
    /* 256: space, 257: ab, 258: bc, 259: space a, 260: U+6F22, 261: space space, 262: </s>, 263:
     * byte C3 */
    struct vocab v = { .model = "llama",
                       .eos = 262,
                       .n_scores = 264,
                       .scores = { 0, -2, -1, -3, 0, -9, 0, -4 },
                       .tokens = { "\xE2\x96\x81", "ab", "bc",
                                   "\xE2\x96\x81"
                                   "a",
                                   "\xE6\xBC\xA2", "\xE2\x96\x81\xE2\x96\x81", "</s>", "<0xC3>" },
                       .types = { 1, 1, 1, 1, 1, 1, TOKEN_CONTROL, TOKEN_BYTE } };
    struct text *t = NULL;
    struct err e = { 0 };
    const int32_t ids[] = { 262, 259, 258, 256, 263, 260 }, half[] = { 263 };

    (void)state;
    assert_int_equal(open_vocab(&v, &t, &e), ERR_OK);
    encodes(t, "", TEXT_ADD, "empty");
    encodes(t, "abc", 0, "259,258"); /* the highest score first, then what is left */
    encodes(t, "bab", 0, "256,98,257");
    encodes(t, "a  b", 0, "259,261,98");
    encodes(t, "\xE6\xBC\xA2\xC3", 0, "256,260,263"); /* a byte without a character */
    encodes(t, "a</s>a", TEXT_SPECIAL, "259,262,259");
    encodes(t, "a</s>", 0, "259,60,47,115,62");
    decodes(t, ids, 6, 0, "abc \xC3\xE6\xBC\xA2");
    decodes(t, ids, 6, TEXT_SPECIAL, "</s>abc \xC3\xE6\xBC\xA2");
    decodes(t, ids + 3, 1, 0, "");
    decodes(t, half, 0, 0, "");
    assert_int_equal(text_find(t, " a"), 259);
    assert_true(text_info(t)->add_bos && !text_info(t)->add_eos);
    text_close(t);
    v.no_prefix = true;
    assert_int_equal(open_vocab(&v, &t, &e), ERR_OK);
    encodes(t, "a a", 0, "97,259");
    decodes(t, ids + 1, 1, 0, " a");
    text_close(t);
    v.no_prefix = false;
    v.trim = true;
    assert_int_equal(open_vocab(&v, &t, &e), ERR_OK);
    encodes(t, "  a   b  ", 0, "259,256,98");
    text_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_vocabularies),
        cmocka_unit_test(test_real_vocabularies),
        cmocka_unit_test(test_published_pairs),
        cmocka_unit_test(test_own_splits),
        cmocka_unit_test(test_real_splits),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_spm_rules),
        cmocka_unit_test(test_hostile_vocabularies),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_in_parts),
        cmocka_unit_test(test_stream_bad_bytes),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
