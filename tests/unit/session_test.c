/* SPDX-License-Identifier: Apache-2.0 */
/* session_test.c - sessions in files: what was saved comes back to the byte, whenever the writer is killed,
 * whatever happens to the file.
 *
 * The calls that change files are defined here in place of the C library's, so that a child can be killed in the
 * middle of any of them. CHIMERE_TEST_PROGRAMS random programs for each family, and as many kills (1,000 unless
 * set). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"
#include "run/session.h"

#define MODEL "tests/golden/models/qwen35moe-a.gguf"
#define OTHER "tests/golden/models/bamba-a.gguf"

static const struct run_session_id me = { 77, "tiny" };
static char dir[256], path[300];

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

static int make_dir(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/session_test.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/s", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir); /* fails when a temporary was left */
}

static void put_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(name, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- shorthand ---- */

static void ok(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

static void says(const struct err *e, const char *part)
{
    if (strstr(e->msg, part) == NULL || strchr(e->msg, '\n') != NULL)
        fail_msg("\"%s\" does not say \"%s\"", e->msg, part);
}

static struct run_session *open_with(struct run *r)
{
    struct run_session *s;
    struct err e = { 0 };

    ok(run_session_open(&s, path, &e), &e);
    ok(run_session_attach(s, r, &me, &e), &e);
    return s;
}

static void save(struct rig *rig, const void *blob, size_t n)
{
    struct err e = { 0 };
    struct run_session *s = open_with(rig->r);

    ok(run_session_save(s, rig->r, 0, blob, n, &e), &e);
    run_session_close(s);
}

static void feed_to(struct rig *rig, const int32_t *tokens, int64_t from, int64_t to)
{
    struct err e = { 0 };

    ok(run_feed(rig->r, 0, tokens + from, to - from, 1, NULL, NULL, NULL, &e), &e);
}

static void fill(int32_t *tokens, int n, int times)
{
    for (int i = 0; i < n; i++)
        tokens[i] = i * times % 500 + 1;
}

/* ---- random programs ---- */

struct saved {
    int32_t token[LEN_MAX];
    int     n;
};

static void save_one(struct program *p, struct saved *file)
{
    int q = (int)draw(p, SEQS);
    struct err e = { 0 };
    struct run_session *s = open_with(p->rig->r);

    program_ok(p, "save", run_session_save(s, p->rig->r, q, NULL, 0, &e), &e);
    run_session_close(s);
    file->n = p->seq[q].n;
    memcpy(file->token, p->seq[q].token, sizeof file->token);
}

/* A sequence becomes what the file has, or as much of it as another prompt can use. */
static void load_one(struct program *p, const struct saved *file)
{
    int q = (int)draw(p, SEQS);
    struct err e = { 0 };
    struct run_session *s;
    int64_t n;

    if (file->n < 0)
        return;
    s = open_with(p->rig->r);
    assert_memory_equal(run_session_tokens(s, &n), file->token, (size_t)file->n * sizeof *file->token);
    assert_int_equal(n, file->n);
    cut(&p->seq[q], 0);
    memcpy(p->seq[q].token, file->token, sizeof file->token);
    p->seq[q].n = file->n;
    if (draw(p, 2) == 0) {
        program_ok(p, "load", run_session_load(s, p->rig->r, q, INT64_MAX, &e), &e);
    } else {
        int32_t tokens[LEN_MAX];
        struct run_match m;
        int len = vary(p, q, tokens);

        program_ok(p, "match", run_session_match(s, p->rig->r, q, tokens, len, &m, &e), &e);
        assert_int_equal(m.held, file->n);
        assert_true(m.kept <= m.common);
        feed_rest(p, q, tokens, len, m.kept);
    }
    run_session_close(s);
}

static void run_program(struct rig *rig, struct rig *plain, uint64_t seed)
{
    struct program p = { .rig = rig, .seed = seed, .n_vocab = rig->n_vocab };
    struct saved file = { .n = -1 };

    (void)unlink(path);
    for (int q = 0; q < SEQS; q++)
        run_clear(rig->r, q);
    for (int i = 0; i < 10; i++)
        switch (draw(&p, 9)) {
        case 0:
            undo(&p);
            break;
        case 1:
            fork_one(&p);
            break;
        case 2:
            run_mark(rig->r, (int)draw(&p, SEQS));
            break;
        case 3:
        case 4:
            save_one(&p, &file);
            break;
        case 5:
        case 6:
            load_one(&p, &file);
            break;
        case 7:
            feed(&p, (int)draw(&p, SEQS), 1 + (int)draw(&p, 30));
            break;
        default:
            step(&p);
        }
    load_one(&p, &file);
    step(&p);
    compare(&p, plain);
}

static void check_family(const char *model)
{
    static const char *const kv[3] = { "f32", "f16", "q8_0" };
    long programs = program_count();
    struct rig rig, plain;

    for (int kind = 0; kind < 3; kind++) {
        struct run_opts o = { .ctx_tokens = LEN_MAX, .n_seq = SEQS, .rows_max = STEP_MAX,
                              .undo_tokens = kind > 0 ? UNDO : 0, .checkpoint_bytes = kind * 1000000 };

        o.kv_k = o.kv_v = strstr(model, "mamba") != NULL || strstr(model, "kimi") != NULL ? "f32" : kv[kind];
        if (strcmp(o.kv_k, "q8_0") == 0 && strstr(model, "qwen35moe") == NULL)
            o.kv_k = o.kv_v = "f32"; /* heads are too narrow for its blocks */
        rig_open(&rig, model, 1, &o);
        rig_open(&plain, model, 1, &(struct run_opts){ .ctx_tokens = LEN_MAX, .kv_k = o.kv_k, .kv_v = o.kv_v });
        for (long i = kind; i < programs; i += 3)
            run_program(&rig, &plain, (uint64_t)i);
        rig_close(&rig);
        rig_close(&plain);
    }
    print_message("%s: %ld programs\n", model, programs);
}

static void own_families(void **state)
{
    (void)state;
    each_model("tests/golden/models", check_family);
}

static void all_families(void **state)
{
    (void)state;
    each_golden(check_family);
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

static bool there(void)
{
    struct stat st;

    return stat(path, &st) == 0;
}

/* The sequence goes on as if its tokens had just been read. */
static void goes_on(struct rig *rig, struct rig *plain, int32_t *tokens, int n)
{
    tokens[n] = 9;
    feed_to(rig, tokens, n, n + 1);
    float *want = logits_of(plain, tokens, n + 1, 1);
    assert_memory_equal(want, run_logits_last(rig->r), (size_t)rig->n_vocab * sizeof *want);
    free(want);
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
    print_message("%ld kills: %ld found the old save, %ld the new one, %ld no file\n", n, n - at_next - unmade,
                  at_next, unmade);
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
    ok(io_read_all(&data, n, path, 1 << 28, &e), &e);
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
    ok(io_read_all(&data, &n, path, 1 << 28, &e), &e);
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

/* ---- refusals ---- */

static void refused(struct rig *rig, const struct run_session_id *id, enum err_code want, const char *part)
{
    struct run_session *s;
    struct err e = { 0 };

    ok(run_session_open(&s, path, &e), &e);
    assert_int_equal(run_session_attach(s, rig->r, id, &e), want);
    says(&e, part);
    says(&e, path);
    run_session_close(s);
}

static void of_another(void **state)
{
    int32_t tokens[100];
    struct err e = { 0 };
    struct run_session *s;
    struct run_match m;
    struct rig rig, other;
    const char *k, *v;

    (void)state;
    fill(tokens, 100, 3);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 128, .kv_k = "f16", .kv_v = "q8_0" });
    feed_to(&rig, tokens, 0, 100);
    save(&rig, NULL, 0);
    refused(&rig, &(struct run_session_id){ 78, "tiny" }, ERR_FORMAT, "another tokenizer");
    rig_open(&other, OTHER, 1, &(struct run_opts){ .ctx_tokens = 128 });
    refused(&other, &(struct run_session_id){ 77, "other" }, ERR_FORMAT, "a session of the model 'tiny' (qwen35moe,");
    refused(&other, &(struct run_session_id){ 77, "other" }, ERR_FORMAT, "not of 'other' (granitehybrid,");
    rig_close(&other);
    rig_open(&other, MODEL, 1, &(struct run_opts){ .ctx_tokens = 128 });
    refused(&other, &me, ERR_ARG, "keys and values of types f16,q8_0, not f32,f32");
    rig_close(&other);
    ok(run_session_open(&s, path, &e), &e);
    run_session_kv(s, &k, &v);
    assert_string_equal(k, "f16");
    assert_string_equal(v, "q8_0");
    rig_open(&other, MODEL, 1, &(struct run_opts){ .ctx_tokens = 64, .kv_k = k, .kv_v = v });
    ok(run_session_attach(s, other.r, &me, &e), &e);
    assert_int_equal(run_session_load(s, other.r, 0, INT64_MAX, &e), ERR_LIMIT);
    says(&e, "has 100 tokens, the context 64");
    assert_int_equal(run_pos(other.r, 0), 0);
    ok(run_session_match(s, other.r, 0, tokens, 60, &m, &e), &e);
    assert_int_equal(m.common, 60);
    assert_int_equal(m.kept, 0); /* the only snapshot is at 100 */
    run_session_close(s);
    rig_close(&other);
    rig_close(&rig);
}

static void not_a_session(void **state)
{
    struct run_session *s;
    struct err e = { 0 };
    char missing[400];

    (void)state;
    put_file(path, "GGUF, perhaps", 13);
    assert_int_equal(run_session_open(&s, path, &e), ERR_FORMAT);
    says(&e, "is not a session file");
    put_file(path, "", 0);
    assert_int_equal(run_session_open(&s, path, &e), ERR_FORMAT);
    put_file(path, "CHIMSTAT", 8);
    assert_int_equal(run_session_open(&s, path, &e), ERR_FORMAT);
    assert_int_equal(run_session_open(&s, dir, &e), ERR_IO);
    says(&e, "is a directory");
    (void)snprintf(missing, sizeof missing, "%s/no/such", dir);
    assert_int_equal(run_session_open(&s, missing, &e), ERR_IO);
    assert_int_equal(run_session_open(&s, "/dev/null", &e), ERR_IO);
}

static void one_at_a_time(void **state)
{
    const int32_t one = 1;
    struct run_session *s, *second;
    struct err e = { 0 };
    struct rig rig;

    (void)state;
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 8 });
    feed_to(&rig, &one, 0, 1);
    s = open_with(rig.r);
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
    assert_int_equal(run_session_open(&second, path, &e), ERR_IO);
    says(&e, "another process");
    run_session_close(s);
    ok(run_session_open(&second, path, &e), &e);
    assert_int_equal(run_session_load(second, rig.r, 0, 1, &e), ERR_ARG); /* not attached */
    run_session_close(second);
    rig_close(&rig);
}

/* ---- what is written ---- */

/* Saved between any two tokens and gone on from with another cut into steps: the bytes of one run. */
static void any_chunking(void **state)
{
    enum { N = 620 };
    int32_t tokens[N];
    struct err e = { 0 };
    struct rig a, b;
    float *want;

    (void)state;
    fill(tokens, N, 37);
    rig_open(&a, MODEL, 1, &(struct run_opts){ .ctx_tokens = N, .rows_max = 7, .checkpoint_bytes = 1 << 20 });
    rig_open(&b, MODEL, 2, &(struct run_opts){ .ctx_tokens = N + 100, .rows_max = 128 });
    want = logits_of(&a, tokens, N, 1);
    for (int at = 251; at < 262; at++) {
        struct run_session *s;

        (void)unlink(path);
        run_clear(a.r, 0);
        feed_to(&a, tokens, 0, 100);
        save(&a, NULL, 0);
        feed_to(&a, tokens, 100, at);
        save(&a, NULL, 0);
        s = open_with(b.r);
        ok(run_session_load(s, b.r, 0, INT64_MAX, &e), &e);
        run_session_close(s);
        assert_int_equal(run_pos(b.r, 0), at);
        feed_to(&b, tokens, at, N);
        assert_memory_equal(want, run_logits_last(b.r), (size_t)a.n_vocab * sizeof *want);
    }
    free(want);
    rig_close(&a);
    rig_close(&b);
}

/* A turn costs its own rows and a snapshot, however long the history; the file is written anew when most of it is
 * of no use any more. */
static void costs(void **state)
{
    enum { N = 2000 };
    static int32_t tokens[N];
    struct err e = { 0 };
    struct run_session *s;
    struct run_session_stat st;
    struct rig rig;
    int64_t first, biggest = 0;
    int rewritten = 0;

    (void)state;
    fill(tokens, N, 13);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = N });
    s = open_with(rig.r);
    feed_to(&rig, tokens, 0, 1000);
    ok(run_session_save(s, rig.r, 0, "blob", 4, &e), &e);
    first = run_session_stat(s).written_bytes;
    assert_true(first == run_session_stat(s).file_bytes && first > 100000);
    for (int at = 1000; at < 1010; at++) {
        feed_to(&rig, tokens, at, at + 1);
        ok(run_session_save(s, rig.r, 0, "blob", 4, &e), &e);
        st = run_session_stat(s);
        assert_true(!st.rewritten && st.written_bytes < first / 4);
    }
    assert_int_equal(st.snapshots, 11);
    for (int i = 0; i < 20; i++) { /* there and back again */
        struct run_match m;

        tokens[900] = i % 500 + 1;
        ok(run_match(rig.r, 0, tokens, 950, &m, &e), &e);
        feed_to(&rig, tokens, m.kept, 950);
        ok(run_session_save(s, rig.r, 0, "blob", 4, &e), &e);
        st = run_session_stat(s);
        rewritten += st.rewritten ? 1 : 0;
        biggest = st.file_bytes > biggest ? st.file_bytes : biggest;
    }
    assert_true(rewritten > 0);
    assert_true(biggest < 4 * first);
    run_session_close(s);
    rig_close(&rig);
}

/* Cut further on each time, nearly all rows of a save are of no use after the next one: a file with too many of
 * those would be refused, and is written anew before. */
static void rows_of_no_use(void **state)
{
    enum { N = 280, MORE = 200 };
    int32_t tokens[N + 1];
    struct err e = { 0 };
    struct run_session *s;
    struct rig rig, plain;
    int rewritten = 0;

    (void)state;
    fill(tokens, N, 17);
    rig_open(&rig, "tests/golden/models/lfm2moe-a.gguf", 1, &(struct run_opts){ .ctx_tokens = N + 1 });
    rig_open(&plain, "tests/golden/models/lfm2moe-a.gguf", 1, &(struct run_opts){ .ctx_tokens = N + 1 });
    s = open_with(rig.r);
    for (int i = 1; i < N - MORE; i++) {
        struct run_match m;

        tokens[i]++;
        ok(run_match(rig.r, 0, tokens, i + MORE, &m, &e), &e);
        feed_to(&rig, tokens, m.kept, i + MORE);
        ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
        rewritten += run_session_stat(s).rewritten ? 1 : 0;
        ok(run_session_load(s, rig.r, 0, INT64_MAX, &e), &e);
    }
    assert_true(rewritten > 2 && rewritten < 40);
    goes_on(&rig, &plain, tokens, N - 1);
    run_session_close(s);
    rig_close(&rig);
    rig_close(&plain);
}

/* A mark that lies before what is new in the file is none for the file. */
static void old_marks(void **state)
{
    int32_t tokens[101];
    struct err e = { 0 };
    struct run_match m;
    struct run_session *s;
    struct rig rig, plain;
    int64_t n;

    (void)state;
    fill(tokens, 100, 19);
    rig_open(&plain, MODEL, 1, &(struct run_opts){ .ctx_tokens = 128 });
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 128, .undo_tokens = 20,
                                                 .checkpoint_bytes = 4 * run_snapshot_bytes(plain.m) });
    s = open_with(rig.r);
    feed_to(&rig, tokens, 0, 10);
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
    feed_to(&rig, tokens, 10, 60);
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
    ok(run_match(rig.r, 0, tokens, 51, &m, &e), &e); /* undone */
    assert_int_equal(m.kept, 50);
    ok(run_match(rig.r, 0, tokens, 46, &m, &e), &e);
    assert_int_equal(m.kept, 45);
    run_mark(rig.r, 0);
    feed_to(&rig, tokens, 45, 50);
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
    run_session_close(s);
    s = open_with(rig.r);
    (void)run_session_tokens(s, &n);
    assert_int_equal(n, 50);
    assert_int_equal(run_session_stat(s).snapshots, 2); /* at 10 and at 50 */
    ok(run_session_load(s, rig.r, 0, INT64_MAX, &e), &e);
    goes_on(&rig, &plain, tokens, 50);
    run_session_close(s);
    rig_close(&rig);
    rig_close(&plain);
}

static void blobs(void **state)
{
    static char big[RUN_SESSION_BLOB_MAX + 1];
    const int32_t one = 1;
    struct run_session *s;
    struct err e = { 0 };
    struct rig rig;
    size_t n;

    (void)state;
    memset(big, 'x', sizeof big);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 8 });
    s = open_with(rig.r);
    (void)run_session_blob(s, &n);
    assert_int_equal(n, 0);
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e); /* of no tokens */
    feed_to(&rig, &one, 0, 1);
    ok(run_session_save(s, rig.r, 0, big, sizeof big - 1, &e), &e);
    assert_memory_equal(run_session_blob(s, &n), big, sizeof big - 1);
    assert_int_equal(n, sizeof big - 1);
    assert_int_equal(run_session_save(s, rig.r, 0, big, sizeof big, &e), ERR_ARG);
    ok(run_session_save(s, rig.r, 0, "ab", 2, &e), &e); /* nothing else is new */
    assert_true(run_session_stat(s).written_bytes < 200);
    run_session_close(s);
    s = open_with(rig.r);
    assert_memory_equal(run_session_blob(s, &n), "ab", 2);
    assert_int_equal(n, 2);
    ok(run_session_save(s, rig.r, 0, NULL, 0, &e), &e);
    (void)run_session_blob(s, &n);
    assert_int_equal(n, 0);
    run_session_close(s);
    rig_close(&rig);
}

/* Published values; one word, and one of more than 32 bytes in all of the ways a length can end. */
static void hash(void **state)
{
    const char *text = "Nobody inspects the spammish repetition";

    (void)state;
    assert_true(io_hash(0, "", 0) == 0xEF46DB3751D8E999);
    assert_true(io_hash(0, "a", 1) == 0xD24EC4F1A98C6E5B);
    assert_true(io_hash(0, "abc", 3) == 0x44BC2CF5AD770999);
    assert_true(io_hash(0, text, strlen(text)) == 0xFBCEA83C8A378BF1);
    for (size_t n = 0; n < strlen(text); n++)
        assert_true(io_hash(0, text, n) != io_hash(0, text, n + 1) && io_hash(1, text, n) != io_hash(0, text, n));
}

/* A weight, a number of the architecture, or a shape makes another model; a name does not. */
static void fingerprints(void **state)
{
    const char *model = "tests/golden/models/lfm2moe-a.gguf";
    struct err e = { 0 };
    uint64_t seen[3];
    char *data;
    size_t n;

    (void)state;
    ok(io_read_all(&data, &n, model, 1 << 28, &e), &e);
    for (int i = 0; i < 3; i++) {
        struct rig rig;

        if (i == 1) { /* general.name, wherever it lies */
            char *at = data;

            while (at < data + n - 20 && memcmp(at, "general.name", 12) != 0)
                at++;
            assert_true(at < data + n - 20);
            at[12 + 4 + 8] ^= 1; /* after the kind and the length */
        }
        if (i == 2) { /* the middle of the last tensor */
            struct gguf *g;

            ok(gguf_open(&g, model, &e), &e);
            const struct gguf_tensor *t = gguf_tensor_at(g, gguf_n_tensors(g) - 1);
            data[n - t->size_bytes / 2] ^= 1;
            gguf_close(g);
        }
        put_file(path, data, n);
        rig_open(&rig, path, 1, &(struct run_opts){ .ctx_tokens = 8 });
        seen[i] = model_fingerprint(rig.m);
        rig_close(&rig);
    }
    assert_true(seen[0] == seen[1]);
    assert_true(seen[0] != seen[2]);
    free(data);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash), IN_DIR(fingerprints),
        IN_DIR(blobs),        IN_DIR(of_another),   IN_DIR(not_a_session), IN_DIR(one_at_a_time),
        IN_DIR(torn_tail),    IN_DIR(full_disk),    IN_DIR(costs),         IN_DIR(rows_of_no_use),
        IN_DIR(old_marks),    IN_DIR(any_chunking), IN_DIR(spoilt),        IN_DIR(misplaced_records),
        IN_DIR(kills),        IN_DIR(own_families), IN_DIR(all_families),
    };

    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
