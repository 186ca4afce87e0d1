/* SPDX-License-Identifier: Apache-2.0 */
/* resident.c - a server that has the model open (resident.h).                room: cmd */
#include "cli/resident.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/beside.h"
#include "quant/quant.h"
#include "run/placement.h"

#define WIRE "1" /* of questions and events: ask/wire.h, serve/asked.c */

enum err_code cli_resident_facts(json_t **out, const struct cli_opened *x, const char *template_file,
                                 const char *parser, struct err *e)
{
    uint64_t template_hash = 0;
    char file[96];
    struct stat st;

    if (stat(x->path, &st) != 0)
        return err_set(e, ERR_IO, "%s: cannot look at it", x->path);
    if (cli_hash_file(&template_hash, template_file, e))
        return e->code;
    (void)snprintf(file, sizeof file, "%" PRIu64 ":%" PRIu64 " %" PRId64 " %" PRId64 ".%09ld", (uint64_t)st.st_dev,
                   (uint64_t)st.st_ino, (int64_t)st.st_size, (int64_t)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
    *out = json_pack("{s:s, s:s, s:o, s:s, s:i, s:o, s:o}", "version", CHIMERE_VERSION "/" WIRE, "model", file,
                     "adapters", cli_json_hash(x->adapters.hash), "acts",
                     quant_acts_name((enum quant_acts_type)x->o.acts), "experts", (int)x->o.experts, "template",
                     cli_json_hash(template_hash), "parser", json_bytes(str_of(parser != NULL ? parser : "")));
    return *out != NULL ? ERR_OK : err_nomem(e);
}

enum err_code cli_resident_add(json_t *facts, const struct cli_opened *x, const struct run *run, struct err *e)
{
    const struct model_info *i = model_info(x->model);
    const char *k, *v;
    char kv[32];

    run_kv(run, &k, &v);
    (void)snprintf(kv, sizeof kv, "%s,%s", k, v);
    json_t *more = json_pack("{s:s, s:s, s:b, s:b, s:s, s:i, s:I, s:o}", "device", i->device, "kv", kv, "kv_default",
                             x->o.kv == NULL, "kv_fallback", x->placement != NULL && x->placement->kv_fallback, "arch",
                             i->arch, "n_vocab", (int)i->n_vocab, "ctx_train", (json_int_t)i->ctx_train, "fingerprint",
                             cli_json_hash(model_fingerprint(x->model)));
    const bool ok = more != NULL && json_object_update(facts, more) == 0;

    json_decref(more);
    return ok ? ERR_OK : err_nomem(e);
}

static enum err_code check_kv(const json_t *theirs, const struct cli_model_opts *o, struct err *e)
{
    const char *has = json_string_value(json_object_get(theirs, "kv"));
    struct run_opts ro = { 0 };
    char buf[CLI_KV_BYTES], kv[CLI_KV_BYTES];

    cli_open_kv(o, &ro, buf);
    if (ro.kv_k == NULL)
        return json_is_true(json_object_get(theirs, "kv_default"))
                   ? ERR_OK
                   : err_set(e, ERR_ARG, "the server keeps keys and values as %s (--kv)", has != NULL ? has : "");
    (void)snprintf(kv, sizeof kv, "%.30s,%.30s", ro.kv_k, ro.kv_v);
    return has != NULL && strcmp(has, kv) == 0
               ? ERR_OK
               : err_set(e, ERR_ARG, "the server keeps keys and values as %s, not %s (--kv)", has != NULL ? has : "",
                         kv);
}

enum err_code cli_resident_check(const json_t *theirs, const json_t *ours, const struct cli_model_opts *o,
                                 struct err *e)
{
    static const char *const what[][2] = {
        { "version", "the server is another version of these programs" },
        { "model", "the server has another model, or the file has changed since (-m)" },
        { "adapters", "the server has other adapters (--lora)" },
        { "acts", "the server has other activations (--acts)" },
        { "experts", "the server uses another number of experts (--experts)" },
        { "template", "the server has another chat template (--template)" },
        { "parser", "the server reads answers in another way (--parser)" },
    };
    const char *wanted = cli_open_device(o), *device = json_string_value(json_object_get(theirs, "device"));
    const bool any = (o->device == NULL && o->vram == NULL) || strcmp(wanted, "auto") == 0;

    for (size_t i = 0; i < sizeof what / sizeof *what; i++)
        if (!json_equal(json_object_get(theirs, what[i][0]), json_object_get(ours, what[i][0])))
            return err_set(e, ERR_ARG, "%s", what[i][1]);
    if (device == NULL || (!any && cli_open_on_cpu(o) != (strncmp(device, "cpu", 3) == 0)))
        return err_set(e, ERR_ARG, "the server computes on %s (--device)", device != NULL ? device : "another device");
    return check_kv(theirs, o, e);
}

bool cli_resident_path(char *buf, size_t n)
{
    const char *dir = getenv("XDG_RUNTIME_DIR");
    const int length = dir != NULL && dir[0] == '/' ? snprintf(buf, n, "%s/chimere/serve.sock", dir) : -1;

    return length > 0 && (size_t)length < n;
}
