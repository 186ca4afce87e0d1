/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - --device, --vram and --split, and what llama.cpp calls them.                    room: cmd */
#include "cli/devices.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cli_devices_foreign cli_devices_foreign = { .mode = -1, .main_gpu = -1 };

static int count_parts(const char *list)
{
    int n = 1;

    for (; *list != '\0'; list++)
        n += *list == ',';
    return n;
}

/* The same text, for as long as the program runs. */
static const char *kept(const char *text)
{
    static struct {
        char text[256];
    } * all[64];

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i] == NULL && (all[i] = calloc(1, sizeof **all)) != NULL)
            snprintf(all[i]->text, sizeof all[i]->text, "%s", text);
        if (all[i] != NULL && strcmp(all[i]->text, text) == 0)
            return all[i]->text;
    }
    cli_usage("--device %.64s: too long", text);
}

/* One name: llama.cpp's CUDA0 is cuda:0. */
static void add_name(char out[256], const char *name, size_t n)
{
    const size_t at = strlen(out);
    const bool theirs = n > 4 && strncmp(name, "CUDA", 4) == 0 && isdigit((unsigned char)name[4]);

    if (at + n + 8 >= 256)
        cli_usage("--device: more than %d devices", MODEL_DEVS_MAX);
    snprintf(out + at, 256 - at, "%s%s%.*s", at > 0 ? "," : "", theirs ? "cuda:" : "", (int)(n - (theirs ? 4 : 0)),
             name + (theirs ? 4 : 0));
}

/* The first n GPUs. */
static const char *first_gpus(int n)
{
    char out[256] = "", name[16];

    for (int i = 0; i < n && i <= MODEL_DEVS_MAX; i++) {
        snprintf(name, sizeof name, "cuda:%d", i);
        add_name(out, name, strlen(name));
    }
    return kept(out);
}

const char *cli_open_device(const struct cli_model_opts *o)
{
    const struct cli_devices_foreign *f = &cli_devices_foreign;
    const int sizes = o->vram != NULL ? count_parts(o->vram) : 0, shares = cli_devices_shares(o, NULL);
    char out[256] = "";

    if (o->device != NULL) {
        for (const char *at = o->device; *at != '\0'; at += *at == ',') {
            const size_t n = strcspn(at, ",");

            if (n == 0)
                cli_usage("--device %s: a name is missing", o->device);
            add_name(out, at, n);
            at += n;
            if (*at == ',' && at[1] == '\0')
                add_name(out, "", 0);
        }
        return kept(out);
    }
    if (f->main_gpu >= 0 && (f->mode == CLI_MODE_NONE || (sizes < 2 && shares < 2))) {
        snprintf(out, sizeof out, "cuda:%d", (int)f->main_gpu);
        return kept(out);
    }
    if (sizes > 1 || shares > 1)
        return first_gpus(sizes > shares ? sizes : shares);
    return sizes > 0 || f->mode == CLI_MODE_NONE ? "cuda" : "cpu";
}

const char *cli_open_device_kind(const struct cli_model_opts *o)
{
    const char *names = cli_open_device(o);
    const size_t n = strcspn(names, ",");
    char first[256];

    snprintf(first, sizeof first, "%.*s", (int)n, names);
    return strcmp(first, "cuda:all") == 0 || strcmp(first, "cuda:0") == 0 ? "cuda" : kept(first);
}

bool cli_open_on_cpu(const struct cli_model_opts *o)
{
    const char *name = cli_open_device(o);

    return strncmp(name, "cpu", 3) == 0 && (name[3] == '\0' || name[3] == ',');
}

void cli_open_one_device(const struct cli_model_opts *o, const char *what)
{
    const char *name = cli_open_device(o);

    if (strchr(name, ',') != NULL || strcmp(name, "cuda:all") == 0)
        cli_usage("--device %s: %s takes one device", name, what);
}

/* A number of a list of shares; false: it is none. */
static bool read_share(const char **at, double *out)
{
    char *end;

    if (!isdigit((unsigned char)**at) && **at != '.')
        return false;
    *out = strtod(*at, &end);
    if (end == *at || !isfinite(*out) || (*end != ',' && *end != '\0' && *end != '/'))
        return false;
    *at = *end == '\0' ? end : end + 1;
    return *end == '\0' || *(end + 1) != '\0';
}

/* How many shares the text has; -1: it is no list of them. */
static int read_shares(const char *text, double out[MODEL_DEVS_MAX])
{
    int n = 0;

    while (*text != '\0') {
        double share;

        if (n == MODEL_DEVS_MAX || !read_share(&text, &share))
            return -1;
        if (out != NULL)
            out[n] = share;
        n++;
    }
    return n > 0 ? n : -1;
}

int cli_devices_shares(const struct cli_model_opts *o, double out[MODEL_DEVS_MAX])
{
    const int n = o->split != NULL && !isalpha((unsigned char)o->split[0]) ? read_shares(o->split, out) : 0;

    return n > 0 ? n : 0;
}

enum err_code cli_devices_sizes(int *n, int64_t out[MODEL_DEVS_MAX], const char *vram, struct err *e)
{
    *n = 0;
    for (const char *at = vram;; at++) {
        const size_t len = strcspn(at, ",");
        char one[64];

        if (*n == MODEL_DEVS_MAX)
            return err_set(e, ERR_ARG, "--vram %s: more than %d sizes", vram, MODEL_DEVS_MAX);
        snprintf(one, sizeof one, "%.*s", (int)(len < 63 ? len : 63), at);
        if (cli_size(&out[*n], one, "vram", e))
            return e->code;
        (*n)++;
        at += len;
        if (*at == '\0')
            return ERR_OK;
    }
}

/* Names that mean one device, of a list; NULL: none comes twice. GPUs are meant once, the CPU is a test. */
static const char *comes_twice(const char *names, char name[32])
{
    for (const char *a = names; a != NULL; a = strchr(a, ',') != NULL ? strchr(a, ',') + 1 : NULL) {
        const size_t n = strcspn(a, ",");

        snprintf(name, 32, "%.*s%s", (int)(n < 24 ? n : 24), a, n == 4 ? ":0" : "");
        for (const char *b = a + n; *b == ',';) {
            const size_t m = strcspn(b + 1, ",");
            char other[32];

            snprintf(other, sizeof other, "%.*s%s", (int)(m < 24 ? m : 24), b + 1, m == 4 ? ":0" : "");
            if (strcmp(name, other) == 0 && strncmp(name, "cuda", 4) == 0)
                return name;
            b += 1 + m;
        }
    }
    return NULL;
}

bool cli_devices_rows(const struct cli_model_opts *o)
{
    const int mode = cli_devices_foreign.mode;

    return (o->split != NULL && strcmp(o->split, "rows") == 0) || mode == CLI_MODE_ROW || mode == CLI_MODE_TENSOR;
}

static const char *mode_name(void)
{
    static const char *const names[] = { "none", "layer", "row", "tensor" };

    return names[cli_devices_foreign.mode];
}

/* llama.cpp's --split-mode says something else than --split. */
static bool modes_differ(const struct cli_model_opts *o)
{
    const int mode = cli_devices_foreign.mode;
    const bool rows = o->split != NULL && strcmp(o->split, "rows") == 0;

    return o->split != NULL && mode >= 0 && rows != (mode == CLI_MODE_ROW || mode == CLI_MODE_TENSOR);
}

/* Why these devices cannot share every layer; NULL: they can. */
static const char *no_rows(const struct cli_model_opts *o)
{
    for (const char *at = cli_open_device(o); at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL) {
        const char *name = strncmp(at, "check:", 6) == 0 ? at + 6 : at;

        if (strncmp(name, "auto", 4) == 0)
            return "--device auto takes one device: name those that share every layer";
        if (strncmp(name, "cpu", 3) != 0)
            return "GPUs have no exchange inside layers yet: use --split layers";
    }
    return NULL;
}

/* What the environment or a file says of a split is ignored if it does not fit what was typed. */
static void leave_split_aside(const struct cli *cli, const struct cli_model_opts *o)
{
    const char *names = cli_open_device(o);
    const int n = cli_devices_shares(o, NULL);
    const bool cached = o->cache_bytes > 0 && cli_typed(cli, "expert-cache");
    struct cli_devices_foreign *f = &cli_devices_foreign;

    if (f->mode >= 0 && !f->mode_typed &&
        ((cli_typed(cli, "split") && modes_differ(o)) || (cli_devices_rows(o) && (cached || no_rows(o) != NULL)))) {
        cli_note("options  --split-mode (-sm) %s is ignored: it has no effect here", mode_name());
        f->mode = -1;
    }
    if (o->split != NULL && !cli_typed(cli, "split") &&
        (modes_differ(o) || (cli_devices_rows(o) && (cached || no_rows(o) != NULL)) ||
         (n > 0 && strcmp(names, "cuda:all") != 0 && n != count_parts(names))))
        cli_leave_aside(cli, "split");
    if (o->cache_bytes > 0 && !cached && cli_devices_rows(o))
        cli_leave_aside(cli, "expert-cache");
}

/* How a model is shared among devices. */
static void check_split(const struct cli_model_opts *o, int n_dev)
{
    const char *how = o->split != NULL ? o->split : "layers";
    const int mode = cli_devices_foreign.mode, n = cli_devices_shares(o, NULL);
    double share[MODEL_DEVS_MAX], all = 0;

    if (cli_devices_rows(o) && no_rows(o) != NULL)
        cli_usage("%s: %s",
                  mode == CLI_MODE_ROW      ? "--split-mode (-sm) row"
                  : mode == CLI_MODE_TENSOR ? "--split-mode (-sm) tensor"
                                            : "--split rows",
                  no_rows(o));
    if (cli_devices_rows(o) && o->cache_bytes > 0)
        cli_usage("--expert-cache: not with --split rows, whose devices have the experts in memory");
    if (modes_differ(o))
        cli_usage("--split %s: %snot with --split-mode (-sm) %s", how, n > 0 ? "shares are of layers, " : "",
                  mode_name());
    if (strcmp(how, "rows") == 0)
        return;
    if (strcmp(how, "layers") == 0 || strcmp(how, "auto") == 0)
        return;
    if (n == 0)
        cli_usage("--split %s: not layers, rows, auto, or shares of the layers as 3,1", how);
    if (mode == CLI_MODE_NONE || n_dev == 0)
        return;
    if (n != n_dev)
        cli_usage("--split %s: %d share%s for %d device%s", how, n, n == 1 ? "" : "s", n_dev, n_dev == 1 ? "" : "s");
    (void)cli_devices_shares(o, share);
    for (int i = 0; i < n; i++)
        all += share[i];
    for (int i = 0; i < n; i++)
        if (all == 0 || share[i] == 0)
            cli_usage("--split %s: %s", how,
                      all == 0 ? "all shares are 0" : "leave a device whose share is 0 out of --device");
}

void cli_open_check(const struct cli *cli, const struct cli_model_opts *o)
{
    struct err e;
    int64_t sizes[MODEL_DEVS_MAX];
    int n = 0;
    char twice[32];

    if (o->vram != NULL && cli_open_on_cpu(o))
        cli_leave_aside(cli, cli_typed(cli, "vram") ? "device" : "vram");
    if (o->vram != NULL && cli_open_on_cpu(o))
        cli_usage("--vram limits a GPU's memory: not with --device %s", cli_open_device(o));
    leave_split_aside(cli, o);
    const char *names = cli_open_device(o);

    if (model_device_name(names, &e))
        cli_usage("--device: %s", e.msg);
    const int n_dev = strcmp(names, "cuda:all") == 0 ? 0 : count_parts(names);

    if (o->vram != NULL && cli_devices_sizes(&n, sizes, o->vram, &e))
        cli_usage("%s", e.msg);
    if (n > 1 && n_dev > 0 && n != n_dev)
        cli_usage("--vram %s: %d sizes for %d device%s: one for all, or one for each", o->vram, n, n_dev,
                  n_dev == 1 ? "" : "s");
    check_split(o, n_dev);
    if (comes_twice(names, twice) != NULL)
        cli_warn("--device %s: %s comes twice, which is a test: it has its memory and its speed only once", names,
                 twice);
}
