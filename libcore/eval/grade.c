/* SPDX-License-Identifier: Apache-2.0 */
/* grade.c - is an answer right? */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"

enum check { CHECK_EXACT, CHECK_NUMERIC, CHECK_REGEX, CHECK_VERDICT, CHECK_TOOL_CALL, N_CHECKS };
static const char *const check_names[N_CHECKS] = { "exact", "numeric", "regex", "verdict", "tool_call" };

#define MATCH_LIMIT 1000000 /* steps of a regular expression: seconds at most */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct str trim_space(struct str s)
{
    while (s.n > 0 && is_space(s.p[0])) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && is_space(s.p[s.n - 1]))
        s.n--;
    return s;
}

static bool starts(struct str s, const char *z)
{
    size_t n = strlen(z);

    return s.n >= n && memcmp(s.p, z, n) == 0;
}

static struct str skip_bytes(struct str s, size_t n)
{
    return (struct str){ s.p + n, s.n - n };
}

/* Where z first appears; s.n when it does not. */
static size_t find_part(struct str s, const char *z)
{
    for (size_t i = 0; i < s.n; i++)
        if (starts(skip_bytes(s, i), z))
            return i;
    return s.n;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* A number at the beginning of s: 12, -3.5, 1,234, 6e-3. Returns its bytes, 0 for none. */
static size_t number_at(struct str s, double *out)
{
    char buf[64];
    size_t n = 0, at = 0;

    if (at < s.n && (s.p[at] == '-' || s.p[at] == '+'))
        buf[n++] = s.p[at++];
    if (at >= s.n || !(is_digit(s.p[at]) || (s.p[at] == '.' && at + 1 < s.n && is_digit(s.p[at + 1]))))
        return 0;
    while (at < s.n && n < sizeof buf - 1) {
        char c = s.p[at], next = at + 1 < s.n ? s.p[at + 1] : ' ';

        if (c == ',' && at + 3 < s.n && is_digit(next) && is_digit(s.p[at + 2]) && is_digit(s.p[at + 3])) {
            at++; /* between thousands */
            continue;
        }
        if (!is_digit(c) && !(c == '.' && is_digit(next)) &&
            !((c == 'e' || c == 'E') &&
              (is_digit(next) || ((next == '-' || next == '+') && at + 2 < s.n && is_digit(s.p[at + 2])))) &&
            !((c == '-' || c == '+') && (s.p[at - 1] == 'e' || s.p[at - 1] == 'E')))
            break;
        buf[n++] = c;
        at++;
    }
    buf[n] = '\0';
    *out = strtod(buf, NULL);
    return at;
}

static bool last_number(struct str s, double *out)
{
    bool found = false;

    for (size_t i = 0; i < s.n;) {
        double v;
        size_t n = i > 0 && is_word(s.p[i - 1]) ? 0 : number_at(skip_bytes(s, i), &v);

        if (n > 0) {
            *out = v;
            found = true;
        }
        i += n > 0 ? n : 1;
    }
    return found;
}

static bool same_word(struct str s, const char *z)
{
    if (s.n != strlen(z))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if ((s.p[i] | 0x20) != z[i])
            return false;
    return true;
}

/* 1 yes, 0 no, -1 neither: what the last word that says either says. */
static int last_verdict(struct str s)
{
    static const char *const yes[] = { "yes", "true", "correct" }, *const no[] = { "no", "false", "incorrect" };
    int said = -1;

    for (size_t i = 0; i < s.n;) {
        size_t n = 0;

        while (i + n < s.n && is_word(s.p[i + n]))
            n++;
        for (size_t k = 0; k < 3; k++) {
            if (same_word((struct str){ s.p + i, n }, yes[k]))
                said = 1;
            if (same_word((struct str){ s.p + i, n }, no[k]))
                said = 0;
        }
        i += n > 0 ? n : 1;
    }
    return said;
}

/* ---- tool calls, in the form of the Qwen3.5 template ---- */

/* Takes "<WORD=NAME>\n" off the front. */
static bool take_name(struct str *s, const char *word, struct str *name)
{
    size_t n;

    if (!starts(*s, word))
        return false;
    *s = skip_bytes(*s, strlen(word));
    for (n = 0; n < s->n && s->p[n] != '>' && s->p[n] != '\n'; n++)
        ;
    if (n == 0 || !starts(skip_bytes(*s, n), ">\n"))
        return false;
    *name = (struct str){ s->p, n };
    *s = skip_bytes(*s, n + 2);
    return true;
}

static bool take_prefix(struct str *s, const char *z)
{
    if (!starts(*s, z))
        return false;
    *s = skip_bytes(*s, strlen(z));
    return true;
}

/* The text of an argument stands for a value: strings as they are, numbers by value, the rest as
 * JSON. */
static bool same_value(struct str text, const json_t *want)
{
    struct err e;
    json_t *got;
    double v;
    bool same;

    if (json_is_string(want))
        return str_eq(text, json_text(want));
    if (json_is_number(want))
        return number_at(text, &v) == text.n && text.n > 0 && v == json_number_value(want);
    if (json_is_boolean(want))
        return same_word(text, json_is_true(want) ? "true" : "false");
    if (json_is_null(want))
        return same_word(text, "none") || same_word(text, "null");
    if (json_parse(&got, text, "argument", &e))
        return false;
    same = json_equal(got, want) != 0;
    json_decref(got);
    return same;
}

/* One call off the front of *s; right is cleared when it is not the wanted one. False: not a call.
 */
static bool take_call(struct str *s, const json_t *want, bool *right)
{
    json_t *args = json_object_get(want, "arguments"), *seen = json_object();
    struct str name, key;
    size_t end;
    bool form = seen != NULL && take_prefix(s, "<tool_call>\n") && take_name(s, "<function=", &name);

    if (form && !str_is(name, want ? json_string_value(json_object_get(want, "name")) : ""))
        *right = false;
    while (form && starts(*s, "<parameter=")) {
        form = take_name(s, "<parameter=", &key);
        end = form ? find_part(*s, "\n</parameter>\n") : s->n;
        if (end == s->n) {
            form = false;
            break;
        }
        json_t *value = json_object_getn(args, key.p, key.n);
        if (value == NULL || !same_value((struct str){ s->p, end }, value) ||
            json_object_setn_new(seen, key.p, key.n, json_true()))
            *right = false;
        *s = skip_bytes(*s, end + strlen("\n</parameter>\n"));
    }
    if (json_object_size(seen) != json_object_size(args))
        *right = false;
    json_decref(seen);
    return form && take_prefix(s, "</function>\n") && take_prefix(s, "</tool_call>");
}

static bool grade_calls(const json_t *want, struct str s)
{
    bool right = true;
    size_t i = 0;

    for (; s.n > 0; i++) {
        if (!take_call(&s, json_array_get(want, i), &right))
            return false;
        s = trim_space(s);
    }
    return right && i == json_array_size(want);
}

/* ---- regular expressions ---- */

static enum err_code compile(pcre2_code **out, const char *pattern, struct err *e)
{
    int errnum;
    PCRE2_SIZE at;
    PCRE2_UCHAR text[128];

    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &errnum, &at, NULL);
    if (*out != NULL)
        return ERR_OK;
    pcre2_get_error_message(errnum, text, sizeof text);
    return err_set(e, ERR_FORMAT, "regular expression: %s at %zu", (const char *)text, (size_t)at);
}

static enum err_code grade_regex(const char *pattern, struct str s, bool *right, struct err *e)
{
    pcre2_code *re;
    pcre2_match_data *m;
    pcre2_match_context *limits;
    enum err_code code = compile(&re, pattern, e);
    int rc;

    if (code != ERR_OK)
        return code;
    m = pcre2_match_data_create_from_pattern(re, NULL);
    limits = pcre2_match_context_create(NULL);
    if (m == NULL || limits == NULL) {
        code = err_nomem(e);
    } else {
        pcre2_set_match_limit(limits, MATCH_LIMIT);
        rc = pcre2_match(re, (PCRE2_SPTR)s.p, s.n, 0, 0, m, limits);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH && rc > PCRE2_ERROR_PARTIAL - 1)
            code = err_set(e, ERR_FORMAT, "regular expression: error %d", rc);
        *right = rc >= 0;
    }
    pcre2_match_context_free(limits);
    pcre2_match_data_free(m);
    pcre2_code_free(re);
    return code;
}

/* ---- items ---- */

static int check_of(const json_t *item)
{
    struct str name;

    if (!json_get_str(item, "check", &name))
        return -1;
    for (int i = 0; i < N_CHECKS; i++)
        if (str_is(name, check_names[i]))
            return i;
    return -1;
}

static enum err_code check_calls(const json_t *answer, struct err *e)
{
    for (size_t i = 0; i < json_array_size(answer); i++) {
        const json_t *call = json_array_get(answer, i);

        if (!json_is_string(json_object_get(call, "name")) || !json_is_object(json_object_get(call, "arguments")))
            return err_set(e, ERR_FORMAT, "answer: call %zu has no name or no arguments", i);
    }
    return json_is_array(answer) ? ERR_OK : err_set(e, ERR_FORMAT, "answer: not an array of calls");
}

static bool wanted_number(const json_t *answer, double *out)
{
    struct str s = json_text(answer);

    if (json_is_number(answer)) {
        *out = json_number_value(answer);
        return true;
    }
    return json_is_string(answer) && last_number(s, out);
}

static enum err_code check_number(const json_t *item, struct err *e)
{
    const json_t *tolerance = json_object_get(item, "tolerance");
    double v;

    if (!wanted_number(json_object_get(item, "answer"), &v) || !isfinite(v))
        return err_set(e, ERR_FORMAT, "answer: not a number");
    if (tolerance != NULL && !(json_is_number(tolerance) && json_number_value(tolerance) >= 0))
        return err_set(e, ERR_FORMAT, "tolerance: not a number from 0 on");
    return ERR_OK;
}

enum err_code eval_task_check(const json_t *item, struct err *e)
{
    const json_t *answer = json_object_get(item, "answer");
    int check = check_of(item);
    enum err_code code;
    pcre2_code *re;

    if (!json_is_object(item))
        return err_set(e, ERR_FORMAT, "not an object");
    if (!json_is_string(json_object_get(item, "id")))
        return err_set(e, ERR_FORMAT, "no id");
    if (!json_is_array(json_object_get(item, "messages")))
        return err_set(e, ERR_FORMAT, "no messages");
    if (check < 0)
        return err_set(e, ERR_FORMAT, "check is not one of exact, numeric, regex, verdict, tool_call");
    if (check == CHECK_TOOL_CALL)
        return check_calls(answer, e);
    if (check == CHECK_NUMERIC)
        return check_number(item, e);
    if (!json_is_string(answer))
        return err_set(e, ERR_FORMAT, "answer: not a text");
    if (check == CHECK_VERDICT && last_verdict(json_text(answer)) < 0)
        return err_set(e, ERR_FORMAT, "answer: not a verdict");
    if (check != CHECK_REGEX)
        return ERR_OK;
    code = compile(&re, json_string_value(answer), e);
    if (code == ERR_OK)
        pcre2_code_free(re);
    return code;
}

/* What follows the last </think>. False: there is none. */
static bool skip_reasoning(struct str *text)
{
    static const char close[] = "</think>";
    size_t at = find_part(*text, close);
    const bool found = at < text->n;

    for (; at < text->n; at = find_part(*text, close))
        *text = skip_bytes(*text, at + sizeof close - 1);
    return found;
}

static enum err_code grade_text(const json_t *item, struct str text, bool *right, struct err *e)
{
    const json_t *answer = json_object_get(item, "answer");
    struct str want = json_text(answer);
    double got = 0, number = 0;

    text = trim_space(text);
    switch (check_of(item)) {
    case CHECK_EXACT:
        *right = str_eq(text, trim_space(want));
        break;
    case CHECK_NUMERIC:
        *right = last_number(text, &got) && wanted_number(answer, &number) &&
                 fabs(got - number) <= json_number_value(json_object_get(item, "tolerance")) + 1e-12 * fabs(number);
        break;
    case CHECK_REGEX:
        return grade_regex(want.p, text, right, e);
    case CHECK_VERDICT:
        *right = last_verdict(text) == last_verdict(want);
        break;
    case CHECK_TOOL_CALL:
        *right = grade_calls(answer, text);
        break;
    default:
        return err_set(e, ERR_FORMAT, "unknown check");
    }
    return ERR_OK;
}

enum err_code eval_grade(const json_t *item, struct str text, bool *right, struct err *e)
{
    *right = false;
    if (json_is_true(json_object_get(item, "enable_thinking")) && !skip_reasoning(&text))
        return ERR_OK;
    return grade_text(item, text, right, e);
}

/* Numbers by value, the rest as JSON. */
static bool same_json(const json_t *got, const json_t *want)
{
    return json_is_number(got) && json_is_number(want) ? json_number_value(got) == json_number_value(want)
                                                       : json_equal(got, want) != 0;
}

static bool same_calls(const json_t *got, const json_t *want)
{
    bool same = json_array_size(got) == json_array_size(want);
    const json_t *call, *one;
    const char *key;
    size_t i;

    json_array_foreach (got, i, call) {
        const json_t *wanted = json_array_get(want, i), *args = json_object_get(wanted, "arguments");
        json_t *has = json_object_get(call, "arguments");

        same = same && json_equal(json_object_get(call, "name"), json_object_get(wanted, "name")) &&
               json_is_object(has) && json_object_size(has) == json_object_size(args);
        json_object_foreach (has, key, one)
            same = same && same_json(one, json_object_get(args, key));
    }
    return same;
}

enum err_code eval_grade_answer(const json_t *item, const json_t *answer, bool *right, struct err *e)
{
    struct str text = json_text(answer);

    *right = false;
    if (json_is_array(answer)) {
        *right = check_of(item) == CHECK_TOOL_CALL && same_calls(answer, json_object_get(item, "answer"));
        return ERR_OK;
    }
    (void)skip_reasoning(&text);
    return grade_text(item, text, right, e);
}
