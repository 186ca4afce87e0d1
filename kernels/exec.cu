/* SPDX-License-Identifier: Apache-2.0 */
/* exec.cu - from recorded nodes to launches. */
#include <string.h>

#include "kernels/cuda.h"

size_t cuda_route_ws(const struct node *v);

size_t cuda_ws(const struct node *v)
{
    switch (v->op) {
    case DEV_OP_matmul: return cuda_matmul_ws(v->t[1].ne[0], v->t[2].ne[1]);
    case DEV_OP_moe: return cuda_moe_ws(v);
    case DEV_OP_attn: return cuda_attn_ws(v);
    case DEV_OP_route: return cuda_route_ws(v);
    default: return cuda_rec_ws(v);
    }
}

static bool overlap(struct tensor a, struct tensor b)
{
    const char *a0 = (const char *)a.data, *b0 = (const char *)b.data;
    const char *a1 = a0 + ((a.ne[1] - 1) * a.stride + a.ne[0]) * (int64_t)sizeof(float);
    const char *b1 = b0 + ((b.ne[1] - 1) * b.stride + b.ne[0]) * (int64_t)sizeof(float);

    return a0 < b1 && b0 < a1;
}

/* Products of the same activations that follow each other go together. Returns how many. */
static int matmuls(struct cuda *c, const struct node *v, int n)
{
    struct job job[JOBS];
    int k = 0;

    while (k < n && k < JOBS && v[k].op == DEV_OP_matmul && memcmp(&v[k].t[2], &v[0].t[2], sizeof v->t[2]) == 0) {
        job[k] = (struct job){ v[k].t[1], v[k].t[0] };
        k++;
        if (overlap(v[k - 1].t[0], v[0].t[2]))
            break;
    }
    cuda_matmul(c, job, k, v[0].t[2]);
    return k;
}

/* Moving down within one array is allowed: a round trip through working memory is not worth having for it, so
 * overlapping copies go in pieces that do not overlap. */
static void copy_node(struct cuda *c, const struct node *v)
{
    char *to = (char *)v->out;
    const char *from = (const char *)v->p[0];
    size_t step = to < from && (size_t)(from - to) < v->n ? (size_t)(from - to) : v->n;

    for (size_t at = 0; at < v->n; at += step) {
        size_t n = v->n - at < step ? v->n - at : step;

        cuda_fail(c, cudaMemcpyAsync(to + at, from + at, n, cudaMemcpyDeviceToDevice, c->stream), "copy");
    }
}

void cuda_exec(struct cuda *c, const struct node *node, int n)
{
    for (int i = 0; i < n && c->bad == cudaSuccess;) {
        const struct node *v = &node[i];

        switch (v->op) {
        case DEV_OP_matmul: i += matmuls(c, v, n - i); continue;
        case DEV_OP_embed: cuda_embed(c, v); break;
        case DEV_OP_kv_store: cuda_kv_store(c, v); break;
        case DEV_OP_attn: cuda_attn(c, v); break;
        case DEV_OP_conv:
        case DEV_OP_gdn:
        case DEV_OP_kda:
        case DEV_OP_ssm1:
        case DEV_OP_ssm2: cuda_rec(c, v); break;
        case DEV_OP_route: cuda_route(c, v); break;
        case DEV_OP_moe: cuda_moe(c, v); break;
        case NODE_COPY: copy_node(c, v); break;
        case NODE_ZERO: cuda_fail(c, cudaMemsetAsync(v->out, 0, v->n, c->stream), "zero"); break;
        default: cuda_elem(c, v); break;
        }
        i++;
    }
}
