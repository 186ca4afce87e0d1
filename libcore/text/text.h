/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - text to tokens and back.                                         room: text
 *
 * A tokenizer is read from a model file's metadata (tokenizer.ggml.*): byte-level BPE ("gpt2") or
 * SentencePiece ("llama"). It copies what it needs: the gguf may be closed first. A struct text never
 * changes after open and may be used by any number of threads.
 */
#ifndef TEXT_TEXT_H
#define TEXT_TEXT_H
#include "base/base.h"
#include "base/json.h"

struct gguf;
struct text;

/* ERR_UNSUPPORTED when the file has no tokenizer or one of an unknown kind or pre-tokenizer. */
MUST_CHECK enum err_code text_open(struct text **out, const struct gguf *g, struct err *e);
void text_close(struct text *t); /* NULL is allowed */

/* Files with the same fingerprint have the same tokens, merges and special tokens: a hash of
 * tokenizer.ggml.*; 0 when there is nothing of it. */
uint64_t text_fingerprint(const struct gguf *g);

/* Checks that ids stand for the same tokens, as far as both files have them; one may have more tokens. ERR_FORMAT: they
 * differ. */
MUST_CHECK enum err_code text_same_tokens(const struct gguf *a, const struct gguf *b, struct err *e);

/* A growing array of token ids, malloc'ed. {0} is empty. */
struct text_tokens {
    int32_t *v;
    int64_t n;
    size_t cap;
};
void text_tokens_free(struct text_tokens *a);
MUST_CHECK enum err_code text_tokens_push(struct text_tokens *a, int32_t id, struct err *e);
/* Appends n tokens, which are not in a. */
MUST_CHECK enum err_code text_tokens_add(struct text_tokens *a, const int32_t *v, int64_t n, struct err *e);

/* What the file says of the vocabulary. Ids are -1 when absent. */
struct text_info {
    int32_t n_tokens;
    int32_t bos, eos, pad;
    bool add_bos, add_eos;    /* what TEXT_ADD does */
    struct str chat_template; /* tokenizer.chat_template; n == 0 when absent */
};
const struct text_info *text_info(const struct text *t);

enum {
    TEXT_SPECIAL = 1, /* the spelling of a control token is that token; user-defined tokens always are */
    TEXT_ADD = 2,     /* add BOS / EOS as the file says */
};
/* Appends the tokens of s to *out. Invalid UTF-8 is never an error: byte-level BPE takes a bad byte as
 * U+FFFD (and, as the published tokenizers do, a surrogate as it is and a long form as the character
 * that it encodes), SentencePiece as a byte. */
MUST_CHECK enum err_code text_encode(const struct text *t, struct str s, unsigned flags, struct text_tokens *out,
                                     struct err *e);
/* The last long texts, at most 64 MiB of them: a text that begins like one of them is only encoded from the difference
 * on, such as the prompt of a conversation's next turn. The tokens are the same. Of one tokenizer and one thread. */
struct text_memo;
MUST_CHECK enum err_code text_memo_open(struct text_memo **out, struct err *e);
void text_memo_close(struct text_memo *m); /* NULL is allowed */
/* As text_encode() with TEXT_SPECIAL, for text of which only some parts may contain control tokens: mark has a byte for
 * each byte of s, and a control token is found only where all of its bytes have a mark that is not 0. memo NULL: none.
 */
MUST_CHECK enum err_code text_encode_marked(const struct text *t, struct str s, const unsigned char *mark,
                                            struct text_memo *memo, struct text_tokens *out, struct err *e);

/* The bytes a token stands for (may be half a character); control tokens give their spelling.
 * An id outside the vocabulary gives an empty string. */
struct str text_piece(const struct text *t, int32_t id);
bool text_is_control(const struct text *t, int32_t id);     /* not shown as text */
bool text_is_end(const struct text *t, int32_t id);         /* ends a turn or a text */
int32_t text_find(const struct text *t, const char *piece); /* the token with this spelling, or -1 */

/* Appends the bytes of tokens to *out (malloc'ed, NUL-terminated; caller frees). TEXT_SPECIAL
 * shows control tokens. SentencePiece: the space that encoding put in front is removed. */
MUST_CHECK enum err_code text_decode(const struct text *t, const int32_t *v, int64_t n, unsigned flags, char **out,
                                     size_t *out_n, struct err *e);

/* Tokens in, whole UTF-8 characters out; text that may be the beginning of a stop string is held
 * back until it is known not to be. Invalid bytes become U+FFFD. One thread per stream. */
struct text_stream;
/* stops: n_stops non-empty strings, copied. */
MUST_CHECK enum err_code text_stream_open(struct text_stream **out, const struct text *t, const struct str *stops,
                                          size_t n_stops, struct err *e);
void text_stream_close(struct text_stream *s);
/* Text ready after this token: points into the stream, valid until the next call. *stopped is set
 * when a stop string is complete: text before it has been given out, nothing comes after. */
MUST_CHECK enum err_code text_stream_push(struct text_stream *s, int32_t id, struct str *ready, bool *stopped,
                                          struct err *e);
/* The same of bytes instead of a token. */
MUST_CHECK enum err_code text_stream_add(struct text_stream *s, struct str bytes, struct str *ready, bool *stopped,
                                         struct err *e);
/* Which of the stop strings is complete, from 0; of several that end at one place the longest, of equal ones the first.
 * 0 while there is none. */
size_t text_stream_stop(const struct text_stream *s);
/* What was held back, at the end of generation. */
struct str text_stream_flush(struct text_stream *s);
/* For a text that comes in parts. follows: call it at the beginning of a stream, with the tokens before it. If they end
 * within a character, this stream completes it. leave: call it before the flush; if the stream ends within a character,
 * that character is left to the next part. */
void text_stream_follows(struct text_stream *s, const int32_t *v, int64_t n);
void text_stream_leave(struct text_stream *s);

#endif
