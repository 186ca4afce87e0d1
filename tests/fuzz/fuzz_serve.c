/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_serve.c - the body of a chat, a completion, embeddings or a response, as JSON after a byte that says which: it
 * is accepted, or refused with a message, a status and a pointer that can be sent as an error. Run from the
 * repository's root. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "serve/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct serve_question w = { 0 };
    struct serve_fault f = { 0 };
    struct serve s = { .n_vocab = 4096 };
    json_t *body = NULL, *chat = NULL, *error;
    char *text;
    enum serve_method method;
    bool good;

    struct err why;

    if (n < 1 || serve_parse(&body, (struct str){ (const char *)data + 1, n - 1 }, "body", &why)) {
        json_decref(body);
        return 0;
    }
    s.o.lenient = data[0] & 8;
    method = (enum serve_method[]){ SERVE_CHAT, SERVE_COMPLETION, SERVE_EMBEDDING, SERVE_RESPONSE }[data[0] % 4];
    if (method == SERVE_RESPONSE && data[0] & 4)
        method = SERVE_MESSAGE;
    const struct serve_row *row = serve_row(method);

    if (row->dialect != NULL) { /* is turned into a chat */
        chat = serve_make_chat(method, body, true, s.o.lenient, &f);
        assert((chat == NULL) == (f.status != 0));
        good = chat != NULL && serve_read_body(&w, &s, method, chat, &f);
        if (chat != NULL && !good)
            serve_move_fault(row->dialect, body, &f);
        if (good) { /* a message that the template would not take: some item of the input, or its instructions */
            struct serve_fault late = { .status = 400 };

            (void)snprintf(late.pointer, sizeof late.pointer, "/messages/%d", data[0] >> 4);
            serve_move_fault(row->dialect, body, &late);
            assert(late.pointer[0] == '/' && (method == SERVE_MESSAGE || strncmp(late.pointer, "/in", 3) == 0));
        }
    } else {
        good = serve_read_body(&w, &s, method, body, &f);
    }
    if (good) {
        assert(f.status == 0 && w.n >= 1 && w.n <= CHOICES_MAX && w.top <= TOP_MAX && w.ask.n_stops <= STOPS_MAX);
        assert(w.ask.n_stop_tokens <= STOPS_MAX && w.ask.n_breakers <= STOPS_MAX && w.ask.tokens_min >= 0);
        assert(w.ask.messages != NULL || w.prompt != NULL || w.input != NULL);
    } else {
        assert(f.status >= 400 && f.message[0] != '\0' && (f.pointer[0] == '\0' || f.pointer[0] == '/'));
        error = serve_fault_body(row, &f);
        assert(error != NULL && (text = json_dumps(error, JSON_COMPACT)) != NULL);
        free(text);
        json_decref(error);
    }
    serve_question_free(&w);
    json_decref(chat);
    json_decref(body);
    return 0;
}
