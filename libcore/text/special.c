/* SPDX-License-Identifier: Apache-2.0 */
/* special.c - tokens that are not made by merging: control, unknown, user-defined.  room: text
 *
 * They are found in the text first, the longest one at the leftmost place. Vocabularies often leave
 * out which tokens end a turn, or call a control token normal; for these the well-known spellings
 * tell.
 */
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "gguf/gguf.h"
#include "text/vocab.h"

/* Control tokens by spelling, whatever the file's type says; these end a turn or a text. */
static const char *const end_names[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
};
/* These only divide the text for filling in the middle. */
static const char *const fim_names[] = {
    "<|fim_prefix|>", "<fim-prefix>",   "<fim_prefix>", "<|fim_suffix|>", "<fim-suffix>",
    "<fim_suffix>",   "<|fim_middle|>", "<fim-middle>", "<fim_middle>",   "<｜fim▁begin｜>",
    "<｜fim▁hole｜>", "<｜fim▁end｜>",  "<PRE>",        "<SUF>",          "<MID>",
};

static void mark_by_name(struct text *t)
{
    for (size_t i = 0; i < sizeof end_names / sizeof end_names[0]; i++) {
        int32_t id = text_spell_find(t, str_of(end_names[i]));
        if (id >= 0) {
            t->tok[id].type = TOKEN_CONTROL;
            t->tok[id].end = true;
        }
    }
    for (size_t i = 0; i < sizeof fim_names / sizeof fim_names[0]; i++) {
        int32_t id = text_spell_find(t, str_of(fim_names[i]));
        if (id >= 0)
            t->tok[id].type = TOKEN_CONTROL;
    }
}

/* tokenizer.ggml.KEY: a token id; 2^32 - 1 is "none". */
static enum err_code read_id(const struct text *t, const struct gguf *g, const char *key, int32_t *id, struct err *e)
{
    uint32_t v = UINT32_MAX;

    if (gguf_kv_find(g, key) == NULL)
        return ERR_OK;
    if (!gguf_u32(g, key, &v) || (v != UINT32_MAX && v >= (uint32_t)t->info.n_tokens))
        return err_set(e, ERR_FORMAT, "%s: not a token of a vocabulary of %d", key, t->info.n_tokens);
    *id = v == UINT32_MAX ? -1 : (int32_t)v;
    return ERR_OK;
}

static enum err_code read_ids(struct text *t, const struct gguf *g, struct err *e)
{
    int32_t eot = -1, eom = -1;
    enum err_code rc = read_id(t, g, "tokenizer.ggml.bos_token_id", &t->info.bos, e);

    if (rc == ERR_OK)
        rc = read_id(t, g, "tokenizer.ggml.eos_token_id", &t->info.eos, e);
    if (rc == ERR_OK)
        rc = read_id(t, g, "tokenizer.ggml.padding_token_id", &t->info.pad, e);
    if (rc == ERR_OK)
        rc = read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unk, e);
    if (rc == ERR_OK)
        rc = read_id(t, g, "tokenizer.ggml.eot_token_id", &eot, e);
    if (rc == ERR_OK)
        rc = read_id(t, g, "tokenizer.ggml.eom_token_id", &eom, e);
    if (rc != ERR_OK)
        return rc;
    if (t->info.eos >= 0)
        t->tok[t->info.eos].end = true;
    if (eot >= 0)
        t->tok[eot].end = true;
    if (eom >= 0)
        t->tok[eom].end = true;
    gguf_bool(g, "tokenizer.ggml.add_bos_token", &t->info.add_bos);
    gguf_bool(g, "tokenizer.ggml.add_eos_token", &t->info.add_eos);
    return ERR_OK;
}

static bool is_special(const struct token *k, bool control)
{
    return k->spell.n > 0 &&
           (k->type == TOKEN_USER || (control && (k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN)));
}

static int by_bytes(const void *pa, const void *pb)
{
    const struct token *a = *(const struct token *const *)pa, *b = *(const struct token *const *)pb;
    int c = memcmp(a->spell.p, b->spell.p, a->spell.n < b->spell.n ? a->spell.n : b->spell.n);

    if (c != 0)
        return c;
    return a->spell.n != b->spell.n ? (a->spell.n < b->spell.n ? -1 : 1) : a < b ? -1 : a > b;
}

/* sorted: the special tokens of all kinds, in the order of their bytes. */
static enum err_code build_set(struct text *t, bool control, const struct token *const *sorted, size_t n, struct err *e)
{
    struct text_specials *set = &t->special[control];
    int32_t k = 0;

    set->id = arena_array(&t->mem, n, sizeof *set->id);
    if (set->id == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++) {
        if (!is_special(sorted[i], control))
            continue;
        set->id[k++] = (int32_t)(sorted[i] - t->tok);
        set->first[(unsigned char)sorted[i]->spell.p[0] + 1] = k;
    }
    for (int c = 1; c <= 256; c++)
        if (set->first[c] == 0)
            set->first[c] = set->first[c - 1];
    return ERR_OK;
}

static enum err_code build_sets(struct text *t, struct err *e)
{
    const struct token **sorted = NULL;
    size_t n = 0, cap = 0;
    enum err_code rc = ERR_OK;

    for (int32_t i = 0; i < t->info.n_tokens && rc == ERR_OK; i++) {
        if (!is_special(&t->tok[i], true))
            continue;
        rc = memory_room(&sorted, &cap, n + 1, sizeof *sorted, e);
        if (rc != ERR_OK)
            break;
        sorted[n++] = &t->tok[i];
        if (t->tok[i].spell.n > SPECIAL_BYTES_MAX)
            rc = err_set(e, ERR_UNSUPPORTED,
                         "tokenizer.ggml.tokens[%d]: a special token of %zu bytes "
                         "(at most %d)",
                         i, t->tok[i].spell.n, SPECIAL_BYTES_MAX);
    }
    if (rc == ERR_OK && n > 0)
        qsort(sorted, n, sizeof *sorted, by_bytes);
    if (rc == ERR_OK)
        rc = build_set(t, false, sorted, n, e);
    if (rc == ERR_OK)
        rc = build_set(t, true, sorted, n, e);
    free(sorted);
    return rc;
}

/* Phi-3's special tokens take the white space after them along; the file does not say so, except by
 * the model's name. */
static void mark_rstrip(struct text *t, const struct gguf *g)
{
    struct str name = { "", 0 };
    bool phi3 = false;

    gguf_str(g, "general.name", &name);
    for (size_t i = 0; i + 4 <= name.n && !phi3; i++) {
        size_t digit = i + 3 + (name.p[i + 3] == '-');
        phi3 = (name.p[i] | 32) == 'p' && (name.p[i + 1] | 32) == 'h' && (name.p[i + 2] | 32) == 'i' &&
               digit < name.n && name.p[digit] == '3';
    }
    for (int32_t i = 0; phi3 && i < t->info.n_tokens; i++) {
        struct token *k = &t->tok[i];
        k->rstrip = is_special(k, true) && !str_is(k->spell, "<unk>") && !str_is(k->spell, "<s>") &&
                    !str_is(k->spell, "<|endoftext|>");
    }
}

enum err_code text_load_specials(struct text *t, const struct gguf *g, struct err *e)
{
    enum err_code rc = read_ids(t, g, e);

    if (rc != ERR_OK)
        return rc;
    mark_by_name(t);
    mark_rstrip(t, g);
    return build_sets(t, e);
}

int32_t text_special_at(const struct text *t, const struct text_specials *set, struct str s)
{
    unsigned char c = (unsigned char)s.p[0];
    int32_t lo = set->first[c], hi = set->first[c + 1], best = -1;

    /* set->id[lo .. hi): those whose first d bytes are s's; the shortest come first. */
    for (size_t d = 1; lo < hi; d++) {
        for (; lo < hi && t->tok[set->id[lo]].spell.n == d; lo++)
            best = set->id[lo];
        if (d == s.n)
            break;
        c = (unsigned char)s.p[d];
        for (int32_t end = hi; lo < end;) { /* the first whose byte d is not below c */
            int32_t mid = lo + (end - lo) / 2;
            if ((unsigned char)t->tok[set->id[mid]].spell.p[d] < c)
                lo = mid + 1;
            else
                end = mid;
        }
        int32_t begin = lo;
        while (begin < hi) { /* the first whose byte d is above c */
            int32_t mid = begin + (hi - begin) / 2;
            if ((unsigned char)t->tok[set->id[mid]].spell.p[d] <= c)
                begin = mid + 1;
            else
                hi = mid;
        }
    }
    return best;
}
