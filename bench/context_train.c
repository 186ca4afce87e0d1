/* SPDX-License-Identifier: Apache-2.0 */
/* context_train.c - learns the weights of spans (libcore/recall/weights.c) from questions on documents.
 *
 *   context_train MODEL EPOCHS DIR[=WEIGHT] ... > weights.c     each DIR as context_sets.py or context_squad.py makes
 * it
 *
 * For each question the probability of the spans that are right, or of saying nothing where none is, is raised: softmax
 * over all spans and saying nothing, by AdaGrad. A weight is the sum of one for all classes and one for the class. What
 * is said of the sets on the way goes to the standard error. bench/context_train.sh builds and runs it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/io.h"
#include "base/json.h"
#include "gguf/gguf.h"
#include "recall/span.h"
#include "text/text.h"

enum { SCALE = 16, SHOWN_MAX = 20000 };

#define NONE_WEIGHT 2 /* of a question without an answer: a wrong one is worse than none */

struct shown {
    int n;
    bool right;
    unsigned char feature[SPAN_FEATURES_EACH];
};
struct question {
    struct shown *shown; /* [n], the last one is saying nothing */
    int n, n_right;
    enum span_class class;
    float weight;
};
struct seeing {
    const json_t *answers;
    struct str question;
    struct question q;
};

static struct question *all;
static int n_all, room;
static double w[SPAN_CLASSES + 1][SPAN_FEATURES], g2[SPAN_CLASSES + 1][SPAN_FEATURES],
    mean[SPAN_CLASSES + 1][SPAN_FEATURES];

static struct str plain(struct str s)
{
    static const char *const articles[] = { "a ", "an ", "the " };

    while (s.n > 0 && strchr(" .\n", s.p[0]) != NULL)
        s = (struct str){ s.p + 1, s.n - 1 };
    while (s.n > 0 && strchr(" .\n", s.p[s.n - 1]) != NULL)
        s.n--;
    for (int i = 0; i < 3; i++)
        if (s.n > strlen(articles[i]) && strncasecmp(s.p, articles[i], strlen(articles[i])) == 0)
            return (struct str){ s.p + strlen(articles[i]), s.n - strlen(articles[i]) };
    return s;
}

static bool is_right(const json_t *answers, struct str text)
{
    for (size_t i = 0; i < json_array_size(answers); i++) {
        const struct str a = plain(str_of(json_string_value(json_array_get(answers, i)))), b = plain(text);

        if (a.n == b.n && strncasecmp(a.p, b.p, a.n) == 0)
            return true;
    }
    return false;
}

static void see(void *of, const struct ranked_span *s)
{
    struct seeing *x = of;
    struct shown *to;

    if (x->q.n == SHOWN_MAX || (s->text.n > 0 && str_find(x->question, 0, s->text) != SIZE_MAX))
        return;
    if (x->q.n % 256 == 0 && (x->q.shown = realloc(x->q.shown, (size_t)(x->q.n + 256) * sizeof *to)) == NULL)
        exit(1);
    to = &x->q.shown[x->q.n++];
    to->n = s->n;
    memcpy(to->feature, s->feature, (size_t)s->n);
    to->right = s->text.n > 0 ? is_right(x->answers, s->text) : x->q.n_right == 0;
    x->q.n_right += to->right && s->text.n > 0;
}

static int read_set(const struct text *t, const char *dir, const char *part, float weight)
{
    char path[4096], *notes, line[65536];
    size_t n;
    struct err e;
    FILE *f;
    int answerable = 0;

    snprintf(path, sizeof path, "%s/notes.txt", dir);
    if (io_read_all(&notes, &n, path, SIZE_MAX / 2, NULL, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
    snprintf(path, sizeof path, "%s/%s.jsonl", dir, part);
    if ((f = fopen(path, "r")) == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL) {
        json_t *item = json_loads(line, 0, NULL);
        struct seeing x = { .answers = json_object_get(item, "answers") };

        x.question =
            str_of(json_string_value(json_object_get(json_array_get(json_object_get(item, "messages"), 0), "content")));
        x.q.weight = weight;
        if (recall_point((struct str){ notes, n }, t, x.question, see, &x, &x.q.class, &e)) {
            fprintf(stderr, "%s\n", e.msg);
            exit(1);
        }
        json_decref(item);
        if (x.q.n == 0)
            continue;
        x.q.shown = realloc(x.q.shown, (size_t)x.q.n * sizeof *x.q.shown);
        if (n_all == room && (all = realloc(all, (size_t)(room = room * 2 + 1024) * sizeof *all)) == NULL)
            exit(1);
        answerable += x.q.n_right > 0;
        x.q.weight *= x.q.n_right > 0 ? 1 : NONE_WEIGHT;
        all[n_all++] = x.q;
    }
    fclose(f);
    free(notes);
    return answerable;
}

static void learn(const struct question *q, double rate)
{
    static double score[SHOWN_MAX], p[SHOWN_MAX], pull[SPAN_FEATURES];
    double most = -1e9, sum = 0, sum_right = 0;
    bool used[SPAN_FEATURES] = { false };

    for (int i = 0; i < q->n; i++) {
        const struct shown *s = &q->shown[i];

        score[i] = 0;
        for (int k = 0; k < s->n; k++)
            score[i] += w[SPAN_CLASSES][s->feature[k]] + w[q->class][s->feature[k]];
        most = score[i] > most ? score[i] : most;
    }
    for (int i = 0; i < q->n; i++) {
        p[i] = exp(score[i] - most);
        sum += p[i];
        sum_right += q->shown[i].right ? p[i] : 0;
    }
    memset(pull, 0, sizeof pull);
    for (int i = 0; i < q->n; i++) {
        const struct shown *s = &q->shown[i];
        const double d = (s->right ? p[i] / sum_right : 0) - p[i] / sum;

        if (fabs(d) > 1e-6)
            for (int k = 0; k < s->n; k++) {
                pull[s->feature[k]] += d;
                used[s->feature[k]] = true;
            }
    }
    for (int of = 0; of < 2; of++) {
        const int c = of == 0 ? SPAN_CLASSES : (int)q->class;
        const double keep = of == 0 ? 1e-4 : 5e-3;

        for (int k = 0; k < SPAN_FEATURES; k++)
            if (used[k]) {
                const double d = q->weight * (pull[k] - keep * w[c][k]);

                g2[c][k] += d * d;
                w[c][k] += rate * d / sqrt(g2[c][k] + 1e-3);
            }
    }
}

/* Of the weights after n steps. */
static void average(double n)
{
    for (int c = 0; c <= SPAN_CLASSES; c++)
        for (int k = 0; k < SPAN_FEATURES; k++)
            mean[c][k] += (w[c][k] - mean[c][k]) / n;
}

static int rounded(int c, int k)
{
    const double v = round(SCALE * (mean[SPAN_CLASSES][k] + mean[c][k]));

    return (int)(v > 127 ? 127 : v < -127 ? -127 : v);
}

static void judge(int from, int to, const char *name)
{
    int right = 0, wrong = 0, none = 0, answerable = 0;

    for (int i = from; i < to; i++) {
        int best = 0, best_score = -100000;

        for (int k = 0; k < all[i].n; k++) {
            int score = 0;

            for (int f = 0; f < all[i].shown[k].n; f++)
                score += rounded((int)all[i].class, all[i].shown[k].feature[f]);
            if (score > best_score) {
                best_score = score;
                best = k;
            }
        }
        answerable += all[i].n_right > 0;
        if (best == all[i].n - 1)
            none++;
        else
            *(all[i].shown[best].right ? &right : &wrong) += 1;
    }
    fprintf(stderr, "%s: of %d with spans %d can be right; right %d, wrong %d, nothing said %d\n", name, to - from,
            answerable, right, wrong, none);
}

int main(int argc, char **argv)
{
    static const char *const parts[] = { "items", "none", "foreign" };
    struct gguf *g;
    struct text *t;
    struct err e;
    uint64_t state = 1;
    double steps = 0;
    int from[4096];
    const int epochs = argc > 3 ? atoi(argv[2]) : 0;

    if (epochs < 1 || argc > 4000)
        return fprintf(stderr, "usage: context_train MODEL EPOCHS DIR[=WEIGHT] ...\n"), 2;
    if (gguf_open(&g, argv[1], &e) || text_open(&t, g, &e))
        return fprintf(stderr, "%s\n", e.msg), 1;
    for (int i = 3; i < argc; i++) {
        char *weight = strchr(argv[i], '=');

        from[i] = n_all;
        if (weight != NULL)
            *weight++ = '\0';
        for (int k = 0; k < 3; k++)
            read_set(t, argv[i], parts[k], weight != NULL ? strtof(weight, NULL) : 1);
    }
    from[argc] = n_all;
    int *order = malloc((size_t)n_all * sizeof *order);
    for (int i = 0; i < n_all; i++)
        order[i] = i;
    for (int epoch = 0; epoch < epochs; epoch++) {
        for (int i = n_all - 1; i > 0; i--) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const int k = (int)((state >> 33) % (uint64_t)(i + 1)), was = order[i];

            order[i] = order[k];
            order[k] = was;
        }
        for (int i = 0; i < n_all; i++)
            if (all[order[i]].weight > 0) {
                learn(&all[order[i]], 0.1);
                if (epoch >= epochs / 2) /* the mean of the second half */
                    average(++steps);
            }
    }
    for (int i = 3; i < argc; i++)
        judge(from[i], from[i + 1], argv[i]);
    printf("/* SPDX-License-Identifier: Apache-2.0 */\n/* weights.c - of the features of spans, by what is asked for; "
           "made by bench/context_train.sh.    room: recall */\n"
           "#include \"recall/span.h\"\n\n/* clang-format off */\nconst signed char "
           "recall_span_weight[SPAN_CLASSES][SPAN_FEATURES] = {\n");
    for (int c = 0; c < SPAN_CLASSES; c++) {
        int column = 8;

        printf("    { ");
        for (int k = 0; k < SPAN_FEATURES; k++) {
            if (column > 108)
                column = 6 + 0 * printf("\n      ");
            column += printf(k + 1 < SPAN_FEATURES ? "%d, " : "%d ", rounded(c, k));
        }
        printf("},\n");
    }
    printf("};\n");
    return 0;
}
