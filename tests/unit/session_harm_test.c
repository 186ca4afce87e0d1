/* SPDX-License-Identifier: Apache-2.0 */
/* session_harm_test.c - sessions in files, whenever the writer is killed, whatever happens to the file.
 *
 * The calls that change files are defined here in place of the C library's, so that a child can be killed in the
 * middle of any of them. CHIMERE_TEST_PROGRAMS kills, and as many spoilt files (1,000 unless set). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "session_rig.h"

/* ---- files ---- */

static long kill_in; /* calls until the end; 0: none */
static bool disk_full;

/* True when this is the call to die in. */
static bool last_call(void)
{
    return kill_in > 0 && --kill_in == 0;
}

static void die(void)
{
    (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}

ssize_t write(int fd, const void *data, size_t n)
{
    if (fd > 2 && disk_full) {
        errno = ENOSPC;
        return -1;
    }
    if (fd > 2 && last_call()) {
        (void)syscall(SYS_write, fd, data, n / 2);
        die();
    }
    return (ssize_t)syscall(SYS_write, fd, data, n);
}

int fsync(int fd)
{
    if (last_call())
        die();
    return fd < 0 ? -1 : 0; /* what is killed here is a process, not the machine */
}

int ftruncate(int fd, off_t n)
{
    if (last_call())
        die();
    return (int)syscall(SYS_ftruncate, fd, n);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    if (last_call())
        die();
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

/* ---- kills ---- */

enum { KILL_CTX = 512 };

/* What the k-th save holds: three times something is added, then a third is cut off. */
static int state_of(int k, int32_t tokens[KILL_CTX])
{
    int n = 0;

    for (int i = 1; i <= k; i++) {
        if (i % 4 == 0)
            n = n * 2 / 3;
        for (int more = 3 + i * 7 % 20; more > 0; more--, n++)
            tokens[n] = (i * 31 + n * 17) % 500 + 1;
    }
    return n;
}

/* In a child: goes on from what the file has, until it is killed. */
static void save_on(struct rig *rig, volatile int *done)
{
    int32_t tokens[KILL_CTX];
    struct run_session *s = open_with(rig->r);
    struct run_match m;
    struct err e = { 0 };
    size_t n_blob;
    const void *blob = run_session_blob(s, &n_blob);
    int k = 0;

    if (n_blob == sizeof k)
        memcpy(&k, blob, sizeof k);
    if (run_session_load(s, rig->r, 0, INT64_MAX, &e) != ERR_OK)
        _exit(1);
    for (;;) {
        int n = state_of(++k, tokens);

        if (run_match(rig->r, 0, tokens, n, &m, &e) != ERR_OK)
            _exit(2);
        if (run_feed(rig->r, 0, tokens + m.kept, n - m.kept, 0, NULL, NULL, NULL, &e) != ERR_OK)
            _exit(3);
        if (k % 2 == 0)
            run_mark(rig->r, 0);
        if (run_session_save(s, rig->r, 0, &k, sizeof k, &e) != ERR_OK)
            _exit(4);
        *done = k;
    }
}

/* The file holds save `least` or the next one, and it can be gone on from. */
static int check_saved(struct rig *rig, struct rig *plain, int least)
{
    int32_t tokens[KILL_CTX + 1];
    struct err e = { 0 };
    struct run_session *s;
    size_t n_blob;
    int64_t n_file;
    int k, n;

    if (least == 0 && !there())
        return 0;
    s = open_with(rig->r);
    memcpy(&k, run_session_blob(s, &n_blob), sizeof k);
    assert_int_equal(n_blob, sizeof k);
    assert_true(k == least || k == least + 1);
    n = state_of(k, tokens);
    assert_memory_equal(run_session_tokens(s, &n_file), tokens, (size_t)n * sizeof *tokens);
    assert_int_equal(n_file, n);
    ok(run_session_load(s, rig->r, 0, INT64_MAX, &e), &e);
    assert_int_equal(run_pos(rig->r, 0), n);
    run_session_close(s);
    goes_on(rig, plain, tokens, n);
    return k;
}

/* Temporaries of killed writers are theirs to leave; here they go away. */
static void sweep(void)
{
    char command[400];

    (void)snprintf(command, sizeof command, "rm -f '%s'/.s.*", dir);
    assert_int_equal(system(command), 0);
}

static void kills(void **state)
{
    long n = program_count();
    const struct run_opts o = { .ctx_tokens = KILL_CTX, .undo_tokens = 4, .checkpoint_bytes = 200000 };
    struct rig rig, plain;
    int *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long at_next = 0, unmade = 0;
    int k = 0;

    (void)state;
    assert_true(done != MAP_FAILED);
    rig_open(&rig, MODEL, 1, &o);
    rig_open(&plain, MODEL, 1, &o);
    for (long i = 0; i < n; i++) {
        uint32_t r[4];
        pid_t child;
        int status;

        rng_block(r, 5, 0, (uint64_t)i);
        *done = k;
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            kill_in = i % 2 == 0 ? 1 + (long)(r[0] % 60) : 0;
            save_on(&rig, done);
            _exit(5);
        }
        if (i % 2 == 1) {
            (void)usleep(r[0] % 20000);
            (void)kill(child, SIGKILL);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status))
            fail_msg("the child ended with status %d", WEXITSTATUS(status));
        k = check_saved(&rig, &plain, *done);
        at_next += k > *done ? 1 : 0; /* complete, but its writer did not live to know */
        unmade += k == 0 ? 1 : 0;
        if (k > 60) { /* from the beginning, so that creation is hit too */
            (void)unlink(path);
            k = 0;
        }
        sweep();
    }
    print_message("%ld kills: %ld found the old save, %ld the new one, %ld no file\n", n, n - at_next - unmade, at_next,
                  unmade);
    assert_true(n < 100 || (at_next > 0 && at_next < n)); /* both happen when there are enough */
    (void)munmap(done, sizeof *done);
    rig_close(&rig);
    rig_close(&plain);
}

/* ---- spoilt files ---- */

/* Opened and loaded a file is an earlier save, or an error with one line. */
static bool survives(struct rig *rig, struct rig *plain, int saves)
{
    int32_t tokens[KILL_CTX + 1];
    struct run_session *s = NULL;
    struct err e = { 0 };
    enum err_code code = run_session_open(&s, path, &e);
    int64_t n = 0;

    if (code == ERR_OK) {
        size_t n_blob;
        int k;

        memcpy(&k, run_session_blob(s, &n_blob), sizeof k);
        assert_int_equal(n_blob, sizeof k);
        assert_true(k >= 1 && k <= saves);
        (void)run_session_tokens(s, &n);
        assert_int_equal(n, state_of(k, tokens));
        assert_memory_equal(run_session_tokens(s, &n), tokens, (size_t)n * sizeof *tokens);
        code = run_session_attach(s, rig->r, &me, &e);
    }
    if (code == ERR_OK)
        code = run_session_load(s, rig->r, 0, INT64_MAX, &e);
    run_session_close(s);
    if (code == ERR_OK)
        goes_on(rig, plain, tokens, (int)n);
    if (code != ERR_OK && ((code != ERR_FORMAT && code != ERR_UNSUPPORTED) || strchr(e.msg, '\n') != NULL ||
                           strncmp(e.msg, path, strlen(path)) != 0))
        fail_msg("%s", e.msg);
    return code == ERR_OK;
}

static char *make_session(struct rig *rig, int saves, size_t *n)
{
    int32_t tokens[KILL_CTX];
    struct run_match m;
    struct err e = { 0 };
    char *data;

    for (int k = 1; k <= saves; k++) {
        int len = state_of(k, tokens);

        ok(run_match(rig->r, 0, tokens, len, &m, &e), &e);
        feed_to(rig, tokens, m.kept, len);
        save(rig, &k, sizeof k);
    }
    ok(io_read_all(&data, n, path, 1 << 28, NULL, &e), &e);
    return data;
}

static void spoilt(void **state)
{
    enum { SAVES = 6 };
    const char *model = "tests/golden/models/lfm2moe-a.gguf"; /* small snapshots: all parts of the file are hit */
    struct rig rig, plain;
    size_t n;
    char *data, *bent;
    long loaded = 0, tried = program_count();

    (void)state;
    rig_open(&rig, model, 1, &(struct run_opts){ .ctx_tokens = KILL_CTX });
    rig_open(&plain, model, 1, &(struct run_opts){ .ctx_tokens = KILL_CTX });
    data = make_session(&rig, SAVES, &n);
    bent = malloc(n);
    assert_non_null(bent);
    for (long i = 0; i < tried; i++) {
        uint32_t r[4];
        size_t at, len = n;

        rng_block(r, 6, 0, (uint64_t)i);
        at = r[0] % n;
        memcpy(bent, data, n);
        switch (i % 4) {
        case 0:
            bent[at] = (char)(bent[at] ^ 1 << r[1] % 8);
            break;
        case 1:
            len = at;
            break;
        case 2: /* a piece from elsewhere */
            memmove(bent + at, data + r[1] % n, 1 + r[2] % (n - (at > r[1] % n ? at : r[1] % n)));
            break;
        default: /* a hole */
            memset(bent + at, 0, 1 + r[2] % (n - at));
        }
        (void)unlink(path);
        put_file(path, bent, len);
        loaded += survives(&rig, &plain, SAVES) ? 1 : 0;
    }
    /* Most damage comes after some complete save, or is to be noticed. */
    assert_true(loaded > tried / 10 && loaded < tried);
    free(bent);
    free(data);
    rig_close(&rig);
    rig_close(&plain);
}

/* A bit of any record's header, the last commit's too: found, not taken for the end of the file; nothing is cut. */
static void damaged_headers(void **state)
{
    enum { SAVES = 3, HEADER = 256, RECORD = 64 };
    struct rig rig;
    struct stat st;
    size_t n;
    char *data;

    (void)state;
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = KILL_CTX });
    data = make_session(&rig, SAVES, &n);
    for (size_t at = HEADER, first = 0; at < n;) {
        struct run_session *s = NULL;
        struct err e = { 0 };
        uint64_t stored;

        memcpy(&stored, data + at + 32, sizeof stored); /* little-endian */
        data[at + 10] ^= 4;
        (void)unlink(path);
        put_file(path, data, n);
        assert_int_equal(run_session_open(&s, path, &e), ERR_FORMAT);
        if (first > 0 && strstr(e.msg, "damaged") == NULL)
            fail_msg("offset %zu: %s", at, e.msg);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, n);
        data[at + 10] ^= 4;
        first = at;
        at += RECORD + stored;
    }
    free(data);
    rig_close(&rig);
}

/* A file that was made, replaced or removed since it was opened: nothing of another one is lost. */
static void other_file(void **state)
{
    static const char other[] = "not yours";
    int32_t tokens[20];
    struct run_session *s;
    struct err e = { 0 };
    struct rig rig;
    char *data;
    size_t n;
    int64_t held;

    (void)state;
    fill(tokens, 20, 7);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 64 });
    feed_to(&rig, tokens, 0, 10);
    for (int began = 0; began < 2; began++) {
        (void)unlink(path);
        if (began)
            save(&rig, NULL, 0);
        s = open_with(rig.r);
        (void)unlink(path);
        put_file(path, other, sizeof other);
        assert_int_equal(run_session_save(s, rig.r, 0, NULL, 0, &e), ERR_IO);
        run_session_close(s);
        ok(io_read_all(&data, &n, path, 1 << 20, NULL, &e), &e);
        assert_int_equal(n, sizeof other);
        free(data);
    }
    (void)unlink(path);
    save(&rig, NULL, 0);
    s = open_with(rig.r);
    (void)unlink(path);
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
    assert_true(run_session_stat(s).removed);
    run_session_close(s);
    s = open_with(rig.r);
    (void)run_session_tokens(s, &held);
    assert_int_equal(held, 10);
    run_session_close(s);
    /* an empty file is a new session */
    (void)unlink(path);
    put_file(path, "", 0);
    save(&rig, NULL, 0);
    s = open_with(rig.r);
    (void)run_session_tokens(s, &held);
    assert_int_equal(held, 10);
    run_session_close(s);
    rig_close(&rig);
}

/* Records that are whole but stand where they were not written do not count. */
static void misplaced_records(void **state)
{
    struct rig rig;
    struct stat st;
    int32_t tokens[60];
    struct err e = { 0 };
    char *data;
    size_t n;
    off_t first;
    int64_t held;

    (void)state;
    fill(tokens, 60, 7);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 64 });
    feed_to(&rig, tokens, 0, 20);
    save(&rig, NULL, 0);
    assert_int_equal(stat(path, &st), 0);
    first = st.st_size;
    feed_to(&rig, tokens, 20, 40);
    save(&rig, NULL, 0);
    ok(io_read_all(&data, &n, path, 1 << 28, NULL, &e), &e);
    /* The second save of another session of 20 tokens, behind the first of this one. */
    tokens[3]++;
    run_clear(rig.r, 0);
    (void)unlink(path);
    feed_to(&rig, tokens, 0, 20);
    save(&rig, NULL, 0);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    assert_int_equal(fwrite(data + first, 1, n - (size_t)first, f), n - (size_t)first);
    assert_int_equal(fclose(f), 0);
    struct run_session *s = open_with(rig.r);
    (void)run_session_tokens(s, &held);
    assert_int_equal(held, 20);
    run_session_close(s);
    free(data);
    rig_close(&rig);
}

/* What a killed writer left is cut off by the next save. */
static void torn_tail(void **state)
{
    static const char junk[100000] = "not a record";
    int32_t tokens[30];
    struct err e = { 0 };
    struct run_session *s;
    struct stat st;
    struct rig rig;
    FILE *f;
    int64_t n;

    (void)state;
    fill(tokens, 30, 7);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 64 });
    feed_to(&rig, tokens, 0, 10);
    save(&rig, NULL, 0);
    f = fopen(path, "a");
    assert_non_null(f);
    assert_int_equal(fwrite(junk, 1, sizeof junk, f), sizeof junk);
    assert_int_equal(fclose(f), 0);
    s = open_with(rig.r);
    (void)run_session_tokens(s, &n);
    assert_int_equal(n, 10);
    feed_to(&rig, tokens, 10, 20);
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, run_session_stat(s).file_bytes);
    (void)run_session_tokens(s, &n);
    assert_int_equal(n, 20);
    run_session_close(s);
    rig_close(&rig);
}

/* A full disk: the save fails, the file is what it was, and the next save works. */
static void full_disk(void **state)
{
    int32_t tokens[40];
    struct err e = { 0 };
    struct run_session *s;
    struct stat st;
    struct rig rig;
    int64_t n;

    (void)state;
    fill(tokens, 40, 11);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 64 });
    s = open_with(rig.r);
    feed_to(&rig, tokens, 0, 10);
    disk_full = true;
    assert_int_equal(run_session_save(s, rig.r, 0, NULL, 0, &e), ERR_IO);
    assert_false(there());
    disk_full = false;
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
    assert_true(run_session_stat(s).rewritten);
    feed_to(&rig, tokens, 10, 40);
    disk_full = true;
    assert_int_equal(run_session_save(s, rig.r, 0, NULL, 0, &e), ERR_IO);
    says(&e, path);
    disk_full = false;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, run_session_stat(s).file_bytes);
    (void)run_session_tokens(s, &n);
    assert_int_equal(n, 10);
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
    assert_false(run_session_stat(s).rewritten);
    (void)run_session_tokens(s, &n);
    assert_int_equal(n, 40);
    run_session_close(s);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(torn_tail), IN_DIR(damaged_headers),   IN_DIR(other_file), IN_DIR(full_disk),
        IN_DIR(spoilt),    IN_DIR(misplaced_records), IN_DIR(kills),
    };

    return cmocka_run_group_tests_name("session_harm", tests, NULL, NULL);
}
