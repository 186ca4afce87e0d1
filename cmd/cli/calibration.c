/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.c - files of calibration (calibration.h).                      room: cmd */
#include "cli/calibration.h"

#include <inttypes.h>

enum err_code cli_calibration_open(struct reason_calibration **out, const char *path, struct err *e)
{
    json_t *v;
    enum err_code code;

    if (cli_json_file(&v, path, e))
        return e->code;
    code = reason_calibration_open(out, v, e);
    json_decref(v);
    return code != ERR_FORMAT ? code : err_wrap(e, "%s: %s", cli_file_name(path), *e->where != '\0' ? e->where : "/");
}

enum err_code cli_calibration_check(const struct reason_calibration *c, const char *path, const struct cli_opened *x,
                                    bool thinks, struct err *e)
{
    const uint64_t is = cli_open_fingerprint(x), has = reason_calibration_model(c);

    if (is == has)
        return !thinks || reason_calibration_thinks(c)
                   ? ERR_OK
                   : err_set(e, ERR_FORMAT, "%s: says nothing of when to think: chimere-bench calibrate adds it",
                             cli_file_name(path));
    return err_set(e, ERR_FORMAT,
                   "%s: is of another model, %016" PRIx64 "; this one, with its adapters, is %016" PRIx64,
                   cli_file_name(path), has, is);
}

void cli_calibration_warn(const struct reason_calibration *c, const char *path)
{
    struct reason_verifier_worth v;

    if (!reason_calibration_verifier(c, &v))
        cli_warn("%s: says nothing of the model as a verifier: chimere-bench calibrate --verifier self measures it",
                 cli_file_name(path));
    else if (!(v.lo > 0.5))
        cli_warn("%s: as a verifier of its own answers the model is not known to be better than chance: area under ROC "
                 "%.2f [%.2f, %.2f], n = %" PRId64 ", %.0f %% scored above 0.5",
                 cli_file_name(path), v.area, v.lo, v.hi, v.n, 100 * v.yes_rate);
}
