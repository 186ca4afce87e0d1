/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_state.c - any bytes as a session file: refused with one line of text, or loaded. Once as they are, and once
 * with the header of a small model and with the checksums put right, so that what lies behind them is reached.
 * Run from the repository's root. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "fuzz/fuzz.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "run/session.h"

enum { HEADER = 256, RECORD = 64 };
static const struct run_session_id me = { 1, "fuzz", 0 };
static struct run *run;
static unsigned char header[HEADER];
static char path[64];

static void put_file(const uint8_t *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert(fd >= 0 && io_write_all(fd, data, n, NULL) == ERR_OK);
    close(fd);
}

/* A model, and the header that its sessions have. */
static void set_up(void)
{
    struct gguf *g;
    struct model *m;
    struct run_session *s;
    struct err e = { 0 };
    int fd;

    snprintf(path, sizeof path, "/tmp/fuzz_state.%ld", (long)getpid());
    assert(gguf_open(&g, "tests/golden/models/lfm2moe-a.gguf", &e) == ERR_OK);
    assert(model_open(&m, g, &(struct model_opts){ .n_threads = 1 }, &e) == ERR_OK);
    assert(run_open(&run, m, &(struct run_opts){ .ctx_tokens = 300, .checkpoint_bytes = 1 << 16 }, &e) == ERR_OK);
    assert(run_session_open(&s, path, &e) == ERR_OK && run_session_attach(s, run, &me, &e) == ERR_OK);
    assert(run_session_save(s, run, 0, NULL, 0, &e) == ERR_OK);
    run_session_close(s);
    fd = open(path, O_RDONLY);
    assert(fd >= 0 && read(fd, header, HEADER) == HEADER);
    close(fd);
}

static uint64_t get(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static void put(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

static void mend(uint8_t *p, size_t n)
{
    uint64_t prev = get(header + HEADER - 8);

    memcpy(p, header, n < HEADER ? n : HEADER);
    for (size_t at = HEADER; at + RECORD <= n;) {
        uint64_t stored = get(p + at + 32), left = n - at - RECORD;

        put(p + at + 40, stored <= left ? io_hash(0, p + at + RECORD, (size_t)stored) : 0);
        put(p + at + 48, prev);
        prev = io_hash(0, p + at, RECORD - 8);
        put(p + at + RECORD - 8, prev);
        if (stored > left)
            break;
        at += RECORD + (size_t)stored;
    }
}

/* Opens, loads all of it, matches a part of it. */
static void use(const uint8_t *data, size_t n)
{
    struct run_session *s = NULL;
    struct err e = { 0 };
    enum err_code code;

    put_file(data, n);
    code = run_session_open(&s, path, &e);
    if (code == ERR_OK)
        code = run_session_attach(s, run, &me, &e);
    if (code == ERR_OK)
        code = run_session_load(s, run, 0, INT64_MAX, &e);
    if (code == ERR_OK) {
        struct run_match m;
        int64_t held;
        const int32_t *tokens = run_session_tokens(s, &held);

        if (held > 1)
            code = run_session_match(s, run, 0, tokens, held / 2, &m, &e);
        if (code == ERR_OK)
            code = run_session_save(s, run, 0, "x", 1, &e);
        assert(code != ERR_OK || run_session_stat(s).file_bytes > HEADER);
    }
    assert(code == ERR_OK || (strncmp(e.msg, path, strlen(path)) == 0 && strchr(e.msg, '\n') == NULL));
    run_session_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n + 1);

    assert(copy != NULL);
    if (run == NULL)
        set_up();
    use(data, n);
    memcpy(copy, data, n);
    mend(copy, n);
    use(copy, n);
    free(copy);
    unlink(path);
    return 0;
}
