/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r17_columns.cuh - products with experts that have few uses each (moe_r17_columns.cu).   room: kernels */
#ifndef KERNELS_MOE_MOE_R17_COLUMNS_CUH
#define KERNELS_MOE_MOE_R17_COLUMNS_CUH
#include "kernels/gemm/gemm_r2_16.cuh"

enum { MOE_COLUMNS_K = 16384, MOE_COLUMNS_LEAST = 4 };

struct tile_args;
/* Uses of an expert that a chunk may have; pairs: all uses of a mixture; 0: its shapes are not for this kernel. */
int cuda_moe_columns(struct cuda *c, const struct op_moe *m, int64_t pairs);
/* t: columns are rows as cuda_quantise() has them; chunks: how many at most. early: they were made by a launch before
 * the last one. */
void cuda_expert_columns(struct cuda *c, const struct tile_args *t, int columns, int64_t chunks, bool early);
#endif
