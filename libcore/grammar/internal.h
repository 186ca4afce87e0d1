/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - the forms that a grammar takes on its way from text to tables.   room: grammar
 *
 *   notation -> struct grammar_build: rules as nondeterministic automata over bytes; an edge is a
 * range of bytes, empty, or a call of a rule
 *            -> struct grammar_dfa: each rule deterministic; small rules without recursion are
 * copied into their callers, so that what is regular ends as one automaton
 *            -> struct grammar: one table over all rules and merged classes of bytes.
 *
 * Building keeps its first error in the builder (`code`); after one, functions return harmless
 * values and do nothing, so that only the end has to look. Work is counted, never timed: what does
 * not end within GRAMMAR_WORK_MAX elementary steps is ERR_LIMIT, on every machine alike.
 */
#ifndef GRAMMAR_INTERNAL_H
#define GRAMMAR_INTERNAL_H
#include "grammar/grammar.h"

enum {
    GRAMMAR_NEST_MAX = 200,     /* of groups in a notation */
    GRAMMAR_TEXT_MAX = 4 << 20, /* bytes of a notation */
    GRAMMAR_RULES_MAX = 1 << 14,
    GRAMMAR_EDGES_MAX = 1 << 21,   /* of all automata while building, 16 bytes each */
    GRAMMAR_STATES_MAX = 1 << 17,  /* of the tables */
    GRAMMAR_JOINED_MAX = 1 << 12,  /* more of them, where grammars are joined with marks */
    GRAMMAR_TABLE_MAX = 256 << 20, /* bytes of a rule's table while it is made: twice as many states of 256 classes */
    GRAMMAR_DEPTH_MAX = 1024,      /* calls within calls while a text is read */
    GRAMMAR_REPEAT_MAX = 1 << 20,  /* the least count of a repetition */
    GRAMMAR_LENGTH_MAX = 1 << 30,  /* a count that no text reaches: tokens of a context times the bytes of one */
};
#define GRAMMAR_WORK_MAX ((uint64_t)3 << 28)
#define GRAMMAR_CP_MAX   0x10FFFFU

enum { GRAMMAR_EPS = 1, GRAMMAR_BYTES, GRAMMAR_CALL }; /* kinds of edges */
enum {
    GRAMMAR_ACC = 1,  /* the rule may end here */
    GRAMMAR_FREE = 2, /* text outside of a tagged part */
    GRAMMAR_MARK = 4, /* inside an end mark: control tokens may spell it */
};

struct grammar_edge {
    uint32_t to, next; /* next edge of the same state, 0: none (edge 0 is not used) */
    uint32_t rule;     /* GRAMMAR_CALL */
    uint8_t lo, hi;    /* GRAMMAR_BYTES, both included */
    uint8_t kind;
};
struct grammar_call {
    uint32_t rule, ret; /* in struct grammar: start state of the callee, state after it */
    uint32_t need;      /* frames beyond the caller's that the text needs at least to end */
};

/* Deterministic but for calls. State 0 is dead, 1 the start. Classes are runs of neighbouring
 * bytes. */
struct grammar_dfa {
    uint32_t n, n_cls;
    uint8_t cls[256];
    uint32_t *next;    /* [n][n_cls] */
    uint8_t *flag;     /* [n] */
    uint32_t *call_at; /* [n + 1] */
    struct grammar_call *call;
};

struct grammar_rule {
    struct str name;     /* for messages; points into the notation */
    uint32_t start, end; /* states of the builder */
    uint32_t refs;       /* calls of it */
    bool nullable, recursive, called_first;
    struct grammar_dfa *dfa;
};

/* Adds one path from a state to another. */
struct grammar_build;
typedef void grammar_emit(struct grammar_build *b, uint32_t from, uint32_t to, void *ctx);

struct grammar_build {
    struct grammar_edge *edge;
    uint32_t *first; /* [n_state] newest edge */
    uint8_t *flag;   /* [n_state] FREE, MARK */
    struct grammar_rule *rule;
    uint32_t n_edge, cap_edge, n_state, cap_state, n_rule, cap_rule;
    uint32_t *stamp; /* [cap_stamp] a state is marked where this is the epoch */
    uint32_t cap_stamp, epoch;
    bool joined;   /* of a grammar that was compiled by itself before */
    bool unrolled; /* repetitions make no rules, for automata that are to be intersected */
    /* How strings and words are spelled: as bare text; with what Python has; as JSON that never has "</" in a string.
     */
    bool raw, python, no_marks;
    grammar_emit *blocks_emit; /* of the rules in `blocks` */
    int blocks_spelled;
    uint32_t blocks[12]; /* nfa.c: rules of many characters */
    uint64_t work;
    struct err *e;
    enum err_code code; /* the first error */
};

/* Ranges of code points, both ends included. */
struct grammar_range {
    uint32_t lo, hi;
};
struct grammar_ranges {
    struct grammar_range *v;
    uint32_t n, cap;
};
/* How characters are written: as they are, or inside a JSON string in every way that JSON has. */
enum grammar_spell { GRAMMAR_RAW, GRAMMAR_JSON };

/* nfa.c */
enum grammar_spell grammar_spelled(const struct grammar_build *b); /* how b spells strings now */
void grammar_build_free(struct grammar_build *b);
/* True: this error is the first one, which counts; its place may be added. */
bool grammar_fail(struct grammar_build *b, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
void grammar_nomem(struct grammar_build *b);
bool grammar_unmark(struct grammar_build *b);                /* b->stamp: a new epoch, no state is marked */
bool grammar_spend(struct grammar_build *b, uint64_t steps); /* false: after an error, or now at the limit */
/* An array of *n elements of `size` bytes that has room for one more; NULL: out of memory, noted in
 * b. */
void *grammar_grow(struct grammar_build *b, void *v, uint32_t n, uint32_t *cap, size_t size);
uint32_t grammar_state(struct grammar_build *b);
uint32_t grammar_rule_add(struct grammar_build *b, struct str name); /* with its two states */
void grammar_eps(struct grammar_build *b, uint32_t from, uint32_t to);
void grammar_bytes(struct grammar_build *b, uint32_t from, uint32_t to, uint8_t lo, uint8_t hi);
void grammar_call(struct grammar_build *b, uint32_t from, uint32_t to, uint32_t rule);
void grammar_text(struct grammar_build *b, uint32_t from, uint32_t to, struct str s); /* these bytes */
void grammar_mark(struct grammar_build *b, uint32_t from, uint32_t to,
                  struct str s); /* control tokens may spell them */
void grammar_range_add(struct grammar_build *b, struct grammar_ranges *r, uint32_t lo, uint32_t hi);
void grammar_ranges_settle(struct grammar_build *b, struct grammar_ranges *r, bool negate); /* sorted, disjoint */
void grammar_chars(struct grammar_build *b, uint32_t from, uint32_t to, const struct grammar_range *r, uint32_t n,
                   enum grammar_spell spell);
/* max < 0: no end. Long ones are rules of blocks. */
void grammar_repeat(struct grammar_build *b, uint32_t from, uint32_t to, int64_t min, int64_t max, grammar_emit *emit,
                    void *ctx);

/* dfa.c: without calls where two are combined. All return NULL after an error. */
struct grammar_dfa *grammar_dfa_make(struct grammar_build *b, uint32_t start, uint32_t end);
struct grammar_dfa *grammar_dfa_and(struct grammar_build *b, const struct grammar_dfa *x, const struct grammar_dfa *y,
                                    bool not_y);
bool grammar_dfa_empty(const struct grammar_dfa *d);
bool grammar_dfa_has(const struct grammar_dfa *d, struct str s);
void grammar_dfa_put(struct grammar_build *b, const struct grammar_dfa *d, uint32_t from, uint32_t to);
void grammar_dfa_free(struct grammar_dfa *d);

/* compile.c: the tables of what `root` calls. v may be NULL: no masks. Frees the builder's
 * contents. */
enum err_code grammar_compile(struct grammar **out, const struct grammar_vocab *v, struct grammar_build *b,
                              uint32_t root);

/* expr.c: what regular expressions and GBNF are read into. */
enum { EXPR_EMPTY, EXPR_CHARS, EXPR_SEQ, EXPR_ALT, EXPR_REP, EXPR_RULE, EXPR_AT };
enum { AT_START = 1, AT_END, AT_WORD, AT_NO_WORD };
struct grammar_expr {
    uint8_t kind, at;     /* at: EXPR_AT */
    uint32_t child, next; /* SEQ, ALT, REP: first child; its siblings; 0: none */
    uint32_t range, n;    /* CHARS: in the pool of ranges; RULE: rule in `range` */
    int32_t min, max;     /* REP */
};
struct grammar_exprs {
    struct grammar_build *b;
    struct grammar_expr *v;
    struct grammar_ranges ranges;
    uint32_t n, cap;
};
uint32_t grammar_expr_add(struct grammar_exprs *x, int kind);
uint32_t grammar_expr_chars(struct grammar_exprs *x, const struct grammar_ranges *r);
uint32_t grammar_expr_char(struct grammar_exprs *x, uint32_t cp);
void grammar_exprs_free(struct grammar_exprs *x);
void grammar_expr_emit(struct grammar_exprs *x, uint32_t at, uint32_t from, uint32_t to, enum grammar_spell spell);

/* tagged.c: back[i], i <= mark.n: the longest proper end of mark[0 .. i) that is its beginning. */
enum { GRAMMAR_MARK_MAX = 256 };
void grammar_find_backs(struct str mark, uint32_t *back);

/* unicode.c: `runs` is an expression of PCRE2 for one or more characters of a property. */
void grammar_property(struct grammar_build *b, const char *runs, struct grammar_ranges *to);

/* regex.c: adds the expression's paths, without calls. search: anywhere in the text, as JSON
 * Schema's "pattern". */
void grammar_regex(struct grammar_build *b, struct str s, bool search, enum grammar_spell spell, uint32_t from,
                   uint32_t to);

/* number.c: decimals. A bound is digits of a whole part and of a fraction. */
struct grammar_decimal {
    bool neg;
    int32_t n_int, n_frac;
    char digit[720]; /* '0' .. '9', whole part first */
};
bool grammar_decimal_of(struct grammar_decimal *d, const json_t *number);
struct grammar_number {
    bool whole;                          /* no fraction, no exponent */
    bool has_lo, has_hi, lo_out, hi_out; /* _out: the bound itself is not allowed */
    struct grammar_decimal lo, hi;
    int n_multiple;
    struct grammar_decimal multiple[8];
};
/* NULL after an error; ERR_UNSUPPORTED for a multiple with too many digits. */
struct grammar_dfa *grammar_number(struct grammar_build *b, const struct grammar_number *n);
int grammar_decimal_cmp(const struct grammar_decimal *a, const struct grammar_decimal *b);
#endif
