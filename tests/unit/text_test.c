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
#include "base/io.h"
#include "gguf/gguf.h"
#include "text/vocab.h"

#define HERE "tests/golden/tokenizer"
#define FILE_BYTES_MAX (64U << 20)
#define LINES_MAX 1024
#define COLUMNS 7

static struct text *open_text(const char *dir, const char *file)
{
    char path[512];
    struct gguf *g = NULL;
    struct text *t = NULL;
    struct err e = {0};

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
    struct err e = {0};
    int n = 0;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (io_read_all(data, &n_bytes, path, FILE_BYTES_MAX, &e) != ERR_OK)
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
    return (struct str){out, n};
}

static void check_ids(const char *name, const char *string, const char *column,
                      const struct text_tokens *got, const char *want)
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

/* All strings of a directory against one vocabulary; lossy: the stored text went through a clean-up. */
static void check_vocabulary(const char *dir, const char *gguf, const char *name, bool lossy)
{
    static char *rows[LINES_MAX][COLUMNS], *strings[LINES_MAX][COLUMNS];
    static const struct {
        int column;
        unsigned flags;
        const char *what;
    } ways[] = {{3, TEXT_SPECIAL, "specials"}, {4, TEXT_SPECIAL | TEXT_ADD, "add"}, {5, 0, "as text"}};
    char file[128], *data, *text_data, buf[4096], want[8192];
    struct text *t = open_text(dir, gguf);
    struct err e = {0};

    snprintf(file, sizeof file, "%s.tsv", name);
    int n = read_table(&data, rows, dir, file);
    assert_int_equal(read_table(&text_data, strings, dir, "strings.tsv"), n);
    assert_true(n > 100);
    for (int i = 0; i < n; i++) {
        struct str s = unhex(strings[i][2], buf);
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            struct text_tokens got = {0};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_vocabularies),
        cmocka_unit_test(test_real_vocabularies),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
