/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - a question, and the events of its answer, as JSON: for a program that asks, and one that has the model open.
 * room: ask
 *
 * A text of any bytes is a string with a character for each byte. Whoever sends may be hostile: what is read is in
 * range, but for what ask_open() and gen_submit() check.
 */
#ifndef ASK_WIRE_H
#define ASK_WIRE_H
#include "ask/ask.h"
#include "base/arena.h"

/* All but the calibration and what stands beside the model; NULL: memory is out. */
json_t *ask_write(const struct ask *a);
struct ask_sent {
    struct ask ask;
    json_t *of; /* what it points into */
    struct arena arena;
};
/* Takes a reference to v. ERR_FORMAT, at the member; ERR_NOMEM. */
MUST_CHECK enum err_code ask_read(struct ask_sent **out, json_t *v, struct err *e);
void ask_sent_close(struct ask_sent *s); /* NULL is allowed */

/* GEN_BEGIN, GEN_PROMPT, GEN_TOKEN, GEN_END; NULL: memory is out. r: of a GEN_END, whose reasoning is told. */
json_t *ask_write_event(const struct gen_event *ev, const struct ask_request *r);
/* What an event that was read points to. {0}: nothing yet. */
struct ask_event {
    struct gen_event ev;
    json_t *thinking; /* GEN_END: ask_thinking_json(), borrowed from the value that was read; NULL: none */
    struct sample_top *top;
    size_t top_cap;
    struct arena arena;
};
/* Valid until the next call, or until v is released. Tokens are below n_vocab. */
MUST_CHECK enum err_code ask_read_event(struct ask_event *x, const json_t *v, int32_t n_vocab, struct err *e);
void ask_event_close(struct ask_event *x);

/* An error of a question, and where in it. */
json_t *ask_write_error(const struct err *e);
void ask_read_error(const json_t *v, struct err *e); /* e->code is never ERR_OK */
#endif
