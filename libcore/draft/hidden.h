/* SPDX-License-Identifier: Apache-2.0 */
/* hidden.h - inside the room draft: drafters that read a model's hidden rows (model/drafter.h). */
#ifndef DRAFT_HIDDEN_H
#define DRAFT_HIDDEN_H
#include "draft/internal.h"

struct model_drafter;

/* Takes ownership of net, also when it fails. needs_next: a row can only be used with the token after it. */
MUST_CHECK enum err_code draft_hidden_open(void **out, struct model_drafter *net, bool needs_next, struct err *e);
void draft_hidden_close(void *of);
int draft_hidden_taps(const void *of, int *layers);
int draft_hidden_fit(const void *of, int n);
MUST_CHECK enum err_code draft_hidden_attach(void *of, const struct draft_env *env, struct err *e);
void draft_hidden_cut(void *of, int seq, int64_t n);
void draft_hidden_fork(void *of, int dst, int src);
void draft_hidden_settle(void *of, int seq, int64_t pos, int n);
MUST_CHECK enum err_code draft_hidden_guess(void *of, struct draft_ask *ask, int n, bool *late, struct err *e);
#endif
