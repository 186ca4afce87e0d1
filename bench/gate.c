/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c - how often the gate of adapters errs, on made-up adapters whose effect is known.
 *
 *   gate [ADAPTERS [SEED [LINE]]]      of each kind (default 50), drawn by SEED (default 1); LINE: this kind alone
 *
 * An adapter changes each answer by chance. It loses an old answer of the first sets with a probability that makes the
 * true loss of these `loss`, and gives the right answer to a new question with the probability `gain`; the losses in
 * nats follow the answers, with noise. Besides, in each set a share of the questions is undecided: the right answer is
 * less than a nat before or behind another one, and an adapter moves it by chance in either direction, so that some of
 * these turn around though nothing is lost. The sets have the sizes and the right answers of share/eval under the
 * embedded model. Prints a line for each kind: how many are published when tested once, and when all seven strengths
 * are tried and each test has fresh luck, which is the worst case. Where the first items of a set leave it in doubt,
 * the others are tested. From the root of the repository, after `make`:
 *
 *   gcc -O2 -std=c11 -Ilibcore -D_GNU_SOURCE -o build/gate bench/gate.c build/libchimere.a -Wl,--as-needed -lzstd \
 *       -ljansson -lpcre2-8 -lopenblas -lm -pthread && build/gate */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tune/job.h"

enum { SETS = 6, NEW_MAX = 200, OF_SET = 200, SHORT = 14, FIRST = 60 };
enum { NOISE, LOST, LEARNT, TURNED }; /* streams of chance */
#define MOVED 0.4                     /* nats, a standard deviation */

static const int known[SETS] = { 199, 188, 188, 174, 154, 191 };
static char *names[SETS] = { "facts", "math", "tools", "code", "verify", "facts-context" };

struct kind {
    double loss, gain;        /* of the first sets' items; of the new questions */
    int n_lossy;              /* those sets */
    double undecided;         /* share of each set */
    int n_new, of_set, first; /* new questions, items of each set, and those of them that are tested first */
};

static uint64_t seed = 1, drawn; /* drawn: numbers so far */
static bool doubted[SETS];       /* of an adapter: sets that are tested whole from then on */

static double unit(int stream)
{
    return rng_unit(seed, (uint64_t)stream, drawn++);
}

/* An answer that becomes right is 1.5 nats a token likelier, one that is lost 0.5 less likely; else nothing but noise.
 */
static struct tune_score after(struct tune_score was, bool is)
{
    const double more = is == was.exact ? 0 : is ? -1.5 : 0.5;

    return (struct tune_score){ .loss = was.loss + more + 0.1 * (double)rng_gauss(seed, NOISE, drawn++), .exact = is };
}

/* An undecided one, moved by chance. */
static void move(struct tune_score *was, struct tune_score *is)
{
    const double before = 2 * unit(TURNED) - 1, after = before + MOVED * (double)rng_gauss(seed, NOISE, drawn++);

    was->exact = before > 0;
    is->exact = after > 0;
    was->unsure = (float)(0.5 - fabs(before) / 2);
    is->unsure = (float)fmax(0.5 - fabs(after) / 2, 0);
}

static void draw(struct tune_job *j, const struct kind *k)
{
    struct tune_score *const *was = j->report.before, *const *is = j->report.after;
    for (int64_t i = 0; i < j->data.tests.n; i++) {
        was[0][i] = (struct tune_score){ .loss = 3 };
        is[0][i] = after(was[0][i], unit(LEARNT) < k->gain);
    }
    for (int64_t i = 0; i < j->data.kept.n; i++) {
        const int64_t n_first = (int64_t)k->first * SETS, per = i < n_first ? k->first : k->of_set - k->first;
        const int set = (int)((i < n_first ? i : i - n_first) / per);
        const bool knew = (i < n_first ? i : i - n_first) % per * OF_SET < known[set] * per;

        j->data.kept.v[i].set = set;
        was[1][i] = (struct tune_score){ .loss = knew ? 0.1 : 2, .exact = knew };
        is[1][i] = after(was[1][i], knew && !(set < k->n_lossy && unit(LOST) < k->loss * OF_SET / known[set]));
        if (was[1][i].exact == is[1][i].exact && unit(TURNED) < k->undecided)
            move(&was[1][i], &is[1][i]);
        is[1][i].untested = i >= n_first && !doubted[set];
    }
}

/* The rest of a set. */
static enum err_code test_rest(void *ctx, int set, bool *time, struct err *e)
{
    struct tune_job *j = ctx;

    (void)e;
    doubted[set] = true;
    for (int64_t i = j->report.n_first; i < j->data.kept.n; i++)
        j->report.after[1][i].untested = j->report.after[1][i].untested && j->data.kept.v[i].set != set;
    *time = true;
    return ERR_OK;
}

struct trial {
    struct tune_job *j;
    const struct kind *k;
};

static enum err_code try_fresh(void *ctx, struct tune_verdict *v, struct err *e)
{
    const struct trial *t = ctx;

    draw(t->j, t->k);
    return tune_judge(t->j, test_rest, t->j, v, e);
}

static bool always(void *ctx)
{
    (void)ctx;
    return true;
}

/* Of n adapters: how many are published after one test, and after all. */
static void judge_all(struct tune_job *j, const struct kind *k, int n, int published[2])
{
    struct trial t = { j, k };
    struct err e = { 0 };

    for (int i = 0; i < n; i++) {
        struct tune_verdict v = { 0 };

        memset(doubted, 0, sizeof doubted);
        if (try_fresh(&t, &v, &e)) {
            fprintf(stderr, "gate: %s\n", e.msg);
            exit(1);
        }
        published[0] += v.better && v.keeps;
        if (tune_try_strengths(&v, try_fresh, always, &t, &e))
            exit(1);
        published[1] += v.better && v.keeps;
    }
}

int main(int argc, char **argv)
{
    static const struct {
        double loss, gain;
        int n_lossy;
    } effects[] = { { 0, 0.5, 1 },       { 0.02, 0.5, 1 },    { 0.04, 0.5, 1 },    { 0.06, 0.5, 1 },
                    { 0.08, 0.5, 1 },    { 0.1, 0.5, 1 },     { 0.01, 0.5, SETS }, { 0.02, 0.5, SETS },
                    { 0.03, 0.5, SETS }, { 0.04, 0.5, SETS }, { 0.05, 0.5, SETS }, { 0, 0, 1 },
                    { 0, 0.05, 1 },      { 0, 0.1, 1 },       { 0, 0.15, 1 },      { 0, 0.25, 1 } };
    static const struct {
        double undecided;
        int n_new, of_set, first;
    } sizes[] = {
        { 0, 200, OF_SET, OF_SET }, { 0.4, 200, OF_SET, OF_SET }, { 0.4, 40, OF_SET, FIRST }, { 0.4, 40, SHORT, SHORT }
    };
    static struct tune_item tests[NEW_MAX], kept[SETS * OF_SET];
    static struct tune_score score[2][2][SETS * OF_SET];
    static struct tune_outcome outcome[SETS + 3];
    const struct tune_opts o = {
        .forget = 0.05F, .margin = 0.04F, .margin_set = 0.08F, .accept = TUNE_ANSWERS, .seed = 1
    };
    const int n = argc > 1 ? atoi(argv[1]) : 50, only = argc > 3 ? atoi(argv[3]) : -1;
    int line = 0;
    struct tune_job j = { .o = &o, .data = { .tests = { .v = tests }, .kept = { .v = kept } } };

    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    j.data.kept.n_set = SETS;
    j.data.kept.set_name = names;
    j.report.outcome = outcome;
    j.report.n_outcome = SETS + 3;
    for (int i = 0; i < 2; i++) {
        j.report.before[i] = score[0][i];
        j.report.after[i] = score[1][i];
    }
    printf(
        "new questions\titems of a set\ttested first\tundecided\ttrue loss\tof sets\ttrue gain\tpublished of %d, one "
        "test\tall strengths\n",
        n);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t i = 0; i < sizeof effects / sizeof *effects; i++) {
            const struct kind k = { .loss = effects[i].loss,
                                    .gain = effects[i].gain,
                                    .n_lossy = effects[i].n_lossy,
                                    .undecided = sizes[s].undecided,
                                    .n_new = sizes[s].n_new,
                                    .of_set = sizes[s].of_set,
                                    .first = sizes[s].first };
            int published[2] = { 0, 0 };

            if (line++ != only && only >= 0)
                continue;
            j.data.tests.n = k.n_new;
            j.data.kept.n = (int64_t)SETS * k.of_set;
            j.report.n_first = (int64_t)SETS * k.first;
            judge_all(&j, &k, n, published);
            printf("%d\t%d\t%d\t%g\t%g\t%d\t%g\t%d\t%d\n", k.n_new, k.of_set, k.first, k.undecided, k.loss, k.n_lossy,
                   k.gain, published[0], published[1]);
            fflush(stdout);
        }
    return 0;
}
