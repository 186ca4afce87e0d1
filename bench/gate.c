/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c - how often the gate of adapters errs, on made-up adapters whose effect is known.
 *
 *   gate [ADAPTERS [SEED [LINE]]]      of each kind (default 50), drawn by SEED (default 1); LINE: this kind alone
 *
 * An adapter changes each answer by chance. It loses an old answer of the first set with a probability that makes the
 * true loss of this set `loss`, and gives the right answer to a new question with the probability `gain`; the losses in
 * nats follow the answers, with noise. The sets have the sizes and the right answers of share/eval under the embedded
 * model. Prints a line for each kind: how many are published when tested once, and when all seven strengths are tried
 * and each test has fresh luck, which is the worst case. From the root of the repository, after `make`:
 *
 *   gcc -O2 -std=c11 -Ilibcore -D_GNU_SOURCE -o build/gate bench/gate.c build/libchimere.a -Wl,--as-needed -lzstd \
 *       -ljansson -lpcre2-8 -lopenblas -lm -pthread && build/gate */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "tune/job.h"

enum { SETS = 6, NEW_MAX = 200, OF_SET = 200, SHORT = 14, NOISE = 0, LOST = 1, LEARNT = 2 };

static const int known[SETS] = { 199, 188, 188, 174, 154, 191 };
static char *names[SETS] = { "facts", "math", "tools", "code", "verify", "facts-context" };

struct kind {
    double loss, gain; /* of the first set's items; of the new questions */
    int n_new, of_set; /* new questions, items tested of each set */
};

static uint64_t seed = 1, drawn; /* drawn: numbers so far */

static double unit(int stream)
{
    return rng_unit(seed, (uint64_t)stream, drawn++);
}

/* An answer that becomes right is 1.5 nats a token likelier, one that is lost 0.5 less likely; else nothing but noise.
 */
static struct tune_score after(struct tune_score was, bool is)
{
    const double more = is == was.exact ? 0 : is ? -1.5 : 0.5;

    return (struct tune_score){ was.loss + more + 0.1 * (double)rng_gauss(seed, NOISE, drawn++), is };
}

static void draw(struct tune_job *j, const struct kind *k)
{
    struct tune_score *const *was = j->report.before, *const *is = j->report.after;
    const double lost_of_known = k->loss * OF_SET / known[0];

    for (int64_t i = 0; i < j->data.tests.n; i++) {
        was[0][i] = (struct tune_score){ 3, false };
        is[0][i] = after(was[0][i], unit(LEARNT) < k->gain);
    }
    for (int64_t i = 0; i < j->data.kept.n; i++) {
        const int set = (int)(i / k->of_set);
        const bool knew = (int)(i % k->of_set) * OF_SET < known[set] * k->of_set;

        j->data.kept.v[i].set = set;
        was[1][i] = (struct tune_score){ knew ? 0.1 : 2, knew };
        is[1][i] = after(was[1][i], knew && !(set == 0 && unit(LOST) < lost_of_known));
    }
}

struct trial {
    struct tune_job *j;
    const struct kind *k;
};

static enum err_code try_fresh(void *ctx, struct tune_verdict *v, struct err *e)
{
    const struct trial *t = ctx;

    draw(t->j, t->k);
    return tune_judge(t->j, v, e);
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
    static const double losses[] = { 0, 0.01, 0.025, 0.05, 0.075, 0.1 }, gains[] = { 0, 0.05, 0.1, 0.15, 0.25, 0.5 };
    static const int sizes[][2] = { { 200, OF_SET }, { 40, OF_SET }, { 40, SHORT } };
    static struct tune_item tests[NEW_MAX], kept[SETS * OF_SET];
    static struct tune_score score[2][2][SETS * OF_SET];
    static struct tune_outcome outcome[SETS + 2];
    const struct tune_opts o = { .forget = 0.05F, .margin = 0.05F, .accept = TUNE_ANSWERS, .seed = 1 };
    const int n = argc > 1 ? atoi(argv[1]) : 50, only = argc > 3 ? atoi(argv[3]) : -1;
    int line = 0;
    struct tune_job j = { .o = &o, .data = { .tests = { .v = tests }, .kept = { .v = kept } } };

    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    j.data.kept.n_set = SETS;
    j.data.kept.set_name = names;
    j.report.outcome = outcome;
    j.report.n_outcome = SETS + 2;
    for (int i = 0; i < 2; i++) {
        j.report.before[i] = score[0][i];
        j.report.after[i] = score[1][i];
    }
    printf("new questions\titems of a set\ttrue loss of a set\ttrue gain\tpublished of %d, one test\tall strengths\n",
           n);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t i = 0; i < 2 * sizeof losses / sizeof *losses; i++) {
            const size_t half = sizeof losses / sizeof *losses;
            const struct kind k = { i < half ? losses[i] : 0, i < half ? 0.5 : gains[i - half], sizes[s][0],
                                    sizes[s][1] };
            int published[2] = { 0, 0 };

            if (line++ != only && only >= 0)
                continue;
            j.data.tests.n = k.n_new;
            j.data.kept.n = (int64_t)SETS * k.of_set;
            judge_all(&j, &k, n, published);
            printf("%d\t%d\t%g\t%g\t%d\t%d\n", k.n_new, k.of_set, k.loss, k.gain, published[0], published[1]);
            fflush(stdout);
        }
    return 0;
}
