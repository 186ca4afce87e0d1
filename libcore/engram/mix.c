/* SPDX-License-Identifier: Apache-2.0 */
/* mix.c - a table beside a model: what is mixed in and how much.               room: engram
 *
 * The mixture p' = (1 - w) p + w q can cost a token -ln(1 - w) nats and no more. The weight depends on the order of the
 * match, its count, how much the table's occurrences agree, and how sure the model is; it is fitted (fit.c), or a
 * cautious guess: nothing for short contexts, which every text has. */
#include <string.h>

#include "engram/internal.h"
#include "gen/hooks.h"

enum { ORDER_OF_WHOLE = ENGRAM_ORDER_MAX };

uint32_t engram_evidence(const struct engram_next *next)
{
    const uint32_t agree = next->n == 0 || next->q[0] < 0.5F ? 0 : next->q[0] < 0.95F ? 1 : 2;
    /* Nothing longer can be known of a short text. */
    const int order = next->whole && next->order > 1 && next->order < ORDER_OF_WHOLE ? ORDER_OF_WHOLE : next->order;
    uint32_t count = 0;

    while (count + 1 < COUNTS && next->count >= 1.5 * (double)(1 << count))
        count++;
    return (((uint32_t)next->file * ENGRAM_ORDER_MAX + (uint32_t)(order > 0 ? order - 1 : 0)) * COUNTS + count) *
               AGREES +
           agree;
}

int engram_kind(uint32_t evidence, float p_max)
{
    const int sure = p_max < 0.25F ? 0 : p_max < 0.5F ? 1 : p_max < 0.9F ? 2 : 3;

    return (int)(evidence % (KINDS / SURES)) * SURES + sure;
}

float engram_guess(int kind)
{
    /* Chosen on four tables with texts of another kind than theirs: bench/engram.md. */
    static const float by_order[ENGRAM_ORDER_MAX] = { 0, 0, 0, 0.05F, 0.1F, 0.25F, 0.4F, 0.7F };
    static const float by_agree[AGREES] = { 0.1F, 0.4F, 1 }, by_sure[SURES] = { 1, 1, 0.7F, 0.3F };
    const int sure = kind % SURES, agree = kind / SURES % AGREES, order = kind / (SURES * AGREES * COUNTS);

    /* The longest contexts are hardly there by chance: they must win over a model that is sure, or change nothing. */
    return by_order[order] * by_agree[agree] *
           (order + 1 < ENGRAM_ORDER_MAX ? by_sure[sure]
            : sure == SURES - 1          ? 0.8F
                                         : 1);
}

float engram_weight(const struct engram_mix *m, uint32_t evidence, float p_max)
{
    const int f = (int)(evidence / (KINDS / SURES)), kind = engram_kind(evidence, p_max);
    const float *fitted = m->table->file[f].weight;
    const float w = fitted != NULL ? fitted[kind] : engram_guess(kind);

    return w < m->ceiling[f] ? w : m->ceiling[f];
}

/* ---- spaces ---- */

enum { WINDOW = (ENGRAM_PARTS + 1) * ENGRAM_ORDER_MAX };

/* The token of a space and the k tokens behind it; -1: there is none. */
static int32_t join_spaced(const struct engram_mix *m, const int32_t *part, int k)
{
    int32_t lo = 0, hi = m->n_spaced;

    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2, *p = m->parts[m->spaced[mid]];
        int i = 0;

        while (i < ENGRAM_PARTS && p[i] == (i < k ? part[i] : -1))
            i++;
        if (i == ENGRAM_PARTS)
            return m->spaced[mid];
        if (p[i] < (i < k ? part[i] : -1))
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

/* The newest tokens with spaces joined to the words behind them, into out[WINDOW]; how many. */
static int join_spaces(const struct engram_mix *m, const int32_t *token, int64_t n, int32_t *out)
{
    int kept = 0;

    for (int64_t i = n > WINDOW ? n - WINDOW : 0; i < n; i++) {
        int32_t word = -1;
        int k = token[i] == m->space ? ENGRAM_PARTS : 0;

        for (k = n - 1 - i < k ? (int)(n - 1 - i) : k; k > 0 && word < 0; k -= word < 0)
            word = join_spaced(m, token + i + 1, k);
        out[kept++] = word >= 0 ? word : token[i];
        i += word >= 0 ? k : 0;
    }
    return kept;
}

/* Words of a look-up at the place of a space, of which k tokens are written already, become their next tokens. */
static void take_apart(const struct engram_mix *m, const int32_t *written, int k, struct engram_next *next)
{
    struct engram_next out = *next;
    float mass = 0; /* of the words that begin so */

    out.n = 0;
    for (int i = 0; i < next->n; i++) {
        const int32_t *p = next->token[i] < m->n_vocab ? m->parts[next->token[i]] : NULL;
        int at = 0;

        if (p == NULL || p[0] < 0 || (k > 0 && memcmp(p, written, (size_t)k * sizeof *p) != 0))
            continue;
        mass += next->q[i];
        if (k == ENGRAM_PARTS || p[k] < 0)
            continue; /* the word ends here */
        while (at < out.n && out.token[at] != p[k])
            at++;
        out.token[at] = p[k];
        out.q[at] = (at < out.n ? out.q[at] : 0) + next->q[i];
        out.n += at == out.n;
    }
    for (int i = 0; i < out.n; i++)
        out.q[i] = k > 0 && mass > 0 ? out.q[i] / mass : out.q[i];
    *next = out;
}

static void drop_foreign(const struct engram_mix *m, struct engram_next *next)
{
    int kept = 0;

    for (int i = 0; i < next->n; i++) {
        if (next->token[i] >= m->n_vocab)
            continue;
        next->token[kept] = next->token[i];
        next->q[kept++] = next->q[i];
    }
    next->n = kept;
}

void engram_mix_look(const struct engram_mix *m, const int32_t *token, int64_t n, struct engram_next *out)
{
    struct engram_next other;
    int32_t near[WINDOW];
    bool any = false;

    engram_look(m->table, token, n, out);
    for (int64_t i = n > WINDOW ? n - WINDOW : 0; m->space >= 0 && i < n; i++)
        any = any || token[i] == m->space;
    for (int k = ENGRAM_PARTS - 1; any && k >= -1; k--) { /* -1: no word is half written */
        const int64_t end = k >= 0 ? n - 1 - k : n;

        if (end < 1 || (k >= 0 && token[end] != m->space))
            continue;
        engram_look(m->table, near, join_spaces(m, token, end, near), &other);
        if (k >= 0)
            take_apart(m, token + n - k, k, &other);
        if (other.n > 0 && other.order >= out->order)
            *out = other;
    }
    drop_foreign(m, out);
}

/* ---- the hook ---- */

enum { RECITES = INT32_MAX, RECITES_FIRST = RECITES - 1 }; /* evidence of a recital */

static void look_mix(const void *of, const struct gen_context *at, int32_t *next, float *q, int *n_next,
                     uint32_t *evidence)
{
    const struct engram_mix *m = of;
    struct engram_next found;

    *n_next = 0;
    if (!at->reasoning && engram_recite(&m->recital, at, &found)) {
        *evidence = found.whole ? RECITES_FIRST : RECITES;
    } else if (m->table != NULL && (!at->reasoning || m->thinking)) {
        engram_mix_look(m, at->token, at->n, &found);
        *evidence = engram_evidence(&found);
    } else {
        return;
    }
    *n_next = found.n;
    memcpy(next, found.token, (size_t)found.n * sizeof *next);
    memcpy(q, found.q, (size_t)found.n * sizeof *q);
}

static float weight(const void *of, uint32_t evidence, float p_max, bool ends)
{
    const struct engram_mix *m = of;

    /* Where a model knows what comes behind its reasoning, those are newlines. */
    if (evidence == RECITES_FIRST)
        return p_max < 0.9F ? m->recital.weight : 0;
    if (evidence == RECITES)
        return m->recital.weight;
    /* Texts have no turns: where one ends is the model's to say. */
    return ends ? 0 : engram_weight(m, evidence, p_max);
}

const struct gen_memory engram_memory = { look_mix, weight };
