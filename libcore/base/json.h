/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - a thin layer over jansson: limits, errors as values.                room: base
 *
 * Input is hostile: depth and size are bounded, duplicate keys and trailing text are errors,
 * strings must be valid UTF-8, whole numbers must fit 64 bits with a sign, others a double, but for limits of a schema
 * ("maximum" and so on): those are rounded towards 0. A failed allocation is distinguished from a
 * mistake in the text through jansson's allocator (malloc and free), which json_parse() sets.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H
#include <jansson.h>
#include "base/base.h"

/* One JSON value of any kind. `what` names the source in messages ("messages.json", or "in.jsonl: line 7" for a line of
 * it; "": it is a single line, and the caller says of what); the place of a mistake is its line and column. */
MUST_CHECK enum err_code json_parse(json_t **out, struct str text, const char *what, struct err *e);
/* The same for what a client says. Strings may contain \u0000: the caller looks at their lengths. A number that does
 * not fit, and half of a surrogate pair, lose no more than themselves: *out is set then, with another value in their
 * place, beside ERR_FORMAT, and e->where is the JSON pointer of the first one. */
MUST_CHECK enum err_code json_parse_request(json_t **out, struct str text, const char *what, struct err *e);
/* The same for text that one of our own programs wrote: of any length. */
MUST_CHECK enum err_code json_parse_own(json_t **out, struct str text, const char *what, struct err *e);
/* The bytes of a string; p NULL: the value is none. */
struct str json_text(const json_t *v);
/* Whether a text begins with a whole value, whatever follows it. ERR_NOMEM: nobody knows. */
MUST_CHECK enum err_code json_begins(bool *whole, struct str text, struct err *e);
/* Reads a string member of an object. False: it is absent or of another type (see json_typeof). */
bool json_get_str(const json_t *object, const char *key, struct str *out);
/* JSON string of arbitrary bytes: each byte that is not valid UTF-8 becomes U+FFFD. */
json_t *json_bytes(struct str s);
/* A value as text, with the library's flags; free() it. NULL: out of memory, and not without a member, as from the
 * library's own json_dumps(). */
char *json_dump(const json_t *v, size_t flags);
/* The same as one line, reals with 9 digits. U+0085, U+2028 and U+2029, at which some readers end a line, are written
 * as \u.... */
char *json_line(const json_t *v);
/* An object or array with the same members, of which there is one more owner. NULL: out of memory, and not without a
 * member, as from the library's own json_copy(). */
json_t *json_shallow(const json_t *v);
/* Whether memory for a value was out in this thread since it asked last: where many calls make one reply, this says
 * that none was without effect. */
bool json_ran_out(void);
/* o; if not ok, NULL, and o (NULL is allowed) is released. */
json_t *json_if(bool ok, json_t *o);
/* Adds v to the end of *list. If one of them is NULL, or that fails, *list is NULL, and both are released. */
void json_push(json_t **list, json_t *v);
/* Appends a member to a JSON pointer of n bytes in `room`: "/" and the name, in which ~ and / are escaped (RFC 6901),
 * as far as it fits. Returns the new length. */
size_t json_point_to(char *pointer, size_t room, size_t n, const char *key);
/* A member that is none of the known, " name name ", is a mistake: a misspelt one would have no effect. ERR_FORMAT. */
MUST_CHECK enum err_code json_check_members(const json_t *o, const char *known, struct err *e);
/* ERR_FORMAT at /key. */
enum err_code json_member_fault(struct err *e, const char *key, const char *why);
bool json_is_name(struct str s); /* 1 to 64 letters, digits, - and _ */
#endif
