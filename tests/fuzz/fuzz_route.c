/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_route.c - a file of routes, up to an empty line, and behind it a text to find classes for: a file that is
 * refused has a reason, and of one that is taken only its classes are found. */
#include <assert.h>
#include "fuzz/fuzz.h"
#include "reason/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct str all = { (const char *)data, n };
    const size_t end = str_find(all, 0, STR("\n\n"));
    const struct str file = { all.p, end != SIZE_MAX ? end : n };
    const struct str text = { all.p + (end != SIZE_MAX ? end + 2 : n), end != SIZE_MAX ? n - end - 2 : 0 };
    struct reason_routes *r;
    struct err e = { 0 };
    uint64_t classes;
    json_t *v;

    if (json_parse(&v, file, "routes", &e))
        return 0;
    if (reason_routes_open(&r, v, &e)) {
        assert(e.code == ERR_FORMAT || e.code == ERR_NOMEM);
    } else {
        const int n_classes = reason_routes_n(r);

        assert(n_classes > 0 && n_classes <= REASON_CLASSES_MAX);
        if (reason_route_text(r, text, &classes, &e) == ERR_OK)
            assert(n_classes == 64 || classes >> n_classes == 0);
        if (reason_route_files(r, text, &classes, &e) == ERR_OK)
            assert(n_classes == 64 || classes >> n_classes == 0);
        reason_routes_close(r);
    }
    json_decref(v);
    return 0;
}
