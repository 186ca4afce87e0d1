/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - what a fuzz target defines. Linked with driver.c it runs saved files; built by clang
 * with -fsanitize=fuzzer it looks for new ones. */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
#endif
