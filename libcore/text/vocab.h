/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.h - inside of the room text: the vocabulary, and what its files share.  room: text
 *
 * Tokens are found by their spelling, as the file has it: byte-level BPE files spell bytes by
 * GPT-2's map of bytes to printable characters (unicode.c), SentencePiece files write a space as
 * U+2581.
 */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H
#include "base/arena.h"
#include "text/text.h"

enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER,
    TOKEN_UNUSED,
    TOKEN_BYTE,
};

/* Longest token matched as a whole in the text: bounds the work at each byte of it. */
#define SPECIAL_BYTES_MAX 512

enum text_kind { TEXT_BPE, TEXT_SPM };

struct token {
    struct str spell; /* in the file */
    struct str piece; /* the bytes it stands for */
    float score;      /* SentencePiece: higher merges first */
    uint8_t type;     /* enum token_type */
    bool end;         /* ends a turn or a text */
    bool rstrip;      /* white space after it is part of the token */
};

/* Tokens that are found in the text before anything else, in the order of their bytes. */
struct text_specials {
    int32_t *id;
    int32_t first[257]; /* those that begin with byte c: [first[c], first[c + 1]) */
};

/* Open addressing: a pair of neighbours and the number of the merge that joins them. */
struct text_merge {
    int32_t left, right; /* ids */
    int32_t rank;        /* -1: empty slot; lower merges first */
};

/* Spelling to id: open addressing. The hash bits make most comparisons unnecessary. The place of the
 * spelling is stored here, since reading it from the token would be a cache miss (250,000 tokens). */
struct text_slot {
    uint32_t tag;
    int32_t id;     /* -1: empty */
    uint32_t at, n; /* spelling in text.spells */
};

struct text_split; /* a compiled pre-tokenizer (pretok.c) */

struct text {
    struct text_info info;
    enum text_kind kind;
    struct token *tok;  /* info.n_tokens */
    const char *spells; /* all spellings, one after another */
    struct text_slot *slots;
    unsigned slot_bits;
    size_t spell_max;                /* bytes of the longest spelling */
    int32_t byte_id[256];            /* token of a single byte, or -1 */
    int32_t unk;                     /* SentencePiece, for bytes without a token; or -1 */
    struct text_specials special[2]; /* 0: user-defined alone; 1: control and unknown too */
    /* BPE */
    struct text_merge *merges;
    unsigned merge_bits;
    int32_t *merged;  /* by rank: id of the joined token */
    bool whole_words; /* a word that is a token needs no merging */
    struct text_split *split;
    /* SentencePiece */
    bool space_prefix, trim_spaces;
    bool words_apart; /* no token has U+2581 after another character */
    struct arena mem;
};

/* The end of a special token: a byte of the text, and how many tokens there are up to it. */
struct text_cut {
    size_t byte;
    int64_t token;
};
struct text_cuts {
    struct text_cut *v;
    size_t n, cap;
};
/* memo.c. What a text that was kept says of another one: its first n_cuts cuts, and the tokens up to them. */
struct text_known {
    int at;        /* in the memo */
    size_t same;   /* bytes that both begin with */
    size_t n_cuts; /* 0: nothing */
    const int32_t *token;
    const struct text_cut *cut;
};
/* Where to go on from: the last of those cuts; {0}: from the beginning. *known is valid until the next call. */
struct text_cut text_memo_find(struct text_memo *m, struct str s, const unsigned char *mark, struct text_known *known);
/* Keeps a text and what it became, or not. cuts: those behind known's. */
void text_memo_keep(struct text_memo *m, struct str s, const unsigned char *mark, const int32_t *token,
                    int64_t n_tokens, const struct text_cuts *cuts, const struct text_known *known);

/* One text_encode call. */
struct text_enc {
    const struct text *t;
    struct text_tokens *out;
    struct err *e;
    struct text_word *words; /* recently seen words (words.c); NULL for short texts */
    unsigned word_bits, word_age;
    struct text_cuts *cuts; /* NULL: not wanted */
    void *scratch;          /* for merging */
    size_t scratch_bytes;
};

int32_t text_spell_find(const struct text *t, struct str spell); /* -1: none */
uint64_t text_hash(const char *p, size_t n);

/* vocab.c, special.c: parts of text_open. */
struct gguf;
MUST_CHECK enum err_code text_load_bpe(struct text *t, const struct gguf *g, struct err *e);
MUST_CHECK enum err_code text_load_spm(struct text *t, const struct gguf *g, struct err *e);
MUST_CHECK enum err_code text_load_specials(struct text *t, const struct gguf *g, struct err *e);

/* The special token at the beginning of s, the longest; -1: none. */
int32_t text_special_at(const struct text *t, const struct text_specials *set, struct str s);

/* Tokens of a stretch of text without specials. */
MUST_CHECK enum err_code text_bpe_encode(struct text_enc *x, struct str s);
MUST_CHECK enum err_code text_spm_encode(struct text_enc *x, struct str s);

/* Words seen lately (words.c). find appends the tokens of w when it is remembered; keep remembers
 * that w gave the tokens from n0 on, and points to the bytes of w until text_words_forget. */
void text_words_open(struct text_enc *x, size_t text_bytes);
bool text_words_find(struct text_enc *x, struct str w, uint64_t hash, enum err_code *rc);
void text_words_keep(struct text_enc *x, struct str w, uint64_t hash, int64_t n0);
void text_words_forget(struct text_enc *x);
/* At least n bytes of scratch, uninitialised, or NULL. */
void *text_scratch(struct text_enc *x, size_t n);

/* pretok.c */
struct text_pretok {
    bool whole_words, add_bos;
};
/* ERR_UNSUPPORTED for an unknown name. */
MUST_CHECK enum err_code text_split_open(struct text_split **out, struct text_pretok *flags, struct str name,
                                         struct err *e);
void text_split_close(struct text_split *s); /* NULL is allowed */
/* Calls fn with each piece of s, in order; s is UTF-8 (surrogates allowed). */
typedef enum err_code text_piece_fn(void *ctx, struct str piece);
MUST_CHECK enum err_code text_split_run(const struct text_split *sp, struct str s, text_piece_fn *fn, void *ctx,
                                        struct err *e);

/* unicode.c */
#define TEXT_BAD 0xFFFDU /* stands for a byte that is not part of a character */
/* Code point at p (n > 0 bytes left) and its length. Bytes that are not UTF-8 give TEXT_BAD and 1.
 */
uint32_t text_utf8_get(const char *p, size_t n, size_t *len);
/* As above, but surrogates are let through and long forms are decoded: what byte-level BPE
 * tokenizers have been published with. */
uint32_t text_utf8_lax(const char *p, size_t n, size_t *len);
/* Bytes at the end of s that begin a character without completing it: 0..3. */
size_t text_utf8_tail(struct str s);
/* s without invalid UTF-8 (as text_utf8_lax has it). *copy is malloc'ed, or NULL when s is clean.
 */
MUST_CHECK enum err_code text_utf8_clean(struct str s, struct str *out, char **copy, struct err *e);
/* GPT-2's printable character for byte b, as UTF-8; bytes written (1 or 2). */
size_t text_byte_spell(char out[2], unsigned char b);
/* The bytes a spelling stands for, into out (s.n bytes are enough); false when a character of it
 * stands for no byte. */
bool text_unspell(struct str s, char *out, size_t *n);
#endif
