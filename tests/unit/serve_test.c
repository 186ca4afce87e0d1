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

    (void)state;
    for (int i = 0; i < SERVE_N_METHODS; i++) {
        const struct serve_row *row = serve_row((enum serve_method)i);

        m = SERVE_N_METHODS;
        assert_true(serve_method(&m, str_of(row->name)) && (int)m == i);
        (void)snprintf(path, sizeof path, "/v1/%s", row->name);
        assert_true(serve_method(&m, str_of(path)) && (int)m == i);
        assert_true((row->paths == NULL) == (row->verb == NULL));
        for (const char *p = row->paths; p != NULL && *p != '\0'; p += strcspn(p, " "), p += *p == ' ') {
            (void)snprintf(path, sizeof path, "%.*s", (int)strcspn(p, " "), p);
            assert_true(serve_method_at(&m, path) && (int)m == i);
            path[strlen(path) - 1] = '\0';
            assert_false(serve_method_at(&m, path));
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
    assert_non_null(strstr(text, "responses, messages, messages/count_tokens, models, tokenize, detokenize, health, "
                                 "metrics"));
    serve_name_methods(text, 8, false, "");
    assert_string_equal(text, "chat/co");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
