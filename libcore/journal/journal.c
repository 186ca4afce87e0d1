/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - an answer becomes a line, and a rating one that belongs to it (journal.h).           room: journal */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "journal/internal.h"

enum {
    REASONS = 5 /* of a lost line */,
    READ_TEXT_BYTES = 2 * JOURNAL_TEXT_BYTES_MAX,
    ID_KIND_MAX = 16,
    DAY_S = 86400
};

struct journal {
    struct files files;
    struct journal_redactor *redactor;
    void (*warn)(void *warn_of, const char *message);
    void *warn_of;
    enum err_code warned[REASONS]; /* ERR_OK: none */
    bool noticed;
};

enum err_code journal_open(struct journal **out, const struct journal_opts *o, struct err *e)
{
    struct journal *j = calloc(1, sizeof *j);

    if (j == NULL)
        return err_nomem(e);
    j->files = (struct files){ .dir = -1, .fd = { -1, -1, -1 } };
    j->warn = o->warn;
    j->warn_of = o->warn_of;
    if (journal_redactor_open(&j->redactor, o->redact, o->n_redact, e) || journal_files_open(&j->files, o, e)) {
        journal_close(j);
        return e->code;
    }
    *out = j;
    return ERR_OK;
}

void journal_close(struct journal *j)
{
    if (j == NULL)
        return;
    journal_files_close(&j->files);
    journal_redactor_close(j->redactor);
    free(j);
}

/* ---- numbers ---- */

uint64_t journal_process(void)
{
    struct timespec t;
    const pid_t pid = getpid();
    uint64_t h;

    clock_gettime(CLOCK_REALTIME, &t);
    h = io_hash((uint64_t)pid, &t.tv_sec, sizeof t.tv_sec);
    return io_hash(h, &t.tv_nsec, sizeof t.tv_nsec);
}

void journal_number(char out[JOURNAL_NUMBER_BYTES], int64_t seconds, uint64_t process, int64_t count)
{
    (void)snprintf(out, JOURNAL_NUMBER_BYTES, "%08llx%08llx%08llx", (unsigned long long)seconds & 0xffffffffu,
                   (unsigned long long)process & 0xffffffffu, (unsigned long long)count & 0xffffffffu);
}

/* The seconds of an id, letters and a number; 0: it is none. */
static int64_t seconds_of(struct str id)
{
    const size_t n = JOURNAL_NUMBER_BYTES - 1;
    int64_t at = 0;

    if (id.n < n || id.n > n + ID_KIND_MAX)
        return 0;
    for (size_t i = 0; i < id.n - n; i++)
        if (!(id.p[i] >= 'a' && id.p[i] <= 'z') && id.p[i] != '-' && id.p[i] != '_')
            return 0;
    for (size_t i = id.n - n; i < id.n; i++) {
        const char c = id.p[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

        if (digit < 0)
            return 0;
        at = i < id.n - n + 8 ? at * 16 + digit : at;
    }
    return at;
}

/* ---- what must not be kept ---- */

struct cleaning {
    struct journal_redactor *redactor;
    bool cut; /* a text was too long */
    struct err e;
};

static struct str head_of(struct str s, size_t most)
{
    size_t n = s.n < most ? s.n : most;

    while (n > 0 && n < s.n && ((unsigned char)s.p[n] & 0xC0) == 0x80)
        n--;
    return (struct str){ s.p, n };
}

/* A longer text is cut after patterns have had it, and twice of what is kept is looked at. */
static json_t *clean_text(struct cleaning *c, struct str s)
{
    const struct str head = head_of(s, READ_TEXT_BYTES);
    char *text = NULL;
    size_t n = 0;
    json_t *out;

    if (journal_redact(c->redactor, head, head.n < s.n, &text, &n, &c->e))
        return NULL;
    const struct str kept = head_of((struct str){ text, n }, JOURNAL_TEXT_BYTES_MAX);

    c->cut = c->cut || kept.n < n || head.n < s.n;
    out = json_stringn(kept.p, kept.n);
    free(text);
    return out;
}

enum owner { LINE, FILES, ANYBODY }; /* whose members an object has */

/* What is ours and says nothing of anybody: words and hashes. */
static bool is_safe(enum owner of, const char *key)
{
    static const char *const words[] = { "program", "build", "parent", "finish_reason", "key", "rating" };

    for (size_t i = 0; of == LINE && i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], key) == 0)
            return true;
    return of == FILES && strcmp(key, "fingerprint") == 0;
}

static enum owner owner_of(enum owner of, const char *key)
{
    return of == LINE && (strcmp(key, "model") == 0 || strcmp(key, "adapters") == 0) ? FILES : ANYBODY;
}

static json_t *clean_value(struct cleaning *c, enum owner of, json_t *v);

static json_t *clean_object(struct cleaning *c, enum owner of, json_t *v)
{
    json_t *out = json_object(), *one, *name;
    const char *key;
    bool ok = out != NULL;

    json_object_foreach (v, key, one) {
        name = !ok ? NULL : of == ANYBODY ? clean_text(c, str_of(key)) : json_string(key);
        ok = name != NULL &&
             json_object_set_new(out, json_string_value(name),
                                 is_safe(of, key) ? json_incref(one) : clean_value(c, owner_of(of, key), one)) == 0;
        json_decref(name);
    }
    return json_if(ok, out);
}

/* A copy without what patterns match; NULL: memory is out, or c->e says why. */
static json_t *clean_value(struct cleaning *c, enum owner of, json_t *v)
{
    json_t *out, *one;
    size_t i;

    if (json_is_string(v))
        return clean_text(c, json_text(v));
    if (json_is_object(v))
        return clean_object(c, of, v);
    if (!json_is_array(v))
        return json_incref(v);
    out = json_array();
    json_array_foreach (v, i, one)
        json_push(&out, clean_value(c, of, one));
    return out;
}

/* ---- lines ---- */

static json_t *time_of_now(void)
{
    struct timespec t;
    struct tm utc;
    char text[40];
    size_t n;

    clock_gettime(CLOCK_REALTIME, &t);
    if (gmtime_r(&t.tv_sec, &utc) == NULL)
        return NULL;
    n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(text + n, sizeof text - n, ".%03ldZ", t.tv_nsec / 1000000);
    return json_string(text);
}

/* One line of a head, which says what it is, and the members, which are taken. */
static enum err_code add_line(struct journal *j, enum file_kind kind, json_t *head, json_t *members, struct err *e)
{
    struct cleaning c = { .redactor = j->redactor };
    char notice[NOTICE_BYTES] = "", *text = NULL;
    enum err_code code = ERR_OK;
    json_t *clean;

    journal_redactor_begin(j->redactor);
    clean = members != NULL ? clean_value(&c, LINE, members) : NULL;
    if (clean == NULL)
        code = c.e.code != ERR_OK ? err_copy(e, &c.e) : err_nomem(e);
    else if (head == NULL || json_object_set_new(head, "time", time_of_now()) || json_object_update(head, clean) ||
             (c.cut && json_object_set_new(head, "cut", json_true())) || (text = json_line(head)) == NULL)
        code = err_nomem(e);
    json_decref(clean);
    json_decref(members);
    json_decref(head);
    if (code == ERR_OK) {
        const size_t n = strlen(text);

        text[n] = '\n'; /* in place of the end: one write */
        code = journal_files_add(&j->files, kind, (struct str){ text, n + 1 }, notice, e);
    }
    free(text);
    if (notice[0] != '\0' && !j->noticed && j->warn != NULL) {
        j->noticed = true;
        j->warn(j->warn_of, notice);
    }
    return code;
}

void journal_answer(struct journal *j, const char *id, json_t *members)
{
    char message[NOTICE_BYTES + 64];
    struct err e = { 0 };
    int i = 0;

    if (add_line(j, ANSWERS, json_pack("{s:s, s:s}", "type", "answer", "id", id), members, &e) == ERR_OK)
        return;
    while (i < REASONS && j->warned[i] != ERR_OK && j->warned[i] != e.code)
        i++;
    if (i == REASONS || j->warned[i] == e.code || j->warn == NULL)
        return;
    j->warned[i] = e.code;
    (void)snprintf(message, sizeof message, "%s: an answer is not kept, nor are others for this reason", e.msg);
    j->warn(j->warn_of, message);
}

/* ---- ratings ---- */

struct search {
    char begins[JOURNAL_NUMBER_BYTES + ID_KIND_MAX + 40];
    const struct journal_rating *r;
    bool other_choice; /* the answer has others than the one that is meant */
    bool other_key;
};

static bool is_rated(void *of, struct str line)
{
    struct search *s = of;
    const size_t n = strlen(s->begins);
    const char *key;
    json_t *o;
    struct err e;
    bool found = false;

    if (line.n < n || memcmp(line.p, s->begins, n) != 0 || json_parse_own(&o, line, "the log", &e))
        return false;
    key = json_string_value(json_object_get(o, "key"));
    if (json_integer_value(json_object_get(o, "index")) != s->r->index) {
        s->other_choice = true;
    } else {
        s->other_key = s->r->key != NULL && strcmp(s->r->key, key != NULL ? key : "") != 0;
        found = true;
    }
    json_decref(o);
    return found;
}

static enum err_code find_answer(const struct journal *j, const struct journal_rating *r, struct err *e)
{
    const int64_t seconds = seconds_of(r->id);
    struct search s = { .r = r };
    char day[DAY_BYTES];
    bool found = false;

    if (seconds > 0) {
        (void)snprintf(s.begins, sizeof s.begins, "{\"type\":\"answer\",\"id\":\"%.*s\"", STR_ARG(r->id));
        journal_day(day, seconds - DAY_S); /* whatever the local time was */
        if (journal_files_read(&j->files, day, is_rated, &s, &found, e))
            return e->code;
    }
    if (!found && s.other_choice) {
        err_set(e, ERR_ARG, "index: the answer has no choice %lld", (long long)r->index);
        return err_at(e, "/index");
    }
    if (!found) {
        err_set(e, ERR_ARG, "id: the log has no answer %.*s", (int)(r->id.n < 80 ? r->id.n : 80), r->id.p);
        return err_at(e, "/id");
    }
    return s.other_key ? err_set(e, ERR_UNSUPPORTED, "the answer was given to another key") : ERR_OK;
}

enum err_code journal_rate(struct journal *j, const struct journal_rating *r, struct err *e)
{
    json_t *head, *members;
    bool ok;

    if (find_answer(j, r, e))
        return e->code;
    head = json_pack("{s:s, s:o}", "type", "rating", "id", json_bytes(r->id));
    members = json_pack("{s:I, s:s}", "index", (json_int_t)r->index, "rating", r->good ? "good" : "bad");
    ok = members != NULL &&
         (r->better.p == NULL || json_object_set_new(members, "answer", json_bytes(r->better)) == 0) &&
         (r->client.n == 0 || json_object_set_new(members, "client", json_bytes(r->client)) == 0) &&
         (r->key == NULL || r->key[0] == '\0' || json_object_set_new(members, "key", json_string(r->key)) == 0);
    return add_line(j, RATINGS, head, json_if(ok, members), e);
}
