/* SPDX-License-Identifier: Apache-2.0 */
/* shim.c - preloaded into a program, makes one call of the system or the allocator fail.
 *
 * CHIMERE_TEST_FAULT=KIND:N   the Nth call of that kind after main began fails, once (N >= 1)
 * CHIMERE_TEST_FAULT_LOG=FILE at the end "KIND COUNT" is written there for every kind that was called
 * CHIMERE_TEST_FAULT_FS=NUMBER statfs(2) says that files lie on this kind of file system, and pread(2) takes 10 ms more
 * CHIMERE_TEST_FAULT_HOLD=FILE write(2) waits as long as FILE exists
 * CHIMERE_TEST_FAULT_LIVE=FILE another process says what is to fail while this one runs: struct live, mapped from there
 *
 * KIND cut is special: the file behind the Nth mapping of a file loses its second half as soon as it is
 * mapped, and the call succeeds. So are most: all memory of more than N bytes that is mapped without a file fails; and
 * kill: the program is killed instead of removing its Nth file.
 *
 * Kinds: alloc (ENOMEM), map (ENOMEM), open (EMFILE), read (EIO), write (ENOSPC), sync (EIO), rename
 * (EACCES). Calls that the C library makes inside itself are its own and are not seen here, but for its
 * allocations.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

enum kind { ALLOC, MAP, OPEN, READ, WRITE, SYNC, RENAME, CUT, MOST, KILL, N_KINDS };
static const char *const names[N_KINDS] = { "alloc", "map",    "open", "read", "write",
                                            "sync",  "rename", "cut",  "most", "kill" };

static atomic_long counts[N_KINDS];

/* What fails now, in numbers of 64 bits: the kind, which of its calls; then how many failed, how many pieces of memory
 * are held, and the calls of each kind. */
static struct live {
    atomic_long kind, at, failed, held, count[N_KINDS];
} * live; /* NULL: nobody asks */

static void *held(void *p)
{
    if (live != NULL && p != NULL)
        atomic_fetch_add(&live->held, 1);
    return p;
}

static atomic_int running; /* main has begun and not ended */
static enum kind fail_kind = N_KINDS;
static long fail_at;

/* In a call whose allocations are not the program's. A thread's own, as the sanitizer may not see it yet. */
static __thread int spared __attribute__((tls_model("initial-exec")));

/* True for the one call that has to fail. */
static int hit(enum kind k)
{
    if (!atomic_load(&running) || spared)
        return 0;
    if (live != NULL && atomic_fetch_add(&live->count[k], 1) + 1 == atomic_load(&live->at) &&
        (long)k == atomic_load(&live->kind)) {
        atomic_fetch_add(&live->failed, 1);
        return 1;
    }
    return atomic_fetch_add(&counts[k], 1) + 1 == fail_at && k == fail_kind;
}

/* The next definition of a function, looked up once. Objects and functions have pointers of one size
 * here; memcpy says so without a cast that the standard does not know. */
#define NEXT(type, args, name) \
    static type(*next) args; \
    if (next == NULL) { \
        void *found = dlsym(RTLD_NEXT, name); \
        memcpy(&next, &found, sizeof next); \
    }

/* dlsym itself allocates before malloc is known: a little memory for that, never given back. */
static _Alignas(16) char early[16384];
static size_t early_used;

static void *early_alloc(size_t n)
{
    char *p = early + early_used;

    n = (n + 15) & ~(size_t)15;
    if (n > sizeof early - early_used)
        return NULL;
    early_used += n;
    return p;
}

static int is_early(const void *p)
{
    return (const char *)p >= early && (const char *)p < early + sizeof early;
}

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);

static int ready(void)
{
    static int busy;
    void *found;

    if (real_free != NULL)
        return 1;
    if (busy)
        return 0;
    busy = 1;
    found = dlsym(RTLD_NEXT, "malloc");
    memcpy(&real_malloc, &found, sizeof found);
    found = dlsym(RTLD_NEXT, "calloc");
    memcpy(&real_calloc, &found, sizeof found);
    found = dlsym(RTLD_NEXT, "realloc");
    memcpy(&real_realloc, &found, sizeof found);
    found = dlsym(RTLD_NEXT, "free");
    memcpy(&real_free, &found, sizeof found);
    busy = 0;
    return 1;
}

void *malloc(size_t n)
{
    if (!ready())
        return early_alloc(n);
    if (hit(ALLOC)) {
        errno = ENOMEM;
        return NULL;
    }
    return held(real_malloc(n));
}

void *calloc(size_t count, size_t size)
{
    if (!ready())
        return early_alloc(count * size);
    if (hit(ALLOC)) {
        errno = ENOMEM;
        return NULL;
    }
    return held(real_calloc(count, size));
}

void *realloc(void *p, size_t n)
{
    if (!ready() || is_early(p))
        return NULL;
    if (hit(ALLOC)) {
        errno = ENOMEM;
        return NULL;
    }
    return p == NULL ? held(real_realloc(p, n)) : real_realloc(p, n);
}

void free(void *p)
{
    if (p == NULL || is_early(p) || !ready())
        return;
    if (live != NULL)
        atomic_fetch_sub(&live->held, 1);
    real_free(p);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    NEXT(int, (void **, size_t, size_t), "posix_memalign")
    if (hit(ALLOC))
        return ENOMEM;
    const int code = next(out, align, n);
    if (code == 0)
        held(*out);
    return code;
}

void *aligned_alloc(size_t align, size_t n)
{
    NEXT(void *, (size_t, size_t), "aligned_alloc")
    if (hit(ALLOC)) {
        errno = ENOMEM;
        return NULL;
    }
    return held(next(align, n));
}

#define FAIL(kind, code, result) \
    if (hit(kind)) { \
        errno = code; \
        return result; \
    }

/* Through its standard streams a program talks with who says what is to fail. */
#define FAIL_AT(fd, kind, code, result) \
    if (live == NULL || (fd) > STDERR_FILENO) \
    FAIL(kind, code, result)

/* AddressSanitizer asks for the stack of each thread that begins, and ends the process when it cannot know. */
int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
    int code;

    NEXT(int, (pthread_t, pthread_attr_t *), "pthread_getattr_np")
    spared++;
    code = next(thread, attr);
    spared--;
    return code;
}

static void cut_file(int fd, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (truncate(path, (off_t)size) != 0)
        _exit(125);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    NEXT(void *, (void *, size_t, int, int, int, off_t), "mmap")
    FAIL(MAP, ENOMEM, MAP_FAILED)
    if (fd < 0 && fail_kind == MOST && n > (size_t)fail_at) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (fd >= 0 && hit(CUT)) {
        void *mapped = next(at, n, prot, flags, fd, offset);

        cut_file(fd, n / 2);
        return mapped;
    }
    return next(at, n, prot, flags, fd, offset);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    mode_t mode;

    NEXT(int, (const char *, int, ...), "open")
    va_start(ap, flags);
    mode = (flags & O_CREAT) != 0 ? (mode_t)va_arg(ap, int) : 0;
    va_end(ap);
    FAIL(OPEN, EMFILE, -1)
    return next(path, flags, mode);
}

int mkstemp(char *template)
{
    NEXT(int, (char *), "mkstemp")
    FAIL(OPEN, EMFILE, -1)
    return next(template);
}

FILE *fopen(const char *path, const char *mode)
{
    NEXT(FILE *, (const char *, const char *), "fopen")
    FAIL(OPEN, EMFILE, NULL)
    return next(path, mode);
}

ssize_t read(int fd, void *to, size_t n)
{
    NEXT(ssize_t, (int, void *, size_t), "read")
    FAIL_AT(fd, READ, EIO, -1)
    return next(fd, to, n);
}

ssize_t pread(int fd, void *to, size_t n, off_t offset)
{
    NEXT(ssize_t, (int, void *, size_t, off_t), "pread")
    FAIL(READ, EIO, -1)
    if (getenv("CHIMERE_TEST_FAULT_FS") != NULL)
        usleep(10000);
    return next(fd, to, n, offset);
}

int statfs(const char *path, struct statfs *out)
{
    const char *kind = getenv("CHIMERE_TEST_FAULT_FS");
    int rc;
    NEXT(int, (const char *, struct statfs *), "statfs")

    rc = next(path, out);
    if (rc == 0 && kind != NULL)
        out->f_type = strtol(kind, NULL, 0);
    return rc;
}

ssize_t write(int fd, const void *from, size_t n)
{
    const char *hold = atomic_load(&running) ? getenv("CHIMERE_TEST_FAULT_HOLD") : NULL;
    NEXT(ssize_t, (int, const void *, size_t), "write")

    while (hold != NULL && access(hold, F_OK) == 0)
        usleep(1000);
    FAIL_AT(fd, WRITE, ENOSPC, -1)
    return next(fd, from, n);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t offset)
{
    NEXT(ssize_t, (int, const void *, size_t, off_t), "pwrite")
    FAIL(WRITE, ENOSPC, -1)
    return next(fd, from, n, offset);
}

int fsync(int fd)
{
    NEXT(int, (int), "fsync")
    FAIL(SYNC, EIO, -1)
    return next(fd);
}

int rename(const char *from, const char *to)
{
    NEXT(int, (const char *, const char *), "rename")
    FAIL(RENAME, EACCES, -1)
    return next(from, to);
}

int unlink(const char *path)
{
    NEXT(int, (const char *), "unlink")
    if (hit(KILL))
        (void)raise(SIGKILL);
    return next(path);
}

static void write_log(void)
{
    const char *path = getenv("CHIMERE_TEST_FAULT_LOG");
    FILE *f;

    atomic_store(&running, 0);
    if (path == NULL || (f = fopen(path, "w")) == NULL)
        return;
    for (int k = 0; k < N_KINDS; k++) {
        if (counts[k] != 0)
            fprintf(f, "%s %ld\n", names[k], (long)counts[k]);
    }
    fclose(f);
}

static void map_live(const char *path)
{
    const int fd = path != NULL ? open(path, O_RDWR) : -1;
    void *at = fd >= 0 ? mmap(NULL, sizeof *live, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;

    if (at != MAP_FAILED)
        live = at;
    if (fd >= 0)
        close(fd);
}

static int (*real_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **envp)
{
    const char *spec = getenv("CHIMERE_TEST_FAULT");
    const char *colon = spec == NULL ? NULL : strchr(spec, ':');

    if (colon != NULL) {
        for (int k = 0; k < N_KINDS; k++) {
            if (strlen(names[k]) == (size_t)(colon - spec) && memcmp(names[k], spec, (size_t)(colon - spec)) == 0)
                fail_kind = (enum kind)k;
        }
        fail_at = strtol(colon + 1, NULL, 10);
    }
    if (atexit(write_log) != 0)
        return 125;
    map_live(getenv("CHIMERE_TEST_FAULT_LIVE"));
    atomic_store(&running, 1);
    return real_main(argc, argv, envp);
}

/* The C library's way into main: ours stands in front of it. */
int __libc_start_main(int (*main_fn)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    NEXT(int, (int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *),
         "__libc_start_main")
    real_main = main_fn;
    return next(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
