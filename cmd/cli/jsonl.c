/* SPDX-License-Identifier: Apache-2.0 */
/* jsonl.c - JSON objects as lines on stdout, JSON files as input.          room: cmd */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "base/io.h"
#include "cli/cli.h"

#define JSON_FILE_MAX (256U << 20) /* bytes */

enum err_code cli_json_line(json_t *o, struct err *e)
{
    char *text = o != NULL ? json_line(o) : NULL;

    json_decref(o);
    if (text == NULL)
        return err_nomem(e);
    (void)puts(text); /* a mistake is found by the flush */
    free(text);
    return cli_flush_stdout(e);
}

bool cli_json_set(json_t *o, const char *key, json_t *v)
{
    return v != NULL && json_object_set_new(o, key, v) == 0;
}

json_t *cli_json_hash(uint64_t h)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%016" PRIx64, h);
    return json_string(text);
}

json_t *cli_json_real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

enum err_code cli_json_file_by(json_t **out, const char *path, cli_parse_json *parse, struct err *e)
{
    json_t *value = NULL;
    char *data;
    size_t n;
    enum err_code code;

    if (io_read_all(&data, &n, path, JSON_FILE_MAX, cli_interrupted, e))
        return cli_as_data(e);
    code = parse(&value, (struct str){ data, n }, path, e);
    free(data);
    if (code) {
        json_decref(value);
        return cli_as_data(e);
    }
    *out = value;
    return ERR_OK;
}

enum err_code cli_json_file(json_t **out, const char *path, struct err *e)
{
    return cli_json_file_by(out, path, json_parse, e);
}
