/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside of reason: members of JSON files.                      room: reason */
#ifndef REASON_INTERNAL_H
#define REASON_INTERNAL_H
#include "base/base.h"
#include "base/json.h"

/* A member that is none of the known, " name name ", is a mistake: a misspelt one would have no effect. ERR_FORMAT. */
MUST_CHECK enum err_code reason_check_members(const json_t *o, const char *known, struct err *e);
/* ERR_FORMAT at /key. */
enum err_code reason_member_fault(struct err *e, const char *key, const char *why);
bool reason_is_name(struct str s); /* 1 to 64 letters, digits, - and _ */
#endif
