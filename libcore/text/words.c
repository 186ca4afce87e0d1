/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - a memory of recent words for one text_encode call.                  room: text
 *
 * A word that came before in the same text gives the same tokens: they are copied from where they
 * stand in the output. Direct-mapped: a newer word replaces an older one with the same slot.
 */
#include <stdlib.h>
#include <string.h>
#include "text/vocab.h"

#define WORD_TEXT_MIN  512 /* shorter texts repeat too little to pay for the table */
#define WORD_BITS_MAX  14
#define WORD_BYTES_MAX 64

struct text_word {
    const char *p; /* NULL: empty */
    uint32_t n_bytes, n_tokens;
    unsigned age; /* forgotten when not the current one */
    int64_t at;   /* in the output */
};

void text_words_open(struct text_enc *x, size_t text_bytes)
{
    unsigned bits = 8;

    if (text_bytes < WORD_TEXT_MIN)
        return;
    while (bits < WORD_BITS_MAX && ((size_t)1 << bits) < text_bytes / 4)
        bits++;
    x->words = calloc((size_t)1 << bits, sizeof *x->words); /* without it, only slower */
    x->word_bits = bits;
}

bool text_words_find(struct text_enc *x, struct str w, uint64_t hash, enum err_code *rc)
{
    if (x->words == NULL || w.n > WORD_BYTES_MAX)
        return false;
    const struct text_word *k = &x->words[hash >> (64 - x->word_bits)];
    if (k->p == NULL || k->age != x->word_age || k->n_bytes != w.n || memcmp(k->p, w.p, w.n) != 0)
        return false;
    *rc = ERR_OK;
    for (uint32_t i = 0; i < k->n_tokens && *rc == ERR_OK; i++)
        *rc = text_tokens_push(x->out, x->out->v[k->at + i], x->e);
    return true;
}

void text_words_keep(struct text_enc *x, struct str w, uint64_t hash, int64_t n0)
{
    if (x->words == NULL || w.n > WORD_BYTES_MAX)
        return;
    x->words[hash >> (64 - x->word_bits)] = (struct text_word){
        .p = w.p,
        .n_bytes = (uint32_t)w.n,
        .n_tokens = (uint32_t)(x->out->n - n0),
        .at = n0,
        .age = x->word_age,
    };
}

void text_words_forget(struct text_enc *x)
{
    x->word_age++;
}

void *text_scratch(struct text_enc *x, size_t n)
{
    if (n > x->scratch_bytes) {
        free(x->scratch);
        x->scratch = malloc(n);
        x->scratch_bytes = x->scratch == NULL ? 0 : n;
    }
    return x->scratch;
}
