/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.h - which tokens may come next, by a JSON schema, a grammar or an expression.
 * room: grammar
 *
 * A grammar is compiled once and never changes: any number of threads and answers share it. A place
 * is where one answer is in it: one thread each, a fixed size, nothing is allocated after
 * grammar_begin().
 *
 * The form inside is a set of deterministic automata over bytes, one for a rule, that call each
 * other, and a stack of calls. The reason: nearly all of a schema and all of an expression is regular. Rules that are
 * not recursive are copied into their callers, so a token costs one table look-up a byte and no stack; calls are for
 * recursion only. Where two ways stay open a place holds both, each with its stack (at most 128; more are dropped, the
 * newest first). Left recursion is refused.
 *
 * Masks: the vocabulary is a trie of its tokens' bytes, and a mask is a walk through it. Two things
 * are prepared. Sets of tokens that are plain text inside a string: a state that allows so long a
 * text takes them all, and only the other tokens are walked. And for states whose walk is long, the
 * tokens that are valid with any stack; the walk with the stack begins only at the nodes of the trie
 * where the rule may end.
 *
 * A place always has a way on: states from which the text cannot end are removed, and a call is not entered if the
 * stack (1,024) would be too small to return. The bytes of a text are valid UTF-8, since rules are made of characters.
 * Bytes that no token has alone are left out of the grammar. Limits are counts (rules, states, steps), so a grammar is
 * refused on every machine or on none: ERR_LIMIT.
 */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H
#include "base/base.h"
#include "base/json.h"

struct grammar;
struct grammar_place;
struct grammar_vocab;
struct text;

enum { GRAMMAR_BACK_MAX = 64 }; /* tokens that grammar_back() reaches: drafts, probes */

/* The tries of a tokenizer; some 80 bytes for each of its tokens. Outlives its grammars. One thread
 * opens. */
MUST_CHECK enum err_code grammar_vocab_open(struct grammar_vocab **out, const struct text *t, struct err *e);
/* The same of n pieces: ordinary tokens but for those that kind[i] says. For tests and tools. */
enum grammar_kind { GRAMMAR_TOKEN, GRAMMAR_TOKEN_CONTROL, GRAMMAR_TOKEN_END };
MUST_CHECK enum err_code grammar_vocab_make(struct grammar_vocab **out, const struct str *piece, const uint8_t *kind,
                                            int32_t n, struct err *e);
void grammar_vocab_close(struct grammar_vocab *v); /* NULL is allowed */

/* v may be NULL for all three: then places take bytes only, to check a text.
 * ERR_FORMAT and ERR_UNSUPPORTED have a place, if it is known: of GBNF and expressions the line and column ("1:5"), of
 * a schema a pointer into it. ERR_LIMIT: nested, long or ambiguous beyond what is stated in chimere-grammar(5). */
MUST_CHECK enum err_code grammar_open_gbnf(struct grammar **out, const struct grammar_vocab *v, struct str s,
                                           struct err *e);
MUST_CHECK enum err_code grammar_open_regex(struct grammar **out, const struct grammar_vocab *v, struct str s,
                                            struct err *e);
MUST_CHECK enum err_code grammar_open_schema(struct grammar **out, const struct grammar_vocab *v, const json_t *s,
                                             struct err *e);
/* Free text until `begin` is complete, then at most `lines` line feeds, `inner`, `end`, and free text again: tool
 * calls. With an empty `end` the text ends with `inner`: an answer after reasoning. In free text every
 * token may come, also control tokens; their spelling counts for both marks. `inner` may be closed
 * afterwards. */
enum { GRAMMAR_LINES_THOUGHT = 2 }; /* models write this many behind their reasoning; chat/reader.h drops them */
MUST_CHECK enum err_code grammar_open_tagged(struct grammar **out, const struct grammar *inner, struct str begin,
                                             int lines, struct str end, struct err *e);
/* Types of JSON values, as a set. */
enum grammar_type {
    GRAMMAR_NULL = 1,
    GRAMMAR_BOOL = 2,
    GRAMMAR_INTEGER = 4,
    GRAMMAR_FRACTION = 8,
    GRAMMAR_STRING = 16,
    GRAMMAR_ARRAY = 32,
    GRAMMAR_OBJECT = 64,
};
/* How a family of models writes the members of an object, where it is not as JSON. */
struct grammar_dress {
    const char *key, *value, *end; /* before a key, before its value, behind it */
    const char *text;              /* before a value that is a string, where it is told apart from `value` */
    const char *between;           /* members */
    const char *keys;              /* the keys that can be written: a regular expression */
    /* A value is bare text up to this mark, which `end` has: a string as it is, else JSON, in which no string has "</".
     * A text that would be read as another type is none. The mark begins with "</" and has no other "<". NULL: a value
     * is a literal. */
    const char *close;
    bool names;    /* bare values: True, False and None are read, too */
    bool literals; /* values are Python's literals */
    /* Types that a reader may take the bare text of a key for, by the schema `root`; key.p NULL: of an undeclared one.
     */
    unsigned (*types)(const json_t *root, struct str key);
};
/* A sequence of parts; groups hold alternatives, within each other 16 deep at most. */
enum grammar_part_kind {
    GRAMMAR_PART_TEXT,    /* `text`; control tokens may spell it */
    GRAMMAR_PART_REGEX,   /* what `text` matches as a whole */
    GRAMMAR_PART_VALUE,   /* JSON by `schema`, at `path` ("#/a") of `root`, to which references refer */
    GRAMMAR_PART_MEMBERS, /* those of an object, by `schema` as above, in `dress`; undeclared keys of literals come once
                           */
    GRAMMAR_PART_UNTIL,   /* any characters until `text`, of ASCII, is complete */
    GRAMMAR_PART_FREE,    /* the same of any tokens, but no end */
    GRAMMAR_PART_GROUP,
    GRAMMAR_PART_OR,
    GRAMMAR_PART_CLOSE, /* of a group */
};
struct grammar_part {
    enum grammar_part_kind kind;
    struct str text;
    const json_t *schema, *root;
    const char *path;
    const struct grammar_dress *dress;
    bool maybe, many; /* CLOSE: the group may be missing; may come again and again */
};
/* What the parts name must live until this returns. ERR_ARG: groups are not closed; else as above. */
MUST_CHECK enum err_code grammar_open_parts(struct grammar **out, const struct grammar_vocab *v,
                                            const struct grammar_part *part, size_t n, struct err *e);
void grammar_close(struct grammar *g); /* NULL is allowed */

MUST_CHECK enum err_code grammar_begin(struct grammar_place **out, const struct grammar *g, struct err *e);
void grammar_end(struct grammar_place *p);                                     /* NULL is allowed */
void grammar_copy(struct grammar_place *to, const struct grammar_place *from); /* of one grammar: forks */
/* Bits of the tokens that may come now, [(n_vocab + 31) / 32]; end tokens where the text may end.
 * How many: 0 cannot be. A token is set exactly if grammar_take() takes it (of a grammar so
 * ambiguous that a mask takes more than some millions of steps, some are left out). */
int32_t grammar_mask(struct grammar_place *p, uint32_t *mask);
bool grammar_free(const struct grammar_place *p);          /* every token may come: no mask needed */
int32_t grammar_only(struct grammar_place *p);             /* the one token that may come, or -1 */
bool grammar_take(struct grammar_place *p, int32_t token); /* false: it may not, and p is unchanged */
/* These bytes, as one token would be taken: text that somebody else has written. */
bool grammar_take_text(struct grammar_place *p, struct str s);
void grammar_back(struct grammar_place *p, int n);   /* n <= GRAMMAR_BACK_MAX newest tokens */
bool grammar_may_end(const struct grammar_place *p); /* the text is complete here */
bool grammar_done(const struct grammar_place *p);    /* nothing but the end may come */
#endif
