/* SPDX-License-Identifier: Apache-2.0 */
/* journal_test.c - the room journal: lines of answers and ratings, what is taken out of them, how much is kept. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include "base_dir.h"
#include "base/io.h"
#include "journal/journal.h"

static char warned[1024]; /* what was said so far */

static void keep_warning(void *of, const char *message)
{
    const size_t n = strlen(warned);

    (void)of;
    (void)snprintf(warned + n, sizeof warned - n, "%s\n", message);
}

static struct journal *open_journal(const char *name, const char *const *redact, size_t n, int64_t bytes_max)
{
    const struct journal_opts o = {
        .dir = name, .redact = redact, .n_redact = n, .bytes_max = bytes_max, .warn = keep_warning
    };
    struct journal *j = NULL;
    struct err e = { 0 };

    warned[0] = '\0';
    if (journal_open(&j, &o, &e))
        fail_msg("%s", e.msg);
    return j;
}

static void assert_refused(const char *name, enum err_code code, const char *says)
{
    struct journal *j = NULL;
    struct err e;

    assert_int_equal(journal_open(&j, &(struct journal_opts){ .dir = name }, &e), code);
    assert_says(&e, says);
    assert_null(j);
}

/* The file of today. */
static const char *today(char path[512], const char *log, const char *kind)
{
    const time_t now = time(NULL);
    struct tm local;
    char day[16];

    assert_non_null(localtime_r(&now, &local));
    assert_int_equal(strftime(day, sizeof day, "%Y-%m-%d", &local), 10);
    assert_true(snprintf(path, 512, "%s/%s-%s.jsonl", log, kind, day) < 512);
    return path;
}

/* The n-th line of a file as JSON; NULL: there is none, or it is none. */
static json_t *line_of(const char *path, size_t n)
{
    char *data, *line;
    size_t bytes;
    json_t *o = NULL;
    struct err e;

    assert_int_equal(io_read_all(&data, &bytes, path, 1 << 24, NULL, &e), ERR_OK);
    line = data;
    while (n-- > 0 && line != NULL && (line = strchr(line, '\n')) != NULL)
        line++;
    if (line != NULL && strchr(line, '\n') != NULL)
        o = json_loadb(line, (size_t)(strchr(line, '\n') - line), 0, NULL);
    free(data);
    return o;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text != NULL ? text : "";
}

static void remove_log(const char *log)
{
    char path[512];

    unlink(today(path, log, "answers"));
    unlink(today(path, log, "ratings"));
    assert_int_equal(rmdir(log), 0);
}

static void name_answer(char id[64], int64_t count)
{
    char number[JOURNAL_NUMBER_BYTES];

    journal_number(number, (int64_t)time(NULL), 0x1234567890abcdef, count);
    (void)snprintf(id, 64, "run-%s", number);
}

static void test_directories(void **state)
{
    char path[512], link[512], slash[512];
    struct stat st;

    (void)state;
    assert_refused("", ERR_ARG, "not the name");
    in_dir(path, "log");
    journal_close(open_journal(path, NULL, 0, 0));
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0700);
    assert_int_equal(symlink(path, in_dir(link, "link")), 0);
    assert_refused(link, ERR_IO, "is a link");
    (void)snprintf(slash, sizeof slash, "%.500s//", link);
    assert_refused(slash, ERR_IO, "is a link");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(chmod(path, 0770), 0);
    assert_refused(path, ERR_IO, "others can write");
    assert_int_equal(rmdir(path), 0);
    put_file(path, "x");
    assert_refused(path, ERR_IO, "Not a directory");
    assert_int_equal(unlink(path), 0);
    struct journal *j = NULL;
    struct err e;

    assert_int_equal(journal_open(&j, &(struct journal_opts){ .dir = path, .is_there = true }, &e), ERR_IO);
    assert_int_equal(rmdir(path), -1);
}

/* Whole lines beside what a killed writer left, 0600, and no way through a link. */
static void test_lines(void **state)
{
    char log[512], path[512], other[512], id[64];
    struct journal *j;
    struct stat st;
    json_t *o;

    (void)state;
    j = open_journal(in_dir(log, "log"), NULL, 0, 0);
    today(path, log, "answers");
    put_file(path, "{\"type\":\"answ");
    assert_int_equal(chmod(path, 0600), 0);
    for (int i = 0; i < 3; i++) {
        name_answer(id, i);
        journal_answer(j, id, json_pack("{s:s, s:i}", "text", "x\ny", "index", 0));
    }
    o = line_of(path, 3);
    assert_string_equal(text_of(o, "id"), id);
    assert_string_equal(text_of(o, "text"), "x\ny");
    assert_string_equal(text_of(o, "type"), "answer");
    assert_null(json_object_get(o, "cut"));
    json_decref(o);
    assert_null(line_of(path, 0));
    assert_null(line_of(path, 4));
    assert_int_equal(unlink(path), 0); /* it is made again */
    journal_answer(j, id, json_object());
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    assert_string_equal(warned, "");
    journal_close(j);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(in_dir(other, "other"), path), 0);
    j = open_journal(log, NULL, 0, 0);
    journal_answer(j, id, json_object());
    assert_non_null(strstr(warned, "cannot open"));
    assert_int_equal(access(other, F_OK), -1);
    journal_close(j);
    remove_log(log);
}

/* Two processes, each with lines that no other one may break. */
static void test_two_writers(void **state)
{
    enum { LINES = 200 };
    char log[512], path[512], id[64], text[3000];
    struct journal *j;
    pid_t child;
    int status;

    (void)state;
    in_dir(log, "log");
    journal_close(open_journal(log, NULL, 0, 0));
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    child = fork();
    assert_true(child >= 0);
    j = open_journal(log, NULL, 0, 0);
    for (int i = 0; i < LINES; i++) {
        name_answer(id, i);
        journal_answer(j, id, json_pack("{s:s}", "text", text));
    }
    journal_close(j);
    if (child == 0)
        _exit(warned[0] != '\0');
    assert_true(waitpid(child, &status, 0) == child && status == 0);
    today(path, log, "answers");
    FILE *in = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    int n = 0;

    assert_non_null(in);
    while (getline(&line, &room, in) > 0) {
        json_t *o = json_loads(line, 0, NULL);

        n += o != NULL;
        assert_true(o != NULL || strcmp(line, "\n") == 0); /* an end for what looked cut off while it was written */
        json_decref(o);
    }
    assert_int_equal(n, 2 * LINES);
    free(line);
    (void)fclose(in);
    remove_log(log);
}

/* Patterns have all texts and names but our own, before a text is cut. */
static void test_redaction(void **state)
{
    static const char *const patterns[] = { "sk-\\w+", "(?i)anna" };
    char log[512], path[512], *text = malloc(3 * JOURNAL_TEXT_BYTES_MAX);
    struct journal *j;
    json_t *o, *m;

    (void)state;
    assert_non_null(text);
    memset(text, '.', 3 * JOURNAL_TEXT_BYTES_MAX);
    memcpy(text + JOURNAL_TEXT_BYTES_MAX - 5, "sk-abcdefghij", 13); /* over the cut */
    text[3 * JOURNAL_TEXT_BYTES_MAX - 1] = '\0';
    j = open_journal(in_dir(log, "log"), patterns, 2, 0);
    journal_answer(j, "sk-1",
                   json_pack("{s:s, s:{s:s, s:s}, s:[{s:s, s:s}], s:s}", "program", "anna", "model", "file",
                             "/x/anna/m.gguf", "fingerprint", "sk-1", "messages", "content", "Anna's sk-9_ and sk-",
                             "anna", "sk-2", "text", text));
    o = line_of(today(path, log, "answers"), 0);
    assert_string_equal(text_of(o, "id"), "sk-1");
    assert_string_equal(text_of(o, "program"), "anna");
    assert_string_equal(text_of(json_object_get(o, "model"), "file"), "/x/[redacted]/m.gguf");
    assert_string_equal(text_of(json_object_get(o, "model"), "fingerprint"), "sk-1");
    m = json_array_get(json_object_get(o, "messages"), 0);
    assert_string_equal(text_of(m, "content"), "[redacted]'s [redacted] and sk-");
    assert_string_equal(text_of(m, "[redacted]"), "[redacted]");
    assert_true(json_is_true(json_object_get(o, "cut")));
    assert_int_equal(json_string_length(json_object_get(o, "text")), JOURNAL_TEXT_BYTES_MAX);
    assert_non_null(strstr(text_of(o, "text"), ".[reda"));
    assert_null(strstr(text_of(o, "text"), "sk-"));
    json_decref(o);
    journal_close(j);
    free(text);
    remove_log(log);
}

/* A pattern that goes back and forth loses the line, once with a word; the next line is there. */
static void test_bounds(void **state)
{
    static const char *const backtracks[] = { "(a+)+$" };
    static const struct {
        const char *pattern, *says;
    } wrong[] = { { "(", "'(': missing" }, { "x*", "matches where nothing is" }, { "\\C", "byte" } };
    char log[512], path[512], text[80];
    struct journal *j;
    json_t *o;
    struct err e;

    (void)state;
    memset(text, 'a', sizeof text);
    text[sizeof text - 2] = '!';
    text[sizeof text - 1] = '\0';
    j = open_journal(in_dir(log, "log"), backtracks, 1, 0);
    journal_answer(j, "1", json_pack("{s:s}", "text", text));
    assert_non_null(strstr(warned, "'(a+)+$': gave up"));
    warned[0] = '\0';
    journal_answer(j, "2", json_pack("{s:s}", "text", text));
    journal_answer(j, "3", json_pack("{s:s}", "text", "aa"));
    assert_string_equal(warned, "");
    o = line_of(today(path, log, "answers"), 0);
    assert_string_equal(text_of(o, "id"), "3");
    assert_string_equal(text_of(o, "text"), "[redacted]");
    json_decref(o);
    assert_null(line_of(path, 1));
    journal_close(j);
    remove_log(log);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const two[] = { "y", wrong[i].pattern };

        j = NULL;
        assert_int_equal(journal_open(&j, &(struct journal_opts){ .dir = log, .redact = two, .n_redact = 2 }, &e),
                         ERR_ARG);
        assert_says(&e, wrong[i].says);
        assert_string_equal(e.where, "/redact/1");
    }
}

/* A full disk costs lines and one warning, and the next line begins anew. */
static void test_no_room(void **state)
{
    struct rlimit had, few = { 100, RLIM_INFINITY };
    char log[512], path[512];
    struct journal *j;
    json_t *o;

    (void)state;
    j = open_journal(in_dir(log, "log"), NULL, 0, 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &had), 0);
    few.rlim_max = had.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    for (int i = 0; i < 3; i++)
        journal_answer(j, "1", json_pack("{s:s}", "text", "0123456789012345678901234567890123456789"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &had), 0);
    assert_non_null(strstr(warned, "cannot write"));
    assert_string_equal(strchr(warned, '\n'), "\n");
    journal_answer(j, "2", json_object());
    assert_null(line_of(today(path, log, "answers"), 0));
    o = line_of(path, 1);
    assert_string_equal(text_of(o, "id"), "2");
    json_decref(o);
    journal_close(j);
    remove_log(log);
}

static void put_day(const char *log, const char *name, size_t bytes)
{
    char path[1024];
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/%s", log, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), (off_t)bytes), 0);
    assert_int_equal(fclose(f), 0);
}

static bool has_day(const char *log, const char *name)
{
    char path[1024];

    (void)snprintf(path, sizeof path, "%s/%s", log, name);
    return access(path, F_OK) == 0;
}

/* Days that are scored go, oldest first; others stay, and at twice the size nothing more comes. */
static void test_size(void **state)
{
    const size_t mib = 1 << 20;
    char log[512], path[512];
    struct journal *j;

    (void)state;
    in_dir(log, "log");
    journal_close(open_journal(log, NULL, 0, 0));
    put_day(log, "answers-2020-01-01.jsonl", mib);
    put_day(log, "answers-2020-01-02.jsonl", mib);
    put_day(log, "ratings-2020-01-02.jsonl", mib);
    put_day(log, "2020-01-02.scored", 0);
    put_day(log, "answers-2020-01-03.jsonl", mib);
    put_day(log, "2020-01-03.scored", 0);
    put_day(log, "answers-20200103.jsonl", mib); /* not ours */
    j = open_journal(log, NULL, 0, (int64_t)(2 * mib + mib / 2));
    journal_answer(j, "1", json_object());
    assert_false(has_day(log, "answers-2020-01-02.jsonl") || has_day(log, "ratings-2020-01-02.jsonl") ||
                 has_day(log, "2020-01-02.scored"));
    assert_true(has_day(log, "answers-2020-01-01.jsonl") && has_day(log, "answers-2020-01-03.jsonl"));
    assert_non_null(strstr(warned, "the oldest days were removed (1)"));
    journal_close(j);
    j = open_journal(log, NULL, 0, (int64_t)(mib / 4)); /* the first day alone is more than twice that */
    journal_answer(j, "2", json_object());
    assert_true(has_day(log, "answers-2020-01-01.jsonl"));
    assert_false(has_day(log, "answers-2020-01-03.jsonl"));
    assert_non_null(strstr(warned, "not scored stay, and new answers are not kept"));
    assert_null(line_of(today(path, log, "answers"), 1));
    journal_close(j);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%.400s/answers-%s.jsonl", log, i == 0 ? "2020-01-01" : "20200103");
        assert_int_equal(unlink(path), 0);
    }
    remove_log(log);
}

static void test_ratings(void **state)
{
    char log[512], path[512], id[64], key[65], other[65];
    struct journal *j;
    struct journal_rating r = { .good = true, .key = "" };
    struct err e;
    json_t *o;

    (void)state;
    io_sha256_hex(key, "secret", 6);
    io_sha256_hex(other, "another", 7);
    j = open_journal(in_dir(log, "log"), (const char *const[]){ "sk-\\w+" }, 1, 0);
    name_answer(id, 1);
    r.id = str_of(id);
    assert_int_equal(journal_rate(j, &r, &e), ERR_ARG);
    assert_string_equal(e.where, "/id");
    journal_answer(j, id, json_pack("{s:i, s:s}", "index", 0, "key", key));
    journal_answer(j, id, json_pack("{s:i}", "index", 1));
    assert_int_equal(journal_rate(j, &r, &e), ERR_UNSUPPORTED);
    assert_says(&e, "another key");
    r.key = other;
    assert_int_equal(journal_rate(j, &r, &e), ERR_UNSUPPORTED);
    r.index = 2;
    assert_int_equal(journal_rate(j, &r, &e), ERR_ARG);
    assert_string_equal(e.where, "/index");
    r.index = 1;
    r.key = "";
    r.client = STR("me");
    assert_int_equal(journal_rate(j, &r, &e), ERR_OK);
    r = (struct journal_rating){ .id = str_of(id), .better = STR("say sk-1"), .key = key };
    assert_int_equal(journal_rate(j, &r, &e), ERR_OK);
    r.key = NULL; /* the owner of the log */
    assert_int_equal(journal_rate(j, &r, &e), ERR_OK);
    o = line_of(today(path, log, "ratings"), 0);
    assert_true(strcmp(text_of(o, "rating"), "good") == 0 && strcmp(text_of(o, "client"), "me") == 0);
    json_decref(o);
    o = line_of(path, 1);
    assert_string_equal(text_of(o, "type"), "rating");
    assert_string_equal(text_of(o, "id"), id);
    assert_string_equal(text_of(o, "rating"), "bad");
    assert_string_equal(text_of(o, "answer"), "say [redacted]");
    assert_string_equal(text_of(o, "key"), key);
    json_decref(o);
    for (int i = 0; i < 4; i++) {
        r.id = str_of((const char *const[]){ "", "run-", "run-\"0000000000000000000000001", "x" }[i]);
        assert_int_equal(journal_rate(j, &r, &e), ERR_ARG);
    }
    journal_close(j);
    remove_log(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_directories), WITH_DIR(test_lines),   WITH_DIR(test_two_writers), WITH_DIR(test_redaction),
        WITH_DIR(test_bounds),      WITH_DIR(test_no_room), WITH_DIR(test_size),        WITH_DIR(test_ratings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
