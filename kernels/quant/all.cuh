/* SPDX-License-Identifier: Apache-2.0 */
/* all.cuh - every format that is decoded to whole numbers. CUDA_COMMON: those of most files, whose kernels may
 * serve several formats in one launch; CUDA_RARE: the others.          room: kernels (base quant ops) */
#ifndef KERNELS_QUANT_ALL_CUH
#define KERNELS_QUANT_ALL_CUH
#include "kernels/quant/iq1_m.cuh"
#include "kernels/quant/iq1_s.cuh"
#include "kernels/quant/iq2_k.cuh"
#include "kernels/quant/iq2_s.cuh"
#include "kernels/quant/iq2_xs.cuh"
#include "kernels/quant/iq2_xxs.cuh"
#include "kernels/quant/iq3_k.cuh"
#include "kernels/quant/iq3_s.cuh"
#include "kernels/quant/iq3_xxs.cuh"
#include "kernels/quant/iq4_k.cuh"
#include "kernels/quant/iq4_ks.cuh"
#include "kernels/quant/iq4_nl.cuh"
#include "kernels/quant/iq4_xs.cuh"
#include "kernels/quant/iq5_k.cuh"
#include "kernels/quant/mxfp4.cuh"
#include "kernels/quant/nvfp4.cuh"
#include "kernels/quant/q1_0.cuh"
#include "kernels/quant/q2_0.cuh"
#include "kernels/quant/q2_k.cuh"
#include "kernels/quant/q3_k.cuh"
#include "kernels/quant/q4_0.cuh"
#include "kernels/quant/q4_1.cuh"
#include "kernels/quant/q4_k.cuh"
#include "kernels/quant/q5_0.cuh"
#include "kernels/quant/q5_1.cuh"
#include "kernels/quant/q5_k.cuh"
#include "kernels/quant/q6_k.cuh"
#include "kernels/quant/q8_0.cuh"
#include "kernels/quant/tq1_0.cuh"
#include "kernels/quant/tq2_0.cuh"

#define CUDA_COMMON(X) X(q4_k) X(q5_k) X(q6_k) X(q8_0) X(iq3_s) X(iq4_xs)
#define CUDA_RARE(X) \
    X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q2_k) X(q3_k) X(iq1_s) X(iq1_m) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) \
    X(iq4_nl) X(mxfp4) X(nvfp4) X(tq1_0) X(tq2_0) X(q1_0) X(q2_0) X(iq2_k) X(iq3_k) X(iq4_k) X(iq4_ks) X(iq5_k)
/* Of those, what one row has launches of its own for: formats of small files and of rows that are no multiple of
 * 256. */
#define CUDA_ONE_ROW(X) X(q5_0) X(q5_1) X(q2_k) X(q3_k) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq4_nl) X(mxfp4)
#endif
