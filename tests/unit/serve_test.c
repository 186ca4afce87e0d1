/* SPDX-License-Identifier: Apache-2.0 */
/* serve_test.c - the table of methods. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "serve/internal.h"

/* Each method is found by its names and its paths, and by nobody else's. */
static void test_methods(void **state)
{
    enum serve_method m;
    char path[64];
    struct str rest;

    (void)state;
    assert_true(serve_method_at(&m, "/v1/models/a/b", &rest) && m == SERVE_MODEL && str_is(rest, "a/b"));
    assert_true(serve_method_at(&m, "/v1/models/", &rest) && m == SERVE_MODELS && rest.n == 0);
    assert_true(serve_method_at(&m, "/health/", &rest) && m == SERVE_HEALTH);
    assert_false(serve_method_at(&m, "/", &rest) || serve_method_at(&m, "//", &rest));
    for (int i = 0; i < SERVE_N_METHODS; i++) {
        const struct serve_row *row = serve_row((enum serve_method)i);

        m = SERVE_N_METHODS;
        assert_true(serve_method(&m, str_of(row->name)) && (int)m == i);
        (void)snprintf(path, sizeof path, "/v1/%s", row->name);
        assert_true(serve_method(&m, str_of(path)) && (int)m == i);
        assert_true((row->paths == NULL) == (row->verb == NULL));
        for (const char *p = row->paths; p != NULL && *p != '\0'; p += strcspn(p, " "), p += *p == ' ') {
            (void)snprintf(path, sizeof path, "%.*s", (int)strcspn(p, " "), p);
            assert_true(serve_method_at(&m, path, &rest) && (int)m == i);
            if (path[strlen(path) - 1] == '*')
                continue;
            path[strlen(path) - 1] = '\0';
            assert_false(serve_method_at(&m, path, &rest));
        }
        assert_true(row->members == NULL || row->answer != NULL); /* the engine's bodies are request.c's */
    }
    assert_true(serve_method(&m, STR("chat.completions")) && m == SERVE_CHAT);
    for (size_t i = 0; i < 5; i++)
        assert_false(serve_method(&m, str_of((const char *const[]){ "", "/", "v1/models", "model", "/v1/" }[i])));
}

static void test_names(void **state)
{
    char text[256];

    (void)state;
    serve_name_methods(text, sizeof text, true, "/v1/");
    assert_string_equal(text, "/v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses, /v1/messages");
    serve_name_methods(text, sizeof text, false, "");
    assert_non_null(strstr(text, "responses, messages, messages/count_tokens, models, tokenize, detokenize, rerank, "
                                 "health, metrics"));
    serve_name_methods(text, 8, false, "");
    assert_string_equal(text, "chat/co");
}

/* Members without effect: the values that clients send, and others. */
static void test_idle(void **state)
{
    static const struct {
        enum serve_method method;
        const char *key, *value;
        enum serve_idle is;
    } cases[] = {
        { SERVE_CHAT, "modalities", "[\"text\"]", SERVE_IDLE },
        { SERVE_CHAT, "modalities", "[\"text\",\"text\"]", SERVE_REFUSED },
        { SERVE_COMPLETION, "best_of", "1.0", SERVE_IDLE },
        { SERVE_COMPLETION, "best_of", "true", SERVE_REFUSED },
        { SERVE_EMBEDDING, "best_of", "1", SERVE_UNKNOWN },
        { SERVE_CHAT, "id_slot", "-1", SERVE_IDLE },
        { SERVE_CHAT, "id_slot", "-10", SERVE_REFUSED },
        { SERVE_CHAT, "verbosity", "\"medium\"", SERVE_IDLE },
        { SERVE_CHAT, "verbosity", "\"mediu\"", SERVE_REFUSED },
        { SERVE_RESPONSE, "store", "false", SERVE_IDLE },
        { SERVE_RESPONSE, "store", "true", SERVE_REFUSED },
        { SERVE_CHAT, "suffix", "null", SERVE_UNKNOWN },
        { SERVE_COMPLETION, "suffix", "null", SERVE_IDLE },
        { SERVE_COMPLETION, "suffix", "\"\"", SERVE_REFUSED },
        { SERVE_EMBEDDING, "keep_alive", "-1", SERVE_IDLE },
        { SERVE_CHAT, "keep", "1", SERVE_UNKNOWN },
        { SERVE_CHAT, "user metadata", "{}", SERVE_UNKNOWN },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *v = json_loads(cases[i].value, JSON_DECODE_ANY, NULL);
        struct serve_fault f = { 0 };

        if (serve_idle_member(cases[i].method, cases[i].key, v, &f) != cases[i].is)
            fail_msg("%s %s", cases[i].key, cases[i].value);
        assert_int_equal(f.status, cases[i].is == SERVE_REFUSED ? 400 : 0);
        assert_string_equal(f.idle[0], cases[i].is == SERVE_IDLE ? cases[i].key : "");
        json_decref(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_idle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
