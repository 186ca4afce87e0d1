/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - the directory of a journal: a file of each kind a day, lines, how much it holds.       room: journal */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "journal/internal.h"

static const char *const kind_names[KINDS] = { "answers-%s.jsonl", "ratings-%s.jsonl", "%s.scored" };

void journal_day(char out[DAY_BYTES], int64_t seconds)
{
    const time_t at = (time_t)seconds;
    struct tm local = { 0 };

    if (localtime_r(&at, &local) == NULL || strftime(out, DAY_BYTES, "%Y-%m-%d", &local) == 0)
        memcpy(out, "1970-01-01", DAY_BYTES);
}

static void name_file(char out[NAME_BYTES], enum file_kind kind, const char *day)
{
    (void)snprintf(out, NAME_BYTES, kind_names[kind], day);
}

/* The day and the kind of a file; false: it is none of ours. */
static bool read_name(const char *name, enum file_kind *kind, char day[DAY_BYTES])
{
    char same[NAME_BYTES];

    for (int i = 0; i < KINDS; i++) {
        const size_t from = strcspn(kind_names[i], "%");

        if (strlen(name) < from + DAY_BYTES - 1)
            continue;
        memcpy(day, name + from, DAY_BYTES - 1);
        day[DAY_BYTES - 1] = '\0';
        name_file(same, (enum file_kind)i, day);
        if (strspn(day, "0123456789-") == DAY_BYTES - 1 && strcmp(same, name) == 0) {
            *kind = (enum file_kind)i;
            return true;
        }
    }
    return false;
}

/* ---- opening ---- */

enum err_code journal_files_open(struct files *f, const struct journal_opts *o, struct err *e)
{
    *f = (struct files){ .dir = -1, .bytes_max = o->bytes_max, .unseen = -1, .fd = { -1, -1, -1 } };
    (void)snprintf(f->path, sizeof f->path, "%s", o->dir);
    return io_open_dir(&f->dir, o->dir, !o->is_there, e);
}

void journal_files_close(struct files *f)
{
    for (int i = 0; i < KINDS; i++)
        if (f->fd[i] >= 0)
            close(f->fd[i]);
    if (f->dir >= 0)
        close(f->dir);
}

static enum err_code open_file(struct files *f, enum file_kind kind, struct err *e)
{
    char name[NAME_BYTES];
    struct stat st;

    name_file(name, kind, f->day);
    f->fd[kind] = openat(f->dir, name, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (f->fd[kind] < 0)
        return err_errno(e, ERR_IO, errno, "%s/%s: cannot open", f->path, name);
    if (fstat(f->fd[kind], &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0)
        return ERR_OK;
    close(f->fd[kind]);
    f->fd[kind] = -1;
    return err_set(e, ERR_IO, "%s/%s: is not a plain file of this user alone (chmod 600)", f->path, name);
}

/* ---- how much there is ---- */

struct day {
    char name[DAY_BYTES];
    int64_t bytes;
    bool scored;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct day *)a)->name, ((const struct day *)b)->name);
}

static struct day *find_day(struct day *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i].name, name) == 0)
            return &v[i];
    return NULL;
}

/* The days of the directory, oldest first; malloc'ed. */
static enum err_code list_days(const struct files *f, struct day **out, size_t *n_out, struct err *e)
{
    const int fd = openat(f->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    struct day *v = NULL;
    size_t n = 0, cap = 0;
    enum err_code code = ERR_OK;

    if (d == NULL) {
        code = err_errno(e, ERR_IO, errno, "%s: cannot list", f->path);
        if (fd >= 0)
            close(fd);
        return code;
    }
    while (code == ERR_OK && (entry = readdir(d)) != NULL) {
        char name[DAY_BYTES];
        enum file_kind kind;
        struct stat st;
        struct day *day;

        if (!read_name(entry->d_name, &kind, name) || fstatat(f->dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        day = find_day(v, n, name);
        if (day == NULL && (code = memory_room(&v, &cap, n + 1, sizeof *v, e)) == ERR_OK) {
            day = &v[n++];
            *day = (struct day){ .bytes = 0 };
            memcpy(day->name, name, DAY_BYTES);
        }
        if (code != ERR_OK)
            break;
        day->bytes += (int64_t)st.st_size;
        day->scored = day->scored || kind == SCORED;
    }
    closedir(d);
    if (n > 0)
        qsort(v, n, sizeof *v, by_name);
    *out = v;
    *n_out = n;
    return code;
}

static void remove_day(const struct files *f, const char *day)
{
    char name[NAME_BYTES];

    for (int i = 0; i < KINDS; i++) {
        name_file(name, (enum file_kind)i, day);
        (void)unlinkat(f->dir, name, 0);
    }
}

/* Days that were scored go, the oldest first, until the rest is as small as it should be. What was not scored stays,
 * and up to twice the size there is room for more of it. */
static enum err_code make_room(struct files *f, char notice[NOTICE_BYTES], struct err *e)
{
    struct day *v = NULL;
    size_t n = 0, gone = 0;
    int64_t bytes = 0;

    if (f->bytes_max == 0 || (f->unseen >= 0 && f->unseen < f->bytes_max / 64))
        return ERR_OK;
    if (list_days(f, &v, &n, e)) {
        free(v);
        return e->code;
    }
    for (size_t i = 0; i < n; i++)
        bytes += v[i].bytes;
    for (size_t i = 0; i < n && bytes > f->bytes_max; i++)
        if (v[i].scored && strcmp(v[i].name, f->day) != 0) {
            remove_day(f, v[i].name);
            bytes -= v[i].bytes;
            gone++;
        }
    free(v);
    f->unseen = 0;
    f->full = bytes / 2 > f->bytes_max;
    if (bytes > f->bytes_max)
        (void)snprintf(notice, NOTICE_BYTES,
                       "%.300s: has %lld MiB, more than --log-size: days that are not scored stay%s", f->path,
                       (long long)(bytes >> 20), f->full ? ", and new answers are not kept" : "");
    else if (gone > 0)
        (void)snprintf(notice, NOTICE_BYTES, "%.300s: the oldest days were removed (%zu): --log-size", f->path, gone);
    return ERR_OK;
}

/* ---- lines ---- */

/* A killed writer may leave part of a line. A line feed is added, and readers skip that line. */
static bool is_cut(int fd)
{
    struct stat st;
    char last;

    return fstat(fd, &st) == 0 && st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n';
}

static enum err_code write_line(struct files *f, enum file_kind kind, struct str line, struct err *e)
{
    const int fd = f->fd[kind];
    char *whole;
    size_t n = line.n;
    ssize_t done;

    whole = is_cut(fd) ? malloc(line.n + 1) : NULL;
    if (whole != NULL) {
        whole[0] = '\n';
        memcpy(whole + 1, line.p, line.n);
        n++;
    }
    do {
        done = write(fd, whole != NULL ? whole : line.p, n);
    } while (done < 0 && errno == EINTR);
    free(whole);
    if (done == (ssize_t)n)
        return ERR_OK;
    return done < 0 ? err_errno(e, ERR_IO, errno, "%s: cannot write", f->path)
                    : err_set(e, ERR_IO, "%s: cannot write: no space left", f->path);
}

enum err_code journal_files_add(struct files *f, enum file_kind kind, struct str line, char notice[NOTICE_BYTES],
                                struct err *e)
{
    char day[DAY_BYTES], name[NAME_BYTES];
    struct stat st, there;

    journal_day(day, (int64_t)time(NULL));
    name_file(name, kind, day);
    /* Another day, or somebody removed the file. */
    if (strcmp(day, f->day) != 0 ||
        (f->fd[kind] >= 0 && (fstat(f->fd[kind], &st) != 0 || fstatat(f->dir, name, &there, AT_SYMLINK_NOFOLLOW) != 0 ||
                              st.st_ino != there.st_ino || st.st_dev != there.st_dev)))
        for (int i = 0; i < KINDS; i++) {
            if (f->fd[i] >= 0)
                close(f->fd[i]);
            f->fd[i] = -1;
        }
    memcpy(f->day, day, DAY_BYTES);
    if (make_room(f, notice, e) || (f->fd[kind] < 0 && open_file(f, kind, e)))
        return e->code;
    if (f->full && kind == ANSWERS)
        return err_set(e, ERR_LIMIT, "%s: is full", f->path);
    f->unseen += (int64_t)line.n;
    return write_line(f, kind, line, e);
}

/* ---- reading ---- */

/* The lines of one file. */
static enum err_code read_file(const struct files *f, const char *day, bool (*use)(void *of, struct str line), void *of,
                               bool *found, struct err *e)
{
    char name[NAME_BYTES], *line = NULL;
    size_t room = 0;
    ssize_t n;
    struct stat st;
    enum err_code code = ERR_OK;

    name_file(name, ANSWERS, day);
    const int fd = openat(f->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT)
        return ERR_OK;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            close(fd);
        return err_set(e, ERR_IO, "%s/%s: cannot be read", f->path, name);
    }
    FILE *in = fdopen(fd, "r");

    if (in == NULL) {
        close(fd);
        return err_nomem(e);
    }
    while (!*found && (n = getline(&line, &room, in)) > 0)
        *found = use(of, (struct str){ line, (size_t)n });
    if (ferror(in))
        code = err_set(e, ERR_IO, "%s/%s: cannot be read", f->path, name);
    free(line);
    (void)fclose(in);
    return code;
}

enum err_code journal_files_read(const struct files *f, const char day[DAY_BYTES],
                                 bool (*use)(void *of, struct str line), void *of, bool *found, struct err *e)
{
    struct day *v = NULL;
    size_t n = 0;
    enum err_code code = list_days(f, &v, &n, e);

    *found = false;
    for (size_t i = 0; i < n && code == ERR_OK && !*found; i++)
        if (strcmp(v[i].name, day) >= 0)
            code = read_file(f, v[i].name, use, of, found, e);
    free(v);
    return code;
}
