/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.c - how many bytes a step has to move. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "eval/eval.h"
#include "gguf/gguf.h"

static const char *const class_names[EVAL_N_CLASSES] = {
    "embedding", "attention", "recurrent", "feed_forward", "shared_expert",
    "router",    "experts",   "output",    "other",        "mtp",
};

const char *eval_class_name(enum eval_class c)
{
    return class_names[c];
}

static bool has(struct str s, const char *z)
{
    size_t n = strlen(z);

    for (size_t i = 0; i + n <= s.n; i++)
        if (memcmp(s.p + i, z, n) == 0)
            return true;
    return false;
}

/* Layer of "blk.N.rest", rest in *rest; -1 for other names. */
static int layer_of(struct str name, struct str *rest)
{
    int layer = 0;
    size_t i = 4;

    *rest = name;
    if (name.n < 6 || memcmp(name.p, "blk.", 4) != 0)
        return -1;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && layer < ARCH_LAYERS_MAX * 10; i++)
        layer = layer * 10 + (name.p[i] - '0');
    if (i >= name.n || name.p[i] != '.')
        return -1;
    *rest = (struct str){name.p + i + 1, name.n - i - 1};
    return layer;
}

enum eval_class eval_class_of(struct str tensor, int n_layer)
{
    static const struct {
        const char *part;
        enum eval_class c;
    } rules[] = {
        {"norm", EVAL_OTHER},         {"_exps.", EVAL_EXPERTS},      {"ffn_gate_inp", EVAL_ROUTER},
        {"exp_probs_b", EVAL_ROUTER}, {"_shexp", EVAL_SHARED},       {"ffn_latent", EVAL_SHARED},
        {"ffn_", EVAL_DENSE},         {"ssm_", EVAL_RECURRENT},      {"shortconv", EVAL_RECURRENT},
        {"attn_qkv", EVAL_RECURRENT}, {"attn_gate", EVAL_RECURRENT}, {"attn_", EVAL_ATTENTION},
    };
    struct str rest;
    int layer = layer_of(tensor, &rest);

    if (layer < 0)
        return str_is(tensor, "token_embd.weight") ? EVAL_EMBEDDING
               : str_is(tensor, "output.weight")   ? EVAL_OUTPUT
                                                   : EVAL_OTHER;
    if (layer >= n_layer)
        return EVAL_MTP;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (has(rest, rules[i].part))
            return rules[i].c;
    return EVAL_OTHER;
}

static void add_memory(struct eval_traffic *t, const struct plan *p)
{
    for (int i = 0; i < p->n_layer; i++) {
        t->state_bytes += (plan_conv_floats(p, i) + plan_rec_floats(p, i)) * (int64_t)sizeof(float);
        if (p->layer[i].mixers & (MIX_ATTN | MIX_MLA))
            t->kv_floats += (int64_t)p->attn.n_head_kv * (p->attn.dim_k + p->attn.dim_v);
    }
}

enum err_code eval_traffic(struct eval_traffic *t, const struct gguf *g, struct err *e)
{
    struct plan *p = malloc(sizeof *p);
    enum err_code code;

    if (p == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    code = plan_make(p, g, e);
    if (code == ERR_OK) {
        *t = (struct eval_traffic){
            .tied = gguf_find(g, "output.weight") == NULL,
            .n_layer = p->n_layer,
            .n_expert = p->moe.n_expert,
            .n_used = p->moe.n_used,
            .ctx_train = p->ctx_train,
        };
        add_memory(t, p);
        for (size_t i = 0; i < gguf_n_tensors(g); i++) {
            const struct gguf_tensor *w = gguf_tensor_at(g, i);
            enum eval_class c = eval_class_of(w->name, p->n_layer);

            t->weight_bytes[c] += (int64_t)w->size_bytes;
            t->n_params += w->ne[0] * w->ne[1] * w->ne[2] * w->ne[3];
            if (c == EVAL_EMBEDDING)
                t->row_bytes = (int64_t)w->size_bytes / w->ne[1];
        }
    }
    free(p);
    return code;
}

double eval_step_bytes(const struct eval_traffic *t, enum eval_class c, int n_rows)
{
    double bytes = (double)t->weight_bytes[c];

    if (c == EVAL_MTP)
        return 0;
    if (c == EVAL_EMBEDDING) /* rows that are looked up; the output reads the rest when it is the
                                same tensor */
        return (double)t->row_bytes * n_rows;
    if (c == EVAL_OUTPUT && t->tied)
        return (double)t->weight_bytes[EVAL_EMBEDDING];
    if (c == EVAL_EXPERTS && t->n_expert > 0)
        return bytes * (1 - pow(1 - (double)t->n_used / t->n_expert, n_rows));
    return bytes;
}

double eval_memory_bytes(const struct eval_traffic *t, int64_t n_pos, double kv_elem_bytes)
{
    return (double)t->kv_floats * kv_elem_bytes * (double)(n_pos + 1) +
           2.0 * (double)t->state_bytes;
}
