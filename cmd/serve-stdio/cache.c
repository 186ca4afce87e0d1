/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - conversations in a directory (cache.h).                          room: cmd */
#include "serve-stdio/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/open.h"
#include "gen/gen.h"
#include "run/session.h"
#include "text/text.h"

enum {
    GAIN_MIN = 32,    /* tokens that are worth reading a file for, and a conversation worth keeping */
    FILES_MAX = 4096, /* that are looked at */
    NAME_BYTES = 64,
    PATH_BYTES = 4096 + NAME_BYTES,
};
static const char begins[] = "chimere-", ends[] = ".session";

/* A file, as it was when it was looked at. */
struct entry {
    char name[NAME_BYTES];
    ino_t inode;
    int64_t bytes, used_ns;
    bool seen;    /* in this round */
    bool useless; /* of another model, damaged, ... */
    bool busy;    /* it was being written */
    int32_t *token;
    int64_t n, border; /* as a place's */
    uint64_t adapters; /* run_adapters_hash() of those it was made with */
    uint64_t owner;    /* gen_owner() */
};

/* What is known of a sequence. */
struct place {
    char name[NAME_BYTES]; /* its file; "": none */
    int64_t border;        /* tokens of it that the next turn begins with, too */
    bool dirty;            /* holds what is in no file */
    uint64_t adapters;     /* run_adapters_hash() of those it was made with */
    uint64_t owner;        /* gen_owner() */
};

struct cli_cache {
    char *dir;
    int64_t bytes_max;
    struct run *run;
    struct gen *gen;
    uint64_t tokenizer;
    const char *model;
    char made[160]; /* what the numbers in a file depend on */
    struct entry *entry;
    size_t n_entries;
    struct place *place; /* [run_n_seq] */
    uint64_t n_names;
    bool warned, told_size;
};

static void warn(struct cli_cache *c, const struct err *e)
{
    if (!c->warned)
        cli_warn("--cache-dir: %s; the server goes on without it", e->msg);
    c->warned = true;
}

static void path_of(const struct cli_cache *c, const char *name, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%.4000s/%s", c->dir, name);
}

/* ---- the files of the directory ---- */

/* NULL: it is none of ours, or memory is out. */
static json_t *parse_blob(const void *blob, size_t n)
{
    json_t *o = NULL;

    return json_parse_own(&o, (struct str){ blob, n }, "a session", NULL) == ERR_OK ? o : NULL;
}

static void look_into(struct cli_cache *c, struct entry *x)
{
    struct run_session *s = NULL;
    char path[PATH_BYTES];
    const int32_t *token;
    const void *blob;
    size_t n_blob;
    struct err e = { 0 };

    path_of(c, x->name, path);
    free(x->token);
    x->token = NULL;
    x->useless = true;
    const enum err_code code = run_session_open_shared(&s, path, &e);

    x->busy = code == ERR_IO;
    if (code)
        return;
    blob = run_session_blob(s, &n_blob);
    json_t *o = parse_blob(blob, n_blob);
    const char *made = json_string_value(json_object_get(o, "made"));

    token = run_session_tokens(s, &x->n);
    if (made != NULL && strcmp(made, c->made) == 0 && x->n > 0 &&
        (x->token = malloc((size_t)x->n * sizeof *x->token)) != NULL) {
        const char *adapters = json_string_value(json_object_get(o, "adapters"));
        const char *owner = json_string_value(json_object_get(o, "owner"));

        memcpy(x->token, token, (size_t)x->n * sizeof *x->token);
        x->border = json_integer_value(json_object_get(o, "border"));
        x->adapters = adapters != NULL ? strtoull(adapters, NULL, 16) : 0;
        x->owner = owner != NULL ? strtoull(owner, NULL, 16) : 0;
        x->useless = false;
    }
    json_decref(o);
    run_session_close(s);
}

static struct entry *entry_of(struct cli_cache *c, const char *name)
{
    struct entry *v;

    for (size_t i = 0; i < c->n_entries; i++)
        if (strcmp(c->entry[i].name, name) == 0)
            return &c->entry[i];
    if (c->n_entries == FILES_MAX || (v = realloc(c->entry, (c->n_entries + 1) * sizeof *v)) == NULL)
        return NULL;
    c->entry = v;
    v = &v[c->n_entries++];
    *v = (struct entry){ .bytes = -1 };
    memcpy(v->name, name, strlen(name) + 1); /* scan_directory() saw that it has room */
    return v;
}

/* Looks at the directory again, into files that are new or have changed. */
static void scan_directory(struct cli_cache *c)
{
    DIR *d = opendir(c->dir);
    const struct dirent *f;
    size_t n = 0;

    for (size_t i = 0; i < c->n_entries; i++)
        c->entry[i].seen = false;
    while (d != NULL && (f = readdir(d)) != NULL) {
        const size_t length = strlen(f->d_name);
        struct stat st;
        struct entry *x;

        if (length >= NAME_BYTES || length <= sizeof begins + sizeof ends ||
            strncmp(f->d_name, begins, sizeof begins - 1) != 0 ||
            strcmp(f->d_name + length - (sizeof ends - 1), ends) != 0 ||
            fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
            (x = entry_of(c, f->d_name)) == NULL)
            continue;
        x->seen = true;
        x->used_ns = io_changed_ns(&st);
        if (x->inode == st.st_ino && x->bytes == st.st_size && !x->busy)
            continue;
        x->inode = st.st_ino;
        x->bytes = st.st_size;
        look_into(c, x);
    }
    if (d != NULL)
        closedir(d);
    for (size_t i = 0; i < c->n_entries; i++) {
        if (c->entry[i].seen)
            c->entry[n++] = c->entry[i];
        else
            free(c->entry[i].token);
    }
    c->n_entries = n;
}

/* Whether file a is to go before file b. */
static bool precedes(const struct cli_cache *c, const struct entry *a, const struct entry *b)
{
    const bool a_large = a->bytes > c->bytes_max, b_large = b->bytes > c->bytes_max;

    return a_large != b_large ? a_large : a->used_ns < b->used_ns;
}

/* Removes files until the rest is small enough: those that have no room alone, then those that were used longest ago.
 */
static void make_room(struct cli_cache *c)
{
    int64_t sum = 0;
    char path[PATH_BYTES];

    scan_directory(c);
    for (size_t i = 0; i < c->n_entries; i++)
        sum += c->entry[i].bytes;
    while (sum > c->bytes_max && c->n_entries > 0) {
        struct entry *oldest = c->entry;

        for (size_t i = 1; i < c->n_entries; i++)
            if (precedes(c, &c->entry[i], oldest))
                oldest = &c->entry[i];
        if (oldest->bytes > c->bytes_max && !c->told_size) {
            cli_warn("--cache-size %" PRId64 ": a conversation takes %" PRId64 " bytes, and is not kept", c->bytes_max,
                     oldest->bytes);
            c->told_size = true;
        }
        path_of(c, oldest->name, path);
        (void)unlink(path);
        sum -= oldest->bytes;
        free(oldest->token);
        *oldest = c->entry[--c->n_entries];
    }
}

/* ---- saving ---- */

static int64_t common_of(const int32_t *a, int64_t n, const int32_t *b, int64_t m)
{
    int64_t i = 0;

    while (i < n && i < m && a[i] == b[i])
        i++;
    return i;
}

static void new_name(struct cli_cache *c, char out[NAME_BYTES])
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    (void)snprintf(out, NAME_BYTES, "%s%08" PRIx64 "%08lx-%lx-%" PRIx64 "%s", begins, (uint64_t)t.tv_sec & 0xffffffffu,
                   (unsigned long)t.tv_nsec, (unsigned long)getpid(), ++c->n_names, ends);
}

/* The file of the conversation that a sequence goes on with, whatever place it had; NULL: there is none. */
static const struct entry *continued(const struct cli_cache *c, int seq, const struct place *p)
{
    const struct entry *best = NULL;

    for (size_t i = 0; i < c->n_entries; i++) {
        const struct entry *x = &c->entry[i];

        if (!x->useless && x->adapters == p->adapters && x->owner == p->owner && x->border > 0 &&
            (best == NULL || x->border > best->border) &&
            common_of(x->token, x->n, run_tokens(c->run, seq), run_pos(c->run, seq)) >= x->border)
            best = x;
    }
    return best;
}

static enum err_code write_file(struct cli_cache *c, int seq, bool other, bool *again, struct err *e)
{
    struct place *p = &c->place[seq];
    struct run_session_id id = { c->tokenizer, c->model, p->adapters };
    const struct run *r = c->run;
    struct run_session *s = NULL;
    char path[PATH_BYTES], blob[320];
    int64_t n = 0, border;
    size_t n_blob = 0;
    const int32_t *had;
    const void *kept;
    json_t *o;
    enum err_code code;

    if (!other) {
        scan_directory(c);
        const struct entry *x = continued(c, seq, p);
        if (x != NULL)
            memcpy(p->name, x->name, sizeof p->name);
    }
    if (p->name[0] == '\0' || other)
        new_name(c, p->name);
    path_of(c, p->name, path);
    *again = false;
    if (run_session_open(&s, path, e)) {
        *again = !other && e->code != ERR_NOMEM; /* somebody else writes it, or it is damaged */
        return e->code;
    }
    had = run_session_tokens(s, &n);
    kept = run_session_blob(s, &n_blob);
    o = parse_blob(kept, n_blob);
    border = json_integer_value(json_object_get(o, "border"));
    json_decref(o);
    /* The same conversation, or one that begins alike and has another file. */
    if (n > 0 && common_of(had, n, run_tokens(r, seq), run_pos(r, seq)) < border) {
        run_session_close(s);
        *again = !other;
        return *again ? err_set(e, ERR_IO, "%s: holds another conversation", path) : ERR_OK;
    }
    (void)snprintf(blob, sizeof blob,
                   "{\"made\":\"%s\",\"border\":%" PRId64 ",\"adapters\":\"%016" PRIx64 "\",\"owner\":\"%016" PRIx64
                   "\"}",
                   c->made, p->border, id.adapters, p->owner);
    code = run_session_attach(s, c->run, &id, e);
    if (code == ERR_OK)
        code = run_session_save(s, c->run, seq, blob, strlen(blob), e);
    *again = code != ERR_OK && !other && code != ERR_NOMEM;
    run_session_close(s);
    return code;
}

static void save_place(struct cli_cache *c, int seq)
{
    struct place *p = &c->place[seq];
    struct err e = { 0 };
    bool again;
    enum err_code code;

    if (!p->dirty)
        return;
    p->dirty = false;
    if (run_pos(c->run, seq) < GAIN_MIN)
        return;
    code = write_file(c, seq, false, &again, &e);
    if (code != ERR_OK && again)
        code = write_file(c, seq, true, &again, &e);
    if (code != ERR_OK) {
        warn(c, &e);
        p->name[0] = '\0';
    }
    make_room(c);
}

/* ---- loading ---- */

static void load_entry(struct cli_cache *c, struct entry *x, int seq, const struct gen_request *q)
{
    struct place *p = &c->place[seq];
    struct run_session *s = NULL;
    struct run_match m;
    struct err e = { 0 };
    char path[PATH_BYTES];

    path_of(c, x->name, path);
    p->adapters = run_adapters_hash(q->adapters, q->n_adapters);
    p->owner = q->owner;
    gen_set_owner(c->gen, seq, q->owner);
    struct run_session_id id = { c->tokenizer, c->model, p->adapters };

    run_clear(c->run, seq);
    p->name[0] = '\0';
    if (run_session_open_shared(&s, path, &e))
        return;
    if (run_set_adapters(c->run, seq, q->adapters, q->n_adapters, &e) || run_session_attach(s, c->run, &id, &e) ||
        run_session_match(s, c->run, seq, q->prompt, q->n_prompt, &m, &e)) {
        run_clear(c->run, seq);
        x->useless = e.code == ERR_FORMAT;
        if (e.code == ERR_NOMEM || e.code == ERR_IO)
            warn(c, &e);
    } else if (m.kept > 0) {
        memcpy(p->name, x->name, sizeof p->name);
        (void)utimensat(AT_FDCWD, path, NULL, 0); /* used now */
        cli_note("cache    %s: %" PRId64 " of %" PRId64 " tokens", x->name, m.kept, q->n_prompt);
    }
    run_session_close(s);
}

/* ---- what serve tells ---- */

static void before_prompt(void *of, const struct gen_request *q)
{
    struct cli_cache *c = of;
    const int seq = gen_idle(c->gen);
    struct entry *best = NULL;
    int64_t held = 0, most = 0;

    for (int i = 0; i < run_n_seq(c->run); i++) /* one of them is taken now */
        save_place(c, i);
    if (seq < 0 || q->pool || q->n_rows > 1)
        return;
    for (int i = 0; i < run_n_seq(c->run); i++) {
        const bool same = gen_owner(c->gen, i) == q->owner && run_has_adapters(c->run, i, q->adapters, q->n_adapters);
        const int64_t kept = same ? run_kept(c->run, i, q->prompt, q->n_prompt) : 0;

        held = kept > held ? kept : held;
    }
    if (held + GAIN_MIN >= q->n_prompt)
        return;
    const uint64_t adapters = run_adapters_hash(q->adapters, q->n_adapters);

    scan_directory(c);
    for (size_t i = 0; i < c->n_entries; i++) {
        struct entry *x = &c->entry[i];
        const bool mine = !x->useless && x->adapters == adapters && x->owner == q->owner;
        const int64_t common = !mine ? 0 : common_of(x->token, x->n, q->prompt, q->n_prompt);

        if (common > most) {
            most = common;
            best = x;
        }
    }
    if (best != NULL && most >= held + GAIN_MIN)
        load_entry(c, best, seq, q);
}

static void after(void *of, int seq, const struct gen_request *q)
{
    struct cli_cache *c = of;
    struct place *p = &c->place[seq];

    p->adapters = run_adapters_hash(q->adapters, q->n_adapters);
    p->owner = q->owner;
    p->border = q->n_marks > 0 ? q->marks[q->n_marks - 1] : q->n_prompt;
    p->dirty = true;
}

static void idle(void *of)
{
    struct cli_cache *c = of;

    for (int i = 0; i < run_n_seq(c->run); i++)
        save_place(c, i);
}

const struct serve_keeper cli_cache_keeper = { before_prompt, after, idle };

/* ---- opening ---- */

enum err_code cli_cache_open(struct cli_cache **out, const char *dir, int64_t bytes_max, const struct cli_opened *model,
                             struct run *r, struct gen *g, struct err *e)
{
    const char *slash = strrchr(model->path, '/'), *k, *v;
    struct cli_cache *c;
    struct stat st;
    int dir_fd;

    if (mkdir(dir, 0700) && errno != EEXIST)
        return err_errno(e, ERR_IO, errno, "--cache-dir: %s: cannot make the directory", dir);
    if (stat(dir, &st) || !S_ISDIR(st.st_mode) || access(dir, R_OK | W_OK | X_OK))
        return err_set(e, ERR_IO, "--cache-dir: %s: not a directory that this user may write to", dir);
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd >= 0) {
        io_remove_left(dir_fd, begins);
        close(dir_fd);
    }
    c = calloc(1, sizeof *c);
    if (c == NULL || (c->dir = strdup(dir)) == NULL ||
        (c->place = calloc((size_t)run_n_seq(r), sizeof *c->place)) == NULL) {
        if (c != NULL)
            free(c->dir);
        free(c);
        return err_nomem(e);
    }
    c->bytes_max = bytes_max;
    c->run = r;
    c->gen = g;
    c->tokenizer = text_fingerprint(model->gguf);
    c->model = slash != NULL ? slash + 1 : model->path;
    run_kv(r, &k, &v);
    (void)snprintf(c->made, sizeof c->made, "%s, model %016" PRIx64 ", acts %d, kv %s %s, %.32s", CHIMERE_VERSION,
                   model_fingerprint(model->model), model->o.acts, k != NULL ? k : "-", v != NULL ? v : "-",
                   cli_open_device_kind(&model->o));
    for (char *p = c->made; *p != '\0'; p++) /* it stands in a JSON string */
        if (*p == '"' || *p == '\\' || (unsigned char)*p < ' ')
            *p = '.';
    *out = c;
    return ERR_OK;
}

void cli_cache_close(struct cli_cache *c)
{
    if (c == NULL)
        return;
    idle(c);
    for (size_t i = 0; i < c->n_entries; i++)
        free(c->entry[i].token);
    free(c->entry);
    free(c->place);
    free(c->dir);
    free(c);
}
