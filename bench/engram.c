/* SPDX-License-Identifier: Apache-2.0 */
/* engram.c - what a table of n-grams does to answers, in several ways of letting it count.
 *
 *   engram answers MODE TABLE INDEX SET.jsonl ...    a line {"id", "text"} for each item, greedy
 *
 * MODE: off; bias (logits of the table's tokens get 0.5 ln q, in the text only, as a program before this one did);
 * mixture (in the text only); thinking (mixture in the reasoning, too); recite: no table, what texts of INDEX say of
 * what a question names; examples: no table, texts of INDEX before the question. THREADS of the environment compute
 * (2). bench/engram.sh and bench/engram-facts.sh build this, run it and judge the answers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "chat/chat.h"
#include "cli/engram.h"
#include "cli/recall.h"
#include "gen/hooks.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "run/run.h"
#include "text/marks.h"
#include "text/text.h"

enum { SEQS = 16, CTX = 1024, ANSWER_MAX = 400, LINE_MAX = 65536 };
#define BIAS 0.5

static struct err e;

static void must(enum err_code code)
{
    if (code == ERR_OK)
        return;
    fprintf(stderr, "engram: %s\n", e.msg);
    exit(1);
}

/* ---- answers ---- */

enum mode { OFF, BIASED, MIXTURE, THINKING, RECITE, EXAMPLES, MODES };
static const char *const mode_name[MODES] = { "off", "bias", "mixture", "thinking", "recite", "examples" };

struct seat {
    bool busy;
    struct text_place place;
    int64_t text_from;
    int32_t token[CTX + ANSWER_MAX];
    int64_t n, n_prompt;
    struct text_tokens recital; /* tokens of `recited` */
    struct engram_recital recited;
    void *tables; /* what the answer has learnt of them */
    json_t *item;
};
struct desk {
    enum mode mode;
    struct gguf *g;
    struct text *text;
    struct model *m;
    struct run *r;
    struct chat *chat;
    struct cli_engram engram;
    struct cli_notes notes;
    float *row, *own;
    int32_t n_vocab;
};

static int32_t largest(const float *v, int32_t n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        best = v[i] > v[best] ? i : best;
    return best;
}

static void bias(struct desk *d, const struct seat *s)
{
    struct engram_next next;

    if (s->place.part == TEXT_REASONING)
        return;
    engram_mix_look(&d->engram.mix, s->token, s->n, &next);
    for (int i = 0; i < next.n; i++)
        d->row[next.token[i]] += (float)(BIAS * log((double)next.q[i]));
}

/* Logits become probabilities, and some of the table's are mixed in. */
static void mix(struct desk *d, const struct seat *s)
{
    int32_t token[ENGRAM_NEXT_MAX];
    float q[ENGRAM_NEXT_MAX], w, mass = 0, most = d->row[largest(d->row, d->n_vocab)];
    uint32_t evidence;
    const bool ends = text_is_end(d->text, largest(d->row, d->n_vocab));
    double total = 0;
    int n;

    for (int32_t i = 0; i < d->n_vocab; i++)
        total += d->row[i] = expf(d->row[i] - most);
    for (int32_t i = 0; i < d->n_vocab; i++)
        d->row[i] = (float)((double)d->row[i] / total);
    d->engram.mix.recital = s->recited;
    engram_memory.look(s->tables,
                       &(struct gen_context){ s->token, s->n, s->text_from, s->place.part == TEXT_REASONING,
                                              s->text_from > s->n_prompt },
                       token, q, &n, &evidence);
    if (n == 0)
        return;
    w = engram_memory.weight(s->tables, evidence, (float)(1 / total), ends);
    memcpy(d->own, d->row, (size_t)d->n_vocab * sizeof *d->row);
    for (int i = 0; i < n; i++)
        mass += q[i];
    for (int32_t i = 0; i < d->n_vocab; i++)
        d->row[i] *= 1 - w * mass;
    for (int i = 0; i < n; i++)
        d->row[token[i]] += w * q[i];
    const int32_t best = largest(d->row, d->n_vocab);
    struct gen_came came = {
        .p = (double)d->own[best], .mass = (double)mass, .p_max = (float)(1 / total), .ends = ends
    };

    for (int i = 0; i < n; i++)
        came.q = token[i] == best ? (double)q[i] : came.q;
    engram_memory.learn(s->tables, evidence, &came);
}

static void print(const struct desk *d, const struct seat *s)
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&out, &bytes);
    json_t *line;

    for (int64_t i = s->n_prompt; i < s->n; i++) {
        const struct str p = text_piece(d->text, s->token[i]);

        (void)fwrite(p.p, 1, p.n, f);
    }
    (void)fclose(f);
    line =
        json_pack("{s:O, s:o}", "id", json_object_get(s->item, "id"), "text", json_bytes((struct str){ out, bytes }));
    if (json_dumpf(line, stdout, JSON_COMPACT) == 0)
        putchar('\n');
    json_decref(line);
    free(out);
}

/* A token that was chosen for a seat. */
static void take(struct desk *d, struct seat *s, int32_t token)
{
    const bool reasoned = s->place.part == TEXT_REASONING;
    struct str piece = text_piece(d->text, token);

    if (text_is_end(d->text, token) || s->n - s->n_prompt >= ANSWER_MAX) {
        print(d, s);
        json_decref(s->item);
        text_tokens_free(&s->recital);
        engram_memory.end(s->tables);
        s->busy = false;
        return;
    }
    s->token[s->n++] = token;
    for (size_t n; piece.n > 0; piece.p += n, piece.n -= n)
        n = text_marks_take(chat_marks(d->chat), &s->place, piece);
    if (reasoned && s->place.part != TEXT_REASONING)
        s->text_from = s->n;
}

static int32_t choose(struct desk *d, const struct seat *s, const float *logits)
{
    memcpy(d->row, logits, (size_t)d->n_vocab * sizeof *d->row);
    if (d->mode == BIASED)
        bias(d, s);
    else if (d->mode != OFF && d->mode != EXAMPLES)
        mix(d, s);
    return largest(d->row, d->n_vocab);
}

static void sit(struct desk *d, struct seat *s, int seq, json_t *item)
{
    json_t *messages = json_deep_copy(json_object_get(item, "messages")), *extra;
    json_t *used = json_array();
    struct text_tokens p = { 0 };
    bool thinking;

    if (d->mode == EXAMPLES)
        must(d->notes.index.add_notes(d->notes.index.of, messages, -1, used, &e));
    extra = json_pack("{s:O}", "enable_thinking", json_object_get(item, "enable_thinking"));
    must(chat_render(
        d->chat,
        &(struct chat_prompt){
            .messages = messages, .tools = json_object_get(item, "tools"), .extra = extra, .generate = true },
        &p, &thinking, &e));
    json_decref(extra);
    if (p.n > CTX) {
        fprintf(stderr, "engram: a prompt is longer than %d tokens\n", CTX);
        exit(1);
    }
    *s = (struct seat){ .busy = true, .n = p.n, .n_prompt = p.n, .text_from = p.n, .item = item };
    s->place = text_marks_begin(chat_marks(d->chat), thinking);
    memcpy(s->token, p.v, (size_t)p.n * sizeof *p.v);
    if (d->mode == RECITE)
        must(d->notes.index.recite(d->notes.index.of, messages, -1, &s->recital, &s->recited, used, &e));
    must(engram_memory.begin(&s->tables, &d->engram.mix, p.v, p.n, &e));
    run_clear(d->r, seq);
    must(run_feed(d->r, seq, p.v, p.n, 1, NULL, NULL, NULL, &e));
    take(d, s, choose(d, s, run_logits_last(d->r)));
    text_tokens_free(&p);
    json_decref(messages);
    json_decref(used);
}

static void answer(struct desk *d, FILE *in)
{
    static struct seat seat[SEQS];
    char line[LINE_MAX];
    bool more = true;

    for (;;) {
        struct run_row rows[SEQS];
        int who[SEQS], n = 0;

        for (int i = 0; i < SEQS; i++) {
            while (more && !seat[i].busy) {
                json_t *item = NULL;

                more = fgets(line, sizeof line, in) != NULL;
                if (!more)
                    break;
                must(json_parse(&item, str_of(line), "item", &e));
                sit(d, &seat[i], i, item);
            }
            if (!seat[i].busy)
                continue;
            rows[n] = (struct run_row){ .token = seat[i].token[seat[i].n - 1], .seq = i, .logits = true };
            who[n++] = i;
        }
        if (n == 0)
            return;
        must(run_step(d->r, rows, n, &e));
        for (int i = 0; i < n; i++)
            take(d, &seat[who[i]], choose(d, &seat[who[i]], run_logits(d->r, i)));
    }
}

int main(int argc, char **argv)
{
    const char *model = getenv("CHIMERE_MODEL"), *threads = getenv("THREADS"),
               *table[1] = { argc > 3 ? argv[3] : NULL };
    struct desk d = { .mode = MODES };

    for (int i = 0; argc > 5 && i < MODES; i++)
        d.mode = strcmp(argv[2], mode_name[i]) == 0 ? (enum mode)i : d.mode;
    if (argc < 6 || strcmp(argv[1], "answers") != 0 || d.mode == MODES) {
        fprintf(stderr, "usage: engram answers off|bias|mixture|thinking|recite|examples TABLE INDEX SET.jsonl ...\n");
        return 2;
    }
    must(gguf_open(&d.g, model != NULL ? model : "share/models/chimere-nano-q5_k_m.gguf", &e));
    must(text_open(&d.text, d.g, &e));
    const struct model_opts opts = { .n_threads = threads != NULL ? atoi(threads) : 2, .acts = QUANT_ACTS_I16 };
    must(model_open(&d.m, d.g, &opts, &e));
    d.n_vocab = model_info(d.m)->n_vocab;
    d.row = malloc((size_t)d.n_vocab * sizeof *d.row);
    d.own = malloc((size_t)d.n_vocab * sizeof *d.own);
    must(run_open(&d.r, d.m, &(struct run_opts){ .ctx_tokens = CTX + ANSWER_MAX, .n_seq = SEQS }, &e));
    must(chat_open(&d.chat, d.text, (struct str){ 0 }, &e));
    must(cli_engram_open(&d.engram, table, 1, d.mode == THINKING, d.g, d.text, d.n_vocab, &e));
    if (d.mode == RECITE)
        d.engram.mix.table = NULL;
    must(cli_notes_open(&d.notes, argv[4], d.g, d.text, &e));
    for (int i = 5; i < argc; i++) {
        FILE *in = fopen(argv[i], "r");

        if (in == NULL)
            return perror(argv[i]), 1;
        answer(&d, in);
        (void)fclose(in);
    }
    return 0;
}
