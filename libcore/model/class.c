/* SPDX-License-Identifier: Apache-2.0 */
/* class.c - what a tensor is for, by its name. */
#include <string.h>

#include "arch/arch.h"
#include "model/class.h"

static const char *const class_names[MODEL_N_CLASSES] = {
    "embedding", "attention", "recurrent", "feed_forward", "shared_expert",
    "router",    "experts",   "output",    "other",        "mtp",
};

const char *model_class_name(enum model_class c)
{
    return class_names[c];
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
    *rest = (struct str){ name.p + i + 1, name.n - i - 1 };
    return layer;
}

enum model_class model_class_of(struct str tensor, int n_layer)
{
    static const struct {
        const char *part;
        enum model_class c;
    } rules[] = {
        { "norm", MODEL_OTHER },          { "hc_", MODEL_OTHER },           { "indexer.", MODEL_ATTENTION },
        { "_exps.", MODEL_EXPERTS },      { "ffn_gate_inp", MODEL_ROUTER }, { "exp_probs_b", MODEL_ROUTER },
        { "_shexp", MODEL_SHARED },       { "ffn_latent", MODEL_SHARED },   { "ffn_", MODEL_DENSE },
        { "ssm_", MODEL_RECURRENT },      { "shortconv", MODEL_RECURRENT }, { "attn_qkv", MODEL_RECURRENT },
        { "attn_gate", MODEL_RECURRENT }, { "attn_", MODEL_ATTENTION },
    };
    struct str rest;
    int layer = layer_of(tensor, &rest);

    if (layer < 0)
        return str_has(tensor, "token_embd.weight") ? MODEL_EMBEDDING
               : str_is(tensor, "output.weight")    ? MODEL_OUTPUT
                                                    : MODEL_OTHER;
    if (layer >= n_layer)
        return MODEL_MTP;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (str_has(rest, rules[i].part))
            return rules[i].c;
    return MODEL_OTHER;
}
