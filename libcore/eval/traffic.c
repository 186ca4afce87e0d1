/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.c - how many bytes a step has to move. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "eval/eval.h"
#include "gguf/gguf.h"

static void add_memory(struct eval_traffic *t, const struct arch_plan *p)
{
    for (int i = 0; i < p->n_layer; i++) {
        t->state_bytes += (arch_plan_conv_floats(p, i) + arch_plan_rec_floats(p, i)) * (int64_t)sizeof(float);
        if (p->layer[i].mixers & (MIX_ATTN | MIX_MLA))
            t->kv_floats += (int64_t)p->attn.n_head_kv * (p->attn.dim_k + p->attn.dim_v);
    }
}

enum err_code eval_traffic(struct eval_traffic *t, const struct gguf *g, struct err *e)
{
    struct arch_plan *p = malloc(sizeof *p);
    enum err_code code;

    if (p == NULL)
        return err_nomem(e);
    code = arch_plan_make(p, g, e);
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
            enum model_class c = model_class_of(w->name, p->n_layer);

            t->weight_bytes[c] += (int64_t)w->size_bytes;
            t->n_params += w->ne[0] * w->ne[1] * w->ne[2] * w->ne[3];
            if (c == MODEL_EMBEDDING)
                t->row_bytes = (int64_t)w->size_bytes / w->ne[1];
        }
    }
    free(p);
    return code;
}

double eval_step_bytes(const struct eval_traffic *t, enum model_class c, int n_rows)
{
    double bytes = (double)t->weight_bytes[c];

    if (c == MODEL_MTP)
        return 0;
    if (c == MODEL_EMBEDDING) /* rows that are looked up; the output reads the rest when it is the
                                same tensor */
        return (double)t->row_bytes * n_rows;
    if (c == MODEL_OUTPUT && t->tied)
        return (double)t->weight_bytes[MODEL_EMBEDDING];
    if (c == MODEL_EXPERTS && t->n_expert > 0)
        return bytes * (1 - pow(1 - (double)t->n_used / t->n_expert, n_rows));
    return bytes;
}

double eval_memory_bytes(const struct eval_traffic *t, int64_t n_pos, double kv_elem_bytes)
{
    return (double)t->kv_floats * kv_elem_bytes * (double)(n_pos + 1) + 2.0 * (double)t->state_bytes;
}
