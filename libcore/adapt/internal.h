/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside the room adapt. */
#ifndef ADAPT_INTERNAL_H
#define ADAPT_INTERNAL_H
#include "adapt/adapt.h"
#include "base/arena.h"

#define ADAPTER_EMBD   "token_embd.weight"
#define ADAPTER_RECORD "chimere.training"
#define ADAPTER_A      ".lora_a"
#define ADAPTER_B      ".lora_b"
#define ADAPTER_S      ".scale"

struct own_adapter {
    struct adapter a; /* first */
    struct arena arena;
};
/* One without matrices yet; NULL: out of memory. */
struct own_adapter *adapter_new(const char *path, struct str arch, float alpha, size_t n);
/* Matrix i becomes like this one, its floats zeros; false: out of memory. */
bool adapter_room(struct own_adapter *o, size_t i, const struct adapter_mat *like);
#endif
