/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - the devices of a model, as options and those of llama.cpp say them.            room: cmd */
#ifndef CLI_DEVICES_H
#define CLI_DEVICES_H
#include "cli/open.h"

/* The shares of --split, one for each device; 0: none were given. out NULL: only how many there are. */
int cli_devices_shares(const struct cli_model_opts *o, double out[MODEL_DEVS_MAX]);
/* Whether all devices share every layer. */
bool cli_devices_rows(const struct cli_model_opts *o);
/* The *n sizes of --vram. */
MUST_CHECK enum err_code cli_devices_sizes(int *n, int64_t out[MODEL_DEVS_MAX], const char *vram, struct err *e);

/* llama.cpp's --split-mode and --main-gpu, which have no other name here; -1: not given. */
enum { CLI_MODE_NONE, CLI_MODE_LAYER, CLI_MODE_ROW, CLI_MODE_TENSOR };
struct cli_devices_foreign {
    int mode;
    bool mode_typed; /* not by the environment or a file */
    int32_t main_gpu;
};
extern struct cli_devices_foreign cli_devices_foreign;
#endif
