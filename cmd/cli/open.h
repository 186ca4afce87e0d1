/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - from options to an open model and its run.                       room: cmd
 *
 *     struct cli_opened x = { 0 };
 *     cli_open(&x, &opts, e)            the file and adapters: x.path, x.gguf, x.adapters
 *     cli_open_text(&x, need, e)        its tokenizer and template: x.text
 *     cli_open_model(&x, e)             the model: x.model
 *     cli_open_run(&run, &x, &ro, e)    a run of it
 *     cli_opened_close(&x)              after its runs; also when one of the above failed
 *
 * All programs open models this way. Where there is something to plan (a GPU, --plan,
 * --expert-profile), cli_open_model() makes a dry run of the model, which knows its shape and has no
 * weights. The first cli_open_load() or cli_open_run() makes the plan and loads the weights by it, because only then
 * it is known how much memory the run takes beside them.
 */
#ifndef CLI_OPEN_H
#define CLI_OPEN_H
#include "cli/cli.h"
#include "cli/adapters.h"
#include "model/model.h"
#include "run/run.h"

struct run_placement;
struct shape;

enum { CLI_REPACK_AUTO, CLI_REPACK_OFF };
/* As the options set it (table.h has their rows); all zero: none was given. */
struct cli_model_opts {
    const char *file;          /* --model; NULL: see cli_model_path() */
    const char *kv;            /* "k,v", or one type for both; NULL: the run's default */
    const char *device, *vram; /* see cli_open_device(); a size, or one for each device */
    const char *split;         /* how several devices share a model; NULL: "layers" */
    const char *profile;       /* --expert-profile */
    bool plan;                 /* only the plan is wanted: of a device that may be absent */
    bool no_mmap;
    int acts;        /* enum quant_acts_type */
    int repack;      /* CLI_REPACK_... */
    int32_t experts; /* routed experts for each token; 0: as trained */
    int32_t n_threads, chunk;
    int64_t ctx_tokens;
    int64_t cache_bytes;   /* --expert-cache; 0: none */
    struct cli_list loras; /* --lora; the program frees its array */
};

/* Mistakes in the options: exits with EXIT_USAGE. */
void cli_open_check(const struct cli *cli, const struct cli_model_opts *o);
/* The device that is meant, or the devices with commas between them: --device, whose names may be those of llama.cpp;
 * else GPUs if --vram or --split speak of some, else "cpu". Lives as long as the program. */
const char *cli_open_device(const struct cli_model_opts *o);
/* For what is kept with answers: the same text for devices that give the same bytes, one name for several. */
const char *cli_open_device_kind(const struct cli_model_opts *o);
/* It is the processor, also several times. */
bool cli_open_on_cpu(const struct cli_model_opts *o);
/* For what several devices cannot do: exits with EXIT_USAGE if there are several. what: "training" */
void cli_open_one_device(const struct cli_model_opts *o, const char *what);
/* What the options say of a model, before there is a plan. */
struct model_opts cli_open_model_opts(const struct cli_model_opts *o);
/* --kv into ro: "k,v", or one type for both; names are kept in buf. Not given: ro is as it was. */
enum { CLI_KV_BYTES = 64 };
void cli_open_kv(const struct cli_model_opts *o, struct run_opts *ro, char buf[CLI_KV_BYTES]);

struct cli_opened {
    struct cli_model_opts o;
    char path[4096];
    struct gguf *gguf;
    struct text *text; /* NULL: none */
    struct cli_adapters adapters;
    struct model *model;
    bool nextn;                           /* set before cli_open_model(): the multi-token-prediction block is wanted */
    const struct progress *progress;      /* the same; ticks while weights are loaded */
    int64_t beside_bytes[MODEL_DEVS_MAX]; /* set before the plan: what another model will take of each device */
    bool dry_run;                         /* model is one, until the first cli_open_run() */
    struct run_placement *placement;      /* the plan; NULL: nothing was planned */
    double load_ms;                       /* the sum of what these calls took; of it: */
    double device_ms, weights_ms, warm_up_ms;
    /* open.c's own */
    struct model_opts mo;
    uint64_t *uses; /* [n_layer][n_expert] of the profile */
};

/* The file that the options name; a program may set path, gguf and o itself instead. */
MUST_CHECK enum err_code cli_open(struct cli_opened *x, const struct cli_model_opts *o, struct err *e);
/* The same for a shape, in place of a file: of its true size and without weights, all there is to plan with. */
MUST_CHECK enum err_code cli_open_shape(struct cli_opened *x, const struct cli_model_opts *o, const struct shape *shape,
                                        struct err *e);
/* need false: a file without a tokenizer of a known kind is no error. */
MUST_CHECK enum err_code cli_open_text(struct cli_opened *x, bool need, struct err *e);
MUST_CHECK enum err_code cli_open_model(struct cli_opened *x, struct err *e);
/* Makes the plan for a run with these options. Does nothing when there is nothing to plan, or a
 * plan already. "auto" is settled: the CPU when there is no usable GPU. */
MUST_CHECK enum err_code cli_open_plan(struct cli_opened *x, const struct run_opts *ro, struct err *e);
/* Whether there is memory for a run with these options on the CPU, where memory is only taken as it is written: before
 * much has been. ERR_LIMIT: there is not. On a GPU the plan says so. */
MUST_CHECK enum err_code cli_open_fits(struct cli_opened *x, const struct run_opts *ro, struct err *e);
/* The weights, by the plan for a run with these options: x->model is another one afterwards if it was a dry run, and
 * whatever was opened with the dry run must have been closed. Does nothing when they are there. */
MUST_CHECK enum err_code cli_open_load(struct cli_opened *x, const struct run_opts *ro, struct err *e);
/* cli_open_load(), then a run. --kv overrides the types in ro. Close runs with run_close(), before x. */
MUST_CHECK enum err_code cli_open_run(struct run **out, struct cli_opened *x, const struct run_opts *ro, struct err *e);
/* Of the open model with its adapters. */
uint64_t cli_open_fingerprint(const struct cli_opened *x);
/* --expert-profile: writes what it had and the uses since the model was opened. */
MUST_CHECK enum err_code cli_open_save_uses(const struct cli_opened *x, struct err *e);
void cli_opened_close(struct cli_opened *x);
#endif
