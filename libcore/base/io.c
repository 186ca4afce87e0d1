/* SPDX-License-Identifier: Apache-2.0 */
/* io.c - files: mapping, whole reads, atomic writes (io.h).                    room: base
 *
 * A descriptor inherited as non-blocking (a shared terminal or pipe) is waited for with poll,
 * so EAGAIN is never reported.
 */
#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"

enum {
    READ_FIRST_BYTES = 4096,   /* when the size is not known beforehand */
    CHUNK_BYTES_MAX = 1 << 30, /* per read or write call: some systems refuse 2 GiB and more */
    OUT_BUFFER_BYTES = 64 << 10,
    TEMP_TRIES_MAX = 100,
};

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* After a failed read or write: true when it should be tried again. */
static bool again(int fd, short events)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        struct pollfd p = { .fd = fd, .events = events };
        return poll(&p, 1, -1) >= 0 || errno == EINTR;
    }
    return errno == EINTR;
}

static int open_retry(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, flags);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

static struct io_id id_of(const struct stat *st)
{
    return (struct io_id){ (uint64_t)st->st_dev, (uint64_t)st->st_ino, (int64_t)st->st_size,
                           (int64_t)((uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec) };
}

bool io_identify(int fd, struct io_id *out)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return false;
    }
    *out = id_of(&st);
    return true;
}

static enum err_code map_fd(struct io_map *out, int fd, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return err_errno(e, ERR_IO, errno, "%s: cannot stat", path);
    }
    if (S_ISDIR(st.st_mode)) {
        return err_set(e, ERR_IO, "%s: is a directory", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_IO, "%s: is not a regular file, cannot be mapped", path);
    }
    if ((uintmax_t)st.st_size > SIZE_MAX) {
        return err_set(e, ERR_LIMIT, "%s: too large to map", path);
    }
    struct io_map m = { NULL, (size_t)st.st_size, id_of(&st) };
    if (m.size > 0) {
        void *p = mmap(NULL, m.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            return err_errno(e, ERR_IO, errno, "%s: cannot map", path);
        }
        m.data = p;
    }
    *out = m;
    return ERR_OK;
}

enum err_code io_map_open(struct io_map *out, const char *path, struct err *e)
{
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open_retry(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return io_cannot_open(path, errno, e);
    }
    enum err_code rc = map_fd(out, fd, path, e);
    close(fd);
    return rc;
}

void io_map_close(struct io_map *m)
{
    if (m->data != NULL) {
        munmap((void *)m->data, m->size);
    }
    *m = (struct io_map){ 0 };
}

void io_map_drop(const struct io_map *m, const void *at, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), from = (size_t)((const unsigned char *)at - m->data);
    size_t first = (from + page - 1) / page * page, end = (from + n) / page * page;
    assert(from <= m->size && n <= m->size - from);
    if (first < end) {
        (void)madvise((void *)(m->data + first), end - first, MADV_DONTNEED);
    }
}

void io_map_fetch(const void *at, size_t n)
{
#if defined(__linux__) && defined(MADV_WILLNEED)
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at / page * page,
                    end = (uintptr_t)at + n;
    unsigned char there = 1;

    /* The last page decides: a request for pages in memory would look at each of them. */
    if (n > 0 && mincore((void *)((end - 1) / page * page), 1, &there) == 0 && !(there & 1))
        (void)madvise((void *)from, end - from, MADV_WILLNEED);
#else
    (void)at, (void)n;
#endif
}

/* Reads to the end into *buf, which holds cap > 0 bytes and grows to at most max_bytes + 1: the
 * byte more tells "exactly the limit" from "over it", and has room for the NUL otherwise. */
static enum err_code read_to_end(char **buf, size_t cap, size_t *n, int fd, size_t max_bytes, bool (*stop)(void),
                                 struct err *e)
{
    size_t used = 0;
    for (;;) {
        if (used > max_bytes) {
            return err_set(e, ERR_LIMIT, "longer than %zu bytes", max_bytes);
        }
        if (used == cap) {
            cap = (cap <= max_bytes / 2 ? 2 * cap : max_bytes) + 1;
            char *p = realloc(*buf, cap);
            if (p == NULL) {
                return err_set(e, ERR_NOMEM, "no memory for %zu bytes", cap);
            }
            *buf = p;
        }
        size_t got;
        enum err_code rc = io_read_some(&got, fd, *buf + used, min_size(cap - used, CHUNK_BYTES_MAX), stop, e);
        if (rc != ERR_OK) {
            return rc;
        }
        if (got == 0) {
            (*buf)[used] = '\0';
            *n = used;
            return ERR_OK;
        }
        used += got;
    }
}

static enum err_code read_fd(char **data, size_t *n, int fd, size_t max_bytes, bool (*stop)(void), struct err *e)
{
    struct stat st;
    size_t expected = READ_FIRST_BYTES;
    max_bytes = min_size(max_bytes, PTRDIFF_MAX - 1);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        /* Not from a moved offset: stdin may be a regular file that is half read. */
        off_t at = lseek(fd, 0, SEEK_CUR);
        off_t rest = at >= 0 && at <= st.st_size ? st.st_size - at : 0;
        if ((uintmax_t)rest > max_bytes) {
            return err_set(e, ERR_LIMIT, "longer than %zu bytes", max_bytes);
        }
        expected = (size_t)rest;
    }
    size_t cap = min_size(expected, max_bytes) + 1;
    char *buf = malloc(cap);
    if (buf == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for %zu bytes", cap);
    }
    enum err_code rc = read_to_end(&buf, cap, n, fd, max_bytes, stop, e);
    if (rc != ERR_OK) {
        free(buf);
        return rc;
    }
    *data = buf;
    return ERR_OK;
}

void io_unmark(char *data, size_t *n)
{
    const struct str rest = str_unmarked((struct str){ data, *n });

    if (rest.n < *n) {
        memmove(data, rest.p, rest.n + 1); /* with the NUL */
        *n = rest.n;
    }
}

enum err_code io_read_text(char **data, size_t *n, const char *path, size_t max_bytes, bool (*stop)(void),
                           struct err *e)
{
    enum err_code rc = io_read_all(data, n, path, max_bytes, stop, e);
    if (rc == ERR_OK) {
        io_unmark(*data, n);
    }
    return rc;
}

enum err_code io_read_regular(char **data, size_t *n, const char *path, size_t max_bytes, struct err *e)
{
    struct stat st;
    int fd = open_retry(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return io_cannot_open(path, errno, e);
    }
    enum err_code rc = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read_fd(data, n, fd, max_bytes, NULL, e)
                                                                  : err_set(e, ERR_IO, "is not a regular file");
    close(fd);
    if (rc != ERR_OK && e != NULL) {
        err_wrap(e, "%s", path);
    }
    return rc;
}

enum err_code io_read_all(char **data, size_t *n, const char *path, size_t max_bytes, bool (*stop)(void), struct err *e)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = STDIN_FILENO;
    enum err_code rc = is_stdin ? ERR_OK : io_open_read(&fd, path, stop, e);
    if (rc != ERR_OK) {
        return rc;
    }
    rc = read_fd(data, n, fd, max_bytes, stop, e);
    if (!is_stdin) {
        close(fd);
    }
    if (rc != ERR_OK && e != NULL) {
        err_wrap(e, "%s", is_stdin ? "standard input" : path);
    }
    return rc;
}

enum err_code io_write_all(int fd, const void *data, size_t n, struct err *e)
{
    const char *p = data;
    while (n > 0) {
        ssize_t put = write(fd, p, min_size(n, CHUNK_BYTES_MAX));
        if (put > 0) {
            p += put;
            n -= (size_t)put;
        } else if (put == 0) {
            return err_set(e, ERR_IO, "cannot write: the system took no bytes");
        } else if (!again(fd, POLLOUT)) {
            return err_errno(e, ERR_IO, errno, "cannot write");
        }
    }
    return ERR_OK;
}

struct io_out {
    char *path;   /* as the caller named it, for messages */
    char *target; /* the same with symbolic links followed: links stay, their target changes */
    char temp[NAME_MAX + 1];
    int dir_fd;   /* -1 until open */
    int fd;       /* -1 until open and after closing */
    bool made;    /* temp exists in the directory */
    bool part;    /* locked: stays open until it has its name */
    bool failed;  /* a write failed: the contents have a hole */
    int versions; /* that a commit keeps */
    uint64_t pos; /* bytes accepted, those in buf included */
    size_t n_buf;
    char buf[OUT_BUFFER_BYTES];
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Where the file will stand. Only a regular file may be replaced: renaming over /dev/null or a
 * FIFO would destroy it. */
static enum err_code find_target(struct io_out *o, mode_t *mode, struct err *e)
{
    struct stat st;
    *mode = 0;
    if (stat(o->path, &st) == 0) {
        if (!S_ISREG(st.st_mode)) {
            return err_set(e, ERR_IO, "%s: is not a regular file, will not be replaced", o->path);
        }
        *mode = st.st_mode & 0777;
        o->target = realpath(o->path, NULL);
        return o->target != NULL ? ERR_OK : err_errno(e, ERR_IO, errno, "%s: cannot resolve", o->path);
    }
    if (errno != ENOENT) {
        return err_errno(e, ERR_IO, errno, "%s: cannot create", o->path);
    }
    if (lstat(o->path, &st) == 0) {
        return err_set(e, ERR_IO, "%s: symbolic link that leads nowhere", o->path);
    }
    if (base_name(o->path)[0] == '\0') {
        return err_set(e, ERR_IO, "%s: is not a file name", o->path);
    }
    o->target = strdup(o->path);
    return o->target != NULL ? ERR_OK : err_set(e, ERR_NOMEM, "%s: no memory", o->path);
}

static enum err_code open_dir(struct io_out *o, struct err *e)
{
    char *name = o->target + (base_name(o->target) - o->target);
    char first = name[0];
    name[0] = '\0'; /* "dir/name" -> "dir/", "name" -> "" */
    o->dir_fd = open_retry(o->target[0] == '\0' ? "." : o->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int errnum = errno;
    name[0] = first;
    return o->dir_fd >= 0 ? ERR_OK : err_errno(e, ERR_IO, errnum, "%s: cannot open its directory", o->path);
}

/* The process of a temporary file's name, "PID-N.tmp" after the prefix; 0: it is not such a name. */
static pid_t process_of(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    char *end;
    long pid;
    if (strncmp(name, prefix, n) != 0 || !isdigit((unsigned char)name[n])) {
        return 0;
    }
    errno = 0;
    pid = strtol(name + n, &end, 10);
    if (errno != 0 || pid <= 0 || pid > INT_MAX || end[0] != '-' || !isdigit((unsigned char)end[1])) {
        return 0;
    }
    end += 1 + strspn(end + 1, "0123456789");
    return strcmp(end, ".tmp") == 0 ? (pid_t)pid : 0;
}

/* A writer holds a lock on its file, which also a process that is not seen from here does (another container). */
static bool is_left(int dir_fd, const char *name, pid_t pid)
{
    struct stat st;
    bool left = false;
    if (kill(pid, 0) == 0 || errno != ESRCH) {
        return false;
    }
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        left =
            fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0;
        close(fd);
    }
    return left;
}

/* Removes what processes that were killed left of this file. */
static void remove_left(const struct io_out *o)
{
    char prefix[256];
    struct dirent *d;
    int fd = openat(o->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    snprintf(prefix, sizeof prefix, ".%.200s.", base_name(o->target));
    while ((d = readdir(dir)) != NULL) {
        pid_t pid = process_of(d->d_name, prefix);
        const char *part = strstr(d->d_name, ".part-"); /* of a table that was built in parts: .NAME.part-I.PID-N.tmp */
        if (part != NULL && strncmp(d->d_name, prefix, strlen(prefix)) == 0) {
            part += strcspn(part + 1, ".") + 1;
            pid = process_of(part, ".");
        }
        if (pid > 0 && is_left(o->dir_fd, d->d_name, pid)) {
            unlinkat(o->dir_fd, d->d_name, 0);
        }
    }
    closedir(dir);
}

void io_remove_left(int dir_fd, const char *begins)
{
    const size_t n = strlen(begins);
    struct dirent *d;
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    while ((d = readdir(dir)) != NULL) {
        const size_t length = strlen(d->d_name);
        const char *last = d->d_name + (length > 4 ? length - 4 : 0); /* ".tmp" */
        if (d->d_name[0] != '.' || strncmp(d->d_name + 1, begins, n) != 0) {
            continue;
        }
        while (last > d->d_name && *--last != '.') {
        }
        pid_t pid = process_of(last, ".");
        if (pid > 0 && is_left(dir_fd, d->d_name, pid)) {
            unlinkat(dir_fd, d->d_name, 0);
        }
    }
    closedir(dir);
}

/* O_EXCL and a name with our process id: neither another process nor a planted link gets in. */
static enum err_code open_temp(struct io_out *o, mode_t mode, struct err *e)
{
    remove_left(o);
    for (int i = 0; i < TEMP_TRIES_MAX; i++) {
        snprintf(o->temp, sizeof o->temp, ".%.200s.%ld-%d.tmp", base_name(o->target), (long)getpid(), i);
        o->fd = openat(o->dir_fd, o->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (o->fd >= 0) {
            o->made = true;
            (void)flock(o->fd, LOCK_EX | LOCK_NB); /* where there are no locks the process id alone tells */
            if (mode != 0 && fchmod(o->fd, mode) != 0) {
                return err_errno(e, ERR_IO, errno, "%s: cannot set its mode", o->path);
            }
            return ERR_OK;
        }
        if (errno != EEXIST && errno != EINTR) {
            break;
        }
    }
    return err_errno(e, ERR_IO, errno, "%s: cannot create", o->path);
}

/* The file that an earlier process left, or a new one; locked, and still the one under its name. */
static enum err_code open_part(struct io_out *o, mode_t mode, struct err *e)
{
    struct stat st, now;
    o->part = true;
    snprintf(o->temp, sizeof o->temp, ".%.200s.part", base_name(o->target));
    for (int i = 0; i < TEMP_TRIES_MAX; i++) {
        o->fd = openat(o->dir_fd, o->temp, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (o->fd < 0 && errno == EINTR) {
            continue;
        }
        if (o->fd < 0) {
            break;
        }
        if (flock(o->fd, LOCK_EX | LOCK_NB) != 0) {
            return errno == EWOULDBLOCK ? err_set(e, ERR_IO, "%s: another process is writing it", o->path)
                                        : err_errno(e, ERR_IO, errno, "%s: cannot lock its temporary file", o->path);
        }
        if (fstat(o->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink > 1) {
            return err_set(e, ERR_IO, "%s: %s is in the way", o->path, o->temp);
        }
        if (fstatat(o->dir_fd, o->temp, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == st.st_ino &&
            now.st_dev == st.st_dev) {
            o->made = true;
            if (mode != 0 && fchmod(o->fd, mode) != 0) {
                return err_errno(e, ERR_IO, errno, "%s: cannot set its mode", o->path);
            }
            return ERR_OK;
        }
        close(o->fd); /* another process has finished or removed it meanwhile */
        o->fd = -1;
    }
    return err_errno(e, ERR_IO, errno, "%s: cannot create", o->path);
}

static enum err_code open_out(struct io_out **out, const char *path,
                              enum err_code (*temp)(struct io_out *, mode_t, struct err *), struct err *e)
{
    struct io_out *o = calloc(1, sizeof *o);
    if (o == NULL) {
        return err_set(e, ERR_NOMEM, "%s: no memory", path);
    }
    mode_t mode = 0;
    o->dir_fd = o->fd = -1;
    o->path = strdup(path);
    enum err_code rc = o->path != NULL ? ERR_OK : err_set(e, ERR_NOMEM, "%s: no memory", path);
    if (rc == ERR_OK) {
        rc = find_target(o, &mode, e);
    }
    if (rc == ERR_OK) {
        rc = open_dir(o, e);
    }
    if (rc == ERR_OK) {
        rc = temp(o, mode, e);
    }
    if (rc != ERR_OK) {
        io_out_abort(o);
        return rc;
    }
    *out = o;
    return ERR_OK;
}

enum err_code io_out_open(struct io_out **out, const char *path, struct err *e)
{
    return open_out(out, path, open_temp, e);
}

enum err_code io_out_open_part(struct io_out **out, const char *path, struct err *e)
{
    return open_out(out, path, open_part, e);
}

bool io_out_old(struct io_out *o, uint64_t offset, void *data, size_t n)
{
    char *p = data;
    while (n > 0) {
        ssize_t got = pread(o->fd, p, min_size(n, CHUNK_BYTES_MAX), (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

static enum err_code write_through(struct io_out *o, const void *data, size_t n, struct err *e)
{
    enum err_code rc = io_write_all(o->fd, data, n, e);
    if (rc != ERR_OK) {
        o->failed = true;
        if (e != NULL) {
            err_wrap(e, "%s", o->path);
        }
    }
    return rc;
}

static enum err_code check_whole(const struct io_out *o, struct err *e)
{
    return o->failed ? err_set(e, ERR_IO, "%s: an earlier write failed", o->path) : ERR_OK;
}

static enum err_code flush_buffer(struct io_out *o, struct err *e)
{
    size_t n = o->n_buf;
    o->n_buf = 0;
    return write_through(o, o->buf, n, e);
}

enum err_code io_out_write(struct io_out *o, const void *data, size_t n, struct err *e)
{
    enum err_code rc = check_whole(o, e);
    if (rc == ERR_OK && n > sizeof o->buf - o->n_buf) {
        rc = flush_buffer(o, e);
    }
    if (rc == ERR_OK && n >= sizeof o->buf) {
        rc = write_through(o, data, n, e);
    } else if (rc == ERR_OK && n > 0) {
        memcpy(o->buf + o->n_buf, data, n);
        o->n_buf += n;
    }
    if (rc == ERR_OK) {
        o->pos += n;
    }
    return rc;
}

enum err_code io_out_skip(struct io_out *o, uint64_t n, struct err *e)
{
    enum err_code rc = check_whole(o, e);
    if (rc == ERR_OK) {
        rc = flush_buffer(o, e);
    }
    if (rc != ERR_OK) {
        return rc;
    }
    off_t end = (off_t)(o->pos + n);
    if (ftruncate(o->fd, end) != 0 || lseek(o->fd, end, SEEK_SET) != end) {
        o->failed = true;
        return err_errno(e, ERR_IO, errno, "%s: cannot make it longer", o->path);
    }
    o->pos += n;
    return ERR_OK;
}

enum err_code io_out_keep(struct io_out *o, uint64_t n, struct err *e)
{
    enum err_code rc = check_whole(o, e);
    if (rc == ERR_OK) {
        rc = flush_buffer(o, e);
    }
    if (rc == ERR_OK && lseek(o->fd, (off_t)(o->pos + n), SEEK_SET) < 0) {
        o->failed = true;
        rc = err_errno(e, ERR_IO, errno, "%s: cannot seek", o->path);
    }
    if (rc == ERR_OK) {
        o->pos += n;
    }
    return rc;
}

enum err_code io_out_patch(struct io_out *o, uint64_t offset, const void *data, size_t n, struct err *e)
{
    assert(offset <= o->pos && n <= o->pos - offset);
    enum err_code rc = check_whole(o, e);
    if (rc == ERR_OK) {
        rc = flush_buffer(o, e);
    }
    const char *p = data;
    while (rc == ERR_OK && n > 0) {
        ssize_t put = pwrite(o->fd, p, min_size(n, CHUNK_BYTES_MAX), (off_t)offset);
        if (put > 0) {
            p += put;
            n -= (size_t)put;
            offset += (uint64_t)put;
        } else if (put == 0 || !again(o->fd, POLLOUT)) {
            o->failed = true;
            rc = err_errno(e, ERR_IO, put == 0 ? EIO : errno, "%s: cannot write", o->path);
        }
    }
    return rc;
}

void io_out_versions(struct io_out *o, int keep)
{
    o->versions = keep;
}

static int sync_retry(int fd)
{
    int rc;
    do {
        rc = fsync(fd);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

/* Contents safe on disk and the descriptor closed. */
static enum err_code settle_file(struct io_out *o, struct err *e)
{
    enum err_code rc = check_whole(o, e);
    if (rc == ERR_OK) {
        rc = flush_buffer(o, e);
    }
    if (rc != ERR_OK) {
        return rc;
    }
    if (ftruncate(o->fd, (off_t)o->pos) != 0) { /* what an earlier process left may be longer */
        return err_errno(e, ERR_IO, errno, "%s: cannot cut it to its length", o->path);
    }
    if (sync_retry(o->fd) != 0) {
        return err_errno(e, ERR_IO, errno, "%s: cannot sync", o->path);
    }
    if (o->part) {
        return ERR_OK;
    }
    int fd = o->fd;
    o->fd = -1;
    if (close(fd) != 0 && errno != EINTR) {
        return err_errno(e, ERR_IO, errno, "%s: cannot close", o->path);
    }
    return ERR_OK;
}

/* The old file becomes the newest of the versions. */
static enum err_code publish_target(struct io_out *o, struct err *e)
{
    const size_t dir = (size_t)(base_name(o->target) - o->target), n = dir + sizeof o->temp;
    char *fresh = malloc(n);
    if (fresh == NULL) {
        return err_nomem(e);
    }
    snprintf(fresh, n, "%.*s%s", (int)dir, o->target, o->temp);
    enum err_code rc = io_publish(o->target, fresh, o->versions, e);
    free(fresh);
    return rc;
}

static enum err_code replace_target(struct io_out *o, struct err *e)
{
    if (o->versions > 0) {
        return publish_target(o, e);
    }
    if (renameat(o->dir_fd, o->temp, o->dir_fd, base_name(o->target)) != 0) {
        return err_errno(e, ERR_IO, errno, "%s: cannot rename the finished file", o->path);
    }
    return ERR_OK;
}

/* A link is made only where there is no file. Where the file system has no links, the name is looked at first. */
static enum err_code link_target(struct io_out *o, struct err *e)
{
    const char *name = base_name(o->target);
    struct stat st;
    if (linkat(o->dir_fd, o->temp, o->dir_fd, name, 0) == 0) {
        unlinkat(o->dir_fd, o->temp, 0);
        return ERR_OK;
    }
    if (errno == EEXIST || fstatat(o->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        return err_set(e, ERR_IO, "%s: another file has been made meanwhile, and stays", o->path);
    }
    return replace_target(o, e);
}

static enum err_code commit_file(struct io_out *o, enum err_code (*put)(struct io_out *, struct err *), struct err *e)
{
    enum err_code rc = settle_file(o, e);
    if (rc == ERR_OK) {
        rc = put(o, e);
    }
    if (rc == ERR_OK) {
        o->made = false;
        /* Some file systems cannot sync a directory and say EINVAL; there is no more to do then. */
        if (sync_retry(o->dir_fd) != 0 && errno != EINVAL) {
            rc = err_errno(e, ERR_IO, errno, "%s: written, but cannot sync its directory", o->path);
        }
    }
    io_out_abort(o);
    return rc;
}

enum err_code io_out_commit(struct io_out *o, struct err *e)
{
    return commit_file(o, replace_target, e);
}

enum err_code io_out_commit_new(struct io_out *o, struct err *e)
{
    return commit_file(o, link_target, e);
}

enum err_code io_out_end(struct io_out *o, enum err_code code, struct err *e)
{
    if (code == ERR_OK)
        return io_out_commit(o, e);
    io_out_abort(o);
    return code;
}

enum err_code io_write_file(const char *path, struct str all, struct err *e)
{
    struct io_out *o;

    if (io_out_open(&o, path, e))
        return e->code;
    return io_out_end(o, io_out_write(o, all.p, all.n, e), e);
}

void io_out_abort(struct io_out *o)
{
    if (o == NULL) {
        return;
    }
    if (o->made) {
        unlinkat(o->dir_fd, o->temp, 0);
    }
    if (o->fd >= 0) { /* and with it the lock */
        close(o->fd);
    }
    if (o->dir_fd >= 0) {
        close(o->dir_fd);
    }
    free(o->target);
    free(o->path);
    free(o);
}

uint64_t io_out_pos(const struct io_out *o)
{
    return o->pos;
}
