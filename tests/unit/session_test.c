/* SPDX-License-Identifier: Apache-2.0 */
/* session_test.c - sessions in files: what was saved comes back to the byte, only to whom it belongs, and costs what
 * is new. CHIMERE_TEST_PROGRAMS random programs for each family (1,000 unless set). */
#include "part.h"
#include "session_rig.h"

#define OTHER "tests/golden/models/bamba-a.gguf"

/* ---- random programs ---- */

struct saved {
    int32_t token[LEN_MAX];
    int n;
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
        struct run_opts o = { .ctx_tokens = LEN_MAX,
                              .n_seq = SEQS,
                              .rows_max = STEP_MAX,
                              .undo_tokens = kind > 0 ? UNDO : 0,
                              .checkpoint_bytes = kind * 1000000 };

        const bool wide =
            strstr(model, "mamba") == NULL && strstr(model, "kimi") == NULL && strstr(model, "bail") == NULL;

        o.kv_k = o.kv_v = wide ? kv[kind] : "f32";
        if (strcmp(o.kv_k, "q8_0") == 0 && strstr(model, "qwen35moe") == NULL)
            o.kv_k = o.kv_v = "f32"; /* heads are too narrow for its blocks */
        rig_open_on(&rig, kind == 1 ? 2 : kind - 3, model, 1, &o);
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
    refused(&rig, &(struct run_session_id){ 78, "tiny", 0 }, ERR_FORMAT, "another tokenizer");
    rig_open(&other, OTHER, 1, &(struct run_opts){ .ctx_tokens = 128 });
    refused(&other, &(struct run_session_id){ 77, "other", 0 }, ERR_FORMAT,
            "a session of the model 'tiny' (qwen35moe,");
    refused(&other, &(struct run_session_id){ 77, "other", 0 }, ERR_FORMAT, "not of 'other' (granitehybrid,");
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

static void only_read(void **state)
{
    int32_t tokens[60];
    struct err e = { 0 };
    struct run_session *a, *b, *c;
    struct rig rig;

    (void)state;
    fill(tokens, 60, 3);
    assert_int_equal(run_session_open_shared(&a, path, &e), ERR_IO);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 128 });
    feed_to(&rig, tokens, 0, 40);
    save(&rig, NULL, 0);
    ok(run_session_open_shared(&a, path, &e), &e);
    ok(run_session_open_shared(&b, path, &e), &e);
    assert_string_equal(run_session_of(b).name, me.name);
    assert_int_equal(run_session_of(b).tokenizer, me.tokenizer);
    assert_int_equal(run_session_open(&c, path, &e), ERR_IO);
    says(&e, "another process");
    ok(run_session_attach(b, rig.r, &me, &e), &e);
    run_clear(rig.r, 0);
    ok(run_session_load(b, rig.r, 0, INT64_MAX, &e), &e);
    assert_int_equal(run_pos(rig.r, 0), 40);
    feed_to(&rig, tokens, 40, 60);
    assert_int_equal(run_session_save(b, rig.r, 0, NULL, 0, &e), ERR_ARG);
    run_session_close(a);
    run_session_close(b);
    rig_close(&rig);
}

/* Version 1 stored keys in blocks as they were; the other types are the same in both. */
static void older_version(void **state)
{
    static const char *const kv[] = { "f32", "f16", "q8_0", "q4_0" };
    const int32_t token = 1;

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct run_session *s;
        struct err e = { 0 };
        struct rig rig;
        char *data = NULL;
        size_t n;

        rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 8, .kv_k = kv[i], .kv_v = "q8_0" });
        feed_to(&rig, &token, 0, 1);
        save(&rig, NULL, 0);
        rig_close(&rig);
        ok(io_read_all(&data, &n, path, 1 << 28, NULL, &e), &e);
        assert_int_equal(data[8], 2);
        data[8] = 1;
        uint64_t sum = io_hash(0, data, 248);
        memcpy(data + 248, &sum, 8);
        put_file(path, data, 256); /* records follow the checksum of the old header */
        assert_int_equal(run_session_open(&s, path, &e), i < 2 ? ERR_FORMAT : ERR_UNSUPPORTED);
        says(&e, i < 2 ? "offset 256: the session breaks off" : "a session of version 1, which stores keys of type q");
        (void)unlink(path);
        free(data);
    }
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

/* Saved between any two tokens and gone on from with another cut into steps, from one device to two and back, which
 * have layers each or share every layer: the bytes of one run. */
static void any_chunking(void **state)
{
    enum { N = 620 };
    int32_t tokens[N];
    struct err e = { 0 };
    struct rig a, two[2];
    float *want;

    (void)state;
    fill(tokens, N, 37);
    rig_open(&a, MODEL, 1, &(struct run_opts){ .ctx_tokens = N, .rows_max = 7, .checkpoint_bytes = 1 << 20 });
    for (int i = 0; i < 2; i++)
        rig_open_on(&two[i], i == 0 ? 2 : -2, MODEL, 2, &(struct run_opts){ .ctx_tokens = N + 100, .rows_max = 128 });
    want = logits_of(&a, tokens, N, 1);
    for (int at = 251; at < 262; at++) {
        struct rig *b = &two[at / 5 % 2];
        struct run_session *s;

        (void)unlink(path);
        run_clear(a.r, 0);
        feed_to(&a, tokens, 0, 100);
        save(&a, NULL, 0);
        feed_to(&a, tokens, 100, at);
        save(&a, NULL, 0);
        s = open_with(b->r);
        ok(run_session_load(s, b->r, 0, INT64_MAX, &e), &e);
        run_session_close(s);
        assert_int_equal(run_pos(b->r, 0), at);
        feed_to(b, tokens, at, at + 9);
        save(b, NULL, 0);
        feed_to(b, tokens, at + 9, N);
        assert_memory_equal(want, run_logits_last(b->r), (size_t)a.n_vocab * sizeof *want);
        if (at % 5 > 0)
            continue;
        s = open_with(a.r);
        ok(run_session_load(s, a.r, 0, INT64_MAX, &e), &e);
        run_session_close(s);
        feed_to(&a, tokens, at + 9, N);
        assert_memory_equal(want, run_logits_last(a.r), (size_t)a.n_vocab * sizeof *want);
    }
    free(want);
    rig_close(&a);
    rig_close(&two[0]);
    rig_close(&two[1]);
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
    if (SANITIZED)
        skip(); /* rows_of_no_use() has a file written anew, too */
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
    rig_open(&rig, MODEL, 1,
             &(struct run_opts){
                 .ctx_tokens = 128, .undo_tokens = 20, .checkpoint_bytes = 4 * run_snapshot_bytes(plain.m) });
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

/* The examples of FIPS 180, and lengths at which the end needs a block more. */
static void sha256(void **state)
{
    char sum[65], text[128];

    (void)state;
    io_sha256_hex(sum, "", 0);
    assert_string_equal(sum, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    io_sha256_hex(sum, "abc", 3);
    assert_string_equal(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    io_sha256_hex(sum, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56);
    assert_string_equal(sum, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(text, 'a', sizeof text);
    io_sha256_hex(sum, text, 55);
    assert_string_equal(sum, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    io_sha256_hex(sum, text, 64);
    assert_string_equal(sum, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
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
    ok(io_read_all(&data, &n, model, 1 << 28, NULL, &e), &e);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash), cmocka_unit_test(sha256), IN_DIR(fingerprints),  IN_DIR(blobs),
        IN_DIR(of_another),     IN_DIR(not_a_session),    IN_DIR(one_at_a_time), IN_DIR(costs),
        IN_DIR(rows_of_no_use), IN_DIR(old_marks),        IN_DIR(any_chunking),  IN_DIR(own_families),
        IN_DIR(all_families),   IN_DIR(older_version),    IN_DIR(only_read),
    };

    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
