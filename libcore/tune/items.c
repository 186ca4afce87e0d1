/* SPDX-License-Identifier: Apache-2.0 */
/* items.c - questions with answers, and texts, for adapters. */
#include "tune/items.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ask.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/rng.h"
#include "chat/chat.h"
#include "text/marks.h"
#include "train/files.h"
#include "tune/spread.h"

struct reading {
    const struct tune_reading *how;
    struct chat *format; /* opened when a chat comes */
    struct tune_items *to;
};

void tune_item_free(struct tune_item *i)
{
    text_tokens_free(&i->token);
    free(i->target);
    free(i->said);
    json_decref(i->pair);
    if (i->twin != NULL)
        tune_item_free(i->twin);
    free(i->twin);
}

void tune_items_free(struct tune_items *s)
{
    for (int64_t i = 0; i < s->n; i++)
        tune_item_free(&s->v[i]);
    free(s->v);
    for (int i = 0; i < s->n_set; i++)
        free(s->set_name[i]);
    free(s->set_name);
    json_decref(s->chats);
    json_decref(s->open);
    json_decref(s->sets);
    *s = (struct tune_items){ 0 };
}

/* Room for n more. */
static enum err_code reserve_items(struct tune_items *s, int64_t n, struct err *e)
{
    return memory_room(&s->v, &s->cap, (size_t)(s->n + n), sizeof *s->v, e);
}

enum err_code tune_items_add(struct tune_items *s, struct text_tokens token, int64_t n_prompt, int64_t tokens_max,
                             struct err *e)
{
    struct tune_item item = { .token = token, .n_answer = (int)(token.n - n_prompt) };

    if (n_prompt < 1 || token.n > tokens_max || token.n <= n_prompt) {
        s->n_out++;
        text_tokens_free(&token);
        return ERR_OK;
    }
    item.target = reserve_items(s, 1, e) == ERR_OK ? calloc((size_t)token.n, sizeof *item.target) : NULL;
    if (item.target == NULL) {
        text_tokens_free(&token);
        return err_nomem(e);
    }
    for (int64_t i = 0; i < token.n; i++)
        item.target[i] = i + 1 >= n_prompt && i + 1 < token.n ? token.v[i + 1] : -1;
    s->v[s->n++] = item;
    return ERR_OK;
}

static enum err_code add_item(struct reading *r, struct text_tokens token, int64_t n_prompt, struct err *e)
{
    return tune_items_add(r->to, token, n_prompt, r->how->tokens_max, e);
}

static enum err_code note_chat(json_t **list, const json_t *messages, const json_t *tools, struct err *e)
{
    json_t *chat = json_pack("{s:O, s:O*}", "messages", messages, "tools", tools);

    if (*list == NULL)
        *list = json_array();
    return chat != NULL && json_array_append_new(*list, chat) == 0 ? ERR_OK : err_nomem(e);
}

/* The token that ends a turn: what the template writes after an answer. */
static enum err_code end_turn(const struct reading *r, struct text_tokens *token, struct err *e)
{
    int32_t end = text_find(r->how->text, "<|im_end|>");

    if (end < 0 || !text_is_end(r->how->text, end))
        end = text_info(r->how->text)->eos;
    return end >= 0 ? text_tokens_push(token, end, e) : ERR_OK;
}

/* The thought before an answer, and the mark that ends it. begun: the prompt has its opening mark. */
static enum err_code add_thought(const struct reading *r, bool begun, struct str thought, struct text_tokens *token,
                                 struct err *e)
{
    const struct text_marks *marks = chat_marks(r->format);

    if (marks == NULL)
        return err_set(e, ERR_FORMAT, "reasoning_content: the answers of this model have no reasoning");
    if (!begun && text_encode(r->how->text, marks->open, TEXT_SPECIAL, token, e))
        return e->code;
    return text_encode(r->how->text, thought, 0, token, e) || text_tokens_add(token, marks->over, marks->n_over, e)
               ? e->code
               : ERR_OK;
}

/* A question with its answer. */
struct pair {
    const json_t *messages, *tools;
    struct str answer, thought; /* thought.p NULL: none was given */
    bool answer_only;           /* the thought is given like the question, as one that was cut short would be */
};

static enum err_code ask_of(struct reading *r, const struct pair *p, bool think, struct text_tokens *token,
                            bool *thinking, struct err *e)
{
    struct ask a = ask_defaults();

    a.messages = (json_t *)(uintptr_t)p->messages;
    a.tools = p->tools;
    a.think = think;
    a.now_s = r->how->now_s;
    return ask_prompt(token, &a, &(struct ask_model){ .text = r->how->text, .chat = r->format }, thinking, e);
}

/* With an empty thought where the template always begins one. Frees the tokens on failure. */
static enum err_code add_pair(struct reading *r, const struct pair *p, struct text_tokens token, bool thinking,
                              struct err *e)
{
    const struct str thought = p->thought.p != NULL ? p->thought : (struct str){ "", 0 };
    int64_t n_prompt = token.n;
    enum err_code code = ERR_OK;

    if (thinking || p->thought.p != NULL)
        code = add_thought(r, thinking, thought, &token, e);
    if (p->answer_only)
        n_prompt = token.n;
    if (code != ERR_OK || text_encode(r->how->text, p->answer, 0, &token, e) || end_turn(r, &token, e)) {
        text_tokens_free(&token);
        return e->code;
    }
    return add_item(r, token, n_prompt, e);
}

/* The same question after which the model thinks, as a twin of the last item: the thought is empty, so that what is
 * learnt is there in both. A template that has no such thing makes the same prompt. */
static enum err_code add_twin(struct reading *r, const struct pair *p, struct err *e)
{
    struct tune_items *to = r->to, alone = { 0 };
    struct reading other = { r->how, r->format, &alone };
    struct tune_item *twin = NULL;
    struct text_tokens token = { 0 };
    bool thinking = false;
    enum err_code code = ask_of(r, p, true, &token, &thinking, e);

    if (code != ERR_OK || !thinking) {
        text_tokens_free(&token);
        return code;
    }
    code = add_pair(&other, p, token, true, e);
    if (code == ERR_OK && alone.n == 1) {
        twin = malloc(sizeof *twin);
        code = twin == NULL ? err_nomem(e) : ERR_OK;
    }
    if (twin != NULL) {
        *twin = alone.v[0];
        twin->thinks = true;
        to->v[to->n - 1].twin = twin;
        alone.n = 0;
    }
    tune_items_free(&alone);
    return code;
}

/* Notes the last item's question, if that is one message without tools, and the answer is all that there is to learn.
 */
static enum err_code note_pair(const struct reading *r, const struct pair *p, struct err *e)
{
    const json_t *only = json_array_get(p->messages, 0);
    struct str role, content;
    json_t *o;

    if (!r->how->twins || p->thought.p != NULL || p->tools != NULL || json_array_size(p->messages) != 1 ||
        !json_get_str(only, "role", &role) || !str_is(role, "user") || !json_get_str(only, "content", &content))
        return ERR_OK;
    o = json_pack("{s:s%, s:s%}", "prompt", content.p, content.n, "answer", p->answer.p, p->answer.n);
    r->to->v[r->to->n - 1].pair = o;
    return o != NULL ? ERR_OK : err_nomem(e);
}

json_t *tune_items_pairs(const struct tune_items *s)
{
    json_t *all = json_array();

    for (int64_t i = 0; i < s->n && all != NULL; i++)
        if (s->v[i].pair != NULL && json_array_append(all, s->v[i].pair) != 0) {
            json_decref(all);
            all = NULL;
        }
    return all;
}

static enum err_code add_chat(struct reading *r, const struct pair *p, struct err *e)
{
    struct text_tokens token = { 0 };
    const int64_t n = r->to->n;
    bool thinking = false;
    enum err_code code = ERR_OK;

    if (r->format == NULL)
        code = chat_open(&r->format, r->how->text, (struct str){ 0 }, e);
    if (code == ERR_UNSUPPORTED)
        err_set(e, code, "the model has no chat template: it can learn lines with \"text\" alone");
    if (code == ERR_OK)
        code = ask_of(r, p, p->thought.p != NULL, &token, &thinking, e);
    if (code == ERR_OK)
        code = note_chat(&r->to->chats, p->messages, p->tools, e);
    if (code != ERR_OK) {
        text_tokens_free(&token);
        return code;
    }
    if (add_pair(r, p, token, thinking, e) || (r->to->n > n && note_pair(r, p, e)))
        return e->code;
    if (r->to->n > n)
        r->to->v[n].thinks = r->to->v[n].has_thought = p->thought.p != NULL;
    return r->how->twins && r->to->n > n && p->thought.p == NULL && !thinking ? add_twin(r, p, e) : ERR_OK;
}

static enum err_code add_text(struct reading *r, struct str s, struct err *e)
{
    struct text_tokens all = { 0 };
    enum err_code code = text_encode(r->how->text, s, TEXT_ADD, &all, e);

    r->to->n_out += code == ERR_OK && all.n < 2;
    for (int64_t i = 0, n; code == ERR_OK && i + 1 < all.n; i += n) {
        struct text_tokens part = { 0 };

        n = all.n - i < r->how->tokens_max ? all.n - i : r->how->tokens_max;
        for (int64_t j = 0; code == ERR_OK && j < n; j++)
            code = text_tokens_push(&part, all.v[i + j], e);
        const int64_t before = r->to->n;

        if (code == ERR_OK)
            code = add_item(r, part, 1, e);
        else
            text_tokens_free(&part);
        if (r->to->n > before)
            r->to->v[before].is_text = true;
    }
    text_tokens_free(&all);
    return code;
}

/* Messages that end with the assistant's are a question and its answer. p: what the line says beside them. */
static enum err_code add_messages(struct reading *r, const json_t *o, struct pair p, struct err *e)
{
    const json_t *messages = json_object_get(o, "messages"), *last;
    json_t *asked;
    struct str role;
    enum err_code code;

    p.messages = messages;
    p.tools = json_object_get(o, "tools");
    if (json_get_str(o, "answer", &p.answer))
        return add_chat(r, &p, e);
    if (json_object_get(o, "answer") != NULL) { /* of another kind: tool calls, a number */
        r->to->n_out++;
        return note_chat(&r->to->chats, messages, json_object_get(o, "tools"), e);
    }
    last = json_array_get(messages, json_array_size(messages) - 1);
    if (r->how->open && json_get_str(last, "role", &role) && !str_is(role, "assistant"))
        return note_chat(&r->to->open, messages, json_object_get(o, "tools"), e);
    if (!json_get_str(last, "role", &role) || !str_is(role, "assistant") || !json_get_str(last, "content", &p.answer))
        return err_set(e, ERR_FORMAT, "neither an answer nor a last message of the assistant");
    p.thought = (struct str){ 0 };
    (void)json_get_str(last, "reasoning_content", &p.thought);
    asked = json_shallow(messages);
    p.messages = asked;
    if (asked == NULL || json_array_remove(asked, json_array_size(asked) - 1) != 0)
        code = err_nomem(e);
    else
        code = add_chat(r, &p, e);
    json_decref(asked);
    return code;
}

/* p.answer.p NULL: there is none. */
static enum err_code add_prompt(struct reading *r, struct str prompt, struct pair p, struct err *e)
{
    json_t *messages = json_pack("[{s:s, s:s%}]", "role", "user", "content", prompt.p, prompt.n);
    enum err_code code;

    p.messages = messages;
    code = messages == NULL     ? err_nomem(e)
           : p.answer.p != NULL ? add_chat(r, &p, e)
                                : note_chat(&r->to->open, messages, NULL, e);

    json_decref(messages);
    return code;
}

/* An answer is a text; one of a chat of a task set may be calls or a number, and is left out. */
static enum err_code check_answer(const json_t *o, struct err *e)
{
    const json_t *answer = json_object_get(o, "answer");
    const bool chat = json_is_array(json_object_get(o, "messages"));
    struct str s;

    if (answer == NULL || (chat && !json_is_string(answer)))
        return ERR_OK;
    if (!json_get_str(o, "answer", &s))
        return err_set(e, ERR_FORMAT, "answer is not a text");
    return s.n > 0 ? ERR_OK : err_set(e, ERR_FORMAT, "answer is empty");
}

/* Which part of an item is learnt: "learn". */
static enum err_code read_learn(const json_t *o, bool *answer_only, struct err *e)
{
    const json_t *learn = json_object_get(o, "learn");
    struct str s = { 0 };

    if (learn == NULL)
        return ERR_OK;
    (void)json_get_str(o, "learn", &s);
    *answer_only = str_is(s, "answer");
    if (!*answer_only && !str_is(s, "all"))
        return err_set(e, ERR_FORMAT, "learn: \"all\" or \"answer\"");
    return ERR_OK;
}

static enum err_code add_line(void *ctx, struct str line, struct err *e)
{
    struct reading *r = ctx;
    struct pair p = { 0 };
    struct str s;
    json_t *o;
    enum err_code code;

    if (line.n > 0 && line.p[0] == '[')
        return err_set(e, ERR_FORMAT, "a list: each line has to be one JSON object (jq -c '.[]' makes such lines)");
    if (json_parse(&o, line, "", e))
        return e->code;
    (void)json_get_str(o, "reasoning_content", &p.thought);
    code = check_answer(o, e) ? e->code : read_learn(o, &p.answer_only, e);
    if (code != ERR_OK)
        ;
    else if (json_is_array(json_object_get(o, "messages")))
        code = add_messages(r, o, p, e);
    else if (json_get_str(o, "prompt", &s) &&
             (json_get_str(o, "answer", &p.answer) || (r->how->open && json_object_get(o, "answer") == NULL)))
        code = add_prompt(r, s, p, e);
    else if (json_get_str(o, "text", &s))
        code = p.answer_only ? err_set(e, ERR_FORMAT, "learn: a text has no answer") : add_text(r, s, e);
    else
        code = err_set(e, ERR_FORMAT, "no messages, no prompt with an answer, no text");
    json_decref(o);
    return code;
}

enum err_code tune_items_move(struct tune_items *to, struct tune_items *from, struct err *e)
{
    if (reserve_items(to, from->n, e))
        return e->code;
    for (int64_t i = 0; i < from->n; i++)
        to->v[to->n++] = from->v[i];
    from->n = 0;
    to->n_out += from->n_out;
    return ERR_OK;
}

enum err_code tune_items_read(struct tune_items *to, const struct tune_reading *how, const char *path, struct str all,
                              struct err *e)
{
    struct reading r = { .how = how, .to = to };
    const enum err_code code = train_lines(path, all, how->progress, add_line, &r, e);

    chat_close(r.format);
    return code;
}

enum err_code tune_items_add_pairs(struct tune_items *to, const struct tune_reading *how, const json_t *pairs,
                                   struct err *e)
{
    struct tune_items more = { 0 };
    struct reading r = { .how = how, .to = &more };
    const json_t *pair;
    enum err_code code = ERR_OK;
    size_t i;

    json_array_foreach (pairs, i, pair) {
        struct pair p = { 0 };
        struct str prompt;

        if (code == ERR_OK && json_get_str(pair, "prompt", &prompt) && json_get_str(pair, "answer", &p.answer))
            code = add_prompt(&r, prompt, p, e);
    }
    chat_close(r.format);
    if (code == ERR_OK)
        code = tune_items_move(to, &more, e);
    tune_items_free(&more);
    return code;
}

enum err_code tune_items_read_set(struct tune_items *to, const struct tune_reading *how, const char *name,
                                  const char *path, struct str all, struct err *e)
{
    struct tune_items set = { 0 };
    char **names = realloc(to->set_name, ((size_t)to->n_set + 1) * sizeof *names);
    enum err_code code = names == NULL ? err_nomem(e) : tune_items_read(&set, how, path, all, e);

    to->set_name = names != NULL ? names : to->set_name;
    if (code == ERR_OK && to->sets == NULL && (to->sets = json_array()) == NULL)
        code = err_nomem(e);
    for (int64_t i = 0; i < set.n; i++)
        set.v[i].set = to->n_set;
    if (code == ERR_OK)
        code = tune_items_move(to, &set, e);
    if (code == ERR_OK && set.chats != NULL && json_array_append(to->sets, set.chats) != 0)
        code = err_nomem(e);
    if (code == ERR_OK && (to->set_name[to->n_set] = strdup(name)) == NULL)
        code = err_nomem(e);
    to->n_set += code == ERR_OK;
    tune_items_free(&set);
    return code;
}

enum err_code tune_items_split(struct tune_items *s, struct tune_items *out, int64_t every, int64_t most, struct err *e)
{
    const int64_t take = s->n / every < most ? s->n / every : most;
    int64_t n = 0;

    if (reserve_items(out, take, e))
        return e->code;
    for (int64_t i = 0; i < s->n; i++)
        if (tune_spread(s->n - 1 - i, s->n, take))
            out->v[out->n++] = s->v[i];
        else
            s->v[n++] = s->v[i];
    s->n = n;
    return ERR_OK;
}

static uint64_t hash_of(const struct tune_item *i)
{
    return io_hash(0, i->token.v, (size_t)i->token.n * sizeof *i->token.v);
}

void tune_items_thin(struct tune_items *s, int64_t n, bool last)
{
    int64_t stay = 0;

    for (int64_t i = 0; i < s->n; i++)
        if (tune_spread(last ? s->n - 1 - i : i, s->n, n))
            s->v[stay++] = s->v[i];
        else
            tune_item_free(&s->v[i]);
    s->n = stay;
}

void tune_items_drop_texts(struct tune_items *s)
{
    int64_t stay = 0;

    for (int64_t i = 0; i < s->n; i++)
        if (!s->v[i].is_text)
            s->v[stay++] = s->v[i];
        else
            tune_item_free(&s->v[i]);
    s->n = stay;
}

enum err_code tune_items_front(struct tune_items *s, int64_t n, struct err *e)
{
    struct tune_item *v = calloc((size_t)s->n + 1, sizeof *v);
    int64_t front = 0, rest = n < s->n ? n : s->n;

    if (v == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < s->n; i++)
        v[tune_spread(i, s->n, n) ? front++ : rest++] = s->v[i];
    for (int64_t i = 0; i < s->n; i++)
        s->v[i] = v[i];
    free(v);
    return ERR_OK;
}

enum err_code tune_items_once(struct tune_items *s, int64_t *n_gone, struct err *e)
{
    uint64_t *hash = calloc((size_t)s->n + 1, sizeof *hash);
    bool *first = NULL;
    int64_t n = 0;

    for (int64_t i = 0; hash != NULL && i < s->n; i++)
        hash[i] = hash_of(&s->v[i]);
    if (hash != NULL)
        first = tune_firsts(hash, s->n);
    for (int64_t i = 0; first != NULL && i < s->n; i++)
        if (first[i])
            s->v[n++] = s->v[i];
        else
            tune_item_free(&s->v[i]);
    free(hash);
    if (first == NULL)
        return err_nomem(e);
    free(first);
    *n_gone = s->n - n;
    s->n = n;
    return ERR_OK;
}

enum err_code tune_items_part_twins(struct tune_items *s, struct err *e)
{
    const int64_t n = s->n;

    if (reserve_items(s, n, e))
        return e->code;
    for (int64_t i = 0; i < n; i++) {
        struct tune_item *twin = s->v[i].twin;

        s->v[i].twin = NULL;
        if (twin != NULL)
            s->v[s->n++] = *twin;
        free(twin);
    }
    return ERR_OK;
}

/* The hashes of all items, ascending; NULL when memory is out. */
static uint64_t *hashes_of(const struct tune_items *s)
{
    uint64_t *of = calloc((size_t)s->n + 1, sizeof *of);

    for (int64_t i = 0; of != NULL && i < s->n; i++)
        of[i] = hash_of(&s->v[i]);
    if (of != NULL)
        qsort(of, (size_t)s->n, sizeof *of, io_by_hash);
    return of;
}

static bool is_among(const uint64_t *of, int64_t n, const struct tune_item *i)
{
    const uint64_t h = hash_of(i);

    return bsearch(&h, of, (size_t)n, sizeof *of, io_by_hash) != NULL;
}

void tune_items_choose_twins(struct tune_items *s, uint64_t seed)
{
    for (int64_t i = 0; i < s->n; i++) {
        struct tune_item *twin = s->v[i].twin;

        s->v[i].twin = NULL;
        if (twin != NULL && rng_unit(seed, 0x7477696e, (uint64_t)i) < 0.5) {
            const struct tune_item was = s->v[i];

            s->v[i] = *twin;
            *twin = was;
        }
        if (twin != NULL)
            tune_item_free(twin);
        free(twin);
    }
}

int64_t tune_items_same(const struct tune_items *a, const struct tune_items *b)
{
    uint64_t *of = hashes_of(b);
    int64_t n = 0;

    for (int64_t i = 0; of != NULL && i < a->n; i++)
        n += is_among(of, b->n, &a->v[i]);
    free(of);
    return n;
}

enum err_code tune_items_drop(struct tune_items *a, const struct tune_items *b, int64_t *n_gone, struct err *e)
{
    uint64_t *of = hashes_of(b);
    int64_t n = 0;

    if (of == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < a->n; i++)
        if (is_among(of, b->n, &a->v[i]))
            tune_item_free(&a->v[i]);
        else
            a->v[n++] = a->v[i];
    free(of);
    *n_gone = a->n - n;
    a->n = n;
    return ERR_OK;
}

int64_t tune_items_longest(const struct tune_items *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        n = s->v[i].token.n > n ? s->v[i].token.n : n;
    return n;
}

int64_t tune_items_tokens(const struct tune_items *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        n += s->v[i].token.n;
    return n;
}
