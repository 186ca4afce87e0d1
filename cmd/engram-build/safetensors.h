/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - inside chimere-engram-build: files of embeddings, and their tokenizers.     room: cmd */
#ifndef ENGRAM_BUILD_SAFETENSORS_H
#define ENGRAM_BUILD_SAFETENSORS_H
#include "base/io.h"
#include "base/json.h"

struct gguf_writer;

struct cli_matrix {
    int type; /* row of quant_types[] */
    int64_t rows, dims;
    const unsigned char *data; /* in the file */
};
struct cli_safetensors {
    struct io_map map;
};
/* A .safetensors file: 8 bytes that count those of a JSON object, which names tensors, and their bytes. *m: the only
 * matrix in it. ERR_FORMAT: what the object says is not so; ERR_UNSUPPORTED: there is no matrix, or there are several,
 * or of a type that is none of F32, F16, BF16. */
MUST_CHECK enum err_code cli_safetensors_open(struct cli_safetensors *s, struct cli_matrix *m, const char *path,
                                              struct err *e);
void cli_safetensors_close(struct cli_safetensors *s); /* {0} is allowed */

/* A tokenizer.json of SentencePiece, that is BPE with bytes to fall back on and U+2581 in the place of spaces. */
struct cli_spm {
    int64_t n;
    struct str *token;
    int32_t *type;
    float *score;      /* [n] all three */
    bool space_prefix; /* a space is put before a text */
    json_t *json;      /* has the bytes of the tokens */
};
MUST_CHECK enum err_code cli_spm_open(struct cli_spm *t, const char *path, struct err *e);
MUST_CHECK enum err_code cli_spm_write(const struct cli_spm *t, struct gguf_writer *w, struct err *e);
void cli_spm_close(struct cli_spm *t); /* {0} is allowed */
#endif
