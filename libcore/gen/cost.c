/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - what a step costs by its rows. */
#include "gen/cost.h"

#include <math.h>

enum {
    NOW = 16,    /* steps that the speed of the moment goes back */
    MEMORY = 64, /* steps of a number of rows that its cost goes back */
    LEAN = 16,   /* steps that the line through all numbers of rows counts as */
    KNOWN = 4,   /* such steps were seen: they say how fast the machine is now */
    WORST = 3,   /* times what was expected: a step that took longer, since the machine did something else, counts so */
};
static const float first_slope = 0.3f; /* of a row more, until two numbers of rows are known */

/* What a row more costs, in steps of one row; < 0: not known. */
static float slope(const struct gen_cost *c)
{
    const float one = c->seen[1] > 0 ? c->took[1] / c->base[1] : 1;
    float more = 0, rows = 0;

    for (int k = 2; k < GEN_COSTS; k++) {
        more += c->took[k] - one * c->base[k];
        rows += one * c->base[k] * (float)(k - 1);
    }
    return rows <= 0 ? -1 : more > 0 ? more / rows : 0;
}

/* What a step with k rows costs, in units of `speed`. */
static float units(const struct gen_cost *c, int k, float a_row)
{
    const float one = c->seen[1] > 0 ? c->took[1] / c->base[1] : 1;
    const float line = one * (1 + (a_row < 0 ? first_slope : a_row) * (float)(k - 1));
    const float lean = c->seen[k] > 0 ? LEAN * c->base[k] / c->seen[k] : 1;

    return k == 1 ? one : (c->took[k] + lean * line) / (c->base[k] + lean);
}

static void add_cost(struct gen_cost *c, int rows, float ms)
{
    const float keep = c->seen[rows] < MEMORY ? 1 : 1 - 1.0f / MEMORY;

    c->took[rows] = c->took[rows] * keep + ms;
    c->base[rows] = c->base[rows] * keep + c->speed;
    c->seen[rows] = c->seen[rows] * keep + 1;
}

void gen_cost_note(struct gen_cost *c, int rows, float ms)
{
    float a_row = slope(c), costs, now;

    if (rows < 1 || rows >= GEN_COSTS || !(ms > 0))
        return;
    if (c->met[rows] < (c->records ? 2 : 1)) { /* on a GPU first steps are recorded, which takes long */
        c->met[rows]++;
        c->last = 1;
        return;
    }
    costs = units(c, rows, a_row);
    if (c->speed <= 0)
        c->speed = ms / costs;
    now = ms / costs < WORST * c->speed ? ms / costs : WORST * c->speed;
    c->last = now / c->speed;
    add_cost(c, rows, now * costs);
    if (rows == 1 || c->seen[rows] > KNOWN) {
        c->n += c->n < NOW;
        c->spread += (fabsf(c->last - 1) - c->spread) / MEMORY;
        c->speed += (now - c->speed) / c->n;
    }
    a_row = slope(c);
    for (int k = 1; k < GEN_COSTS; k++)
        if (c->seen[k] > 0)
            c->ms[k] = c->speed * units(c, k, a_row) * (1 + (k > 1 ? 0.5f * c->spread / sqrtf(1 + c->seen[k]) : 0));
}
