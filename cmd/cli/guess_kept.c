/* SPDX-License-Identifier: Apache-2.0 */
/* guess_kept.c - what drafters cost on this machine, from one process to the next (guess.h).         room: cmd
 *
 * A file for each model, device, number of threads, version of the program and list of drafters, in
 * $XDG_CACHE_HOME/chimere, else $HOME/.cache/chimere. It appears complete or not at all; of two processes that end at
 * the same time the later one is kept. It is not flushed to the disk: a lost file costs a few trials of drafters. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "cli/guess.h"

enum { KEPT_MAX = 64 << 10 }; /* bytes of a file */

struct place {
    char dir[4096], name[32], key[17];
};

static uint64_t hash_word(uint64_t h, const char *text)
{
    return io_hash(h + 1, text, strlen(text));
}

/* All that costs and guesses depend on. */
static uint64_t hash_key(const struct draft *d, const struct cli_guess *g, const struct cli_opened *x)
{
    const struct model_info *info = model_info(x->model);
    struct draft_stats drafter[DRAFT_OPEN_MAX];
    const int n = draft_stats(d, drafter, DRAFT_OPEN_MAX);
    struct utsname host = { 0 };
    char text[512];
    uint64_t h;

    (void)uname(&host);
    (void)snprintf(text, sizeof text,
                   "%.64s %.128s %016" PRIx64 " %.64s %.32s %d kv %.64s acts %d max %d lora %016" PRIx64,
                   CHIMERE_VERSION, host.nodename, model_fingerprint(x->model), info->device, info->simd,
                   info->n_threads, x->o.kv != NULL ? x->o.kv : "", x->o.acts, (int)g->max, x->adapters.hash);
    h = hash_word(0, text);
    for (int i = 0; i < n; i++) {
        struct stat st;

        h = hash_word(h, drafter[i].name);
        if (stat(drafter[i].name, &st) == 0) {
            const int64_t file[] = { (int64_t)st.st_size, (int64_t)st.st_mtime };

            h = io_hash(h, file, sizeof file);
        }
    }
    return h;
}

/* Opens the directory: -1, and a reason with -v. */
static int open_place(struct place *p, const struct draft *d, const struct cli_guess *g, const struct cli_opened *x,
                      bool make)
{
    struct err e;
    const int dir = cli_user_cache(p->dir, sizeof p->dir, make, &e);

    (void)snprintf(p->key, sizeof p->key, "%016" PRIx64, hash_key(d, g, x));
    (void)snprintf(p->name, sizeof p->name, "draft-%s", p->key);
    if (e.code != ERR_OK)
        cli_note("drafter  costs are not kept: %s", e.msg);
    return dir;
}

/* ---- reading ---- */

static enum err_code recall(struct draft *d, const struct place *p, struct str text, struct err *e)
{
    struct str key;
    json_t *o = NULL;

    if (json_parse(&o, text, p->name, e))
        return e->code;
    const enum err_code code = json_get_str(o, "key", &key) && str_is(key, p->key)
                                   ? draft_recall(d, json_object_get(o, "costs"), e)
                                   : err_set(e, ERR_FORMAT, "%s: not a file of such costs", p->name);

    json_decref(o);
    return code;
}

void cli_guess_recall(struct draft *d, const struct cli_guess *g, const struct cli_opened *x)
{
    struct place p;
    struct err e = { 0 };
    char *buf;
    int dir;

    if (d == NULL || (dir = open_place(&p, d, g, x, false)) < 0)
        return;
    buf = malloc(KEPT_MAX);
    const size_t n = buf != NULL ? cli_cache_read(dir, p.name, buf, KEPT_MAX) : 0;

    if (n > 0 && recall(d, &p, (struct str){ buf, n }, &e) == ERR_OK)
        cli_note("drafter  costs from %s/%s", p.dir, p.name);
    else if (n > 0)
        cli_note("drafter  costs are measured anew: %s", e.msg);
    free(buf);
    close(dir);
}

/* ---- writing ---- */

/* Takes costs. */
static char *kept_text(json_t *costs, const struct place *p)
{
    json_t *o = json_pack("{s:s, s:s, s:o}", "type", "draft_costs", "key", p->key, "costs", costs);
    char *text = o == NULL ? NULL : json_line(o);

    json_decref(o);
    return text;
}

void cli_guess_keep(const struct draft *d, const struct cli_guess *g, const struct cli_opened *x)
{
    struct place p;
    json_t *costs = d != NULL ? draft_tell(d) : NULL;
    char *text;
    int dir;

    if (costs == NULL)
        return;
    if ((dir = open_place(&p, d, g, x, true)) < 0) {
        json_decref(costs);
        return;
    }
    text = kept_text(costs, &p);
    if (text == NULL || !cli_cache_write(dir, p.name, text))
        cli_note("drafter  costs are not kept: cannot write %s/%s", p.dir, p.name);
    free(text);
    close(dir);
}
