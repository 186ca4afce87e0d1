/* SPDX-License-Identifier: Apache-2.0 */
/* constraint.c - a grammar as a constraint of answers.                       room: gen */
#include "gen/hooks.h"
#include "grammar/grammar.h"

_Static_assert((int)GEN_BACK_MAX <= (int)GRAMMAR_BACK_MAX, "a constraint goes back as far as guesses do");

static enum err_code begin_place(void **place, const void *rules, struct err *e)
{
    struct grammar_place *p;

    if (grammar_begin(&p, rules, e))
        return e->code;
    *place = p;
    return ERR_OK;
}

static void end_place(void *place)
{
    grammar_end(place);
}

static bool take_token(void *place, int32_t token)
{
    return grammar_take(place, token);
}

static void take_back(void *place, int n)
{
    grammar_back(place, n);
}

static bool is_free(const void *place)
{
    return grammar_free(place);
}

static int32_t only(void *place)
{
    return grammar_only(place);
}

static void mask(void *place, uint32_t *bits)
{
    (void)grammar_mask(place, bits);
}

const struct gen_constraint gen_grammar = { begin_place, end_place, take_token, take_back, is_free, only, mask };
