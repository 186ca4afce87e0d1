/* SPDX-License-Identifier: Apache-2.0 */
/* open.cu - a GPU for training: its memory, and products by cuBLAS.                room: kernels */
#include "kernels/train/math.cuh"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void cuda_math_fail(struct cuda_math *c, cudaError_t e, const char *at)
{
    if (e == cudaSuccess || c->bad != cudaSuccess)
        return;
    c->bad = e;
    c->bad_at = at;
    (void)cudaGetLastError(); /* or the model's kernels would find it */
}

float *cuda_math_part(struct cuda_math *c, int64_t n)
{
    if (n > c->n_part) {
        (void)cudaStreamSynchronize(c->stream);
        (void)cudaFree(c->part);
        c->part = NULL;
        c->n_part = 0;
        MATH_TRY(c, cudaMalloc((void **)&c->part, (size_t)n * sizeof(float)));
        c->n_part = c->bad == cudaSuccess ? n : 0;
    }
    return c->bad == cudaSuccess ? c->part : NULL;
}

#ifdef CHIMERE_CUBLAS

/* ---- memory ---- */

static void close_math(struct dev_math *m)
{
    struct cuda_math *c = cuda_math_of(m);

    if (c == NULL)
        return;
    (void)cudaSetDevice(c->id);
    if (c->stream != NULL)
        (void)cudaStreamSynchronize(c->stream);
    if (c->blas != NULL)
        (void)c->destroy(c->blas);
    for (int i = 0; i < 2; i++) {
        (void)cudaFreeHost(c->pinned[i]);
        if (c->sent[i] != NULL)
            (void)cudaEventDestroy(c->sent[i]);
    }
    if (c->end != NULL)
        (void)cudaEventDestroy(c->end);
    (void)cudaFree(c->part);
    (void)cudaFree(c->norm);
    if (c->stream != NULL)
        (void)cudaStreamDestroy(c->stream);
    free(c);
}

static int64_t memory_left(const struct dev_math *m)
{
    size_t some = 0, all = 0;

    (void)cudaSetDevice(((const struct cuda_math *)m)->id);
    return cudaMemGetInfo(&some, &all) == cudaSuccess ? (int64_t)some : -1;
}

static void *take_memory(struct dev_math *m, int64_t bytes)
{
    void *p = NULL;

    (void)cudaSetDevice(cuda_math_of(m)->id);
    if (cudaMalloc(&p, bytes > 0 ? (size_t)bytes : 1) == cudaSuccess)
        return p;
    (void)cudaGetLastError(); /* not sticky */
    return NULL;
}

static void give_memory(struct dev_math *m, void *p)
{
    if (p == NULL)
        return;
    (void)cudaStreamSynchronize(cuda_math_of(m)->stream);
    (void)cudaFree(p);
}

/* Through pinned memory, one half of which is filled while the other is sent. */
static void put_bytes(struct dev_math *m, void *to, const void *host, int64_t bytes)
{
    struct cuda_math *c = cuda_math_of(m);

    for (int64_t at = 0; at < bytes && c->bad == cudaSuccess; at += MATH_PINNED) {
        const size_t n = (size_t)(bytes - at < (int64_t)MATH_PINNED ? bytes - at : (int64_t)MATH_PINNED);
        const int i = c->turn;

        MATH_TRY(c, cudaEventSynchronize(c->sent[i]));
        memcpy(c->pinned[i], (const unsigned char *)host + at, n);
        MATH_TRY(c, cudaMemcpyAsync((unsigned char *)to + at, c->pinned[i], n, cudaMemcpyHostToDevice, c->stream));
        MATH_TRY(c, cudaEventRecord(c->sent[i], c->stream));
        c->turn = !i;
    }
}

static void get_bytes(struct dev_math *m, void *host, const void *from, int64_t bytes)
{
    struct cuda_math *c = cuda_math_of(m);

    if (bytes <= 0 || c->bad != cudaSuccess)
        return;
    MATH_TRY(c, cudaMemcpyAsync(host, from, (size_t)bytes, cudaMemcpyDeviceToHost, c->stream));
    MATH_TRY(c, cudaStreamSynchronize(c->stream));
}

static void copy_bytes(struct dev_math *m, void *to, const void *from, int64_t bytes)
{
    struct cuda_math *c = cuda_math_of(m);

    if (bytes > 0 && c->bad == cudaSuccess)
        MATH_TRY(c, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, c->stream));
}

static void zero_bytes(struct dev_math *m, void *to, int64_t bytes)
{
    struct cuda_math *c = cuda_math_of(m);

    if (bytes > 0 && c->bad == cudaSuccess)
        MATH_TRY(c, cudaMemsetAsync(to, 0, (size_t)bytes, c->stream));
}

static enum err_code wait_stream(struct dev_math *m, struct err *e)
{
    struct cuda_math *c = cuda_math_of(m);

    MATH_TRY(c, cudaStreamSynchronize(c->stream));
    if (c->bad_product)
        return err_set(e, ERR_DEVICE, "CUDA device %d: cuBLAS refuses a product", c->id);
    return c->bad == cudaSuccess
               ? ERR_OK
               : err_set(e, ERR_DEVICE, "CUDA device %d: %s: %s", c->id, c->bad_at, cudaGetErrorString(c->bad));
}

static bool stream_busy(struct dev_math *m)
{
    return cudaStreamQuery(cuda_math_of(m)->stream) == cudaErrorNotReady;
}

/* ---- products ---- */

static cublasOperation_t turn_of(bool turned)
{
    return turned ? CUBLAS_OP_T : CUBLAS_OP_N;
}

static void note_status(struct cuda_math *c, cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    c->bad_product = true;
    cuda_math_fail(c, cudaErrorUnknown, "cuBLAS");
}

/* cuBLAS counts by columns: it computes c^T = b^T a^T. */
static void blas_product(struct dev_math *m, int64_t rows, int64_t n, int64_t k, struct dev_matrix a,
                         struct dev_matrix b, float beta, float *to, int64_t ld)
{
    struct cuda_math *c = cuda_math_of(m);
    const float one = 1.0f;

    if (rows == 0 || n == 0 || c->bad != cudaSuccess)
        return;
    note_status(c, c->gemm(c->blas, turn_of(b.turned), turn_of(a.turned), (int)n, (int)rows, (int)k, &one, b.v,
                           CUDA_R_32F, (int)b.ld, a.v, CUDA_R_32F, (int)a.ld, &beta, to, CUDA_R_32F, (int)ld,
                           CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

static void products_of(struct dev_math *m, int64_t count, int64_t rows, int64_t n, int64_t k, const float *a,
                        bool turn_a, const float *b, bool turn_b, float *to)
{
    struct cuda_math *c = cuda_math_of(m);
    const float one = 1.0f, none = 0.0f;

    if (count == 0 || c->bad != cudaSuccess)
        return;
    note_status(c, c->gemms(c->blas, turn_of(turn_b), turn_of(turn_a), (int)n, (int)rows, (int)k, &one, b, CUDA_R_32F,
                            (int)(turn_b ? k : n), k * n, a, CUDA_R_32F, (int)(turn_a ? rows : k), rows * k, &none, to,
                            CUDA_R_32F, (int)n, rows * n, (int)count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

/* ---- opening ---- */

typedef cublasStatus_t blas_create(cublasHandle_t *handle);
typedef cublasStatus_t blas_set_stream(cublasHandle_t handle, cudaStream_t stream);

/* A function of cuBLAS. It compiles only if the header declares it with this type. */
#define FIND(lib, type, f) ((decltype(static_cast<type *>(&f)))dlsym(lib, SYMBOL(f)))
#define SYMBOL(f)          SYMBOL_NAME(f) /* the header renames some, and this has the new name */
#define SYMBOL_NAME(f)     #f

/* cuBLAS is loaded when a GPU is to train: it maps 600 MB and takes 70 ms, which each start would cost if it were
 * linked. It stays loaded. Returns the reason for failing, or NULL. */
static const char *start_blas(struct cuda_math *c)
{
    void *const lib = dlopen("libcublas.so." SYMBOL(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);

    if (lib == NULL)
        return dlerror();
    blas_create *const create = FIND(lib, blas_create, cublasCreate);
    blas_set_stream *const set_stream = FIND(lib, blas_set_stream, cublasSetStream);
    c->destroy = FIND(lib, blas_destroy, cublasDestroy);
    c->gemm = FIND(lib, blas_gemm, cublasGemmEx);
    c->gemms = FIND(lib, blas_gemms, cublasGemmStridedBatchedEx);
    if (create == NULL || set_stream == NULL || c->destroy == NULL || c->gemm == NULL || c->gemms == NULL)
        return "cuBLAS lacks a function";
    if (create(&c->blas) != CUBLAS_STATUS_SUCCESS || set_stream(c->blas, c->stream) != CUBLAS_STATUS_SUCCESS)
        return "cuBLAS does not start";
    return NULL;
}

static void set_up(struct cuda_math *c)
{
    MATH_TRY(c, cudaSetDevice(c->id));
    MATH_TRY(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
        MATH_TRY(c, cudaMallocHost((void **)&c->pinned[i], MATH_PINNED));
        MATH_TRY(c, cudaEventCreateWithFlags(&c->sent[i], cudaEventDisableTiming));
    }
    MATH_TRY(c, cudaEventCreateWithFlags(&c->end, cudaEventDisableTiming));
    MATH_TRY(c, cudaMalloc((void **)&c->norm, (MATH_PARTS + 1) * sizeof *c->norm));
}

extern "C" enum err_code cuda_math_open(struct dev_math **out, int unit, struct err *e)
{
    struct cuda_math *c = (struct cuda_math *)calloc(1, sizeof *c);

    if (c == NULL)
        return err_nomem(e);
    c->id = unit;
    c->m.products = "cublas";
    c->m.close = close_math;
    c->m.left = memory_left;
    c->m.take = take_memory;
    c->m.give = give_memory;
    c->m.put = put_bytes;
    c->m.get = get_bytes;
    c->m.copy = copy_bytes;
    c->m.zero = zero_bytes;
    c->m.wait = wait_stream;
    c->m.busy = stream_busy;
    c->m.product = blas_product;
    c->m.products_of = products_of;
    cuda_math_rows(&c->m);
    cuda_math_loss(&c->m);
    cuda_math_attend(&c->m);
    set_up(c);
    const char *const why = c->bad != cudaSuccess ? cudaGetErrorString(c->bad) : start_blas(c);
    if (why == NULL) {
        *out = &c->m;
        return ERR_OK;
    }
    err_set(e, ERR_DEVICE, "CUDA device %d for training: %s", unit, why);
    close_math(&c->m);
    return e->code;
}
#endif
