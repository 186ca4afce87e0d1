/* SPDX-License-Identifier: Apache-2.0 */
/* base_test.c - the room base: errors, arena, files, threads, processor features, random numbers,
 * JSON. Files are made in a fresh directory under TMPDIR, which must be empty again after each
 * test: that is how a forgotten temporary shows. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/arena.h"
#include "base/base.h"
#include "base/cpus.h"
#include "base/io.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/simd.h"

static char dir[256];

static int dir_make(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/base_test.XXXXXX", tmp != NULL ? tmp : "/tmp");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int dir_remove(void **state)
{
    (void)state;
    return rmdir(dir); /* fails when something is left */
}

static const char *in_dir(char *buf, const char *name)
{
    assert_true(snprintf(buf, 512, "%s/%s", dir, name) < 512);
    return buf;
}

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void assert_file(const char *path, const char *want)
{
    char *data = NULL;
    size_t n = 0;
    struct err e;
    assert_int_equal(io_read_all(&data, &n, path, 1 << 20, &e), ERR_OK);
    assert_int_equal(n, strlen(want));
    assert_string_equal(data, want);
    free(data);
}

static void assert_says(const struct err *e, const char *part)
{
    if (strstr(e->msg, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", e->msg, part);
    }
}

/* ---- strings and errors ---- */

static void test_str(void **state)
{
    (void)state;
    assert_int_equal(str_of("abc").n, 3);
    assert_int_equal(STR("abc").n, 3);
    assert_true(str_eq(STR("abc"), str_of("abc")));
    assert_false(str_eq(STR("abc"), STR("abd")));
    assert_false(str_eq(STR("abc"), STR("ab")));
    assert_true(str_eq((struct str){ NULL, 0 }, STR("")));
    assert_true(str_is(STR("x"), "x"));
    assert_false(str_is(STR("x\0y"), "x"));
}

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t      len;
    } cases[] = {
        { "", 0 },          { "a", 1 },         { "\x7f", 1 },         { "\x80", 0 },
        { "\xc2\x80", 2 },  { "\xc1\xbf", 0 },  { "\xc3", 0 },         { "\xc3(", 0 },
        { "\xe0\xa0\x80", 3 }, { "\xe0\x9f\xbf", 0 }, { "\xed\x9f\xbf", 3 }, { "\xed\xa0\x80", 0 },
        { "\xef\xbf\xbf", 3 }, { "\xe2\x82", 0 }, { "\xe2\x82(", 0 },
        { "\xf0\x90\x80\x80", 4 }, { "\xf0\x8f\xbf\xbf", 0 }, { "\xf4\x8f\xbf\xbf", 4 },
        { "\xf4\x90\x80\x80", 0 }, { "\xf5\x80\x80\x80", 0 }, { "\xff", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(str_utf8(str_of(cases[i].text)), cases[i].len);
    }
    assert_int_equal(str_utf8((struct str){ "", 1 }), 1); /* NUL is a character */
}

static void test_err(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(err_set(&e, ERR_ARG, "%d is %s", 7, "odd"), ERR_ARG);
    assert_int_equal(e.code, ERR_ARG);
    assert_string_equal(e.msg, "7 is odd");
    assert_int_equal(err_wrap(&e, "file %s", "f"), ERR_ARG);
    assert_string_equal(e.msg, "file f: 7 is odd");
    assert_int_equal(err_set(&e, ERR_IO, "again: %s", e.msg), ERR_IO);
    assert_string_equal(e.msg, "again: file f: 7 is odd");
    assert_int_equal(err_errno(&e, ERR_IO, ENOENT, "f: cannot open"), ERR_IO);
    assert_string_equal(e.msg, "f: cannot open: No such file or directory");
    assert_int_equal(err_set(NULL, ERR_LIMIT, "x"), ERR_LIMIT);
    assert_int_equal(err_errno(NULL, ERR_NOMEM, ENOENT, "x"), ERR_NOMEM);
}

static void test_err_cleans(void **state)
{
    (void)state;
    struct err e;
    err_set(&e, ERR_FORMAT, "a\nb\x1b[1m\xff \xc2\x9b \xc3\xa9 \xe2\x82\xac");
    assert_string_equal(e.msg, "a?b?[1m? ? \xc3\xa9 \xe2\x82\xac");
    char text[2000];
    for (size_t i = 0; i + 2 < sizeof text; i += 2) {
        memcpy(text + i, "\xc3\xa9", 2);
    }
    text[sizeof text - 2] = '\0';
    err_set(&e, ERR_FORMAT, "%s", text);
    assert_int_equal(strlen(e.msg), 510); /* 511 would cut a character in two */
    err_wrap(&e, "context");
    assert_int_equal(strncmp(e.msg, "context: \xc3", 10), 0);
    assert_true(strlen(e.msg) < sizeof e.msg);
    err_wrap(&e, "%s", text);
    assert_int_equal(strlen(e.msg), 510);
}

static bool tick_stop(void *ctx, uint64_t done, uint64_t total)
{
    *(uint64_t *)ctx = total;
    return done < 5;
}

static void test_progress(void **state)
{
    (void)state;
    uint64_t seen = 0;
    struct progress none = { NULL, NULL };
    struct progress p = { tick_stop, &seen };
    assert_true(progress_tick(NULL, 1, 2));
    assert_true(progress_tick(&none, 1, 2));
    assert_true(progress_tick(&p, 4, 9));
    assert_int_equal(seen, 9);
    assert_false(progress_tick(&p, 5, 9));
}

/* ---- arena ---- */

static void test_arena(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    struct arena a = { 0 };
    unsigned char *p[COUNT];
    size_t total = 0;
    for (size_t i = 0; i < COUNT; i++) {
        size_t n = i % 500 == 499 ? 100000 : i % 97;
        p[i] = arena_alloc(&a, n);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(p[i][k], 0);
        }
        memset(p[i], (int)(i % 251), n);
        total += n;
        assert_int_equal(a.used_bytes, total);
    }
    for (size_t i = 0; i < COUNT; i++) { /* nothing overlaps, nothing moved */
        size_t n = i % 500 == 499 ? 100000 : i % 97;
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(p[i][k], i % 251);
        }
    }
    arena_free(&a);
    assert_null(a.head);
    assert_int_equal(a.used_bytes, 0);
    assert_non_null(arena_alloc(&a, 1));
    arena_free(&a);
    arena_free(&a);
}

static void test_arena_edges(void **state)
{
    (void)state;
    struct arena a = { 0 };
    void *zero = arena_alloc(&a, 0);
    assert_non_null(zero);
    assert_ptr_not_equal(zero, arena_alloc(&a, 0));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 64));
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_non_null(arena_array(&a, 0, 8));
    assert_non_null(arena_array(&a, 8, 0));
    assert_non_null(arena_array(&a, 10, 8));
    assert_int_equal(a.used_bytes, 80);
    char *z = arena_strdup(&a, (struct str){ "abcdef", 3 });
    assert_string_equal(z, "abc");
    assert_string_equal(arena_strdup(&a, (struct str){ NULL, 0 }), "");
    assert_null(arena_strdup(&a, (struct str){ "x", SIZE_MAX }));
    arena_free(&a);
}

/* ---- files: reading ---- */

static void test_map(void **state)
{
    (void)state;
    char path[512];
    struct err e;
    struct io_map m = { NULL, 7 };
    assert_int_equal(io_map_open(&m, in_dir(path, "none"), &e), ERR_IO);
    assert_says(&e, "none: cannot open: No such file");
    assert_int_equal(m.size, 7); /* untouched */
    assert_int_equal(io_map_open(&m, dir, &e), ERR_IO);
    assert_says(&e, "is a directory");
    assert_int_equal(io_map_open(&m, "/dev/null", NULL), ERR_IO);
    assert_int_equal(mkfifo(in_dir(path, "fifo"), 0600), 0);
    assert_int_equal(io_map_open(&m, path, &e), ERR_IO); /* and does not wait for a writer */
    assert_says(&e, "not a regular file");
    unlink(path);

    put_file(in_dir(path, "f"), "hello");
    assert_int_equal(io_map_open(&m, path, &e), ERR_OK);
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "hello", 5);
    io_map_close(&m);
    assert_null(m.data);
    io_map_close(&m);
    put_file(path, "");
    assert_int_equal(io_map_open(&m, path, &e), ERR_OK);
    assert_null(m.data);
    assert_int_equal(m.size, 0);
    io_map_close(&m);
    unlink(path);
}

static void test_read_all(void **state)
{
    (void)state;
    char path[512];
    struct err e;
    char *data = NULL;
    size_t n = 99;
    put_file(in_dir(path, "f"), "12345");
    assert_int_equal(io_read_all(&data, &n, path, 4, &e), ERR_LIMIT);
    assert_says(&e, "longer than 4 bytes");
    assert_null(data);
    assert_int_equal(n, 99);
    assert_int_equal(io_read_all(&data, &n, path, 5, &e), ERR_OK); /* exactly the limit */
    assert_string_equal(data, "12345");
    free(data);
    assert_int_equal(io_read_all(&data, &n, path, SIZE_MAX, &e), ERR_OK);
    assert_int_equal(n, 5);
    free(data);
    put_file(path, "");
    assert_int_equal(io_read_all(&data, &n, path, 0, &e), ERR_OK);
    assert_int_equal(n, 0);
    assert_string_equal(data, "");
    free(data);
    unlink(path);
    assert_int_equal(io_read_all(&data, &n, path, 9, &e), ERR_IO);
    assert_says(&e, "cannot open");
    assert_int_equal(io_read_all(&data, &n, dir, 9, &e), ERR_IO);
    assert_says(&e, "Is a directory");
    assert_int_equal(io_read_all(&data, &n, dir, 9, NULL), ERR_IO);
    assert_int_equal(io_read_all(&data, &n, "/dev/zero", 100000, &e), ERR_LIMIT);
}

enum { PIPED_BYTES = 300000 };

struct feed {
    int    fd;
    size_t n_bytes;
};

static void *feed_main(void *arg)
{
    struct feed *f = arg;
    char *text = malloc(f->n_bytes);
    struct err e;
    if (text != NULL) {
        for (size_t i = 0; i < f->n_bytes; i++) {
            text[i] = (char)('a' + i % 23);
        }
        if (io_write_all(f->fd, text, f->n_bytes, &e) != ERR_OK) {
            free(text);
            text = NULL;
        }
    }
    free(text);
    close(f->fd);
    return text == NULL ? f : NULL;
}

/* A pipe is shorter than the data, and both its ends do not block: short reads and writes and
 * EAGAIN all happen. */
static void test_stdin_pipe(void **state)
{
    (void)state;
    int fds[2];
    int saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
    assert_true(dup2(fds[0], STDIN_FILENO) >= 0);
    close(fds[0]);
    struct feed f = { fds[1], PIPED_BYTES };
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, feed_main, &f), 0);
    char *data = NULL;
    size_t n = 0;
    struct err e;
    enum err_code rc = io_read_all(&data, &n, "-", 1 << 20, &e);
    void *failed = NULL;
    pthread_join(t, &failed);
    assert_int_equal(rc, ERR_OK);
    assert_null(failed);
    assert_int_equal(n, PIPED_BYTES);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(data[i], 'a' + i % 23);
    }
    assert_int_equal(data[n], 0);
    free(data);
    dup2(saved, STDIN_FILENO);
    close(saved);
}

static void test_stdin_file(void **state)
{
    (void)state;
    char path[512];
    put_file(in_dir(path, "f"), "0123456789");
    int saved = dup(STDIN_FILENO);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(lseek(fd, 4, SEEK_SET), 4);
    dup2(fd, STDIN_FILENO);
    close(fd);
    char *data = NULL;
    size_t n = 0;
    struct err e;
    enum err_code rc = io_read_all(&data, &n, "-", 6, &e);
    assert_int_equal(rc, ERR_OK);
    assert_string_equal(data, "456789");
    free(data);
    lseek(STDIN_FILENO, 0, SEEK_SET);
    assert_int_equal(io_read_all(&data, &n, "-", 6, &e), ERR_LIMIT);
    assert_says(&e, "standard input: longer");
    dup2(saved, STDIN_FILENO);
    close(saved);
    unlink(path);
}

/* ---- files: writing ---- */

static void test_write_all(void **state)
{
    (void)state;
    struct err e;
    int fd = open("/dev/full", O_WRONLY);
    if (fd >= 0) {
        assert_int_equal(io_write_all(fd, "x", 1, &e), ERR_IO);
        assert_says(&e, "No space left on device");
        assert_int_equal(io_write_all(fd, NULL, 0, &e), ERR_OK);
        close(fd);
    }
    assert_int_equal(io_write_all(-1, "x", 1, &e), ERR_IO);
    assert_int_equal(io_write_all(-1, "x", 1, NULL), ERR_IO);
}

static struct io_out *out_open(const char *path)
{
    struct io_out *o = NULL;
    struct err e = { ERR_OK, "" };
    if (io_out_open(&o, path, &e) != ERR_OK) {
        fail_msg("%s", e.msg);
    }
    return o;
}

static void test_out(void **state)
{
    (void)state;
    char path[512];
    struct err e;
    struct io_out *o = out_open(in_dir(path, "f"));
    assert_int_equal(access(path, F_OK), -1); /* not there before it is complete */
    assert_int_equal(io_out_write(o, "hello ", 6, &e), ERR_OK);
    assert_int_equal(io_out_write(o, NULL, 0, &e), ERR_OK);
    assert_int_equal(io_out_write(o, "world", 5, &e), ERR_OK);
    assert_int_equal(io_out_pos(o), 11);
    assert_int_equal(io_out_patch(o, 0, "J", 1, &e), ERR_OK);
    assert_int_equal(io_out_write(o, "!", 1, &e), ERR_OK);
    assert_int_equal(io_out_patch(o, 11, "?", 1, &e), ERR_OK);
    assert_int_equal(io_out_pos(o), 12);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(io_out_commit(o, &e), ERR_OK);
    assert_file(path, "Jello world?");

    assert_int_equal(chmod(path, 0640), 0);
    o = out_open(path);
    assert_int_equal(io_out_write(o, "new", 3, &e), ERR_OK);
    assert_file(path, "Jello world?");
    io_out_abort(o);
    assert_file(path, "Jello world?");
    o = out_open(path);
    assert_int_equal(io_out_write(o, "new", 3, &e), ERR_OK);
    assert_int_equal(io_out_commit(o, &e), ERR_OK);
    assert_file(path, "new");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640); /* a replaced file keeps its mode */
    io_out_abort(NULL);
    unlink(path);
}

/* Sizes around the buffer's, so that buffered and direct writes meet in all orders. */
static void test_out_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 65535, 65536, 65537, 3, 200000, 0, 65533, 5, 131072 };
    enum { TOTAL = 1 + 65535 + 65536 + 65537 + 3 + 200000 + 65533 + 5 + 131072 };
    char path[512];
    struct err e;
    char *want = malloc(TOTAL);
    assert_non_null(want);
    for (size_t i = 0; i < TOTAL; i++) {
        want[i] = (char)(i * 31 % 127);
    }
    struct io_out *o = out_open(in_dir(path, "f"));
    size_t at = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(io_out_write(o, want + at, sizes[i], &e), ERR_OK);
        at += sizes[i];
    }
    memcpy(want + 65530, "PATCHED", 7);
    assert_int_equal(io_out_patch(o, 65530, "PATCHED", 7, &e), ERR_OK);
    assert_int_equal(io_out_commit(o, &e), ERR_OK);
    struct io_map m;
    assert_int_equal(io_map_open(&m, path, &e), ERR_OK);
    assert_int_equal(m.size, TOTAL);
    assert_memory_equal(m.data, want, TOTAL);
    io_map_close(&m);
    free(want);
    unlink(path);
}

static void test_out_two(void **state)
{
    (void)state;
    char path[512];
    struct err e;
    struct io_out *a = out_open(in_dir(path, "f")); /* two writers of one name do not mix */
    struct io_out *b = out_open(path);
    assert_int_equal(io_out_write(a, "aaa", 3, &e), ERR_OK);
    assert_int_equal(io_out_write(b, "b", 1, &e), ERR_OK);
    assert_int_equal(io_out_commit(a, &e), ERR_OK);
    assert_file(path, "aaa");
    assert_int_equal(io_out_commit(b, &e), ERR_OK);
    assert_file(path, "b");
    unlink(path);
    assert_int_equal(chdir(dir), 0); /* a name without a directory; restored below */
    a = out_open("plain");
    assert_int_equal(io_out_commit(a, &e), ERR_OK);
    assert_file("plain", "");
    unlink("plain");
}

static void test_out_keeps_cwd(void **state)
{
    int here = open(".", O_RDONLY);
    assert_true(here >= 0);
    test_out_two(state);
    assert_int_equal(fchdir(here), 0);
    close(here);
}

static void test_out_targets(void **state)
{
    (void)state;
    char path[512], link_path[512];
    struct err e;
    struct io_out *o = NULL;
    assert_int_equal(io_out_open(&o, "/dev/null", &e), ERR_IO);
    assert_says(&e, "not a regular file");
    assert_int_equal(io_out_open(&o, dir, &e), ERR_IO);
    assert_int_equal(io_out_open(&o, in_dir(path, "none/f"), &e), ERR_IO);
    assert_int_equal(io_out_open(&o, in_dir(path, "none/"), &e), ERR_IO);
    assert_int_equal(io_out_open(&o, "", &e), ERR_IO);
    assert_int_equal(io_out_open(&o, "", NULL), ERR_IO);
    put_file(in_dir(path, "f"), "x");
    assert_int_equal(io_out_open(&o, in_dir(link_path, "f/g"), &e), ERR_IO);
    assert_null(o);

    in_dir(link_path, "l");
    assert_int_equal(symlink("f", link_path), 0);
    o = out_open(link_path);
    assert_int_equal(io_out_write(o, "through", 7, &e), ERR_OK);
    assert_int_equal(io_out_commit(o, &e), ERR_OK);
    struct stat st;
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_file(path, "through");
    unlink(path);
    assert_int_equal(io_out_open(&o, link_path, &e), ERR_IO);
    assert_says(&e, "leads nowhere");
    unlink(link_path);
    char long_name[300];
    memset(long_name, 'n', 255);
    long_name[255] = '\0';
    o = out_open(in_dir(path, long_name)); /* the longest name leaves room for the temporary's */
    assert_int_equal(io_out_commit(o, &e), ERR_OK);
    unlink(path);
}

static void test_out_read_only_dir(void **state)
{
    (void)state;
    char path[512];
    struct err e;
    struct io_out *o = NULL;
    bool root = geteuid() == 0;
    assert_int_equal(chmod(dir, 0555), 0);
    if (root) {
        assert_int_equal(seteuid(65534), 0); /* root may write anywhere */
    }
    enum err_code rc = io_out_open(&o, in_dir(path, "f"), &e);
    if (root) {
        assert_int_equal(seteuid(0), 0);
    }
    assert_int_equal(chmod(dir, 0700), 0);
    assert_int_equal(rc, ERR_IO);
    assert_says(&e, "Permission denied");
}

/* A file size limit stands in for a full disk: the write fails half way. */
static void test_out_no_space(void **state)
{
    (void)state;
    char path[512];
    struct err e, e2;
    struct rlimit before, small;
    put_file(in_dir(path, "f"), "old");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    char *zeros = calloc(1, 80000);
    assert_non_null(zeros);
    struct io_out *o = out_open(path);
    struct io_out *late = out_open(path);
    struct io_out *patched = out_open(path);
    assert_int_equal(io_out_write(late, zeros, 60000, &e), ERR_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum err_code first = io_out_write(o, zeros, 80000, &e);
    enum err_code second = io_out_write(o, zeros, 80000, &e);
    enum err_code third = io_out_commit(o, &e2);
    small.rlim_cur = 10;
    setrlimit(RLIMIT_FSIZE, &small);
    enum err_code buffered = io_out_commit(late, NULL); /* fails only when the buffer is flushed */
    enum err_code fill = io_out_write(patched, zeros, 100, NULL);
    enum err_code patch = io_out_patch(patched, 0, "x", 1, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    enum err_code after = io_out_patch(patched, 0, "x", 1, NULL);
    io_out_abort(patched);
    free(zeros);
    assert_int_equal(first, ERR_OK);
    assert_int_equal(second, ERR_IO);
    assert_says(&e, "f: cannot write: File too large");
    assert_int_equal(third, ERR_IO); /* a file with a hole never gets its name */
    assert_says(&e2, "earlier write failed");
    assert_int_equal(buffered, ERR_IO);
    assert_int_equal(fill, ERR_OK);
    assert_int_equal(patch, ERR_IO);
    assert_int_equal(after, ERR_IO);
    assert_file(path, "old");
    unlink(path); /* and the directory is empty: dir_remove checks */
}

static void test_out_rename_fails(void **state)
{
    (void)state;
    char path[512];
    struct err e;
    struct io_out *o = out_open(in_dir(path, "f"));
    assert_int_equal(mkdir(path, 0700), 0); /* the name is taken meanwhile */
    assert_int_equal(io_out_commit(o, &e), ERR_IO);
    assert_says(&e, "cannot rename");
    assert_int_equal(rmdir(path), 0);
}

/* A process that dies before commit leaves the old file; what it may leave beside it is hidden. */
static void test_out_killed(void **state)
{
    (void)state;
    char path[512], command[600];
    put_file(in_dir(path, "f"), "old");
    pid_t child = fork();
    if (child == 0) {
        struct io_out *o = NULL;
        if (io_out_open(&o, path, NULL) == ERR_OK && io_out_write(o, "half", 4, NULL) == ERR_OK) {
            kill(getpid(), SIGKILL);
        }
        _exit(1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_file(path, "old");
    snprintf(command, sizeof command, "%s/.f.%ld-0.tmp", dir, (long)child);
    assert_int_equal(unlink(command), 0);
    unlink(path);
}

/* ---- threads ---- */

struct sums {
    double     *out;
    atomic_uint *seen;
    int         n_threads;
    atomic_bool bad;
};

static void sums_run(void *ctx, int64_t begin, int64_t end, int worker)
{
    struct sums *s = ctx;
    if (worker < 0 || worker >= s->n_threads || begin >= end) {
        atomic_store(&s->bad, true);
    }
    for (int64_t i = begin; i < end; i++) {
        double sum = 0;
        for (int k = 1; k <= 5; k++) {
            sum += sin((double)i) / k;
        }
        s->out[i] = sum; /* plain: a race here is what the thread sanitizer looks for */
        atomic_fetch_add(&s->seen[i], 1);
    }
}

static void test_pool_results(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000 };
    static const int64_t grains[] = { 1, 2, 3, 8, 64, 999, 1000, 1001, INT64_MAX };
    enum { MAX = 1000 };
    static double out[MAX], want[MAX];
    static atomic_uint seen[MAX];
    struct err e;
    for (int n_threads = 1; n_threads <= 8; n_threads++) {
        struct pool *p = NULL;
        assert_int_equal(pool_open(&p, n_threads, &e), ERR_OK);
        assert_int_equal(pool_size(p), n_threads);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++) {
                struct sums s = { out, seen, n_threads, false };
                for (int64_t k = 0; k < MAX; k++) {
                    out[k] = -99;
                    atomic_store(&seen[k], 0);
                }
                pool_for(p, sizes[i], grains[g], sums_run, &s);
                assert_false(atomic_load(&s.bad));
                for (int64_t k = 0; k < MAX; k++) {
                    assert_int_equal(atomic_load(&seen[k]), k < sizes[i]);
                }
                if (n_threads == 1 && sizes[i] == MAX && g == 0) {
                    memcpy(want, out, sizeof want);
                }
                assert_memory_equal(out, n_threads == 1 && sizes[i] < MAX ? out : want,
                                    (size_t)sizes[i] * sizeof out[0]);
            }
        }
        pool_close(p);
    }
}

struct pieces {
    int64_t n_items, grain;
    atomic_bool bad;
};

static void pieces_run(void *ctx, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    struct pieces *s = ctx;
    int64_t want = s->n_items - begin < s->grain ? s->n_items - begin : s->grain;
    if (begin % s->grain != 0 || end - begin != want) {
        atomic_store(&s->bad, true);
    }
}

static void test_pool_pieces(void **state)
{
    (void)state;
    struct err e;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct pool *p = NULL;
        assert_int_equal(pool_open(&p, n_threads, &e), ERR_OK);
        static const int64_t cases[][2] = {
            { 100, 7 },
            { 100, 100 },
            { 100, 101 },
            { INT64_MAX, INT64_MAX / 4 },
            { INT64_MAX, INT64_MAX },
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct pieces s = { cases[i][0], cases[i][1], false };
            pool_for(p, s.n_items, s.grain, pieces_run, &s);
            assert_false(atomic_load(&s.bad));
        }
        pool_close(p);
    }
}

static void count_run(void *ctx, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    int64_t *count = ctx;
    for (int64_t i = begin; i < end; i++) {
        count[i]++;
    }
}

static void test_pool_tiny(void **state)
{
    (void)state;
    static const int threads[] = { 2, 3, 8 };
    struct err e;
    for (size_t t = 0; t < 3; t++) {
        struct pool *p = NULL;
        int64_t count[9] = { 0 };
        int64_t want[9] = { 0 };
        assert_int_equal(pool_open(&p, threads[t], &e), ERR_OK);
        for (int i = 0; i < 100000; i++) {
            int64_t n = i % 10;
            pool_for(p, n, 1, count_run, count);
            for (int64_t k = 0; k < n; k++) {
                want[k]++;
            }
        }
        pool_close(p);
        assert_memory_equal(count, want, sizeof want);
    }
}

struct meeting {
    atomic_int arrived;
    int        n_threads;
    atomic_int masked;
};

/* Ends only if every worker takes one piece: a wake-up that gets lost would hang here. */
static void meeting_run(void *ctx, int64_t begin, int64_t end, int worker)
{
    (void)begin;
    (void)end;
    struct meeting *m = ctx;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    if (worker != 0 && sigismember(&set, SIGINT) && !sigismember(&set, SIGBUS)) {
        atomic_fetch_add(&m->masked, 1);
    }
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->n_threads) {
        sched_yield();
    }
}

static void test_pool_wakes(void **state)
{
    (void)state;
    struct err e;
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        struct pool *p = NULL;
        assert_int_equal(pool_open(&p, n_threads, &e), ERR_OK);
        for (int i = 0; i < 200; i++) {
            struct meeting m = { 0, n_threads, 0 };
            if (i % 20 == 0) {
                usleep(1000); /* lets the workers fall asleep; the outcome does not depend on it */
            }
            pool_for(p, n_threads, 1, meeting_run, &m);
            assert_int_equal(atomic_load(&m.masked), n_threads - 1);
        }
        pool_close(p);
    }
}

static void test_pool_open(void **state)
{
    (void)state;
    struct err e;
    struct pool *p = NULL;
    assert_int_equal(pool_open(&p, 0, &e), ERR_ARG);
    assert_int_equal(pool_open(&p, -3, &e), ERR_ARG);
    assert_int_equal(pool_open(&p, 513, &e), ERR_ARG);
    assert_says(&e, "513 threads");
    assert_null(p);
    pool_close(NULL);
    assert_int_equal(pool_open(&p, 512, &e), ERR_OK);
    pool_close(p);
}

static void quota_file(const char *name, const char *text)
{
    char path[512];
    in_dir(path, name);
    for (char *s = strchr(path + strlen(dir) + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        *s = '\0';
        mkdir(path, 0700);
        *s = '/';
    }
    if (text != NULL) {
        put_file(path, text);
    } else {
        unlink(path);
        for (char *s = strrchr(path, '/'); s > path + strlen(dir); s = strrchr(path, '/')) {
            *s = '\0';
            rmdir(path);
        }
    }
}

static void test_quota(void **state)
{
    (void)state;
    static const char self[] = "proc/self/cgroup";
    static const char v2_leaf[] = "sys/fs/cgroup/a/b/cpu.max";
    static const char v2_top[] = "sys/fs/cgroup/a/cpu.max";
    static const char v1_quota[] = "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us";
    static const char v1_period[] = "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us";
    assert_int_equal(pool_quota_cpus(dir), 0); /* no /proc at all */
    quota_file(self, "0::/a/b\n");
    assert_int_equal(pool_quota_cpus(dir), 0);
    quota_file(v2_leaf, "max 100000\n");
    assert_int_equal(pool_quota_cpus(dir), 0);
    quota_file(v2_leaf, "250000 100000\n");
    assert_int_equal(pool_quota_cpus(dir), 3);
    quota_file(v2_top, "100000 100000\n"); /* an ancestor's limit holds too */
    assert_int_equal(pool_quota_cpus(dir), 1);
    quota_file(v2_top, "800000 100000\n");
    assert_int_equal(pool_quota_cpus(dir), 3);
    quota_file(v2_leaf, "1 100000\n");
    assert_int_equal(pool_quota_cpus(dir), 1);
    quota_file(v2_leaf, "-5 0\n");
    assert_int_equal(pool_quota_cpus(dir), 8);
    quota_file(v2_leaf, "99999999999999999999999 1");
    assert_int_equal(pool_quota_cpus(dir), 8);
    quota_file(self, "garbage\n\n:\n::\n0::relative\n1:cpuset:/a/b\n");
    assert_int_equal(pool_quota_cpus(dir), 0);

    quota_file(self, "7:cpuacct,cpu:/not/visible\n0::/\n");
    quota_file(v1_quota, "-1\n");
    quota_file(v1_period, "100000\n");
    assert_int_equal(pool_quota_cpus(dir), 0);
    quota_file(v1_quota, "200000\n");
    assert_int_equal(pool_quota_cpus(dir), 2);
    quota_file(v1_period, NULL);
    assert_int_equal(pool_quota_cpus(dir), 0);
    quota_file(v1_quota, NULL);
    quota_file(v2_leaf, NULL);
    quota_file(v2_top, NULL);
    quota_file(self, NULL);
    assert_true(pool_cpus() >= 1);
}

static void test_cpus_affinity(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        char one[64];
        snprintf(one, sizeof one, "taskset -p -c 0 %ld >/dev/null 2>&1", (long)getpid());
        _exit(system(one) != 0 ? 77 : pool_cpus() == 1 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        skip(); /* no taskset, or processor 0 is not ours */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- processor features ---- */

static void test_simd(void **state)
{
    (void)state;
    const char *set = getenv("CHIMERE_TEST_SIMD");
    char *before = set != NULL ? strdup(set) : NULL;
    assert_int_equal(setenv("CHIMERE_TEST_SIMD", "all", 1), 0);
    unsigned all = simd_features();
    if (all != 0) {
        assert_true(all & SIMD_AVX2);
    }
    if (all & (SIMD_AVX512_VNNI | SIMD_AVX512_BF16)) {
        assert_true(all & SIMD_AVX512);
    }
    setenv("CHIMERE_TEST_SIMD", "none", 1);
    assert_int_equal(simd_features(), 0);
    setenv("CHIMERE_TEST_SIMD", "avx2", 1);
    assert_int_equal(simd_features(), all & SIMD_AVX2);
    setenv("CHIMERE_TEST_SIMD", "avx512", 1);
    assert_int_equal(simd_features(), all & (SIMD_AVX2 | SIMD_AVX512));
    setenv("CHIMERE_TEST_SIMD", "vnni", 1);
    assert_int_equal(simd_features(),
                     all & (SIMD_AVX2 | SIMD_AVX512 | SIMD_AVX512_VNNI | SIMD_AVX_VNNI));
    unsetenv("CHIMERE_TEST_SIMD");
    assert_int_equal(simd_features(), all);
    if (before != NULL) {
        setenv("CHIMERE_TEST_SIMD", before, 1);
        free(before);
    }
}

/* What we say must be what the kernel says, where it says it. */
static void test_simd_kernel(void **state)
{
    (void)state;
    static const struct {
        unsigned    bit;
        const char *flag;
    } flags[] = {
        { SIMD_AVX2, " avx2 " },
        { SIMD_AVX512, " avx512bw " },
        { SIMD_AVX512_VNNI, " avx512_vnni " },
        { SIMD_AVX_VNNI, " avx_vnni " },
        { SIMD_AVX512_BF16, " avx512_bf16 " },
        { SIMD_AMX_INT8, " amx_int8 " },
        { SIMD_AMX_BF16, " amx_bf16 " },
    };
    char *text = NULL;
    size_t n = 0;
    if (getenv("CHIMERE_TEST_SIMD") != NULL ||
        io_read_all(&text, &n, "/proc/cpuinfo", 64 << 20, NULL) != ERR_OK) {
        skip();
    }
    char *line = strstr(text, "\nflags");
    char *end = line != NULL ? strchr(line + 1, '\n') : NULL;
    if (end == NULL) {
        free(text);
        skip();
    }
    *end = ' '; /* the last flag has a space behind it too */
    end[1] = '\0';
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        bool listed = strstr(line, flags[i].flag) != NULL;
        assert_int_equal((simd_features() & flags[i].bit) != 0, listed);
    }
    free(text);
}

static void test_simd_names(void **state)
{
    (void)state;
    char buf[64];
    assert_string_equal(simd_names(0, buf, sizeof buf), "");
    assert_string_equal(simd_names(SIMD_AVX2 | SIMD_AVX512_VNNI, buf, sizeof buf), "avx2 vnni");
    assert_string_equal(simd_names(~0u, buf, sizeof buf),
                        "avx2 avx512 vnni avxvnni avx512bf16 amxint8 amxbf16");
    assert_string_equal(simd_names(~0u, buf, 12), "avx2 avx512");
    assert_string_equal(simd_names(~0u, buf, 11), "avx2");
    assert_string_equal(simd_names(~0u, buf, 1), "");
}

/* ---- random numbers ---- */

/* Known answers published with the Random123 library (kat_vectors, philox4x32 10). */
static void test_rng_known(void **state)
{
    (void)state;
    uint32_t x[4];
    static const uint32_t zeros[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
    static const uint32_t ones[4] = { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd };
    static const uint32_t pi[4] = { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 };
    rng_block(x, 0, 0, 0);
    assert_memory_equal(x, zeros, sizeof x);
    rng_block(x, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_memory_equal(x, ones, sizeof x);
    rng_block(x, 0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
    assert_memory_equal(x, pi, sizeof x);
    double want = (double)((((uint64_t)0xe169c58d << 32) | 0x6627e8d5) >> 11) / 9007199254740992.0;
    assert_true(rng_unit(0, 0, 0) == want);
}

static void test_rng_moments(void **state)
{
    (void)state;
    enum { N = 100000 };
    double sum_u = 0, sum_g = 0, sum_g2 = 0, sum_g4 = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = rng_unit(1, 2, i);
        double g = (double)rng_gauss(1, 3, i);
        assert_true(u >= 0 && u < 1);
        assert_true(isfinite(g));
        sum_u += u;
        sum_g += g;
        sum_g2 += g * g;
        sum_g4 += g * g * g * g;
    }
    /* Five standard errors: 0.2887, 1, sqrt(2) and sqrt(96) over sqrt(N). */
    assert_true(fabs(sum_u / N - 0.5) < 0.0046);
    assert_true(fabs(sum_g / N) < 0.0159);
    assert_true(fabs(sum_g2 / N - 1) < 0.0224);
    assert_true(fabs(sum_g4 / N - 3) < 0.155);
}

/* ---- JSON ---- */

static enum err_code parse(const char *text, struct err *e)
{
    json_t *v = NULL;
    enum err_code rc = json_parse(&v, str_of(text), "in.json", e);
    assert_true((v != NULL) == (rc == ERR_OK));
    json_decref(v);
    return rc;
}

static void test_json(void **state)
{
    (void)state;
    struct err e;
    json_t *v = NULL;
    struct str s = { NULL, 0 };
    assert_int_equal(json_parse(&v, STR("{\"a\":\"x\\u00e9\",\"b\":3}"), "t", &e), ERR_OK);
    assert_true(json_get_str(v, "a", &s));
    assert_true(str_is(s, "x\xc3\xa9"));
    assert_false(json_get_str(v, "b", &s));
    assert_false(json_get_str(v, "c", &s));
    assert_true(str_is(s, "x\xc3\xa9"));
    assert_false(json_get_str(json_object_get(v, "b"), "a", &s));
    assert_false(json_get_str(NULL, "a", &s));
    json_decref(v);
    static const char *const good[] = {
        "1", "\"s\"", "null", " [1, 2.5e3]\n", "{}", "[\"]\\\"[[\"]",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(parse(good[i], &e), ERR_OK);
    }
    assert_int_equal(json_parse(&v, (struct str){ "[1]]", 3 }, "t", &e), ERR_OK); /* n bytes only */
    json_decref(v);
}

static void test_json_bad(void **state)
{
    (void)state;
    struct err e;
    static const char *const bad[] = {
        "", " ", "{", "[1,]", "[1 2]", "{\"a\":1,\"a\":2}", "1 2", "{} x", "nul", "\"\xff\"",
        "\"\xed\xa0\x80\"", "\"a\nb\"", "'a'", "[1e999]", "99999999999999999999", "\"\\ud800\"",
        "]", "\"\\", "\"\\u0000\"", "// c\n1", "\xef\xbb\xbf[]", "{\"\xff\":1}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse(bad[i], &e), ERR_FORMAT);
        assert_says(&e, "in.json: line ");
    }
    assert_int_equal(parse("{\n \"a\": 1,\n \"b\": ?\n}", &e), ERR_FORMAT);
    assert_says(&e, "in.json: line 3, column 7: ");
    assert_int_equal(parse("{\"k\":1,\"k\":1}", NULL), ERR_FORMAT);
    struct str nul = { "[1]\0", 4 };
    json_t *v = NULL;
    assert_int_equal(json_parse(&v, nul, "t", &e), ERR_FORMAT);
    assert_int_equal(json_parse(&v, (struct str){ NULL, 0 }, "t", &e), ERR_FORMAT);
}

static void test_json_limits(void **state)
{
    (void)state;
    enum { DEEP = 1000000 };
    struct err e;
    char *text = malloc(DEEP + 1);
    assert_non_null(text);
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = '\0';
    assert_int_equal(parse(text, &e), ERR_OK);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    text[130] = '\0';
    text[0] = '\n';
    assert_int_equal(parse(text, &e), ERR_FORMAT); /* 64 deep, one bracket too many at the end */
    text[0] = '[';
    assert_int_equal(parse(text, &e), ERR_LIMIT);
    assert_string_equal(e.msg, "in.json: line 1, column 65: nested deeper than 64");
    memset(text, '[', DEEP);
    text[DEEP] = '\0';
    assert_int_equal(parse(text, &e), ERR_LIMIT);
    free(text);
    json_t *v = NULL;
    struct str huge = { "", (64u << 20) + 1 }; /* refused by its size, before it is looked at */
    assert_int_equal(json_parse(&v, huge, "t", &e), ERR_LIMIT);
    assert_says(&e, "64 MiB");
}

static void test_json_bytes(void **state)
{
    (void)state;
    json_t *v = json_bytes((struct str){ "a\xff\xc3\xa9\xe2\x82\0z", 8 });
    assert_non_null(v);
    static const char want[] = "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\0z";
    assert_int_equal(json_string_length(v), sizeof want - 1);
    assert_memory_equal(json_string_value(v), want, sizeof want - 1);
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    assert_non_null(text); /* so it can be written, and read again */
    free(text);
    json_decref(v);
    v = json_bytes((struct str){ NULL, 0 });
    assert_int_equal(json_string_length(v), 0);
    json_decref(v);
    assert_null(json_bytes((struct str){ "", SIZE_MAX }));
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, dir_make, dir_remove)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_err),
        cmocka_unit_test(test_err_cleans),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_edges),
        WITH_DIR(test_map),
        WITH_DIR(test_read_all),
        cmocka_unit_test(test_stdin_pipe),
        WITH_DIR(test_stdin_file),
        cmocka_unit_test(test_write_all),
        WITH_DIR(test_out),
        WITH_DIR(test_out_sizes),
        WITH_DIR(test_out_keeps_cwd),
        WITH_DIR(test_out_targets),
        WITH_DIR(test_out_read_only_dir),
        WITH_DIR(test_out_no_space),
        WITH_DIR(test_out_rename_fails),
        WITH_DIR(test_out_killed),
        cmocka_unit_test(test_pool_results),
        cmocka_unit_test(test_pool_pieces),
        cmocka_unit_test(test_pool_tiny),
        cmocka_unit_test(test_pool_wakes),
        cmocka_unit_test(test_pool_open),
        WITH_DIR(test_quota),
        cmocka_unit_test(test_cpus_affinity),
        cmocka_unit_test(test_simd),
        cmocka_unit_test(test_simd_kernel),
        cmocka_unit_test(test_simd_names),
        cmocka_unit_test(test_rng_known),
        cmocka_unit_test(test_rng_moments),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_bad),
        cmocka_unit_test(test_json_limits),
        cmocka_unit_test(test_json_bytes),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
