/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - requests in the form of OpenAI's interface or Anthropic's, and their replies.
 * room: serve
 *
 * Bodies go in as JSON values and come out as JSON values, so the same code stands behind lines on stdin, a batch
 * file and a socket. It reads no file and writes none but those of the journal. The engine answers (gen/gen.h): serve
 * translates requests for it and assembles the replies. One thread.
 *
 *   serve_open; serve_ask ...; while (serve_busy(s)) { serve_step(s, &e); while (serve_next(s, &r)) use r; }
 */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H
#include "base/base.h"
#include "base/json.h"

struct ask_index;
struct chat;
struct engram_mix;
struct gen;
struct journal;
struct run_adapter;
struct grammar_vocab;
struct run;
struct serve;
struct text;

struct gen_request;
struct sample_opts;

/* Keeps the contents of sequences for later requests, for example in files. */
struct serve_keeper {
    /* Called before a request is given to the engine: it may load the beginning of the prompt into an idle sequence. */
    void (*before)(void *of, const struct gen_request *q);
    /* Called when request q has ended; the sequence still has its tokens. */
    void (*after)(void *of, int seq, const struct gen_request *q);
    void (*idle)(void *of); /* called when there is nothing to do */
};

/* Adapters, tables and indexes that are used with the model. A request keeps those that it started with until it ends.
 */
struct serve_attachments {
    const struct run_adapter *adapters; /* [n_adapters] requests name them by their index; the scales are for requests
                                         * that name none */
    int n_adapters;                     /* at most RUN_ADAPTERS_MAX */
    const char *const *adapter_names;   /* [n_adapters] for metrics; NULL: their numbers */
    const struct engram_mix *engram;    /* tables of n-grams; NULL: none */
    const struct ask_index *context;    /* a document that questions are answered from, whose table is the last one of
                                         * engram; NULL: none */
    const struct ask_index *notes, *recite; /* indexes of texts; NULL: none */
    int notes_max;                          /* texts of them that a request may ask for */
    const json_t *facts; /* members of log lines of answers that these have part in: "adapters", one for each of the
                          * above, "tables" and more; NULL: no log */
    /* Makes a table of a text, joined with `with` if that is not NULL, and puts it into *out. It is valid until *made
     * is given to drop_table. Errors: ERR_NOMEM, ERR_IO, or what is wrong with the text. NULL: tables are not made. */
    enum err_code (*table)(void *of, struct str text, const struct engram_mix *with, struct engram_mix *out,
                           void **made, struct err *e);
    void (*drop_table)(void *of, void *made);
    /* Of a text that a table was made of, what it says on questions; valid as long as the table. */
    const struct ask_index *(*document)(void *made);
    /* Whether there is memory for a table of this text now; if not, the request waits. NULL: there always is. */
    bool (*table_room)(void *of, struct str text);
    void *tables_of;
};

struct ask_solution;
/* What scores answers beside the engine, those of one request at a time. */
struct serve_judge {
    /* The solutions stay where they are until it is done. */
    enum err_code (*begin)(void *of, struct ask_solution *s, size_t n, struct err *e);
    /* Whether it is done, for which it may wait wait_ms: *n_tokens, that were written for it, or *why it failed. */
    bool (*done)(void *of, int wait_ms, int64_t *n_tokens, struct err *why);
    void (*stop)(void *of); /* nobody waits for it any more: it is done soon, with an error */
    void *of;
};

struct serve_opts {
    struct gen *gen;       /* not owned, like the next four */
    const struct run *run; /* the gen's, for metrics; NULL: metrics have nothing of the run */
    const struct text *text;
    const struct chat *chat;       /* NULL: the model has no chat template */
    struct grammar_vocab **vocab;  /* *vocab is opened when a grammar needs it, and closed by the caller */
    const char *model;             /* the model's name in replies */
    int64_t created_s;             /* of the model, for the list of models */
    int64_t ctx_tokens, ctx_train; /* ctx_train: what the model was trained for; 0: not known */
    const json_t *facts;           /* what our own programs compare before they ask; not owned; NULL: nothing */
    int32_t n_embd;
    bool embeddings;                          /* the run keeps the last hidden rows */
    bool lenient;                             /* unknown members of a body are ignored */
    const struct serve_attachments *attached; /* not owned; NULL: nothing */
    const struct serve_keeper *keeper;        /* NULL: none */
    void *keeper_of;
    struct journal *journal; /* keeps answers; not owned; NULL: nobody does */
    bool vllm_names;         /* metrics have names of vLLM, too */
    int64_t predict_max;     /* tokens of an answer if the request gives no limit; -1: until the context is full */
    uint64_t fingerprint;    /* of the model, the options, and what is attached at first */
    void (*note_idle)(const char *member); /* of a request, that has no effect: once for each; NULL: nobody is told */
    const struct sample_opts *sample;      /* defaults for requests; NULL: temperature 1, the rest off. Not owned */
    const struct reason_opts *reason;      /* the same of reasoning; NULL: reason_defaults() */
    const struct reason_calibration *calibration; /* for requests that ask for it; not owned; NULL: none */
    bool retrieves;                               /* for requests that do not say; struct ask has the meaning */
    float retrieve_below;
    const struct serve_judge *judge; /* for "verifier": true; not owned; NULL: none */
};
MUST_CHECK enum err_code serve_open(struct serve **out, const struct serve_opts *o, struct err *e);
void serve_close(struct serve *s); /* NULL is allowed */

/* Requests that start from now on use b; the others keep what they have. */
void serve_exchange(struct serve *s, const struct serve_attachments *b);
/* Whether b is in use: by requests, or for requests that start later. */
bool serve_uses(const struct serve *s, const struct serve_attachments *b);

struct serve_client {
    struct str name; /* "" is one, too */
    struct str key;  /* what was evaluated for other keys is not used; "": none is asked for */
    bool later;      /* waits until nobody else does, and gives its place up to others */
};
struct serve_dialect;
struct serve_fault;

/* What may be asked. */
struct serve_row {
    const char *name;
    const char *other;     /* another name; NULL: none */
    const char *paths;     /* of HTTP, with blanks between them; NULL: lines on stdin alone */
    const char *verb;      /* of HTTP: GET or POST */
    bool open;             /* needs no key */
    const char *text_type; /* over HTTP the reply is the text of its body, of this type; NULL: the body as JSON */
    /* Of a method that is answered at once: the members of its body (members.c), and what makes the reply, NULL when
     * memory is out or f says what is wrong. NULL: the engine answers, perhaps as a stream. */
    const char *members;
    json_t *(*answer)(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
    const struct serve_dialect *dialect; /* how a chat is made of it; NULL: nothing is */
    bool anthropic;                      /* errors have Anthropic's form, and nothing marks the end of a stream */
    bool streams;                        /* the reply is a stream, whatever the body says */
    const char *id;                      /* what ids of replies begin with; NULL: they have none */
};
enum serve_method {
#define METHOD(id, ...) SERVE_##id,
#include "serve/methods.def"
#undef METHOD
    SERVE_N_METHODS,
};
const struct serve_row *serve_row(enum serve_method m);
/* The method of a name: "chat/completions", "/v1/chat/completions" or "chat.completions". False: there is none. */
bool serve_method(enum serve_method *out, struct str name);
/* The same of a path of HTTP, with or without a slash at its end. *rest: what a star of the row stands for, which is
 * the model of the body; "": there is none. */
bool serve_method_at(enum serve_method *out, const char *path, struct str *rest);
/* Lists the names of all methods, or of those that the engine answers, each with `before` before it. */
void serve_name_methods(char *out, size_t room, bool engine, const char *before);

enum serve_kind {
    SERVE_BEGIN, /* a request for a stream is in order, and its turn has come; no body */
    SERVE_BODY,  /* the whole reply */
    SERVE_CHUNK, /* a part of a stream */
    SERVE_END,   /* the stream is complete; no body */
    SERVE_ERROR, /* body: {"error": {"message", "type", "param", "code"}}; param is a JSON pointer. In Anthropic's form
                  * {"type": "error", "error": {"type", "message", "param", "details": {"error_code"}}}, without param
                  * and details if there is none */
};
struct serve_reply {
    enum serve_kind kind;
    void *user;
    int64_t id;   /* as serve_ask() gave it */
    json_t *body; /* the caller's, to be released; NULL for SERVE_BEGIN and SERVE_END */
    int status;   /* as of HTTP */
    bool last;    /* the request is done */
};
/* Submits a request. Everything comes as replies, including errors in the body, whose "param" points to
 * what is wrong in it (where of struct err). serve takes a reference to the body and may change it: the caller must not
 * use it any more. client: requests of one client take turns with those of other clients;
 * "" is a client, too. *id is for serve_cancel(). The only error is ERR_NOMEM. */
MUST_CHECK enum err_code serve_ask(struct serve *s, enum serve_method method, json_t *body,
                                   const struct serve_client *client, void *user, int64_t *id, struct err *e);
/* Makes the body of an error reply for other reasons than a wrong body: a line that is not JSON, too many requests.
 * row: of the method, whose form it has; NULL: there is none. pointer NULL: no place. */
json_t *serve_error(const struct serve_row *row, int status, const char *pointer, const char *message);
/* Appends a member to a JSON pointer of n bytes: "/" and the name, in which ~ and / are escaped (RFC 6901). Returns the
 * new length. */
enum { SERVE_POINTER_BYTES = 512 };
size_t serve_point_to(char out[SERVE_POINTER_BYTES], size_t n, const char *key);
/* Cancels a request: no more replies of it come, not even those that wait to be taken. Its work stops with the next
 * step. An unknown id does nothing. */
void serve_cancel(struct serve *s, int64_t id);
/* What the body calls the user; NULL: nothing. */
const char *serve_user(enum serve_method m, const json_t *body);
bool serve_busy(const struct serve *s);
int64_t serve_waiting(const struct serve *s); /* answers that have not begun, without those of later clients */
int64_t serve_answers(enum serve_method m, const json_t *body); /* that a body asks for: prompts, times n */
MUST_CHECK enum err_code serve_step(struct serve *s,
                                    struct err *e); /* an error means the run failed: all requests ended. What one
                                                     * request lacks, memory or room on a disk, ends that one */
/* json_parse_request() of a line or a body. A model's answer may contain \u0000, and comes back as a message: the texts
 * that a model reads may contain it, too. Elsewhere it is ERR_FORMAT; *out is set then, so that the id can be answered.
 * With an error that is not about a value *out is NULL. */
MUST_CHECK enum err_code serve_parse(json_t **out, struct str text, const char *what, struct err *e);
/* Where in the body the error of a line with a "body" is, or else in the line: a JSON pointer, "" if it has none. */
const char *serve_place_in_body(const struct err *why);
bool serve_next(struct serve *s,
                struct serve_reply *r); /* the next reply, in the order they happened; false: none left */

/* Of a batch: every n-th request, from number `first` on, counted from 0. */
struct serve_shard {
    int first, n;
};
/* "I/N", from 1; "auto" or "auto/N": by what schedulers set, whose variables get() returns, NULL where there is none.
 * arg NULL: all requests. ERR_ARG. */
MUST_CHECK enum err_code serve_shard(struct serve_shard *out, const char *arg, const char *(*get)(const char *name),
                                     struct err *e);
#endif
