/* SPDX-License-Identifier: Apache-2.0 */
/* tune_stage.h - a program around a job, with a clock of its own. */
#ifndef TUNE_STAGE_H
#define TUNE_STAGE_H
#include <math.h>

#include "golden.h"
#include "tune/job.h"

struct stage {
    double ms;         /* of the clock, */
    double tick_ms;    /* which goes on by this whenever it is asked */
    int64_t steps;     /* that were told */
    int64_t stop_at;   /* the step after which the training stops; -1: never */
    char warning[512]; /* the newest */
    struct progress stop;
    struct tune_calls calls;
    struct tune_opts o;
    struct tune_job job;
};

static double now_ms(void *ctx)
{
    struct stage *s = ctx;

    return s->ms += s->tick_ms;
}

static bool tick(void *ctx, const struct tune_tick *t)
{
    (void)ctx;
    assert_true(t->done >= 0 && t->done <= t->total);
    return true;
}

static void count_step(void *ctx, const struct tune_step *step)
{
    struct stage *s = ctx;

    assert_true(step->step == s->job.state.step && step->step <= step->steps && isfinite(step->loss));
    s->steps++;
}

static void keep_warning(void *ctx, bool warning, const char *line)
{
    struct stage *s = ctx;

    if (warning)
        (void)snprintf(s->warning, sizeof s->warning, "%s", line);
}

static bool goes_on(void *ctx, uint64_t done, uint64_t total)
{
    const struct stage *s = ctx;

    (void)done;
    (void)total;
    return s->stop_at < 0 || s->steps < s->stop_at;
}

static inline void stage_open(struct stage *s)
{
    *s = (struct stage){ .tick_ms = 1e-3, .stop_at = -1 };
    s->stop = (struct progress){ goes_on, s };
    s->calls = (struct tune_calls){
        .now_ms = now_ms, .tick = tick, .step = count_step, .note = keep_warning, .stop = &s->stop, .ctx = s
    };
    s->o = (struct tune_opts){ .time = "1h",
                               .time_s = 3600,
                               .seed = 1,
                               .n_text = 4,
                               .keep_batch = 3,
                               .epochs = 100,
                               .samples = 1,
                               .rate = 0.01f,
                               .keep_weight = 20,
                               .forget = 0.05f,
                               .margin = 0.05f,
                               .margin_set = 0.1f,
                               .keep_named = true,
                               .tests_named = true,
                               .tokens_max = 64,
                               .memory_bytes = (int64_t)1 << 30 };
    s->job = (struct tune_job){ .o = &s->o, .calls = &s->calls };
}

#endif
