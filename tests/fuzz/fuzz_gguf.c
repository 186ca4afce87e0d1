/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_gguf.c - any bytes as a GGUF file: refused with one line of text, or safe to walk. */
#include "fuzz/fuzz.h"
#include "fuzz/gguf_walk.h"
#include "gguf/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_parse(&g, "input", data, n, &e) == ERR_OK) {
        volatile uint64_t sum = gguf_walk(g);

        (void)sum;
    } else {
        assert(g == NULL && strncmp(e.msg, "input: ", 7) == 0 && strchr(e.msg, '\n') == NULL);
    }
    gguf_close(g);
    return 0;
}
