/* SPDX-License-Identifier: Apache-2.0 */
/* schema.h - what the parts of the schema compiler share.                       room: grammar
 *
 * A value is described by a list of schemas that must all hold (`all`). Following $ref and allOf
 * makes the list flat; each anyOf and oneOf in it is a choice, and a choice of each gives one case:
 * a list of plain keywords, whose language is written out by type. So keywords of different schemas
 * meet exactly as JSON Schema has it, additionalProperties included. Each list that a property or
 * an item has is a rule.
 */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H
#include "grammar/internal.h"

enum {
    SCHEMA_ALL_MAX = 128,   /* schemas in one list */
    SCHEMA_CASES_MAX = 256, /* choices of one value, multiplied out */
    SCHEMA_NAMES_MAX = 4096,
};
enum {
    T_NULL = GRAMMAR_NULL,
    T_BOOL = GRAMMAR_BOOL,
    T_INT = GRAMMAR_INTEGER,
    T_FRAC = GRAMMAR_FRACTION,
    T_STR = GRAMMAR_STRING,
    T_ARR = GRAMMAR_ARRAY,
    T_OBJ = GRAMMAR_OBJECT,
    T_ALL = 127
};

struct schema_item {
    const json_t *s;
    const char *path; /* JSON pointer, "#/properties/a" */
    bool made;        /* of ours: says nothing about undeclared properties */
    int32_t from;     /* in a flat list: the one that it came through, or -1 */
};
struct schema_all {
    struct schema_item v[SCHEMA_ALL_MAX];
    uint32_t n;
    bool never; /* one of them is false */
};
/* anyOf, oneOf and what is written as such. */
struct schema_choice {
    const json_t *list;
    struct schema_item owner;
    const char *key;
};
struct schema_choices {
    struct schema_choice v[SCHEMA_ALL_MAX];
    uint32_t n;
};

struct schema_rule {
    struct schema_item *v; /* [n] sorted */
    uint32_t n, rule;
};
/* Writes one case of a value: a list of plain keywords. */
struct schema;
typedef void schema_writer(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to);

/* A bare text with these limits is written already, as a rule. */
struct schema_text {
    int types;
    int64_t min, max;
    uint32_t rule;
};

struct schema {
    struct grammar_build *b;
    const json_t *root;
    struct schema_rule *rule; /* in the order in which they are written out */
    uint32_t n_rule, cap_rule, done;
    char **path; /* memory of paths */
    uint32_t n_path, cap_path;
    json_t **made; /* memory of schemas of ours */
    uint32_t n_made, cap_made;
    const char *hint; /* first schema that nothing satisfies */
    bool placed;      /* the error says where it is */
    schema_writer *writer;
    const struct grammar_dress *dress, *bare; /* of the members in hand; of the bare value in hand */
    int types;                                /* of the bare value in hand: what a reader may take it for */
    struct schema_text *text;
    uint32_t n_text, cap_text;
    uint32_t block, rest; /* rules of stretches of bare text; 0: not made yet */
    size_t nth;           /* where the value at hand may be in its list: found there at once */
};

/* schema.c */
/* The rules of a value; x has its builder and root. Paths and names live until schema_free(). */
uint32_t schema_write(struct schema *x, const json_t *s, const char *path);
/* The same of the members of an object. */
uint32_t schema_write_members(struct schema *x, const json_t *s, const char *path, const struct grammar_dress *dress);
void schema_free(struct schema *x);
/* A rule of what `writer` writes for each case of the schemas. */
uint32_t schema_cases(struct schema *x, const struct schema_all *in, schema_writer *writer);
const char *schema_path(struct schema *x, const char *base, const char *key, int64_t index); /* index -1: none */
void schema_fail(struct schema *x, enum err_code code, const char *path, const char *key, const char *what);
void schema_fail_limit(struct schema *x, const char *path, const char *key, int64_t n, int64_t limit);
void schema_add(struct schema *x, struct schema_all *a, struct schema_item item); /* as it is */
void schema_check_kinds(struct schema *x, const json_t *s, const char *path);     /* of values, in all of a schema */
void schema_check_keys(struct schema *x, struct schema_item item); /* refuses keywords that are not supported */
bool schema_flatten(struct schema *x, const struct schema_all *in, struct schema_all *flat,
                    struct schema_choices *choices);
uint32_t schema_rule_of(struct schema *x, struct schema_all *all); /* sorts the list */
const json_t *schema_ref(struct schema *x, struct schema_item item, const char **path);

typedef void schema_put(struct schema *x, const json_t *value, uint32_t from, uint32_t to);

/* schema_value.c: the language of one case, and of its parts. */
void schema_emit(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to);
void schema_emit_types(struct schema *x, const struct schema_all *flat, int of, uint32_t from, uint32_t to);
void schema_put_space(struct schema *x, uint32_t from, uint32_t to); /* a space or none */
/* Calls put for each value of an enumeration that satisfies everything else. False: there is none. */
bool schema_listed(struct schema *x, const struct schema_all *flat, schema_put *put, uint32_t from, uint32_t to);
void schema_put_value(struct schema *x, const json_t *value, uint32_t from, uint32_t to);
int schema_types(struct schema *x, const struct schema_all *flat);
bool schema_count(struct schema *x, struct schema_item item, const char *key, int64_t *n); /* false: absent */
/* The largest of the lower and smallest of the upper bounds; *max -1: none. */
void schema_counts(struct schema *x, const struct schema_all *flat, const char *lo, const char *hi, int64_t *min,
                   int64_t *max);
/* The schemas of element `at`; false: there may be none. */
bool schema_element(struct schema *x, const struct schema_all *flat, size_t at, struct schema_all *out);
bool schema_number(struct schema *x, const struct schema_all *flat, bool whole, struct grammar_number *n);

/* schema_string.c: what is inside of the quotes. */
struct grammar_dfa *schema_string(struct schema *x, const struct schema_all *flat); /* caller frees */
void schema_put_string(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to);
struct grammar_dfa *schema_patterns(struct schema *x, const struct schema_all *flat); /* NULL: there are none */
/* Replaces *d by its intersection with y, which is freed; *d may be NULL at first. y NULL: nothing to cut. */
void schema_cut(struct schema *x, struct grammar_dfa **d, struct grammar_dfa *y);
struct grammar_dfa *schema_pattern(struct schema *x, struct schema_item item, const char *key, const char *pattern);
struct grammar_dfa *schema_any_string(struct schema *x);
void schema_put_spelled(struct schema *x, const char *s, size_t n, uint32_t from, uint32_t to); /* in all ways */
bool schema_has(struct schema *x, const struct grammar_dfa *d, const char *s, size_t n);

/* schema_bare.c: the rule of a value in x->dress, from behind its key to the end of the member. */
uint32_t schema_bare_rule(struct schema *x, const struct schema_all *all, const char *key);

/* schema_object.c: in x->dress, or as JSON. */
void schema_object(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to);
/* The schemas of a property. False: it is never written. */
bool schema_property(struct schema *x, const struct schema_all *flat, const char *name, struct schema_all *out);
bool schema_writes(struct schema *x, const struct schema_all *flat, const char *name);
bool schema_requires(struct schema *x, const struct schema_all *flat, const char *name);

/* schema_holds.c: a value against schemas: 1 yes, 0 no, -1 cannot be said. plain: without the
 * anyOf, oneOf, not and $ref of these schemas themselves. */
int schema_type_of(const json_t *value);
int schema_holds(struct schema *x, const struct schema_all *flat, bool plain, const json_t *value);

/* schema_apart.c: no text that is written for a satisfies b. more: a has choices that may add
 * properties. */
bool schema_apart(struct schema *x, const struct schema_all *a, bool more, const struct schema_all *b, int depth);
#endif
