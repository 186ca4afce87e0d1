/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the table of options as data.                                    room: sample */
#include "sample/options.h"

#include <string.h>

#include "sample/sample.h"

static const struct sample_option rows[] = {
#define WHOLE_REAL  false
#define WHOLE_WHOLE true
#define OPTION_ROW(kind, name, start, low, high, typed, arg, help, json, use, others, to) \
    { .member = #name, \
      .option = (typed), \
      .names = (json), \
      .needs = (others), \
      .whole = WHOLE_##kind, \
      .least = (double)(low), \
      .most = (double)(high), \
      .at = offsetof(struct sample_opts, name) },
    SAMPLE_OPTIONS(OPTION_ROW, 0)
};

const struct sample_option *sample_option(int i)
{
    return i < (int)(sizeof rows / sizeof rows[0]) ? &rows[i] : NULL;
}

double sample_option_value(const struct sample_opts *o, const struct sample_option *row)
{
    const void *member = (const char *)o + row->at;

    return row->whole ? (double)*(const int32_t *)member : (double)*(const float *)member;
}

bool sample_option_acts(const struct sample_opts *o, const struct sample_option *row)
{
    const struct sample_opts off = sample_defaults();
    bool acts = *row->needs == '\0';

    for (const char *need = row->needs; *need != '\0'; need += strcspn(need, "|"), need += *need == '|')
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            if (str_is((struct str){ need, strcspn(need, "|") }, rows[i].option))
                acts = acts || sample_option_value(o, &rows[i]) != sample_option_value(&off, &rows[i]);
    return acts;
}

void sample_option_set(struct sample_opts *o, const struct sample_option *row, double value)
{
    void *member = (char *)o + row->at;

    if (row->whole)
        *(int32_t *)member = (int32_t)value;
    else
        *(float *)member = (float)value;
}

struct sample_opts sample_defaults(void)
{
#define OPTION_START(kind, name, start, low, high, typed, arg, help, json, use, needs, to) .name = (start),
    return (struct sample_opts){ SAMPLE_OPTIONS(OPTION_START, 0) };
}
