/* SPDX-License-Identifier: Apache-2.0 */
/* jinja.h - inside of the room chat: a Jinja interpreter and its values.        room: chat
 *
 * jinja_lex.c cuts a template into tokens, jinja_parse.c and jinja_stmt.c build a tree,
 * jinja_eval.c and jinja_exec.c walk it. Values are Python's: integers of any size, strings of code
 * points, dicts in order of insertion.
 *
 * A function that returns bool and takes a struct jin has failed when it returns false:
 * chat_raise() has noted why. Everything of one rendering lies in one heap, which is given back
 * whole at its end; nothing is freed before.
 */
#ifndef CHAT_JINJA_H
#define CHAT_JINJA_H
#include "base/base.h"

enum {
    JIN_STEPS_MAX = 6000000,       /* nodes evaluated, items visited, 64 bytes of text made; and 4 for
                                each byte of the data */
    JIN_DEPTH_MAX = 1600,          /* nested evaluations: bounds the C stack */
    JIN_TREE_MAX = 500,            /* height of a parsed tree */
    JIN_CALLS_MAX = 200,           /* macros and loops that call themselves */
    JIN_HEAP_BYTES_MAX = 64 << 20, /* and 16 for each byte of the data */
    JIN_DIGITS_MAX = 4300,         /* of an integer that is printed or read, as in Python */
    JIN_RANGE_MAX = 100000,        /* as in jinja2's sandbox */
    JIN_TEMPLATE_BYTES_MAX = 8 << 20,
};

/* ---- memory ---- */
struct heap_block;
struct heap {
    struct heap_block *head;
    char *at, *end;
    size_t used, max;
};
void *chat_heap_take(struct heap *h, size_t n); /* aligned to 16, not cleared; NULL: none left or over the limit */
void chat_heap_free(struct heap *h);

/* ---- values ---- */
enum val_kind {
    VAL_UNDEFINED,
    VAL_NONE,
    VAL_BOOL,
    VAL_INT,
    VAL_BIG,
    VAL_FLOAT,
    VAL_STR,
    VAL_BYTES,
    VAL_LIST,
    VAL_TUPLE,
    VAL_DICT,
    VAL_VIEW,
    VAL_RANGE,
    VAL_SPACE,
    VAL_MACRO,
    VAL_METHOD,
    VAL_FUNC,
    VAL_LOOP,
    VAL_ITER,
    VAL_CYCLER,
    VAL_JOINER,
    VAL_SELF,
    VAL_BLOCK,
};
enum { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct val {
    uint8_t kind; /* enum val_kind */
    uint8_t sub;  /* VAL_VIEW: VIEW_; VAL_FUNC: which */
    union {
        bool b;
        int64_t i;
        double f;
        const struct vbig *big;
        const struct vstr *s; /* VAL_STR, VAL_BYTES */
        const struct vundef *un;
        struct vlist *l; /* VAL_LIST, VAL_TUPLE */
        struct vdict *d; /* VAL_DICT, VAL_VIEW, VAL_SPACE */
        const struct vrange *r;
        const struct vmacro *m;
        const struct vmethod *me;
        struct vloop *lo;
        struct viter *it;
        struct vcycle *cy;       /* VAL_CYCLER, VAL_JOINER */
        const struct node *node; /* VAL_BLOCK */
    } u;
};

/* UTF-8. mark has a byte for each byte of p: 1 where the template wrote it; NULL: all are `ours`.
 */
struct vstr {
    const char *p;
    const unsigned char *mark;
    size_t n;
    int64_t n_cp; /* code points; -1: not counted */
    bool ours, markup;
};
/* Sign and magnitude, 9 digits in each element, the lowest first; never what fits an int64_t. */
struct vbig {
    bool neg;
    int n;
    uint32_t d[];
};
struct vundef {
    const char *why; /* what using it raises */
    const struct vstr *name;
};
struct vlist {
    struct val *v;
    size_t n, cap;
};
struct vpair {
    struct val key, v;
};
struct vdict {
    struct vpair *v;
    size_t n, cap;
    uint32_t *slot; /* NULL for a few members; index + 1, open addressing */
    unsigned bits;
};
struct vrange {
    int64_t start, stop, step, n;
};
struct vmethod {
    struct val self;
    int which;
};
struct vmacro {
    const struct node *node; /* NODE_MACRO or NODE_CALLBLOCK */
    struct frame *frame;     /* where it was defined */
};
struct vcycle {
    struct vlist *items;
    size_t pos;
};
struct vloop {
    const struct node *node;
    struct frame *outer, *test; /* test: the scope of the loop's "if" */
    struct val items;
    struct viter *it;
    struct val prev, cur, next, changed;
    bool has_next, peeked, has_changed;
    bool drained;                   /* what is left has passed the "if" */
    bool completed;                 /* a round came to its end */
    int64_t index0, depth0, length; /* length -1: not known */
};

/* ---- tokens and trees ---- */
enum tok_kind {
    TOK_DATA,
    TOK_VAR_BEGIN,
    TOK_VAR_END,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_NAME,
    TOK_STRING,
    TOK_INT,
    TOK_FLOAT,
    TOK_OP,
    TOK_EOF,
};
/* TOK_OP: two characters of the operator, as 'a' | 'b' << 8. */
enum {
    OP_ADD = '+',
    OP_SUB = '-',
    OP_MUL = '*',
    OP_DIV = '/',
    OP_MOD = '%',
    OP_TILDE = '~',
    OP_LT = '<',
    OP_GT = '>',
    OP_FLOORDIV = '/' | '/' << 8,
    OP_POW = '*' | '*' << 8,
    OP_EQ = '=' | '=' << 8,
    OP_NE = '!' | '=' << 8,
    OP_GE = '>' | '=' << 8,
    OP_LE = '<' | '=' << 8,
    OP_IN = 0x10000,
    OP_NOTIN,
};
struct tok {
    uint8_t kind;
    int op;
    uint32_t at;     /* byte of the template */
    struct str text; /* TOK_DATA, TOK_NAME, TOK_STRING (unescaped), numbers without _ */
};

enum node_kind {
    /* expressions */
    NODE_CONST,
    NODE_NAME,
    NODE_TUPLE,
    NODE_LIST,
    NODE_DICT,
    NODE_ATTR,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_NEG,
    NODE_POS,
    NODE_BINARY,
    NODE_CONCAT,
    NODE_COMPARE,
    NODE_AND,
    NODE_OR,
    NODE_COND,
    NODE_NSREF,
    /* statements */
    NODE_BODY,
    NODE_OUTPUT,
    NODE_IF,
    NODE_FOR,
    NODE_SET,
    NODE_SETBLOCK,
    NODE_MACRO,
    NODE_CALLBLOCK,
    NODE_FILTERBLOCK,
    NODE_WITH,
    NODE_BLOCK,
    NODE_GENERATION,
    NODE_ESCAPE,
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_NOLOADER,
};
/* jinja_parse.c and jinja_stmt.c describe the children of each kind. */
struct node {
    uint8_t kind;
    bool recursive;                              /* NODE_FOR */
    bool scoped;                                 /* NODE_BLOCK */
    bool uses_caller, uses_kwargs, uses_varargs; /* NODE_MACRO, NODE_CALLBLOCK */
    int16_t height;
    int op;      /* OP_; index of a filter or test; NODE_NAME, NODE_MACRO: symbol */
    int n;       /* children */
    int n_pos;   /* calls: positional arguments; macros: parameters */
    uint32_t at; /* byte of the template */
    struct node **kid;
    struct val v;     /* NODE_CONST; a name as a string */
    struct val *name; /* calls: names of the keyword arguments; macros: names of the parameters */
    int *sym;         /* macros: symbols of the parameters */
};

enum { SYM_LOOP, SYM_CALLER, SYM_KWARGS, SYM_VARARGS, SYM_SELF, SYM_KNOWN };
struct jinja {
    struct heap heap;
    struct str source; /* newlines are \n, without the last */
    struct node *root;
    struct str *sym;
    int n_sym, cap_sym;
    struct node **block;
    int n_block, cap_block;
};

/* ---- one rendering ---- */
enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
/* Methods of other values than strings, in VAL_METHOD. */
enum {
    METHOD_CYCLE = 1000,
    METHOD_CHANGED,
    METHOD_GET,
    METHOD_KEYS,
    METHOD_VALUES,
    METHOD_ITEMS,
    METHOD_COPY,
    METHOD_APPEND,
    METHOD_POP,
    METHOD_COUNT,
    METHOD_INDEX,
    METHOD_BIT_LENGTH,
    METHOD_BIT_COUNT,
    METHOD_CONJUGATE,
    METHOD_IS_INTEGER,
    METHOD_NEXT,
    METHOD_RESET,
    METHOD_DECODE,
};
struct var {
    int sym;
    struct val v;
};
struct frame {
    struct frame *up;
    struct var *v;
    int n, cap;
    bool kept; /* a macro points to it */
};
/* Text that grows. */
struct sbuf {
    char *p;
    unsigned char *mark; /* NULL: all `ours` */
    size_t n, cap;
    bool ours;
};
struct jin {
    struct heap heap;
    const struct jinja *t;
    struct err *e;
    uint32_t at; /* byte of the template that is worked on */
    int64_t steps, steps_max, now_s;
    int depth, calls, flow; /* flow: FLOW_ */
    bool lists_change;      /* append and pop are allowed */
    bool constant;          /* what is evaluated has no variables: jinja2 does that beforehand */
    struct val *root;       /* by symbol */
    bool *root_set;
    struct frame *frame; /* NULL: the root's */
    struct sbuf *out;
    /* The last concatenation: what ends there may grow in its place. */
    char *tail;
    size_t tail_room;
    struct val messages; /* to say which one was worked on */
};
/* Arguments of a call. */
struct args {
    struct val *v;
    int n;
    struct val *name; /* of keyword arguments, strings */
    struct val *kw;
    int n_kw;
};

/* Notes the first failure, with line and column; returns false. */
bool chat_raise(struct jin *j, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool chat_limit(struct jin *j, const char *what);
bool chat_no_memory(struct jin *j);
/* Counts work; false when there was too much. */
bool chat_work(struct jin *j, int64_t steps);
/* Around whatever recurses. */
bool chat_enter(struct jin *j);
void chat_leave(struct jin *j);
void *chat_take(struct jin *j, size_t n); /* NULL: noted */
void *chat_take_array(struct jin *j, size_t n, size_t size);

/* jinja_open.c, jinja_lex.c: line and column in the message. */
MUST_CHECK enum err_code chat_jinja_open(struct jinja **out, struct str source, struct err *e);
void chat_jinja_close(struct jinja *t); /* NULL is allowed */
enum err_code chat_jinja_lex(struct jinja *t, struct tok **out, size_t *n, struct err *e);
enum err_code chat_jinja_fail(const struct jinja *t, struct err *e, uint32_t at, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* Line and column of byte `at`, from 1. */
void chat_jinja_place(const struct jinja *t, uint32_t at, int *line, int *column);

/* jinja_exec.c: a rendering begins with chat_jin_open(), takes values into jin.root, and ends with
 * chat_jin_close(). */
enum err_code chat_jin_open(struct jin *j, const struct jinja *t, size_t data_bytes, struct err *e);
void chat_jin_close(struct jin *j);
bool chat_jin_set(struct jin *j, const char *name, struct val v); /* a variable */
bool chat_jin_run(struct jin *j, struct sbuf *out);
bool chat_exec_body(struct jin *j, const struct node *n);
bool chat_call_macro(struct jin *j, const struct vmacro *m, const struct args *a, struct val *out);
bool chat_call_loop(struct jin *j, struct vloop *lo, const struct args *a, struct val *out);
bool chat_call_block(struct jin *j, const struct node *block, struct frame *frame, struct val *out);
bool chat_loop_attr(struct jin *j, struct vloop *lo, struct str name, struct val *out, bool *found);

/* jinja_eval.c */
bool chat_eval(struct jin *j, const struct node *n, struct val *out);
bool chat_call(struct jin *j, struct val fn, const struct args *a, struct val *out);
bool chat_eval_args(struct jin *j, const struct node *n, int first, struct args *a);
struct frame *chat_frame_new(struct jin *j, struct frame *up);
bool chat_frame_set(struct jin *j, struct frame *f, int sym, struct val v);
bool chat_bind(struct jin *j, const struct node *target, struct val v); /* assigns */

/* jinja_attr.c */
bool chat_getattr(struct jin *j, struct val v, struct val name, struct val *out);
bool chat_own_attr(struct jin *j, struct val v, struct str name, struct val *out,
                   bool *found); /* no member of a dict */
bool chat_getitem(struct jin *j, struct val v, struct val key, struct val *out);
bool chat_slice(struct jin *j, struct val v, const struct val bound[3], struct val *out);
bool chat_call_method(struct jin *j, const struct vmethod *m, const struct args *a, struct val *out);
bool chat_call_func(struct jin *j, int which, const struct args *a, struct val *out);
int chat_func_find(struct str name); /* a global function, or -1 */
/* jinja_str.c: methods of strings, which are numbered from 0; -1: none. */
int chat_str_method_find(struct str name);
bool chat_str_method(struct jin *j, int which, struct val self, const struct args *a, struct val *out);
enum letter_case { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE, CASE_SWAP, CASE_FOLD };
bool chat_str_case(struct jin *j, const struct vstr *s, enum letter_case how, struct val *out);
bool chat_str_strip(struct jin *j, const struct vstr *s, const struct vstr *chars, bool left, bool right,
                    struct val *out);
bool chat_str_replace(struct jin *j, const struct vstr *s, const struct vstr *old, const struct vstr *with, int64_t max,
                      struct val *out);
bool chat_str_lines(struct jin *j, const struct vstr *s, bool keep, struct vlist *out);
bool chat_str_pad(struct jin *j, const struct vstr *s, int64_t width, struct str fill, int side, struct val *out);

/* A filter has one of the functions, or never works. */
struct filter {
    const char *name, *refuses;
    bool (*call)(struct jin *j, struct val v, const struct args *a, struct val *out);
    bool (*call_how)(struct jin *j, struct val v, const struct args *a, int how, struct val *out);
    bool (*alone)(struct jin *j, struct val v, struct val *out);        /* without arguments */
    bool (*text)(struct jin *j, const struct vstr *s, struct val *out); /* so, of the value as a string */
    int how;
};
const struct filter *chat_filter_seq(int i); /* jinja_seq.c: filters over items; NULL: there are no more */
/* jinja_filters.c, jinja_seq.c, jinja_tests.c: indices for nodes; -1: no such one. */
int chat_filter_find(struct str name);
bool chat_filter(struct jin *j, int which, struct val v, const struct args *a, struct val *out);
int chat_test_find(struct str name);
bool chat_test(struct jin *j, int which, struct val v, const struct args *a, bool *out);

/* Takes arguments by position or name, as "sep maxsplit"; those before `need` must be given. Those
 * absent are left as they were in v. */
bool chat_args(struct jin *j, const char *what, const struct args *a, const char *names, int need, struct val *v);

/* ---- jinja_value.c ---- */
struct val chat_none(void);
struct val chat_bool(bool b);
struct val chat_int(int64_t i);
struct val chat_float(double f);
bool chat_undefined(struct jin *j, struct val *out, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool chat_use_undefined(struct jin *j, struct val v);                       /* raises what it says */
bool chat_str_new(struct jin *j, struct str s, bool ours, struct val *out); /* not copied */
bool chat_str_copy(struct jin *j, struct str s, bool ours, struct val *out);
bool chat_str_part(struct jin *j, const struct vstr *s, size_t from, size_t n, struct val *out); /* bytes */
bool chat_set_markup(struct val *v, bool on);           /* of a VAL_STR that nobody else has; true */
struct str chat_str(const struct val *v);               /* of a VAL_STR */
int64_t chat_str_len(const struct vstr *s);             /* code points */
size_t chat_str_byte(const struct vstr *s, int64_t cp); /* where code point cp begins */
bool chat_concat(struct jin *j, const struct vstr *a, const struct vstr *b, struct val *out);
bool chat_sbuf_add(struct jin *j, struct sbuf *b, struct str s, bool ours);
bool chat_sbuf_str(struct jin *j, struct sbuf *b, const struct vstr *s);                          /* with its marks */
bool chat_sbuf_part(struct jin *j, struct sbuf *b, const struct vstr *s, size_t from, size_t to); /* bytes, as well */
bool chat_sbuf_fill(struct jin *j, struct sbuf *b, struct str s, int64_t times, bool ours);
bool chat_sbuf_val(struct jin *j, struct sbuf *b, struct val *out); /* b as a value; b is used up */
bool chat_list_new(struct jin *j, uint8_t kind, size_t cap, struct val *out);
bool chat_list_add(struct jin *j, struct vlist *l, struct val v);
bool chat_dict_new(struct jin *j, struct val *out);
bool chat_dict_set(struct jin *j, struct vdict *d, struct val key, struct val v);
/* *out is NULL when there is none. Raises for a key that cannot be hashed. */
bool chat_dict_get(struct jin *j, const struct vdict *d, struct val key, struct val **out);
struct val *chat_dict_find(const struct vdict *d, struct str key);          /* a string key, or NULL */
bool chat_pair(struct jin *j, struct val a, struct val b, struct val *out); /* a tuple */
const char *chat_type(const struct val *v);                                 /* Python's name: "str", "int" ... */
bool chat_truth(const struct val *v);
bool chat_len(struct jin *j, struct val v, int64_t *n);
bool chat_equal(struct jin *j, struct val a, struct val b, bool *out);
bool chat_less(struct jin *j, struct val a, struct val b, const char *op, bool *out);
bool chat_index(struct jin *j, struct val v, int64_t *out); /* an int or a bool; big ones are clamped */
bool chat_is_num(const struct val *v);
bool chat_as_double(struct jin *j, struct val v, double *out); /* of a number */

/* ---- jinja_iter.c ---- */
bool chat_iter(struct jin *j, struct val v, struct viter **out);
bool chat_next(struct jin *j, struct viter *it, struct val *out, bool *more);
bool chat_list_of(struct jin *j, struct val v, struct val *out); /* a new list */
bool chat_contains(struct jin *j, struct val v, struct val item, bool *out);
/* A generator: items of v as fn makes them; fn leaves *keep false for those to be left out. */
typedef bool iter_fn(struct jin *j, void *ctx, struct val item, struct val *out, bool *keep);
bool chat_generate(struct jin *j, struct val v, iter_fn *fn, void *ctx, struct val *out);

/* ---- jinja_int.c: integers of any size; a and b are VAL_BOOL, VAL_INT or VAL_BIG ---- */
bool chat_int_op(struct jin *j, int op, struct val a, struct val b, struct val *out); /* + - * // % */
bool chat_int_pow(struct jin *j, struct val a, int64_t n, struct val *out);
bool chat_int_neg(struct jin *j, struct val a, struct val *out);
int chat_int_cmp(struct val a, struct val b);
bool chat_int_read(struct jin *j, struct str digits, int base, struct val *out); /* [-]digits */
bool chat_int_text(struct jin *j, struct val a, int base, char **p, size_t *n);  /* [-]digits */
bool chat_int_of_double(struct jin *j, double d, struct val *out);               /* cut off */
bool chat_int_double(struct val a, double *out);                                 /* false: too large */
int chat_int_cmp_double(struct val a, double d);
uint64_t chat_int_hash(struct val a);

/* ---- jinja_ops.c ---- */
bool chat_binary(struct jin *j, int op, struct val a, struct val b, struct val *out);
bool chat_compare(struct jin *j, int op, struct val a, struct val b, bool *out);
bool chat_negate(struct jin *j, struct val a, bool plus, struct val *out);

/* ---- jinja_print.c ---- */
bool chat_print(struct jin *j, struct sbuf *b, struct val v); /* str() */
bool chat_repr(struct jin *j, struct sbuf *b, struct val v);
bool chat_to_str(struct jin *j, struct val v, struct val *out); /* a VAL_STR */
size_t chat_double_text(double d, char buf[40]);                /* as repr() */
struct dump_style {
    bool ascii, sort;
    const struct vstr *indent; /* NULL: one line */
    struct str item, key;      /* separators */
};
bool chat_json(struct jin *j, struct sbuf *b, struct val v, const struct dump_style *style);

/* ---- jinja_format.c ---- */
bool chat_percent(struct jin *j, const struct vstr *f, struct val args, struct val *out);
bool chat_format(struct jin *j, const struct vstr *f, const struct args *a, struct val *out);
bool chat_format_spec(struct jin *j, struct val v, struct str spec, struct sbuf *b);
bool chat_escape(struct jin *j, struct val v, struct val *out); /* markup */
bool chat_strftime(struct jin *j, int64_t now_s, struct str f, struct val *out);
bool chat_float_read(struct str s, double *out); /* as float() reads text */

/* ---- jinja_json.c ---- */
/* One JSON text. `path` names it in messages. */
bool chat_json_read(struct jin *j, struct str text, const char *what, struct val *out);
struct json_t;
bool chat_json_value(struct jin *j, const struct json_t *v, struct val *out); /* strings are not copied */

/* ---- unicode.c ---- */
unsigned chat_cp_flags(uint32_t cp);                                  /* UNI_ bits */
int chat_cp_case(uint32_t cp, enum letter_case how, uint32_t out[3]); /* how many */
int chat_cp_digit(uint32_t cp);                                       /* value of a decimal digit, or -1 */
bool chat_is_word(uint32_t cp);                                       /* \w */
#endif
