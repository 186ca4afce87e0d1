/* SPDX-License-Identifier: Apache-2.0 */
/* parse.h - what the syntaxes of chat/reader.h are written with.                room: chat
 *
 * An answer is kept whole. Before `head` it is decided; between head and `scan` it belongs to a
 * call that is being read; a search goes on at `probe`, so that no byte is looked at again and
 * again. A syntax is asked for one step at a time and keeps its place in `phase`.
 */
#ifndef CHAT_PARSE_H
#define CHAT_PARSE_H
#include "chat/reader.h"
#include "grammar/grammar.h"
#include "text/marks.h"
#include "text/buf.h"

enum {
    CHAT_DEPTH_MAX = 60, /* of values within values */
    CHAT_NAME_BYTES_MAX = 256,
    CHAT_KEY_BYTES_MAX = 1024,
    CHAT_PARAMS_MAX = 1024,
};

/* CHAT_MORE: the text ends too early. CHAT_DONE: the calls are over, text follows at scan.
 * CHAT_BAD: this is no call, and what lies between head and scan is text. */
enum chat_step { CHAT_MORE, CHAT_ON, CHAT_DONE, CHAT_BAD };

/* ---- values: parse_value.c ---- */

/* Finds the end of a value that begins with a bracket: by brackets and quotes, and by bytes that
 * neither JSON nor Python has outside of strings. */
struct chat_scan {
    char close[CHAT_DEPTH_MAX];
    int depth;
    char quote;
    bool escape, python;
    size_t inner; /* where the first bracket within the outer one is; 0: none so far */
};
void chat_parse_scan_begin(struct chat_scan *s, bool python);
/* From *at on; at CHAT_DONE *at is behind the value, at CHAT_BAD on the byte that is wrong. */
enum chat_step chat_parse_scan(struct chat_scan *s, struct str text, size_t *at);

/* What a value may be written in beside JSON. */
enum { CHAT_PYTHON_NAMES = 1, CHAT_PYTHON = 2 | CHAT_PYTHON_NAMES };

bool chat_parse_is_space(char c);
void chat_parse_trim(struct str *s);
/* Takes one value off the front of *s and adds it to out as JSON: numbers digit for digit, ", " and
 * ": " between members, strings escaped as little as may be. False: it is none. */
bool chat_parse_value(struct text_buf *out, struct str *s, unsigned syntax);
/* The same for a value that comes in parts: what was added does not depend on how it was cut. */
struct chat_value {
    unsigned syntax;
    int state, depth;
    char close[CHAT_DEPTH_MAX];
    bool many[CHAT_DEPTH_MAX]; /* there was a comma */
    char quote;
    bool key;    /* the string names a member */
    size_t seen; /* bytes of an unfinished number or name that were looked at */
};
void chat_parse_value_begin(struct chat_value *v, unsigned syntax);
/* Takes what is certain off the front of *s, which goes on with what was left of it. CHAT_DONE: the value is over.
 * end: nothing follows, so CHAT_MORE is CHAT_BAD. */
enum chat_step chat_parse_value_part(struct chat_value *v, struct text_buf *out, struct str *s, bool end);
/* Takes a string off the front of *s and adds its bytes. */
bool chat_parse_string(struct text_buf *out, struct str *s, unsigned syntax);
void chat_parse_quote(struct text_buf *out, struct str s);      /* a JSON string of s */
void chat_parse_quote_part(struct text_buf *out, struct str s); /* without the quotes around it */
/* Whether all of s is a number; whole: one without a fraction. */
bool chat_parse_is_number(struct str s, bool *whole);

/* ---- types: parse_typed.c ---- */

/* The function of a tool; NULL: there is none. */
const json_t *chat_parse_tool(const json_t *tools, struct str name);
/* Text that stands for a value, as JSON of the type that the schema declares for the parameter; a
 * string where it does not fit, or is declared to be one. */
void chat_parse_typed(struct text_buf *out, const json_t *schema, struct str key, struct str text, unsigned syntax);
/* The types that it may be read as: those of grammar/grammar.h. key.p NULL: of a parameter that is not declared. */
unsigned chat_parse_types(const json_t *schema, struct str key);

/* ---- the reader: reader.c ---- */

struct chat_syntax;

struct chat_channel {            /* reasoning or content */
    struct text_buf text, space; /* given out; white space held back at its end */
    bool any;                    /* text was given */
    bool soft;                   /* a mark is beside the white space */
    bool join;                   /* another message begins */
};

struct chat_given { /* a call: places in words and all */
    size_t id, id_n, name, name_n, arguments, arguments_n, raw, raw_n;
};

struct chat_out { /* a piece, by places instead of addresses */
    enum chat_part part;
    enum chat_call_step step;
    int call;
    struct chat_given of; /* the call */
    size_t from, n;
};

struct chat_span {
    size_t from, to;
};

struct chat_reader {
    const struct chat_syntax *syntax;
    json_t *tools; /* NULL: none */
    int first_call;
    struct text_buf all; /* the answer as valid UTF-8 */
    char tail[4];        /* an unfinished character */
    size_t n_tail;
    bool end;
    enum chat_cut cut;
    bool failed; /* out of memory */

    struct chat_channel part[2]; /* CHAT_REASONING, CHAT_TEXT */
    bool reasoning, thought;     /* within it; it was begun */
    bool in_call;
    bool unclosed; /* calls ended without their closing mark */
    struct chat_out *out;
    struct chat_piece *piece; /* the same with addresses */
    size_t n_out, out_cap, piece_cap;
    struct chat_given *given;
    size_t n_given, given_cap;
    struct text_buf words; /* ids, names, arguments of the calls */
    size_t n_begun;        /* calls that were reported */

    /* of the calls being read */
    size_t head, scan, probe, look;
    int phase;
    size_t n_block;     /* calls given since the block began */
    bool begun;         /* a call is begun and not given */
    bool bare, in_list; /* the block began without a mark; in a list of calls */
    struct chat_scan value;
    struct chat_span name, key;
    const json_t *schema;    /* of its parameters */
    struct chat_span *param; /* names of parameters [CHAT_PARAMS_MAX], made when first needed */
    size_t n_param;
    bool repeated, is_text; /* the parameter was there before; its value is a string without quotes */
    struct text_buf scratch, id_text, name_text;
    struct text_buf args;      /* the arguments, as far as they are read */
    size_t args_at;            /* how far that is in the answer */
    struct chat_value arg;     /* the value there */
    enum chat_step args_step;  /* what came of it */
    int wants;                 /* what follows there, where parameters have names */
    bool calling;              /* the call was reported */
    struct chat_given current; /* ... and this is it */
};

/* A row of parsers.def. Marks that a syntax does not have are NULL. */
enum { CHAT_MARKS = 3 };
struct chat_syntax {
    const char *name;
    enum chat_step (*text)(struct chat_reader *r);
    const char *think, *think_end[TEXT_MARK_CLOSERS]; /* open and close the reasoning */
    const char *think_over;                           /* how a program closes it, so that the text follows */
    bool call_over;                                   /* a call may also come before reasoning is closed, and ends it */
    bool think_again;               /* it may begin anywhere and again; else only where the answer begins */
    const char *open[CHAT_MARKS];   /* begin calls, and a call comes after them */
    const char *inside[CHAT_MARKS]; /* begin calls, and a call begins with them */
    const char *close;              /* ends calls */
    const char *drop[CHAT_MARKS];   /* taken out of the text */
    bool drop_thought;              /* ... but only in what follows reasoning */
    bool bare;                      /* an object at the beginning of the text may be a call */
    unsigned values;                /* CHAT_PYTHON... */
    enum chat_step (*call)(struct chat_reader *r);
    const void *conf;                   /* for `call`: one of these */
    const struct chat_written *written; /* NULL: there are no calls */
};
const struct chat_syntax *chat_parse_syntax(const char *name);       /* NULL: there is none */
enum err_code chat_parse_no_syntax(const char *name, struct err *e); /* ERR_ARG, with the names that there are */

/* Calls as a family writes them when it is free to: a block of them in free text. A "#" in head and mid is a number. */
struct chat_written {
    const char *begin;                 /* opens a block */
    const char *start;                 /* ... where a call is asked for; NULL: begin */
    const char *before;                /* the first call */
    const char *head, *mid, *tail;     /* before the name; between it and the arguments; behind them */
    bool quoted;                       /* the name is a string of JSON */
    const struct grammar_dress *dress; /* of the arguments; NULL: JSON */
    const char *between;               /* calls of a block; NULL: a block is one call */
    const char *after;                 /* closes a block; NULL: nothing does, and the answer ends */
    const char *again;                 /* between blocks of an answer of calls alone; NULL: it has one */
    const char *resume;                /* behind reasoning, before `start` */
    const char *loose;                 /* what such models write beside this, and is not held to any schema */
};

struct chat_xml {
    const char *call, *call_name_end; /* NULL: the name begins at once, a space ends it */
    const char *param, *param_name_end;
    const char *value[2]; /* another mark, after white space; the second: the value is a string */
    const char *param_end, *call_end;
    bool own_lines; /* a value has a newline on each side that is not its own */
};
struct chat_named {
    const char *begin, *name_end, *end;
    const char *prefix; /* of names, left out; what follows the last ':' is too */
    const char *id;     /* mark between a name and the call's id */
    bool kind;          /* it may be a kind: then the name follows, and a fenced block */
};

enum chat_step chat_text_marked(struct chat_reader *r);
enum chat_step chat_text_plain(struct chat_reader *r);
enum chat_step chat_text_harmony(struct chat_reader *r);

/* Phase 0 is before a call or after one. Others pass phases from CHAT_JSON on to chat_call_json(),
 * when what follows is an object or a list. */
enum { CHAT_JSON = 10 };
bool chat_parse_json_next(struct chat_reader *r); /* true: it is, and the phase is set */
enum chat_step chat_call_json(struct chat_reader *r);
enum chat_step chat_call_named(struct chat_reader *r);
enum chat_step chat_call_xml(struct chat_reader *r);
enum chat_step chat_call_python(struct chat_reader *r);
enum chat_step chat_call_harmony(struct chat_reader *r);

struct str chat_parse_slice(const struct chat_reader *r, struct chat_span s);
void chat_parse_say(struct chat_reader *r, enum chat_part part, struct str s);
/* A mark was read: white space beside it is nobody's. */
void chat_parse_mark(struct chat_reader *r);
/* Takes calls that began at head and are read to scan: text goes on. */
void chat_parse_call_over(struct chat_reader *r);
void chat_parse_call_is_text(struct chat_reader *r);

void chat_parse_phase(struct chat_reader *r, int phase); /* and the search begins at scan */
void chat_parse_space(struct chat_reader *r);            /* scan behind white space */
/* CHAT_ON: scan is behind the mark. CHAT_BAD: something else is there. */
enum chat_step chat_parse_take(struct chat_reader *r, const char *mark);
/* One of [n] marks, NULLs left out, a longer one before its beginning: its index in *which. */
enum chat_step chat_parse_take_one(struct chat_reader *r, const char *const *marks, int n, int *which);
/* Up to a mark, at most n_max bytes away, none of `never` before it; scan behind the mark. */
enum chat_step chat_parse_until(struct chat_reader *r, const char *mark, size_t n_max, const char *never,
                                struct chat_span *out);
/* The first place from `from` on where one of [n] marks is. False: there is none before *at, and
 * what follows may be the beginning of one. */
bool chat_parse_search(const struct chat_reader *r, size_t from, const char *const *marks, int n, size_t *at,
                       int *which);

/* The value that begins at scan, a bracket; scan goes behind it, probe is how far it was read. */
enum chat_step chat_parse_take_value(struct chat_reader *r, struct chat_span *out);

/* ---- calls: parse_call.c ---- */

void chat_parse_add_piece(struct chat_reader *r, const struct chat_out *o);

/* Arguments begin at `at`, of a call with this name: if it is a tool's, the call is reported. id: empty: to be made. */
void chat_parse_begin(struct chat_reader *r, struct str id, struct str name, size_t at);
/* Gives out the first n bytes of args, if the call was reported. The last bracket is not for this: what turns out to
 * be no call never was JSON. */
void chat_parse_flow(struct chat_reader *r, size_t n);
/* Reads the object of arguments on, up to `to`, and gives it out. end: it ends there. */
enum chat_step chat_parse_read_args(struct chat_reader *r, size_t to, bool end);
/* The arguments are the value at scan, as chat_parse_take_value() takes it, and go to args. */
enum chat_step chat_parse_take_args(struct chat_reader *r);
/* Whether a parameter's name is new, which is noted. False with `failed`: out of memory; args_step is CHAT_BAD: they
 * are too many. */
bool chat_parse_new_param(struct chat_reader *r, struct chat_span key);
/* Gives the call that lies between head and scan, with args. False: its name is none. What was reported keeps the id
 * and the name that it has. */
bool chat_parse_give(struct chat_reader *r, struct str id, struct str name);
/* What was reported is no call. */
void chat_parse_fail_call(struct chat_reader *r);
#endif
