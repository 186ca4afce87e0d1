/* SPDX-License-Identifier: Apache-2.0 */
/* spread.h - which of many are tested on: each once, and spread over all.      room: tune */
#ifndef TUNE_SPREAD_H
#define TUNE_SPREAD_H
#include "base/base.h"

/* Whether the i-th of n is among `most` of them that are spread evenly, beginning with the first. */
bool tune_spread(int64_t i, int64_t n, int64_t most);
/* For each of n hashes whether it is the first of its kind; malloc'ed. NULL: memory is short. */
bool *tune_firsts(const uint64_t *hash, int64_t n);
#endif
