/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c - reading a tokenizer from a model file's metadata.                   room: text
 *
 * Everything is copied, so the file may be closed. What the file says is checked here, once: array
 * lengths, types, ids. Memory is a small multiple of the metadata's size.
 */
#include <stdlib.h>
#include <string.h>
#include "gguf/gguf.h"
#include "text/vocab.h"

#define PROBES_MAX 4096 /* a vocabulary that needs more was built to be slow */

static uint64_t load8(const char *p)
{
    uint64_t w;

    memcpy(&w, p, 8);
    return w;
}

static uint64_t load4(const char *p)
{
    uint32_t w;

    memcpy(&w, p, 4);
    return w;
}

/* The last bytes of a string are read together with some before them, without a loop. */
static uint64_t load_end(const char *p, size_t n, size_t before)
{
    if (n + before >= 8)
        return load8(p + n - 8);
    if (n >= 4)
        return load4(p) | load4(p + n - 4) << 32;
    return n == 0 ? 0
                  : (uint64_t)(unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 |
                        (uint64_t)(unsigned char)p[n - 1] << 16;
}

uint64_t text_hash(const char *p, size_t n)
{
    const uint64_t k = 0x9E3779B97F4A7C15U;
    uint64_t h = (n + 1) * k;
    size_t before = 0;

    for (; n > 8; p += 8, n -= 8, before = 8) {
        h = (h ^ load8(p)) * k;
        h ^= h >> 29;
    }
    h = (h ^ load_end(p, n, before)) * k;
    return (h ^ h >> 29) * k;
}

static bool slot_has(const struct text *t, const struct text_slot *slot, uint64_t hash, struct str spell)
{
    return slot->tag == (uint32_t)hash && slot->n == spell.n && memcmp(t->spells + slot->at, spell.p, spell.n) == 0;
}

int32_t text_spell_find(const struct text *t, struct str spell)
{
    uint64_t hash = text_hash(spell.p, spell.n);
    size_t mask = ((size_t)1 << t->slot_bits) - 1;

    for (size_t i = (size_t)(hash >> (64 - t->slot_bits)); t->slots[i].id >= 0; i = (i + 1) & mask)
        if (slot_has(t, &t->slots[i], hash, spell))
            return t->slots[i].id;
    return -1;
}

/* Of tokens spelled alike the first is found. */
static enum err_code slot_add(struct text *t, int32_t id, struct err *e)
{
    struct str spell = t->tok[id].spell;
    uint64_t hash = text_hash(spell.p, spell.n);
    size_t mask = ((size_t)1 << t->slot_bits) - 1, i = (size_t)(hash >> (64 - t->slot_bits));

    for (int probes = 0; t->slots[i].id >= 0; i = (i + 1) & mask) {
        if (slot_has(t, &t->slots[i], hash, spell))
            return ERR_OK;
        if (++probes > PROBES_MAX)
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.tokens: too many collisions");
    }
    t->slots[i] = (struct text_slot){ (uint32_t)hash, id, (uint32_t)(spell.p - t->spells), (uint32_t)spell.n };
    return ERR_OK;
}

static enum err_code load_spellings(struct text *t, const struct gguf_kv *kv, struct err *e)
{
    struct gguf_strs it = gguf_strs(kv);
    char *blob = arena_alloc(&t->mem, kv->size_bytes);
    struct str s;
    enum err_code rc = ERR_OK;

    t->spells = blob;
    t->slot_bits = 4;
    while (((uint64_t)1 << t->slot_bits) < 2 * kv->n)
        t->slot_bits++;
    t->tok = arena_array(&t->mem, (size_t)kv->n, sizeof *t->tok);
    t->slots = arena_array(&t->mem, (size_t)1 << t->slot_bits, sizeof *t->slots);
    if (blob == NULL || t->tok == NULL || t->slots == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < (size_t)1 << t->slot_bits; i++)
        t->slots[i].id = -1;
    for (int32_t id = 0; rc == ERR_OK && gguf_strs_next(&it, &s); id++) {
        memcpy(blob, s.p, s.n); /* all of them fit: size_bytes has their lengths too */
        t->tok[id] = (struct token){ .spell = { blob, s.n }, .type = TOKEN_NORMAL };
        blob += s.n;
        if (s.n > t->spell_max)
            t->spell_max = s.n;
        if (s.n > 0)
            rc = slot_add(t, id, e);
    }
    return rc;
}

static enum err_code load_types(struct text *t, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_kv_find(g, "tokenizer.ggml.token_type");
    int64_t v;

    if (kv == NULL)
        return ERR_OK;
    if (kv->kind != GGUF_ARR || kv->n != (uint64_t)t->info.n_tokens)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.token_type: not one for each of %d tokens", t->info.n_tokens);
    for (int32_t i = 0; i < t->info.n_tokens; i++) {
        if (!gguf_kv_i64(kv, (uint64_t)i, &v))
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.token_type[%d]: not a whole number", i);
        t->tok[i].type = v >= TOKEN_NORMAL && v <= TOKEN_BYTE ? (uint8_t)v : TOKEN_UNUSED;
    }
    return ERR_OK;
}

/* <0x0A> or one byte as it is. */
static size_t spm_byte(struct str s, char *out)
{
    static const char hex[] = "0123456789ABCDEF";

    if (s.n == 6 && memcmp(s.p, "<0x", 3) == 0 && s.p[5] == '>') {
        const char *hi = memchr(hex, s.p[3], 16), *lo = memchr(hex, s.p[4], 16);
        if (hi != NULL && lo != NULL) {
            *out = (char)((hi - hex) * 16 + (lo - hex));
            return 1;
        }
    }
    memcpy(out, s.p, s.n);
    return s.n;
}

/* What a token stands for; at most as long as its spelling. */
static size_t make_piece(const struct text *t, const struct token *k, char *out)
{
    size_t n = 0;

    if (k->type == TOKEN_UNUSED)
        return 0;
    if (t->kind == TEXT_SPM && k->type == TOKEN_BYTE)
        return spm_byte(k->spell, out);
    if (k->type == TOKEN_NORMAL && t->kind == TEXT_SPM) {
        for (size_t i = 0; i < k->spell.n; n++) {
            bool space = k->spell.n - i >= 3 && memcmp(k->spell.p + i, "\xE2\x96\x81", 3) == 0;
            out[n] = space ? ' ' : k->spell.p[i];
            i += space ? 3 : 1;
        }
        return n;
    }
    if ((k->type == TOKEN_NORMAL || k->type == TOKEN_BYTE) && text_unspell(k->spell, out, &n))
        return n;
    memcpy(out, k->spell.p, k->spell.n);
    return k->spell.n;
}

static enum err_code make_pieces(struct text *t, size_t bytes, struct err *e)
{
    char *blob = arena_alloc(&t->mem, bytes);

    if (blob == NULL)
        return err_nomem(e);
    for (int32_t i = 0; i < t->info.n_tokens; i++) {
        t->tok[i].piece = (struct str){ blob, make_piece(t, &t->tok[i], blob) };
        blob += t->tok[i].piece.n;
    }
    return ERR_OK;
}

static enum err_code load_tokens(struct text *t, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_kv_find(g, "tokenizer.ggml.tokens");
    struct str s = { "", 0 };

    if (kv == NULL || kv->kind != GGUF_ARR || kv->elem_kind != GGUF_STR || kv->n == 0)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.tokens: %s", kv == NULL ? "missing" : "not a list of strings");
    if (kv->n > INT32_MAX / 4 || kv->size_bytes > UINT32_MAX)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.tokens: too many");
    t->info = (struct text_info){ .n_tokens = (int32_t)kv->n, .bos = -1, .eos = -1, .pad = -1 };
    t->unk = -1;
    enum err_code rc = load_spellings(t, kv, e);
    if (rc == ERR_OK)
        rc = load_types(t, g, e);
    if (rc == ERR_OK)
        rc = t->kind == TEXT_BPE ? text_load_bpe(t, g, e) : text_load_spm(t, g, e);
    if (rc == ERR_OK)
        rc = text_load_specials(t, g, e);
    if (rc == ERR_OK)
        rc = make_pieces(t, kv->size_bytes, e);
    if (rc != ERR_OK)
        return rc;
    gguf_str(g, "tokenizer.chat_template", &s);
    t->info.chat_template = (struct str){ arena_strdup(&t->mem, s), s.n };
    return t->info.chat_template.p != NULL ? ERR_OK : err_nomem(e);
}

enum err_code text_open(struct text **out, const struct gguf *g, struct err *e)
{
    struct str model = { "", 0 };
    enum text_kind kind = TEXT_BPE;

    if (!gguf_str(g, "tokenizer.ggml.model", &model))
        return err_set(e, ERR_UNSUPPORTED, "%s: the file has no tokenizer", gguf_path(g));
    if (str_is(model, "llama"))
        kind = TEXT_SPM;
    else if (!str_is(model, "gpt2"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: tokenizer.ggml.model: unknown tokenizer \"%.*s\" "
                       "(this build has gpt2 and llama)",
                       gguf_path(g), STR_ARG(model));
    struct text *t = calloc(1, sizeof *t);
    if (t == NULL)
        return err_nomem(e);
    t->kind = kind;
    enum err_code rc = load_tokens(t, g, e);
    if (rc != ERR_OK) {
        text_close(t);
        return err_wrap(e, "%s", gguf_path(g));
    }
    *out = t;
    return ERR_OK;
}

void text_close(struct text *t)
{
    if (t == NULL)
        return;
    text_split_close(t->split);
    arena_free(&t->mem);
    free(t);
}

const struct text_info *text_info(const struct text *t)
{
    return &t->info;
}

int32_t text_find(const struct text *t, const char *piece)
{
    struct str s = str_of(piece);
    int32_t id = text_spell_find(t, s);

    if (id >= 0 && str_eq(t->tok[id].piece, s))
        return id;
    char *spell = malloc(3 * s.n + 1);
    size_t n = 0;
    if (spell == NULL)
        return -1;
    for (size_t i = 0; i < s.n; i++) {
        if (t->kind == TEXT_BPE)
            n += text_byte_spell(spell + n, (unsigned char)s.p[i]);
        else if (s.p[i] == ' ')
            n += str_utf8_put(spell + n, 0x2581);
        else
            spell[n++] = s.p[i];
    }
    id = text_spell_find(t, (struct str){ spell, n });
    free(spell);
    return id;
}
