/* SPDX-License-Identifier: Apache-2.0 */
/* estimate.c - tokens a second of a plan (estimate.h).                                  room: cmd
 *
 * A step reads all weights of its token once, so it takes bytes / bandwidth, and some time for each layer's operations
 * whatever they read. In the records of bench/results/h100-gpu and h200-gpu of 2026-11-25 (35B shape, 40 layers) steps
 * took 21 to 36 us for each layer beside the bytes at .9 of the measured bandwidth. In epyc-zen3-2core of 2026-11-21 a
 * CPU read .43 to .72 of it, but .2 with iq2_xs, where the processor and not the memory is the limit. */
#include "cli/estimate.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/io.h"
#include "run/placement.h"

#define LAYER_LEAST_S   20e-6
#define LAYER_MOST_S    36e-6
#define DEVICE_SHARE    .9 /* of the bandwidth */
#define HOST_LEAST      .4
#define HOST_MOST       .8
#define HOST_ASSUMED    40e9 /* two channels of DDR4 */
#define DISK_ASSUMED    1e9
#define DISK_SHARE      .6 /* of it, where little is asked for at once */
#define BANDWIDTH_LEAST 1e8
#define BANDWIDTH_MOST  1e15

enum { NAME_BYTES = 64, TEXT_BYTES = 256 };

/* One file a machine and device: home directories are shared by machines. */
static void name_file(char name[NAME_BYTES], const char *device)
{
    struct utsname host = { 0 };

    (void)uname(&host);
    (void)snprintf(name, NAME_BYTES, "bandwidth-%.8s-%016" PRIx64, device,
                   io_hash(0, host.nodename, strlen(host.nodename)));
}

void cli_estimate_keep(const char *device, double bytes_per_s)
{
    char dir[4096], name[NAME_BYTES], text[TEXT_BYTES];
    struct err e;
    const int fd = cli_user_cache(dir, sizeof dir, true, &e);

    name_file(name, device);
    (void)snprintf(text, sizeof text, "{\"type\":\"kept_bandwidth\",\"bytes_per_s\":%.6g}\n", bytes_per_s);
    if (fd < 0)
        cli_note("the bandwidth is not kept: %s", e.code != ERR_OK ? e.msg : "no cache directory");
    else if (!cli_cache_write(fd, name, text))
        cli_note("the bandwidth is not kept: cannot write %s/%s", dir, name);
    if (fd >= 0)
        close(fd);
}

/* 0: nothing was kept. */
static double recall(const char *device)
{
    char dir[4096], name[NAME_BYTES], text[TEXT_BYTES];
    struct err e;
    const int fd = cli_user_cache(dir, sizeof dir, false, &e);
    json_t *o = NULL;
    double v = 0;

    name_file(name, device);
    if (fd < 0)
        return 0;
    const size_t n = cli_cache_read(fd, name, text, sizeof text);

    close(fd);
    if (n > 0 && json_parse(&o, (struct str){ text, n }, name, &e) == ERR_OK)
        v = json_number_value(json_object_get(o, "bytes_per_s"));
    json_decref(o);
    return v >= BANDWIDTH_LEAST && v <= BANDWIDTH_MOST ? v : 0;
}

double cli_estimate_card(int64_t bytes)
{
    static const struct {
        int gb;
        double bytes_per_s;
    } cards[] = { { 8, 270e9 }, { 16, 450e9 }, { 24, 1000e9 }, { 32, 1800e9 }, { 80, 2000e9 } };

    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        if (bytes <= (int64_t)cards[i].gb << 30)
            return cards[i].bytes_per_s;
    return 4000e9;
}

const char *cli_part_name(enum cli_part p)
{
    static const char *const names[CLI_N_PARTS] = { "dense", "experts", "router", "output", "state" };

    return names[p];
}

static enum cli_part part_of(int class)
{
    return class == MODEL_ROUTER                               ? CLI_PART_ROUTER
           : class == MODEL_OUTPUT || class == MODEL_EMBEDDING ? CLI_PART_OUTPUT
                                                               : CLI_PART_DENSE;
}

static void count_bytes(struct cli_estimate *x, const struct run_placement *f)
{
    /* without an output of its own the whole embedding is read, else rows of it */
    const bool tied = f->weights.device[MODEL_OUTPUT] + f->weights.host[MODEL_OUTPUT] == 0;

    for (int c = 0; c < MODEL_N_CLASSES; c++)
        if (c != MODEL_EXPERTS && c != MODEL_MTP && (c != MODEL_EMBEDDING || tied)) {
            x->device_bytes += (double)f->weights.device[c];
            x->host_bytes += (double)f->weights.host[c];
            x->part_bytes[part_of(c)] += (double)f->weights.device[c] + (double)f->weights.host[c];
        }
    for (int i = 0; i < f->n_layer; i++) {
        const double there = f->experts != NULL && f->expert_bytes[i] > 0 ? f->experts->host_uses[i] : 0;

        x->part_bytes[CLI_PART_EXPERTS] += f->n_used * (double)f->expert_bytes[i];
        x->host_bytes += there * (double)f->expert_bytes[i];
        x->device_bytes += (f->n_used - there) * (double)f->expert_bytes[i];
    }
    for (int i = 0; i < f->n_layer && f->cache.slots > 0; i++) {
        const double uses = f->is_host ? f->n_used : f->experts != NULL ? f->experts->host_uses[i] : 0;

        x->disk_bytes += uses * (double)f->expert_bytes[i] * (1 - f->cache_share);
    }
    x->part_bytes[CLI_PART_STATE] = 2 * (double)f->state_bytes / (f->n_seq > 0 ? f->n_seq : 1); /* read and written */
    x->device_bytes += x->part_bytes[CLI_PART_STATE];
    x->context_bytes = (double)f->kv_bytes / (f->n_seq > 0 ? f->n_seq : 1);
}

/* Of several devices, each of which reads its own part. */
static double usual_cards(const struct run_placement *f)
{
    double bytes = 0, s = 0;

    for (int k = 0; k < f->n_dev; k++) {
        const double n = (double)f->weight_bytes[k];

        bytes += n;
        s += n / cli_estimate_card(f->part[k].budget_bytes);
    }
    return s > 0 ? bytes / s : cli_estimate_card(f->budget_bytes);
}

struct cli_estimate cli_estimate(const struct run_placement *f, double device_bytes_per_s)
{
    struct cli_estimate x = { .host_bytes_per_s = recall("cpu"), .host_measured = true };
    double least_s, most_s;

    count_bytes(&x, f);
    if (x.host_bytes_per_s <= 0) {
        x.host_bytes_per_s = HOST_ASSUMED;
        x.host_measured = false;
    }
    x.device_bytes_per_s = device_bytes_per_s > 0 ? device_bytes_per_s : f->present ? recall("cuda") : 0;
    x.device_measured = x.device_bytes_per_s > 0 && !(device_bytes_per_s > 0);
    if (f->is_host) {
        x.device_bytes_per_s = device_bytes_per_s > 0 ? device_bytes_per_s : x.host_bytes_per_s;
        x.device_measured = device_bytes_per_s <= 0 && x.host_measured;
    } else if (x.device_bytes_per_s <= 0) {
        x.device_bytes_per_s = f->n_dev > 1 ? usual_cards(f) : cli_estimate_card(f->budget_bytes);
    }
    least_s = x.host_bytes / (HOST_MOST * x.host_bytes_per_s) +
              x.device_bytes / ((f->is_host ? HOST_MOST : DEVICE_SHARE) * x.device_bytes_per_s) +
              f->n_layer * LAYER_LEAST_S;
    most_s = x.host_bytes / (HOST_LEAST * x.host_bytes_per_s) +
             (x.device_bytes + x.context_bytes) / ((f->is_host ? HOST_LEAST : DEVICE_SHARE) * x.device_bytes_per_s) +
             f->n_layer * LAYER_MOST_S;
    x.disk_bytes_per_s = f->disk_bytes_per_s > 0 ? f->disk_bytes_per_s : DISK_ASSUMED;
    least_s += x.disk_bytes / x.disk_bytes_per_s;
    most_s += x.disk_bytes / (DISK_SHARE * x.disk_bytes_per_s);
    x.least_tps = 1 / most_s;
    x.most_tps = 1 / least_s;
    return x;
}

double cli_estimate_at(const struct cli_estimate *x, double share, bool full_context)
{
    return share / ((x->device_bytes + (full_context ? x->context_bytes : 0)) / x->device_bytes_per_s +
                    x->host_bytes / x->host_bytes_per_s + x->disk_bytes / x->disk_bytes_per_s);
}
