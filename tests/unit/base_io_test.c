/* SPDX-License-Identifier: Apache-2.0 */
/* base_io_test.c - the room base: mapping, reading, and writing entirely or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base_dir.h"
#include "base/io.h"

static void assert_file(const char *path, const char *want)
{
    char *data = NULL;
    size_t n = 0;
    struct err e;
    assert_int_equal(io_read_all(&data, &n, path, 1 << 20, NULL, &e), ERR_OK);
    assert_int_equal(n, strlen(want));
    assert_string_equal(data, want);
    free(data);
}

/* ---- files: reading ---- */

static void test_map(void **state)
{
    (void)state;
    char path[512];
    struct err e;
    struct io_map m = { .size = 7 };
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

enum { FETCHED = (2 << 20) + 7, PAGES_MAX = FETCHED / 4096 + 1 };

static int pages_in_memory(const struct io_map *m)
{
    unsigned char there[PAGES_MAX] = { 0 };
    int n = 0;

    assert_int_equal(mincore((void *)(uintptr_t)m->data, m->size, there), 0);
    for (int i = 0; i < PAGES_MAX; i++)
        n += there[i] & 1;
    return n;
}

/* Maps the file, which is on the disk alone. False: it is in memory, as some file systems are. */
static bool map_cold(struct io_map *m, const char *path)
{
    const int fd = open(path, O_RDONLY);
    struct err e;

    assert_true(fd >= 0);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    assert_int_equal(io_map_open(m, path, &e), ERR_OK);
    return pages_in_memory(m) == 0;
}

/* Whether all pages come within some tenths of a second. */
static bool pages_come(const struct io_map *m, int tenths)
{
    const int all = (int)(m->size / (size_t)sysconf(_SC_PAGESIZE));

    for (int i = 0; i < tenths && pages_in_memory(m) < all; i++)
        usleep(100000);
    return pages_in_memory(m) >= all;
}

/* What is asked for comes without being touched, where the system does that: an emulator does not. */
static void test_fetch(void **state)
{
    (void)state;
    char path[512], *bytes = calloc(1, FETCHED);
    struct io_map m;
    struct err e;
    int fd = open(in_dir(path, "f"), O_CREAT | O_RDWR, 0600);

    assert_true(fd >= 0 && bytes != NULL);
    for (int i = 0; i < FETCHED; i++)
        bytes[i] = (char)(i % 251);
    assert_int_equal(io_write_all(fd, bytes, FETCHED, &e), ERR_OK);
    assert_int_equal(fsync(fd), 0);
    close(fd);
    bool can =
        map_cold(&m, path) && madvise((void *)(uintptr_t)m.data, m.size, MADV_WILLNEED) == 0 && pages_come(&m, 20);

    io_map_close(&m);
    can = map_cold(&m, path) && can;
    io_map_fetch(m.data + 5, 0);
    assert_true(!can || pages_in_memory(&m) == 0);
    for (int i = 0; i < 30 && (i == 0 || (can && !pages_come(&m, 20))); i++) /* a busy system may forget it */
        io_map_fetch(m.data + 5, FETCHED - 5);
    assert_true(!can || pages_come(&m, 20));
    io_map_fetch(m.data, FETCHED);
    assert_memory_equal(m.data, bytes, FETCHED);
    io_map_close(&m);
    free(bytes);
    unlink(path);
}

static int asked;

static bool stop_at_the_third(void)
{
    return ++asked % 3 == 0;
}

/* Who waits for the other end of a FIFO, or for bytes, asks whether to go on. */
static void test_cancel(void **state)
{
    (void)state;
    char path[512], byte;
    struct err e;
    int fd = -1, other = -1, pipes[2];
    size_t n;
    assert_int_equal(mkfifo(in_dir(path, "fifo"), 0600), 0);
    assert_int_equal(io_open_read(&fd, path, stop_at_the_third, &e), ERR_CANCEL);
    assert_int_equal(io_open_append(&fd, path, stop_at_the_third, NULL), ERR_CANCEL);
    assert_int_equal(io_open_own(&fd, path, &e), ERR_IO);
    assert_says(&e, "not a regular file");
    assert_int_equal(fd, -1);
    char *data = NULL;
    assert_int_equal(io_read_regular(&data, &n, path, 9, &e), ERR_IO);
    assert_says(&e, "fifo: is not a regular file");
    assert_int_equal(io_read_regular(&data, &n, dir, 9, NULL), ERR_IO);
    put_file(in_dir(path, "f"), "hello");
    assert_int_equal(io_read_regular(&data, &n, path, 4, &e), ERR_LIMIT);
    assert_null(data);
    assert_int_equal(io_read_regular(&data, &n, path, 5, &e), ERR_OK);
    assert_string_equal(data, "hello");
    assert_int_equal(n, 5);
    free(data);
    unlink(path);
    in_dir(path, "fifo");
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(io_read_some(&n, pipes[0], &byte, 1, stop_at_the_third, &e), ERR_CANCEL);
    assert_int_equal(asked, 9);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(io_read_some(&n, pipes[0], &byte, 1, stop_at_the_third, &e), ERR_OK);
    assert_int_equal(n, 1);
    close(pipes[1]);
    assert_int_equal(io_read_some(&n, pipes[0], &byte, 1, stop_at_the_third, &e), ERR_OK);
    assert_int_equal(n, 0);
    close(pipes[0]);
    /* With both ends it is open at once, and then waits. */
    other = open(path, O_RDWR);
    assert_int_equal(io_open_append(&fd, path, stop_at_the_third, &e), ERR_OK);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(write(fd, "y", 1), 1);
    close(fd);
    assert_int_equal(io_open_read(&fd, path, stop_at_the_third, &e), ERR_OK);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(io_read_some(&n, fd, &byte, 1, stop_at_the_third, &e), ERR_OK);
    assert_int_equal(byte, 'y');
    close(fd);
    close(other);
    assert_int_equal(asked, 9);
    unlink(path);
}

static void test_own(void **state)
{
    (void)state;
    char path[512];
    struct err e;
    int fd, second = -1;
    assert_int_equal(io_open_own(&fd, in_dir(path, "own"), &e), ERR_OK);
    assert_int_equal(io_open_own(&second, path, &e), ERR_IO);
    assert_says(&e, "own: another process writes it");
    assert_int_equal(second, -1);
    assert_int_equal(write(fd, "ab", 2), 2);
    close(fd);
    assert_int_equal(io_open_own(&fd, path, &e), ERR_OK);
    assert_int_equal(write(fd, "c", 1), 1);
    close(fd);
    assert_file(path, "abc");
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
    assert_int_equal(io_read_all(&data, &n, path, 4, NULL, &e), ERR_LIMIT);
    assert_says(&e, "longer than 4 bytes");
    assert_null(data);
    assert_int_equal(n, 99);
    assert_int_equal(io_read_all(&data, &n, path, 5, NULL, &e), ERR_OK); /* exactly the limit */
    assert_string_equal(data, "12345");
    free(data);
    assert_int_equal(io_read_all(&data, &n, path, SIZE_MAX, NULL, &e), ERR_OK);
    assert_int_equal(n, 5);
    free(data);
    put_file(path, "");
    assert_int_equal(io_read_all(&data, &n, path, 0, NULL, &e), ERR_OK);
    assert_int_equal(n, 0);
    assert_string_equal(data, "");
    free(data);
    unlink(path);
    assert_int_equal(io_read_all(&data, &n, path, 9, NULL, &e), ERR_IO);
    assert_says(&e, "cannot open");
    assert_int_equal(io_read_all(&data, &n, dir, 9, NULL, &e), ERR_IO);
    assert_says(&e, "Is a directory");
    assert_int_equal(io_read_all(&data, &n, dir, 9, NULL, NULL), ERR_IO);
    assert_int_equal(io_read_all(&data, &n, "/dev/zero", 100000, NULL, &e), ERR_LIMIT);
}

enum { PIPED_BYTES = 300000 };

struct feed {
    int fd;
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
    enum err_code rc = io_read_all(&data, &n, "-", 1 << 20, NULL, &e);
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
    enum err_code rc = io_read_all(&data, &n, "-", 6, NULL, &e);
    assert_int_equal(rc, ERR_OK);
    assert_string_equal(data, "456789");
    free(data);
    lseek(STDIN_FILENO, 0, SEEK_SET);
    assert_int_equal(io_read_all(&data, &n, "-", 6, NULL, &e), ERR_LIMIT);
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
    struct err e = { 0 };
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

/* Zeros between bytes and at the end, without a byte written for them. */
static void test_out_skip(void **state)
{
    (void)state;
    enum { HOLE = 300000 };
    char path[512];
    struct err e;
    struct io_map m;
    struct io_out *o = out_open(in_dir(path, "f"));
    assert_int_equal(io_out_write(o, "ab", 2, &e), ERR_OK);
    assert_int_equal(io_out_skip(o, HOLE, &e), ERR_OK);
    assert_int_equal(io_out_pos(o), HOLE + 2);
    assert_int_equal(io_out_write(o, "cd", 2, &e), ERR_OK);
    assert_int_equal(io_out_skip(o, 5, &e), ERR_OK);
    assert_int_equal(io_out_commit(o, &e), ERR_OK);
    assert_int_equal(io_map_open(&m, path, &e), ERR_OK);
    assert_int_equal(m.size, HOLE + 9);
    for (size_t i = 0; i < m.size; i++) {
        const char want = i < 2 ? "ab"[i] : i == HOLE + 2 ? 'c' : i == HOLE + 3 ? 'd' : '\0';
        assert_int_equal(m.data[i], want);
    }
    io_map_close(&m);
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

/* A process that dies before commit leaves the old file; what it leaves beside it the next writer removes, and nothing
 * else. */
static void test_out_killed(void **state)
{
    (void)state;
    char path[512], left[600], part[600], others[4][600];
    struct io_out *next = NULL;
    struct stat st;
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
    snprintf(left, sizeof left, "%s/.f.%ld-0.tmp", dir, (long)child);
    assert_int_equal(stat(left, &st), 0);
    snprintf(others[0], sizeof others[0], "%s/.f.%ld-7.tmp", dir, (long)getppid());
    snprintf(others[1], sizeof others[1], "%s/.f.%ld-0.tmp.tmp", dir, (long)child);
    snprintf(others[2], sizeof others[2], "%s/.g.%ld-0.tmp", dir, (long)child);
    snprintf(others[3], sizeof others[3], "%s/.f.%ld-1.tmp", dir, (long)child); /* whose lock somebody has */
    for (int i = 0; i < 4; i++)
        put_file(others[i], "mine");
    snprintf(part, sizeof part, "%s/.f.part-2.%ld-0.tmp", dir, (long)child); /* of a table built in parts */
    put_file(part, "left");
    int held = open(others[3], O_RDONLY);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(io_out_open(&next, path, NULL), ERR_OK);
    io_out_abort(next);
    assert_int_equal(stat(part, &st), -1);
    assert_int_equal(stat(left, &st), -1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(unlink(others[i]), 0);
    close(held);
    unlink(path);
}

/* A new file with a digit publishes; what FILE, FILE.1 ... are then, "-" where there is none. */
static void publish(int keep, char digit, const char *want)
{
    char path[512], name[16], text[2] = { digit, '\0' };
    struct err e;
    put_file(in_dir(path, "fresh"), text);
    char *fresh = strdup(path);
    assert_int_equal(io_publish(in_dir(path, "f"), fresh, keep, &e), ERR_OK);
    free(fresh);
    for (int i = 0; want[i] != '\0'; i++) {
        snprintf(name, sizeof name, "f.%d", i);
        if (i == 0)
            name[1] = '\0';
        if (want[i] == '-')
            assert_int_equal(access(in_dir(path, name), F_OK), -1);
        else
            assert_file(in_dir(path, name), (char[]){ want[i], '\0' });
    }
}

static void test_versions(void **state)
{
    (void)state;
    char path[512];
    for (char c = '1'; c <= '5'; c++)
        publish(9, c, (const char *[]){ "1-", "21-", "321-", "4321-", "54321-" }[c - '1']);
    publish(3, '6', "6543--");
    publish(3, '7', "7654--");
    publish(1, '8', "87----");
    publish(0, '9', "9-----");
    /* somebody's file with a version's name */
    put_file(in_dir(path, "f"), "kind of a table");
    for (int keep = 0; keep < 3; keep++)
        for (int i = 1; i < 3; i++) {
            char theirs[512], fresh[512];
            struct err e;
            put_file(in_dir(theirs, i == 1 ? "f.1" : "f.2"), "notes");
            put_file(in_dir(fresh, "fresh"), "kind of a table");
            assert_int_equal(io_versions_check(path, &e), i == 1 ? ERR_IO : ERR_OK);
            assert_int_equal(io_publish(path, fresh, keep, &e), keep > 0 && i == 1 ? ERR_IO : ERR_OK);
            if (i == 1)
                assert_int_equal(io_rollback(path, &e), ERR_IO);
            assert_file(theirs, "notes");
            unlink(theirs);
            unlink(fresh);
            unlink(in_dir(fresh, "f.1"));
        }
    unlink(path);
}

/* What is no file stays where it is, and so does the rest. */
static void test_versions_no_file(void **state)
{
    (void)state;
    char path[512], other[512];
    struct err e = { 0 };
    put_file(in_dir(path, "f"), "1");
    put_file(in_dir(other, "fresh"), "2");
    for (int link = 0; link < 2; link++) {
        in_dir(path, "f.1");
        assert_int_equal(link ? symlink("nowhere", path) : mkdir(path, 0700), 0);
        in_dir(path, "f");
        assert_int_equal(io_versions_check(path, &e), ERR_IO);
        assert_int_equal(io_publish(path, other, 3, &e), ERR_IO);
        assert_int_equal(io_rollback(path, &e), ERR_IO);
        assert_file(path, "1");
        assert_file(other, "2");
        assert_int_equal(remove(in_dir(path, "f.1")), 0);
    }
    unlink(in_dir(path, "f"));
    unlink(other);
}

/* A publisher killed after any of its steps: the versions are found again, by the next one and by rollback. */
static void test_versions_killed(void **state)
{
    char path[512], other[512], name[16];
    struct err e = { 0 };

    (void)state;
    for (int steps = 0; steps <= 4; steps++)
        for (int back = 0; back < 2; back++) {
            for (char c = '1'; c <= '4'; c++)
                publish(9, c, "");
            for (int k = 0; k < steps && k < 3; k++) { /* f.3 becomes f.4, f.2 f.3, f.1 f.2 */
                snprintf(name, sizeof name, "f.%d", 3 - k);
                in_dir(path, name);
                snprintf(name, sizeof name, "f.%d", 4 - k);
                assert_int_equal(rename(path, in_dir(other, name)), 0);
            }
            if (steps == 4)
                assert_int_equal(link(in_dir(path, "f"), in_dir(other, "f.1")), 0);
            if (back)
                assert_int_equal(io_rollback(in_dir(path, "f"), &e), ERR_OK);
            publish(9, '6', back ? "63214-" : "64321-");
            publish(0, '0', "0-----");
            unlink(in_dir(path, "f"));
        }
    /* The file itself is gone: its name is said, and rollback puts it back. */
    put_file(in_dir(path, "f.1"), "1");
    assert_int_equal(io_cannot_open(in_dir(path, "f"), ENOENT, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "/f.1 (rollback)"));
    assert_int_equal(io_rollback(path, &e), ERR_OK);
    assert_file(path, "1");
    unlink(path);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        WITH_DIR(test_map),
        WITH_DIR(test_fetch),
        WITH_DIR(test_cancel),
        WITH_DIR(test_own),
        WITH_DIR(test_read_all),
        cmocka_unit_test(test_stdin_pipe),
        WITH_DIR(test_stdin_file),
        cmocka_unit_test(test_write_all),
        WITH_DIR(test_out),
        WITH_DIR(test_out_sizes),
        WITH_DIR(test_out_skip),
        WITH_DIR(test_out_keeps_cwd),
        WITH_DIR(test_out_targets),
        WITH_DIR(test_out_read_only_dir),
        WITH_DIR(test_out_no_space),
        WITH_DIR(test_out_rename_fails),
        WITH_DIR(test_out_killed),
        WITH_DIR(test_versions),
        WITH_DIR(test_versions_no_file),
        WITH_DIR(test_versions_killed),
    };
    return cmocka_run_group_tests_name("base_io", tests, NULL, NULL);
}
