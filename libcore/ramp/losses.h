/* SPDX-License-Identifier: Apache-2.0 */
/* losses.h - a file of what each type costs each tensor of a model, and mixes with the least loss.    room: ramp
 *
 * A file of losses (chimere-quantize(1)) is lines of JSON: the first says of which model and how it was measured, each
 * of the others what one tensor loses in some types, or what the model loses when all tensors have one type. It grows
 * during a measurement, and missing lines are what remains to be measured; an unfinished last line is ignored.
 */
#ifndef RAMP_LOSSES_H
#define RAMP_LOSSES_H
#include "quant/quant.h"
#include "ramp/ramp.h"

enum { RAMP_WORD = 32 };
#define RAMP_LOSSES_MAX ((size_t)64 << 20) /* bytes of a file */

/* How it was measured. Words are NUL-terminated, lower case. */
struct ramp_losses_head {
    uint64_t model;         /* ramp_fingerprint() */
    char method[RAMP_WORD]; /* "probe", ... */
    char text[RAMP_WORD];   /* "own", "random", "file" */
    uint64_t text_hash;     /* XXH64 of the tokens, 4 bytes each */
    int n_seq;
    int64_t n_tokens, from; /* of each sequence; the first that counts */
    char effort[RAMP_WORD]; /* of the encoders */
    char probes[128];       /* types that were run, "q3_k,q5_k"; others follow from their errors */
};

struct ramp_losses {
    struct ramp_losses_head head;
    const struct gguf *g;                     /* the model, which must outlive this */
    size_t n;                                 /* its tensors */
    double (*kl)[QUANT_N];                    /* [n] nats per token; NAN: not measured */
    bool *measured;                           /* [n] has lines: each type is in one of them */
    double whole[QUANT_N], whole_se[QUANT_N]; /* all tensors that have lines in this type; NAN: not measured */
    bool left_out[QUANT_N]; /* `whole` of this type was not measured because it did not fit into memory */
    size_t good_bytes;      /* of the file: whole lines */
};
/* text: the whole file; from names it in messages. ERR_FORMAT: a line is wrong, or of another model. */
MUST_CHECK enum err_code ramp_losses_open(struct ramp_losses *out, struct str text, const char *from,
                                          const struct gguf *g, struct err *e);
/* The same from a file of another model, whose roles (names of tensors without the layer) are taken to lose here what
 * they lose there, each layer alike. Roles that the file lacks are not measured. ERR_FORMAT: it has none of them. */
MUST_CHECK enum err_code ramp_losses_by_role(struct ramp_losses *out, struct str text, const char *from,
                                             const struct gguf *g, struct err *e);
void ramp_losses_close(struct ramp_losses *l);
/* Lines of such a file, without their end; json_dumps() style text, free() it. NULL: out of memory. */
char *ramp_losses_head_line(const struct ramp_losses_head *h);
/* kl[type], NAN: not there */
char *ramp_losses_tensor_line(struct str name, const double kl[QUANT_N]);
/* kl NAN: memory has no room for it */
char *ramp_losses_whole_line(int type, double kl, double se);

/* The predicted loss of a mix whose tensors' losses add up to `sum`. Losses of single tensors do not add up exactly: if
 * all tensors were also measured in one type, the ratio of that loss to their sum is known, and between two such types
 * the ratio's logarithm is interpolated over the sum's. *se: of the measured ratios, and half their step. */
double ramp_predict(const struct ramp_losses *l, double sum, double *se);

/* ---- mixes ---- */

/* A limit on the bytes of tensors. */
struct ramp_budget {
    const char *name;   /* for messages: "size=14G" */
    double limit;       /* bytes */
    double fixed;       /* bytes that count in addition to tensors */
    const double *part; /* [n] the part of each tensor's bytes that counts; NULL: all bytes */
    uint32_t pad;       /* tensors are padded to a multiple of this; 0: 1 */
};

struct ramp_mix_ask {
    const struct gguf *g;
    const struct ramp_losses *losses;
    const struct ramp_recipe *rules; /* tensors that they name get the rule's type; also floors */
    const struct ramp_plan *unseen;  /* types of tensors that were not measured; NULL: all were */
    const struct ramp_budget *budgets;
    int n_budgets;          /* 1 .. RAMP_BUDGETS_MAX */
    bool importance, again; /* ramp_plan_open() */
    bool evolve;            /* ramp_search_evo() */
    uint64_t seed;          /* of that */
    struct progress progress;
};
struct ramp_mix {
    int *type; /* [n] row of quant_types[]; kept tensors have their own type */
    size_t n;
    double sum, bound; /* the sum of losses; a lower bound for any mix, 0: not known */
};
/* ERR_LIMIT: a budget cannot be kept; the message has the smallest possible one. */
MUST_CHECK enum err_code ramp_mix_open(struct ramp_mix *out, const struct ramp_mix_ask *a, struct err *e);
void ramp_mix_close(struct ramp_mix *m);
/* "unbiased", the file type of the rules, and a rule for each tensor that is not kept, with its loss and bytes as a
 * comment; free() it. NULL: out of memory. */
char *ramp_mix_text(const struct ramp_mix *m, const struct ramp_mix_ask *a);
#endif
