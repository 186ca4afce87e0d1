/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - files of clients, in a directory that outlasts the server (files.h).   room: cmd */
#include "serve-stdio/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

void cli_file_path(const struct cli_files *f, const char *id, char path[CLI_PATH_BYTES])
{
    (void)snprintf(path, CLI_PATH_BYTES, "%.4000s/%s", f->dir, id);
}

enum err_code cli_files_open(struct cli_files *f, const char *dir, int64_t bytes_max, struct err *e)
{
    char path[CLI_PATH_BYTES];
    int fd;

    *f = (struct cli_files){ .dir = dir, .lock = -1, .room = bytes_max };
    (void)umask(077);
    if (io_open_dir(&fd, dir, true, e))
        return err_wrap(e, "--files");
    close(fd);
    cli_file_path(f, "lock", path);
    return io_open_own(&f->lock, path, e) || cli_records_open(&f->table, f->dir, CLI_FILES_BEGIN, e)
               ? err_wrap(e, "--files")
               : ERR_OK;
}

void cli_files_close(struct cli_files *f)
{
    cli_records_close(&f->table);
    if (f->dir != NULL && f->lock >= 0)
        close(f->lock);
    *f = (struct cli_files){ .lock = -1 };
}

static const struct cli_record *find_any(const struct cli_files *f, const char *id)
{
    for (size_t i = 0; i < f->table.n; i++)
        if (strcmp(f->table.v[i]->id, id) == 0)
            return f->table.v[i];
    return NULL;
}

enum err_code cli_files_tidy(struct cli_files *f, bool (*keeps)(void *of, const char *id), void *of, struct err *e)
{
    DIR *d = opendir(f->dir);
    const struct dirent *entry;
    struct stat st;

    if (d == NULL)
        return err_errno(e, ERR_IO, errno, "%s: cannot read", f->dir);
    while ((entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;

        if (strncmp(name, CLI_FILES_BEGIN, sizeof CLI_FILES_BEGIN - 1) != 0 || strchr(name, '.') != NULL ||
            fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (find_any(f, name) != NULL)
            f->room -= st.st_size;
        else if (!keeps(of, name))
            (void)unlinkat(dirfd(d), name, 0);
    }
    for (size_t i = f->table.n; i-- > 0;) {
        struct cli_record *x = f->table.v[i];

        if (fstatat(dirfd(d), x->id, &st, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        cli_warn("%s/%s: is gone", f->dir, x->id);
        cli_record_remove(&f->table, x);
    }
    closedir(d);
    return ERR_OK;
}

/* ---- coming in ---- */

enum err_code cli_upload_begin(struct cli_upload *u, struct cli_files *f, struct err *e)
{
    char path[CLI_PATH_BYTES];

    *u = (struct cli_upload){ .files = f };
    if (cli_record_id(u->id, CLI_FILES_BEGIN, e))
        return e->code;
    cli_file_path(f, u->id, path);
    return io_out_open(&u->out, path, e);
}

enum err_code cli_upload_add(struct cli_upload *u, struct str part, struct err *e)
{
    if ((int64_t)part.n > u->files->room)
        return err_set(e, ERR_LIMIT, "there is no room for the file (--files-size)");
    u->files->room -= (int64_t)part.n;
    u->bytes += (int64_t)part.n;
    return io_out_write(u->out, part.p, part.n, e);
}

void cli_upload_drop(struct cli_upload *u)
{
    if (u->files == NULL)
        return;
    u->files->room += u->bytes;
    io_out_abort(u->out);
    *u = (struct cli_upload){ .bytes = 0 };
}

enum err_code cli_upload_end(struct cli_upload *u, uint64_t owner, const char *name, const char *purpose,
                             struct cli_record **out, struct err *e)
{
    struct cli_upload all = *u;

    *u = (struct cli_upload){ .bytes = 0 };
    if (io_out_commit(all.out, e) == ERR_OK) {
        char path[CLI_PATH_BYTES];

        if (cli_file_add(all.files, all.id, owner, all.bytes, name, purpose, out, e) == ERR_OK)
            return ERR_OK;
        cli_file_path(all.files, all.id, path);
        (void)unlink(path);
    }
    all.files->room += all.bytes;
    return e->code;
}

enum err_code cli_file_add(struct cli_files *f, const char *id, uint64_t owner, int64_t bytes, const char *name,
                           const char *purpose, struct cli_record **out, struct err *e)
{
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:n, s:o, s:s, s:s}", "id", id, "object", "file", "bytes",
                               (json_int_t)bytes, "created_at", (json_int_t)time(NULL), "expires_at", "filename",
                               json_bytes(str_of(name)), "purpose", purpose, "status", "processed");
    struct cli_record *x;

    if (cli_record_add(&x, &f->table, id, owner, object, json_object(), e))
        return e->code;
    if (cli_record_save(&f->table, x, e)) {
        cli_record_remove(&f->table, x);
        return e->code;
    }
    *out = x;
    return ERR_OK;
}

void cli_file_remove(struct cli_files *f, struct cli_record *x)
{
    char path[CLI_PATH_BYTES];

    cli_file_path(f, x->id, path);
    f->room += json_integer_value(json_object_get(x->object, "bytes"));
    cli_record_remove(&f->table, x);
    (void)unlink(path);
}
