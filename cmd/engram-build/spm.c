/* SPDX-License-Identifier: Apache-2.0 */
/* spm.c - a tokenizer.json of SentencePiece as a GGUF file has it.            room: cmd
 *
 * There merges have ranks, here tokens have scores: a token's is that of the first merge that makes it, below 0. What
 * is joined first is then the same, as all merges of one token stand together in such files. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "engram-build/safetensors.h"
#include "gguf/gguf.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */

enum { TOKENS_MAX = 1 << 22, NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, BYTE = 6 };
#define NEVER (-1e9F) /* of a token that no merge makes */

static bool says(const json_t *o, const char *key, const char *what)
{
    struct str s;

    return json_get_str(o, key, &s) && str_is(s, what);
}

/* Whether spaces become U+2581, and *prefix: one is put before the text. */
static bool reads_spaces(const json_t *step, bool *prefix)
{
    const json_t *steps = json_object_get(step, "normalizers");
    bool reads = false;

    if (says(step, "type", "Prepend") && says(step, "prepend", SPACE))
        *prefix = true;
    if (says(step, "type", "Metaspace") && says(step, "replacement", SPACE)) {
        *prefix = json_is_true(json_object_get(step, "add_prefix_space")) || says(step, "prepend_scheme", "first") ||
                  says(step, "prepend_scheme", "always");
        return true;
    }
    if (says(step, "type", "Replace") && says(json_object_get(step, "pattern"), "String", " ") &&
        says(step, "content", SPACE))
        return true;
    for (size_t i = 0; says(step, "type", "Sequence") && i < json_array_size(steps); i++)
        reads = reads_spaces(json_array_get(steps, i), prefix) || reads;
    return reads;
}

static enum err_code check_kind(struct cli_spm *t, struct err *e)
{
    const json_t *model = json_object_get(t->json, "model"), *before = json_object_get(t->json, "pre_tokenizer");
    const bool read = reads_spaces(json_object_get(t->json, "normalizer"), &t->space_prefix);

    if (!json_is_object(json_object_get(model, "vocab")) || !json_is_array(json_object_get(model, "merges")) ||
        !json_is_true(json_object_get(model, "byte_fallback")) ||
        !(read ? json_is_null(before) || before == NULL : reads_spaces(before, &t->space_prefix)))
        return err_set(e, ERR_UNSUPPORTED,
                       "not a tokenizer of SentencePiece, BPE with byte_fallback (one of another kind is taken from a "
                       "model, -m)");
    return ERR_OK;
}

/* A token of the vocabulary, or one that was added. */
static enum err_code add_token(struct cli_spm *t, const char *spell, const json_t *id, int32_t type, struct err *e)
{
    const json_int_t i = json_is_integer(id) ? json_integer_value(id) : -1;

    if (i < 0 || i >= t->n || (t->token[i].p != NULL && !str_is(t->token[i], spell)))
        return err_set(e, ERR_FORMAT, "token %.100s: its number is out of range, or another's", spell);
    t->token[i] = str_of(spell);
    t->type[i] = strlen(spell) == 6 && memcmp(spell, "<0x", 3) == 0 && spell[5] == '>' ? BYTE : type;
    t->score[i] = NEVER;
    return ERR_OK;
}

static enum err_code read_tokens(struct cli_spm *t, struct err *e)
{
    const json_t *model = json_object_get(t->json, "model"), *added = json_object_get(t->json, "added_tokens");
    json_t *vocab = json_object_get(model, "vocab"), *id;
    const size_t all = json_object_size(vocab) + json_array_size(added);
    const char *spell;
    enum err_code code = ERR_OK;

    if (all > TOKENS_MAX)
        return err_set(e, ERR_FORMAT, "more than %d tokens", TOKENS_MAX);
    t->token = calloc(all + 1, sizeof *t->token);
    t->type = calloc(all + 1, sizeof *t->type);
    t->score = calloc(all + 1, sizeof *t->score);
    if (t->token == NULL || t->type == NULL || t->score == NULL)
        return err_nomem(e);
    t->n = (int64_t)all;
    json_object_foreach (vocab, spell, id)
        if (code == ERR_OK)
            code = add_token(t, spell, id, NORMAL, e);
    for (size_t i = 0; code == ERR_OK && i < json_array_size(added); i++) {
        const json_t *o = json_array_get(added, i);
        struct str s;

        code = json_get_str(o, "content", &s)
                   ? add_token(t, json_string_value(json_object_get(o, "content")), json_object_get(o, "id"),
                               says(model, "unk_token", s.p)                 ? UNKNOWN
                               : json_is_true(json_object_get(o, "special")) ? CONTROL
                                                                             : USER,
                               e)
                   : err_set(e, ERR_FORMAT, "an added token without content");
    }
    while (t->n > 0 && t->token[t->n - 1].p == NULL)
        t->n--; /* those that the vocabulary had, too */
    for (int64_t i = 0; code == ERR_OK && i < t->n; i++)
        if (t->token[i].p == NULL)
            code = err_set(e, ERR_FORMAT, "token %lld is missing", (long long)i);
    return code;
}

/* "a b", or ["a", "b"]: appends both parts to *out. */
static enum err_code join_merge(struct cli_buf *out, const json_t *merge, struct err *e)
{
    const struct str s = json_text(merge), a = json_text(json_array_get(merge, 0)),
                     b = json_text(json_array_get(merge, 1));
    const char *space = s.p != NULL ? memchr(s.p, ' ', s.n) : NULL;

    out->n = 0;
    if (a.p != NULL && b.p != NULL)
        return cli_buf_add(out, a, e) ? e->code : cli_buf_add(out, b, e);
    if (space == NULL)
        return err_set(e, ERR_FORMAT, "a merge that is not of two tokens");
    return cli_buf_add(out, (struct str){ s.p, (size_t)(space - s.p) }, e)
               ? e->code
               : cli_buf_add(out, (struct str){ space + 1, s.n - (size_t)(space + 1 - s.p) }, e);
}

static enum err_code read_merges(struct cli_spm *t, struct err *e)
{
    const json_t *model = json_object_get(t->json, "model"), *merges = json_object_get(model, "merges"),
                 *vocab = json_object_get(model, "vocab");
    struct cli_buf both = { 0 };
    enum err_code code = ERR_OK;

    for (size_t i = 0; code == ERR_OK && i < json_array_size(merges); i++) {
        const json_t *id;

        code = join_merge(&both, json_array_get(merges, i), e);
        id = code == ERR_OK ? json_object_get(vocab, both.p) : NULL;
        if (code == ERR_OK && id == NULL)
            code = err_set(e, ERR_FORMAT, "merge %zu makes no token", i);
        if (code == ERR_OK && t->score[json_integer_value(id)] == NEVER)
            t->score[json_integer_value(id)] = -(float)i - 1;
    }
    cli_buf_free(&both);
    return code;
}

enum err_code cli_spm_open(struct cli_spm *t, const char *path, struct err *e)
{
    struct io_map map;

    if (io_map_open(&map, path, e))
        return e->code;
    if (json_parse(&t->json, (struct str){ (const char *)map.data, map.size }, path, e)) {
        io_map_close(&map);
        return e->code;
    }
    io_map_close(&map);
    return check_kind(t, e) || read_tokens(t, e) || read_merges(t, e) ? err_wrap(e, "%s", path) : ERR_OK;
}

enum err_code cli_spm_write(const struct cli_spm *t, struct gguf_writer *w, struct err *e)
{
    return gguf_write_str(w, "tokenizer.ggml.model", STR("llama"), e) ||
                   gguf_write_strs(w, "tokenizer.ggml.tokens", t->token, (uint64_t)t->n, e) ||
                   gguf_write_arr(w, "tokenizer.ggml.scores", GGUF_F32, t->score, (uint64_t)t->n, e) ||
                   gguf_write_arr(w, "tokenizer.ggml.token_type", GGUF_I32, t->type, (uint64_t)t->n, e) ||
                   gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", t->space_prefix, e) ||
                   gguf_write_bool(w, "tokenizer.ggml.add_bos_token", false, e)
               ? e->code
               : ERR_OK;
}

void cli_spm_close(struct cli_spm *t)
{
    free(t->token);
    free(t->type);
    free(t->score);
    json_decref(t->json);
}
