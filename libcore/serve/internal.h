/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside of serve.                                              room: serve */
#ifndef SERVE_INTERNAL_H
#define SERVE_INTERNAL_H
#include "ask/verdict.h"
#include "chat/reader.h"
#include "engram/mix.h"
#include "gen/gen.h"
#include "reason/vote.h"
#include "serve/serve.h"
#include "serve/status.h"
#include "text/text.h"

enum { STOPS_MAX = 16, CHOICES_MAX = 64, PROMPTS_MAX = 64, TOP_MAX = 20, POINTER_BYTES = SERVE_POINTER_BYTES };
enum { BORDERS_MAX = 64 /* of messages in a prompt */, IDLE_MAX = 16 /* members without effect that are named */ };

/* What is wrong with a request, and which of its members have no effect. */
struct serve_fault {
    int status;       /* 0: nothing is */
    const char *code; /* as the interface names it; NULL: it does not */
    char pointer[POINTER_BYTES];
    char message[POINTER_BYTES + 400];
    char idle[IDLE_MAX][32]; /* names of members; "": no more */
};
bool serve_fault(struct serve_fault *f, int status, const char *pointer, const char *fmt, ...)
    PRINTF_LIKE(4, 5);                                                              /* false */
bool serve_nomem(struct serve_fault *f);                                            /* false */
bool serve_refuse_at(struct serve_fault *f, const char *pointer, const char *what); /* false */

/* What a body asks for. What it points to is the body's, unless it says otherwise. */
struct serve_question {
    struct ask ask;         /* but for the prompt of a completion and what stands beside the model */
    json_t *prompt, *input; /* borrowed */
    json_t *kwargs;         /* of ask; owned; NULL: none */
    json_t *schema, *tools; /* of ask; owned; NULL: none, or the body's */
    struct serve_buf {
        char *p;
        size_t n, cap;
    } choices;           /* of ask: a grammar that was made of a list */
    const char *form_at; /* the member that asks for a form, as a JSON pointer; NULL: none does */
    bool stream, usage;  /* usage: a stream ends with the usage */
    bool echo, seeded;
    bool functions;        /* tools came as functions, and calls are returned in that form */
    bool timings;          /* each part of a stream, and the answer, says how long it took */
    bool progress;         /* a stream says how much of the prompt was read */
    bool unstored;         /* "store": false */
    struct ask_sent *sent; /* owned: what ask points to, of a question of our own programs; NULL: none */
    int64_t ctx_tokens;    /* of that question: prompt and answer at most; 0: what it would get by itself */
    int n;                 /* choices of a prompt */
    int top;               /* log-probabilities of this many best tokens; -1: none wanted */
    bool base64;           /* embeddings */
    bool raw;              /* embeddings: not scaled to length 1 */
    struct str stops[STOPS_MAX], breakers[STOPS_MAX];
    int32_t stop_tokens[STOPS_MAX];
    struct sample_bias *bias;                      /* owned */
    json_t *lora;                                  /* borrowed: an array; NULL: the adapters of the server */
    struct run_adapter adapters[RUN_ADAPTERS_MAX]; /* made of it, or the server's */
    float engram;                                  /* what tables may weigh; -1: as the server says */
    struct str context_table;                      /* borrowed: a text to make a table of; p NULL: none */
    bool has_context;                              /* it is one that questions are answered from, too */
    bool asks_context, no_context;                 /* the server's document: named by true; turned off */
    bool asks_engram, asks_examples, asks_recite;  /* the request names it, so it is an error if there is none */
    bool asks_retrieve;                            /* it says auto itself */
    int best_of;                                   /* answers that vote for one; 0: there is no vote */
    enum reason_vote vote;
    enum serve_verifier { SERVE_NO_VERIFIER, SERVE_SELF, SERVE_JUDGE } verifier; /* JUDGE: of serve_opts */
};
bool serve_read_body(struct serve_question *w, const struct serve *s, enum serve_method method, const json_t *body,
                     struct serve_fault *f);
/* members.c: whether the objects inside the body have only known members; those of the body itself are not checked
 * here. */
bool serve_check_members(const json_t *body, enum serve_method method, bool lenient, struct serve_fault *f);
void serve_question_free(struct serve_question *w);
/* The same of one object with these members, in the form of members.c. */
bool serve_check_object(const json_t *body, const char *members, bool lenient, struct serve_fault *f);
/* Whether a value is of one of the kinds (members.c), which end at a ! or a blank; else what it is not. */
enum { SERVE_WHAT_BYTES = 200 };
bool serve_is_of(const json_t *v, const char *kinds, char what[SERVE_WHAT_BYTES]);
/* A whole number, also one that is written with a fraction of 0. */
bool serve_whole_number(const json_t *v, int64_t *out);
/* idle.c: of a body's own member. SERVE_UNKNOWN: it is none of those that have no effect, or none but the usual one. */
enum serve_idle { SERVE_UNKNOWN, SERVE_IDLE, SERVE_REFUSED };
enum serve_idle serve_idle_member(enum serve_method method, const char *key, const json_t *value,
                                  struct serve_fault *f);
void serve_note_idle(struct serve_fault *f, struct str name);

/* A body while its members are read. */
struct serve_reading {
    struct serve_question *w;
    const struct serve *s;
    const json_t *body;
    char *at;  /* pointer of the member: POINTER_BYTES */
    bool text; /* completions */
    struct serve_fault *f;
};
bool serve_refuse_here(const struct serve_reading *r, const char *what); /* false */
/* The same of a member of it, or an item. */
bool serve_wrong_at(const struct serve_reading *r, const char *key, const char *what);
bool serve_wrong_item(const struct serve_reading *r, size_t i, const char *key /* NULL: itself */, const char *what);
/* forms.c: members that ask for a form */
bool serve_read_format(struct serve_reading *r, const json_t *v);
bool serve_read_grammar(struct serve_reading *r, const json_t *v);
bool serve_read_regex(struct serve_reading *r, const json_t *v);
bool serve_read_json(struct serve_reading *r, const json_t *v);
bool serve_read_choice(struct serve_reading *r, const json_t *v);
bool serve_read_structured(struct serve_reading *r, const json_t *v);
/* thinking.c: members about reasoning, and about several answers */
bool serve_read_budget(struct serve_reading *r, const json_t *v);
bool serve_read_think(struct serve_reading *r, const json_t *v);
bool serve_read_retrieve(struct serve_reading *r, const json_t *v);
bool serve_read_retrieve_below(struct serve_reading *r, const json_t *v);
bool serve_read_kwargs(struct serve_reading *r, const json_t *v);
bool serve_read_effort(struct serve_reading *r, const json_t *v);
bool serve_read_best_of(struct serve_reading *r, const json_t *v);
bool serve_read_vote(struct serve_reading *r, const json_t *v);
bool serve_read_verifier(struct serve_reading *r, const json_t *v);
bool serve_read_grace(struct serve_reading *r, const json_t *v);
bool serve_read_least(struct serve_reading *r, const json_t *v);
bool serve_read_budget_message(struct serve_reading *r, const json_t *v);
bool serve_read_think_stop(struct serve_reading *r, const json_t *v);
bool serve_read_think_probe(struct serve_reading *r, const json_t *v);
bool serve_read_think_suppress(struct serve_reading *r, const json_t *v);
/* request.c */
bool serve_read_integer(const struct serve_reading *r, const json_t *v, int64_t least, int64_t most, int64_t *out);
bool serve_read_number(const struct serve_reading *r, const json_t *v, double least, double most, double *out);
bool serve_set_kwarg(struct serve_reading *r, const char *key, json_t *v); /* takes v */
/* calls.c: members about calls; what was asked in the old form, as functions, is asked as tools. */
bool serve_read_tools(struct serve_reading *r, const json_t *v);
bool serve_read_tool_choice(struct serve_reading *r, const json_t *v);
bool serve_take_functions(json_t *body, struct serve_fault *f);
/* A fault of the tools made of functions is one of the functions. */
void serve_move_functions_fault(const struct serve_question *w, struct serve_fault *f);

struct serve_taking;
/* One answer of a request. */
struct serve_choice {
    struct serve_job *job;
    int index;
    int64_t id;                 /* of the engine; 0: ended */
    bool begun;                 /* has a sequence, or had one */
    struct chat_reader *reader; /* NULL: a completion */
    const struct ask_request *request;
    struct serve_buf text, reasoning;
    json_t *calls, *logprobs, *uncertainty; /* arrays */
    struct gen_stats stats;                 /* from its beginning on those of the prompt, complete at its end */
    double begin_ms, first_ms, now_ms;      /* when it began; had its first token, 0: not yet; and the last one */
    int64_t n_tokens;                       /* so far */
    struct gen_mixed mixed[GEN_MIXED_MAX];  /* [n_mixed] by tables */
    int n_mixed;
    enum gen_end end;
    size_t stop; /* which stop string ended it, if one did */
    bool said_role;
    bool called; /* a call was given; of it `the_call` says which, as chat_piece has it */
    int the_call;
    json_t *items; /* in a dialect: the complete items or blocks; NULL: it has not begun */
    enum serve_item_kind { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE } open; /* the one that `text` belongs to */
    int64_t n_events;
    json_t *embedding;
    struct serve_record *record; /* for the log; NULL: it keeps nothing of this */
    struct ask_verdict *verdict; /* it is one on an answer of the job; NULL: an answer */
};

struct serve_job {
    struct serve_job *next;
    enum serve_method method;
    void *user;
    int64_t id, created_s;
    struct serve_question w;
    const struct serve_attachments *attached; /* NULL: not started */
    json_t *body;                             /* owned */
    json_t *asked;                            /* the body in a dialect, from which `body` was made; NULL: in none */
    const struct serve_row *row;
    struct serve_choice *choice;  /* [n_choices] */
    struct ask_request **request; /* [n_prompts] */
    int n_choices, n_prompts;
    int64_t n_answers; /* of which choices are made when it starts */
    int n_asked;       /* choices that were given to the engine */
    int n_queued;      /* of them, those without a sequence so far */
    int n_left;        /* of them, those that have not ended */
    bool started;      /* its choices are there, and its prompts were looked at */
    bool begun;        /* one of its choices has a sequence */
    bool dropped;      /* nobody wants replies */
    bool over;         /* the last reply was given */
    uint64_t client;   /* a hash */
    bool later;        /* as of its client */
    uint64_t owner;    /* of what sequences hold for it */
    json_t *asker;     /* for the log: {"client", "key"}; NULL: no log */
    double from_ms, last_ms;
    struct engram_mix mix; /* with the weight of the request */
    void *made;            /* a table; NULL: none */
    struct serve_best
        *best;      /* while its answers and verdicts are written; NULL: it has no votes, or they are counted */
    json_t *search; /* what is told of the votes; NULL: there were none */
    int64_t more_tokens, more_reasoning; /* of answers that were not kept, and of verdicts */
};

struct serve {
    struct serve_opts o;
    const struct serve_attachments *attached; /* of requests that are started */
    json_t *model;                            /* the name, as a string of valid UTF-8 */
    char fingerprint[32];
    uint64_t n_exchanges;
    json_t *idle;           /* names of members without effect that were told */
    struct text_memo *memo; /* of prompts of chats */
    struct serve_job *jobs;
    int64_t next_id, turn;
    double step_ms;            /* when the last step began */
    uint64_t process;          /* journal_process() */
    struct serve_turns *turns; /* record.c; NULL: none yet */
    int32_t n_vocab;
    struct {
        uint64_t client;
        int64_t turn; /* when one of its requests was started last */
    } served[64];
    json_t *no_memory[2];      /* bodies of an error that need no more memory; the second in Anthropic's form */
    int64_t n_open;            /* jobs without their last reply, for each of which a reply has room */
    struct serve_reply *reply; /* ring */
    size_t n_replies, replies_cap, told;
    struct serve_counts m;    /* metrics */
    struct serve_job *judged; /* whose answers the verifier of serve_opts scores; NULL: none's */
};

MUST_CHECK enum err_code serve_push(struct serve *s, struct serve_job *j, enum serve_kind kind, json_t *body,
                                    int status, bool last, struct err *e);
json_t *serve_fault_body(const struct serve_row *row, const struct serve_fault *f);
bool serve_all_ended(const struct serve_job *j); /* all of its choices were asked, and have ended */
/* reply.c: what a finished or growing answer looks like; NULL when memory is out */
/* Adds what other servers do not have: "chimere", with what is told of the reasoning of c, NULL: of all answers, and
 * in a dialect the numbers of tokens; "notes", texts of indexes; "warnings", what in calls of tools is not held to a
 * schema. */
bool serve_add_beside(json_t *o, const struct serve_job *j, const struct serve_choice *c);
json_t *serve_whole(const struct serve *s, const struct serve_job *j);
json_t *serve_chunk(const struct serve *s, const struct serve_job *j, const struct serve_choice *c, json_t *delta,
                    json_t *beside, const char *finish);
json_t *serve_usage(const struct serve_job *j);
bool serve_set_timings(json_t *o, const struct serve_choice *c); /* by llama.cpp's names */
json_t *serve_usage_chunk(const struct serve *s, const struct serve_job *j);
const char *serve_finish(const struct serve_job *j, const struct serve_choice *c);
json_t *serve_logprob(const struct serve *s, const struct sample_pick *pick, int n_top);
/* The entropy, varentropy and margin of a token. */
json_t *serve_numbers(const struct serve *s, const struct gen_event *ev);
/* The log-probability of a token of the prompt, from the row before it; logits NULL: it is the first token. */
json_t *serve_row_logprob(const struct serve *s, int32_t token, const float *logits, int n_top);
bool serve_add(struct serve_buf *b, struct str s);
json_t *serve_text(const struct serve_buf *b);
/* A whole call is added to the list, which is made if there is none. False: memory is out, and *calls is NULL. */
bool serve_keep_call(json_t **calls, const struct chat_piece *p);
/* Of unit length, as the interface has it, unless the request wants none. */
json_t *serve_embedding(const struct serve *s, const struct serve_job *j, const float *v);
/* The id of a reply, which the log has, too. */
enum { SERVE_ID_BYTES = 48 };
void serve_reply_id(const struct serve *s, const struct serve_job *j, char out[SERVE_ID_BYTES]);
/* record.c: what the log keeps of an answer, from its first piece to its end */
bool serve_note_asker(const struct serve *s, struct serve_job *j, const struct serve_client *client);
MUST_CHECK enum err_code serve_record_open(const struct serve *s, struct serve_choice *c, struct err *e);
void serve_record_close(struct serve_record *r); /* NULL is allowed */
MUST_CHECK enum err_code serve_record_piece(struct serve_choice *c, const struct chat_piece *p, struct err *e);
MUST_CHECK enum err_code serve_record_text(struct serve_choice *c, struct str text, struct err *e);
void serve_record_token(struct serve_choice *c, const struct gen_event *ev);
void serve_record_end(struct serve *s, struct serve_choice *c);
/* best.c: several answers, of which votes keep one */
struct serve_best;
MUST_CHECK enum err_code serve_best_open(struct serve_job *j, struct err *e);
void serve_best_close(struct serve_job *j);
void serve_choice_free(struct serve_choice *c); /* serve.c */
/* A piece of an answer is kept until the votes are counted. */
MUST_CHECK enum err_code serve_best_hold(struct serve_choice *c, const struct chat_piece *p, struct err *e);
/* All answers have ended: they are scored, or one is told. */
MUST_CHECK enum err_code serve_best_ended(struct serve *s, struct serve_job *j, struct err *e);
MUST_CHECK enum err_code serve_best_event(struct serve *s, struct serve_job *j, const struct gen_event *ev,
                                          struct err *e);
void serve_best_stop(struct serve *s, struct serve_job *j); /* its verdicts */
/* Once a step, what the verifier of serve_opts has to do; *j: the job that an error is of. */
MUST_CHECK enum err_code serve_best_turn(struct serve *s, struct serve_job **j, struct err *e);
/* serve.c: an answer that is told */
MUST_CHECK enum err_code serve_take_piece(struct serve *s, struct serve_job *j, struct serve_choice *c,
                                          const struct chat_piece *p, json_t **beside, struct err *e);
MUST_CHECK enum err_code serve_tell_end(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e);
MUST_CHECK enum err_code serve_refuse_job(struct serve *s, struct serve_job *j, struct serve_fault *f, struct err *e);

/* An interface whose requests become those of a chat, and whose replies are made of its answer. */
struct serve_dialect {
    const char *needs; /* a member without which nothing is answered, only counted; NULL: none */
    const struct serve_taken {
        const char *key;
        bool (*take)(struct serve_taking *t, json_t *v); /* NULL: nothing is done, or finish() does it */
    } * taken;                                           /* members that are not those of a chat; ends with {0} */
    const struct serve_renamed {
        const char *ours, *theirs;          /* names in a chat and in the request */
        const char *from, *to;              /* places there */
    } * renamed;                            /* ends with {0} */
    bool (*finish)(struct serve_taking *t); /* after all members: the messages */
    /* The place in the request of what the chat has at `pointer`; false: translate.c finds it. */
    bool (*place)(const json_t *body, const char *pointer, char out[POINTER_BYTES]);
    /* An answer begins; NULL: nothing to do. Its stats say what is known of the prompt. */
    enum err_code (*begin)(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e);
    enum err_code (*piece)(struct serve *s, struct serve_job *j, struct serve_choice *c, const struct chat_piece *p,
                           struct err *e);
    enum err_code (*end)(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e);
};
extern const struct serve_dialect serve_responses, serve_messages;
/* A request while the body of a chat is made of it. */
struct serve_taking {
    json_t *chat;
    const json_t *body;
    char at[POINTER_BYTES]; /* of the member that is taken */
    struct serve_fault *f;
};
/* translate.c. The body of a chat; NULL: a fault. answers: it is to be answered, not counted. */
json_t *serve_make_chat(enum serve_method method, const json_t *body, bool answers, bool lenient,
                        struct serve_fault *f);
/* A fault of that chat becomes one of the request. */
void serve_move_fault(const struct serve_dialect *d, const json_t *body, struct serve_fault *f);
void serve_move_fault_to(struct serve_fault *f, const char *place); /* also in its message */
bool serve_is_type(const json_t *o, const char *type);              /* its member says so */
json_t *serve_member(const json_t *o, const char *key);             /* NULL: there is none, or it is null */
/* Takes v; false: memory is out. */
bool serve_set(json_t *o, const char *key, json_t *v, struct serve_fault *f);
/* message_reply.c: of the dialect that messages.c has */
enum err_code serve_message_begin(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e);
enum err_code serve_message_piece(struct serve *s, struct serve_job *j, struct serve_choice *c,
                                  const struct chat_piece *p, struct err *e);
enum err_code serve_message_end(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e);
/* status.c: what a server says of itself */
json_t *serve_list_models(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
json_t *serve_show_model(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
json_t *serve_show_props(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
/* prompts.c: prompts without answers */
json_t *serve_apply_template(struct serve *s, const json_t *body, const struct serve_client *who,
                             struct serve_fault *f);
json_t *serve_count_chat(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
json_t *serve_count_message(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
json_t *serve_count_response(struct serve *s, const json_t *body, const struct serve_client *who,
                             struct serve_fault *f);
json_t *serve_tokenize(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
json_t *serve_detokenize(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
json_t *serve_show_health(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
json_t *serve_show_metrics(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
json_t *serve_rate(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f);
json_t *serve_rerank(struct serve *s, const json_t *body, const struct serve_client *who, /* rerank.c */
                     struct serve_fault *f);
/* start.c: makes requests to the engine from a question */
/* Token ids are appended. A fault: one of them is none. */
MUST_CHECK enum err_code serve_read_ids(const struct serve *s, const json_t *ids, struct text_tokens *out,
                                        const char *pointer, struct serve_fault *f, struct err *e);
/* The tokens of a chat's prompt are appended; its text is the caller's, to be freed. */
bool serve_read_prompt(struct serve *s, const struct serve_question *w, struct text_tokens *out, struct serve_fault *f);
bool serve_write_prompt(struct serve *s, const struct serve_question *w, char **out, size_t *n, struct serve_fault *f);
struct ask_model serve_model(const struct serve *s); /* what is asked */
MUST_CHECK enum err_code serve_start(struct serve *s, struct serve_job *j, struct serve_fault *f, struct err *e);
/* The next choice of it goes to the engine. */
MUST_CHECK enum err_code serve_start_choice(struct serve *s, struct serve_job *j, struct serve_fault *f, struct err *e);
/* asked.c: SERVE_ASK. What is wrong with a question is told in the reply, and the job is over. */
bool serve_read_asked(struct serve_question *w, const struct serve *s, enum serve_method method, const json_t *body,
                      struct serve_fault *f);
MUST_CHECK enum err_code serve_start_asked(struct serve *s, struct serve_job *j, struct err *e);
MUST_CHECK enum err_code serve_submit_asked(struct serve *s, struct serve_job *j, struct serve_choice *c,
                                            struct err *e);
MUST_CHECK enum err_code serve_tell_event(struct serve *s, struct serve_job *j, const struct serve_choice *c,
                                          const struct gen_event *ev, struct err *e);
const json_t *serve_prompt_at(const json_t *prompts, int i); /* NULL: there are fewer */
void serve_counted(struct serve_count *c, double ms);
#endif
