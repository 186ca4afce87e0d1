/* SPDX-License-Identifier: Apache-2.0 */
/* math.c - finds the GPU for operations of training. Apart from ops.c: only programs that train have those kernels. */
#include "ops/math.h"

#include <stdlib.h>
#include <string.h>

#if defined(CHIMERE_CUDA) && defined(CHIMERE_CUBLAS)
enum err_code cuda_math_open(struct dev_math **out, int unit, struct err *e);
#endif

bool dev_math_built(void)
{
#if defined(CHIMERE_CUDA) && defined(CHIMERE_CUBLAS)
    return true;
#else
    return false;
#endif
}

enum err_code dev_math_open(struct dev_math **out, const char *name, struct err *e)
{
    const char *unit = strncmp(name, "cuda:", 5) == 0 ? name + 5 : "0";
    char *end;
    const long n = strtol(unit, &end, 10);

    if ((strcmp(name, "cuda") != 0 && unit != name + 5) || *unit == '\0' || *end != '\0' || n < 0 || n > 999)
        return err_set(e, ERR_ARG, "device '%s': not a GPU", name);
#if defined(CHIMERE_CUDA) && defined(CHIMERE_CUBLAS)
    return cuda_math_open(out, (int)n, e);
#else
    (void)out;
    return err_set(e, ERR_DEVICE, "this program was built without cuBLAS");
#endif
}
