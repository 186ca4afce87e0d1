/* SPDX-License-Identifier: Apache-2.0 */
/* estimate.h - how fast a planned run will write, from what a token reads.               room: cmd */
#ifndef CLI_ESTIMATE_H
#define CLI_ESTIMATE_H
#include "cli/cli.h"

struct run_placement;

/* Keeps what was measured of this machine for later estimates, in the user's cache directory; device: "cpu", "cuda".
 * What cannot be kept is told with -v. */
void cli_estimate_keep(const char *device, double bytes_per_s);

/* Bytes a second that a usual card with so much memory reads. */
double cli_estimate_card(int64_t bytes);

/* What a token reads. Dense weights are all but those with a part of their own. */
enum cli_part { CLI_PART_DENSE, CLI_PART_EXPERTS, CLI_PART_ROUTER, CLI_PART_OUTPUT, CLI_PART_STATE, CLI_N_PARTS };
const char *cli_part_name(enum cli_part p); /* "dense" */

struct cli_estimate {
    double device_bytes, host_bytes;             /* read for a token, with an empty context */
    double part_bytes[CLI_N_PARTS];              /* the sum of both, by part; the state is read and written */
    double disk_bytes, disk_bytes_per_s;         /* of a token, for experts that are not in memory; 0: all are */
    double context_bytes;                        /* more of the device's, at the end of the context */
    double device_bytes_per_s, host_bytes_per_s; /* equal where the device is the host */
    bool device_measured, host_measured;         /* kept by cli_estimate_keep() on this machine; else assumed */
    double least_tps, most_tps;                  /* tokens a second of one sequence */
};
/* device_bytes_per_s: of the device, 0: kept, or assumed for a card of its size. */
struct cli_estimate cli_estimate(const struct run_placement *f, double device_bytes_per_s);
/* Tokens a second if bytes moved at this share of each bandwidth, and nothing else took time. */
double cli_estimate_at(const struct cli_estimate *x, double share, bool full_context);
#endif
