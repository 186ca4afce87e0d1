/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_calibration.c - a file of calibration, up to an empty line, and behind it a question: a file that is refused has
 * a reason, and of one that is taken the advice is within its bounds. */
#include <assert.h>
#include <math.h>
#include "fuzz/fuzz.h"
#include "reason/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct str all = { (const char *)data, n };
    const size_t end = str_find(all, 0, STR("\n\n"));
    const struct str file = { all.p, end != SIZE_MAX ? end : n };
    const struct str text = { all.p + (end != SIZE_MAX ? end + 2 : n), end != SIZE_MAX ? n - end - 2 : 0 };
    struct reason_calibration *c;
    struct reason_verifier_worth worth;
    struct reason_advice a;
    struct err e = { 0 };
    json_t *v;

    if (json_parse(&v, file, "calibration", &e))
        return 0;
    if (reason_calibration_open(&c, v, &e)) {
        assert(e.code == ERR_FORMAT || e.code == ERR_NOMEM);
    } else {
        if (reason_calibration_find(c, text, &a, &e) == ERR_OK) {
            const double right = reason_isotonic_at(a.right, (double)(n % 11) / 10);

            assert(a.threshold.below >= 0 && a.threshold.below <= 1);
            assert(isnan(right) || (right >= 0 && right <= 1));
        }
        if (reason_calibration_verifier(c, &worth))
            assert(worth.n > 0 && worth.area >= 0 && worth.area <= 1);
        reason_calibration_close(c);
    }
    json_decref(v);
    return 0;
}
