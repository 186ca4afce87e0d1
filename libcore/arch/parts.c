/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - reading the parts that families share, with their checks. */
#include <math.h>
#include <stdio.h>

#include "arch/arch.h"
#include "gguf/gguf.h"

/* Position scaling changes what positions mean: better refused than ignored. */
static void check_scaling(struct arch_keys *k)
{
    char key[128];
    struct str type = { 0 };

    (void)snprintf(key, sizeof key, "%s.rope.scaling.type", k->prefix);
    if (gguf_kv_find(k->g, key) != NULL && k->e->code == ERR_OK &&
        (!gguf_str(k->g, key, &type) || !str_is(type, "none")))
        err_set(k->e, ERR_UNSUPPORTED, "%s: %s '%.*s' is not supported", gguf_path(k->g), key, STR_ARG(type));
}

void arch_rope(struct arch_plan *p, struct arch_keys *k, enum arch_rope rope, int dim)
{
    struct arch_attn_plan *a = &p->attn;

    a->rope = rope;
    a->n_rot = arch_int_or(k, "rope.dimension_count", 0, ARCH_HEAD_MAX, dim);
    a->rope_base = arch_float_or(k, "rope.freq_base", 1.0f, 1e12f, 10000.0f);
    if (k->e->code == ERR_OK && (a->n_rot > dim || a->n_rot % 2 != 0))
        arch_bad(k, "rope.dimension_count is odd or exceeds the head");
    check_scaling(k);
}

void arch_attn(struct arch_plan *p, struct arch_keys *k, int n_head_kv, enum arch_rope rope)
{
    struct arch_attn_plan *a = &p->attn;
    int heads[ARCH_LAYERS_MAX];

    arch_ints(k, "attention.head_count", 0, ARCH_HEADS_MAX, heads, p->n_layer);
    a->n_head = arch_shared(k, "attention.head_count", heads, p->n_layer);
    a->n_head_kv = n_head_kv;
    a->n_in = p->n_embd;
    if (k->e->code != ERR_OK)
        return;
    if (a->n_head < 1 || n_head_kv < 1 || a->n_head % n_head_kv != 0) {
        arch_bad(k, "attention.head_count is not a multiple of attention.head_count_kv");
        return;
    }
    int dim = p->n_embd / a->n_head; /* what files without the key mean */
    dim = dim > ARCH_HEAD_MAX ? ARCH_HEAD_MAX : dim;
    a->dim_k = arch_int_or(k, "attention.key_length", 1, ARCH_HEAD_MAX, dim);
    a->dim_v = arch_int_or(k, "attention.value_length", 1, ARCH_HEAD_MAX, dim);
    a->scale = arch_float_or(k, "attention.scale", 0.0f, 1e6f, 0.0f);
    a->scale = a->scale == 0.0f ? 1.0f / sqrtf((float)a->dim_k) : a->scale;
    if (k->e->code == ERR_OK && (a->dim_k < 1 || a->dim_v < 1))
        arch_bad(k, "attention heads have no elements");
    if (rope != ROPE_NONE && k->e->code == ERR_OK)
        arch_rope(p, k, rope, a->dim_k);
}

void arch_gdn(struct arch_plan *p, struct arch_keys *k)
{
    struct arch_gdn_plan *d = &p->gdn;
    int inner = arch_int(k, "ssm.inner_size", 1, ARCH_WIDTH_MAX);

    d->dim = arch_int(k, "ssm.state_size", 1, ARCH_HEAD_MAX);
    d->n_k = arch_int(k, "ssm.group_count", 1, ARCH_HEADS_MAX);
    d->n_v = arch_int(k, "ssm.time_step_rank", 1, ARCH_HEADS_MAX);
    p->taps = arch_int(k, "ssm.conv_kernel", 2, ARCH_TAPS_MAX);
    if (k->e->code != ERR_OK)
        return;
    d->dim_v = inner / d->n_v;
    if (d->n_v % d->n_k != 0)
        arch_bad(k, "ssm.time_step_rank is not a multiple of ssm.group_count");
    if (inner % d->n_v != 0 || d->dim_v > ARCH_HEAD_MAX)
        arch_bad(k, "ssm.inner_size does not divide into ssm.time_step_rank heads");
}

void arch_ssm1(struct arch_plan *p, struct arch_keys *k)
{
    struct arch_ssm_plan *s = &p->ssm;

    s->inner = arch_int(k, "ssm.inner_size", 1, ARCH_WIDTH_MAX);
    s->n_state = arch_int(k, "ssm.state_size", 1, ARCH_HEAD_MAX);
    s->dt_rank = arch_int(k, "ssm.time_step_rank", 1, ARCH_WIDTH_MAX);
    p->taps = arch_int(k, "ssm.conv_kernel", 2, ARCH_TAPS_MAX);
    s->norm = arch_bool_or(k, "ssm.dt_b_c_rms", false);
    s->n_head = s->n_group = 1;
}

void arch_ssm2(struct arch_plan *p, struct arch_keys *k)
{
    struct arch_ssm_plan *s = &p->ssm;

    s->inner = arch_int(k, "ssm.inner_size", 1, ARCH_WIDTH_MAX);
    s->n_state = arch_int(k, "ssm.state_size", 1, ARCH_HEAD_MAX);
    s->n_head = arch_int(k, "ssm.time_step_rank", 1, ARCH_WIDTH_MAX);
    s->n_group = arch_int(k, "ssm.group_count", 1, ARCH_HEADS_MAX);
    p->taps = arch_int(k, "ssm.conv_kernel", 2, ARCH_TAPS_MAX);
    s->norm_eps = p->norm_eps;
    if (k->e->code == ERR_OK && (s->inner % s->n_head != 0 || s->inner / s->n_head > ARCH_HEAD_MAX))
        arch_bad(k, "ssm.inner_size does not divide into ssm.time_step_rank heads");
    if (k->e->code == ERR_OK && (s->n_head % s->n_group != 0 || s->inner % s->n_group != 0))
        arch_bad(k, "ssm.time_step_rank is not a multiple of ssm.group_count");
}

void arch_moe(struct arch_plan *p, struct arch_keys *k)
{
    struct arch_moe_plan *m = &p->moe;

    m->n_expert = arch_int(k, "expert_count", 1, ARCH_EXPERTS_MAX);
    m->n_used = arch_int(k, "expert_used_count", 1, ARCH_EXPERTS_MAX);
    m->n_ff = arch_int_or(k, "expert_feed_forward_length", 1, ARCH_WIDTH_MAX, 0);
    m->n_ff_shared = arch_int_or(k, "expert_shared_feed_forward_length", 0, ARCH_WIDTH_MAX, 0);
    m->normalise = true;
    m->scale = arch_float_or(k, "expert_weights_scale", 0.0f, 1e6f, 1.0f);
    m->scale = m->scale == 0.0f ? 1.0f : m->scale;
    m->n_group = arch_int_or(k, "expert_group_count", 0, 64, 1);
    m->n_group_used = arch_int_or(k, "expert_group_used_count", 0, 64, 1);
    if (k->e->code == ERR_OK && m->n_used > m->n_expert)
        arch_bad(k, "expert_used_count exceeds expert_count");
    if (k->e->code != ERR_OK || m->n_group <= 1)
        return;
    if (m->n_expert % m->n_group != 0 || m->n_group_used < 1 || m->n_group_used > m->n_group ||
        m->n_used > m->n_expert / m->n_group * m->n_group_used)
        arch_bad(k, "expert_group_count and expert_group_used_count do not fit the experts");
}
