/* SPDX-License-Identifier: Apache-2.0 */
/* expert_uses.c - uses of experts as a JSON object.                             room: cmd */
#include "cli/expert_uses.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "model/model.h"

#define USES_MOST ((json_int_t)1 << 53) /* of one expert */

static enum err_code bad_uses(const char *path, const char *what, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: %s", path, what);
}

static enum err_code read_uses(uint64_t *uses, const json_t *o, const char *path, int n_layer, int n_expert,
                               struct err *e)
{
    const json_t *layers = json_object_get(o, "uses");

    if (!json_is_array(layers) || json_array_size(layers) != (size_t)n_layer)
        return bad_uses(path, "uses is no array with an array for each layer", e);
    for (int l = 0; l < n_layer; l++) {
        const json_t *layer = json_array_get(layers, (size_t)l);

        if (!json_is_array(layer) || json_array_size(layer) != (size_t)n_expert)
            return bad_uses(path, "a layer's uses are no array with a number for each expert", e);
        for (int i = 0; i < n_expert; i++) {
            const json_t *n = json_array_get(layer, (size_t)i);

            if (!json_is_integer(n) || json_integer_value(n) < 0 || json_integer_value(n) > USES_MOST)
                return bad_uses(path, "uses that are no number from 0 to 2^53", e);
            uses[(int64_t)l * n_expert + i] = (uint64_t)json_integer_value(n);
        }
    }
    return ERR_OK;
}

enum err_code cli_uses_read(uint64_t **uses, const char *path, uint64_t fingerprint, int n_layer, int n_expert,
                            struct err *e)
{
    char print[32];
    struct str type, model;
    json_t *o = NULL;
    uint64_t *v;
    enum err_code code;

    *uses = NULL;
    if (access(path, F_OK) != 0)
        return ERR_OK;
    if (cli_json_file(&o, path, e))
        return e->code;
    snprintf(print, sizeof print, "%016" PRIx64, fingerprint);
    v = calloc((size_t)n_layer * (size_t)n_expert + 1, sizeof *v);
    if (v == NULL)
        code = err_nomem(e);
    else if (!json_get_str(o, "type", &type) || !str_is(type, "expert_profile") ||
             !json_get_str(o, "model_fingerprint", &model))
        code = bad_uses(path, "not an expert profile", e);
    else if (!str_is(model, print))
        code = bad_uses(path, "an expert profile of another model, or with another --experts", e);
    else
        code = read_uses(v, o, path, n_layer, n_expert, e);
    json_decref(o);
    if (code == ERR_OK)
        *uses = v;
    else
        free(v);
    return code;
}

static json_t *layer_of(const uint64_t *uses, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++) {
        uint64_t most = (uint64_t)USES_MOST;

        json_push(&list, json_integer((json_int_t)(uses[i] < most ? uses[i] : most)));
    }
    return list;
}

static json_t *profile_of(const uint64_t *uses, uint64_t fingerprint, const struct model *m)
{
    int n_expert = model_n_expert(m), n_layer = model_info(m)->n_layer;
    json_t *layers = json_array(), *o = json_object();
    char print[32];
    bool good;

    snprintf(print, sizeof print, "%016" PRIx64, fingerprint);
    for (int l = 0; l < n_layer; l++)
        json_push(&layers, layer_of(uses + (int64_t)l * n_expert, n_expert));
    good = cli_json_set(o, "type", json_string("expert_profile")) &&
           cli_json_set(o, "model_fingerprint", json_string(print)) &&
           cli_json_set(o, "arch", json_string(model_info(m)->arch)) && cli_json_set(o, "uses", json_incref(layers));
    json_decref(layers);
    return json_if(good, o);
}

enum err_code cli_uses_write(const char *path, uint64_t fingerprint, const uint64_t *had, const struct model *m,
                             struct err *e)
{
    size_t n = (size_t)model_n_expert(m) * (size_t)model_info(m)->n_layer;
    uint64_t *uses = calloc(n + 1, sizeof *uses);
    json_t *o = NULL;
    char *text = NULL;
    struct io_out *out;
    enum err_code code = ERR_OK;

    if (uses != NULL) {
        model_uses(m, uses);
        for (size_t i = 0; i < n && had != NULL; i++)
            uses[i] += had[i];
        o = profile_of(uses, fingerprint, m);
        text = o == NULL ? NULL : json_dump(o, JSON_COMPACT);
    }
    if (text == NULL)
        code = err_nomem(e);
    else if (io_out_open(&out, path, e))
        code = e->code;
    else
        code = io_out_end(out, io_out_write(out, text, strlen(text), e) ? e->code : io_out_write(out, "\n", 1, e), e);
    free(text);
    json_decref(o);
    free(uses);
    return code;
}
