/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.c - names that users of llama.cpp type: aliases, or what to use here; and names that are nearly right.
 * room: cmd */
#include <string.h>
#include "cli/devices.h"

enum { NAME_MAX_BYTES = 32 };

static const struct {
    const char *names; /* "a|b*|-c": a star at the beginning or at the end stands for anything; words with one dash
                        * begin with it, those of one letter are taken only where the letter is free */
    const char *ours;  /* the option that they are other names of, in programs that have it */
    const char *say;   /* an answer, where it applies() */
} foreign[] = {
    { "ctx-size|num-ctx", "ctx", NULL },
    { "n-predict|max-tokens|num-predict", "predict", NULL },
    { "gpu", NULL, "use --device cuda" },
    { "temperature", "temp", NULL },
    { "repeat-last-n", "penalty-last-n", NULL },
    { "repetition-penalty", "repeat-penalty", NULL },
    { "dry-penalty-last-n", "dry-last-n", NULL },
    { "dry-sequence-breaker", "dry-breaker", NULL },
    { "system-prompt|-sys", "system", NULL },
    { "typical-p", "typical", NULL },
    { "batch-size|ubatch-size|n-batch|-ub|-b", "chunk", NULL },
    { "reverse-prompt", "stop", NULL },
    { "grammar-file", "grammar", NULL },
    { "json-schema-file|-jf", "schema", NULL },
    { "prompt-cache", "session", NULL },
    { "prompt-cache-ro", "session-ro", NULL },
    { "reasoning-format", NULL, "use --reasoning" },
    { "draft-n|spec-draft-n-max", "draft-max", NULL },
    { "n-gen", "tokens", NULL },
    { "n-depth|-d", "depth", NULL },
    { "n-prompt|-p|-pg", "prompt", NULL },
    { "repetitions", "reps", NULL },
    { "verbose-prompt", "show-prompt", NULL },
    { "log-disable", "quiet", NULL },
    { "cache-type-k|cache-type-v|-ctk|-ctv", NULL, "use --kv K,V for both types" },
    { "n-gpu-layers|gpu-layers|-ngl", NULL,
      "use --device cuda for all layers; --vram SIZE limits what lies on the GPU" },
    { "n-cpu-moe|cpu-moe|override-tensor|-ncmoe|-cmoe|-ot", NULL,
      "use --vram SIZE: it chooses the experts that stay on the CPU" },
    { "tensor-split|-ts", "split", NULL },
    { "threads-batch|-tb", NULL, "--threads is for prompts, too" },
    { "file|binary-file|-f|-bf", NULL, "name files without an option" },
    { "system-prompt-file|-sysf", NULL, "use --system \"$(cat FILE)\"" },
    { "conversation|interactive-first|-cnv|-if", "interactive", NULL },
    { "no-conversation|-no-cnv", NULL, "use --raw" },
    { "chat-template", NULL, "use --template FILE, or none for the model's own" },
    { "chat-template-file", "template", NULL },
    { "chat-template-kwargs", "chat-kwargs", NULL },
    { "no-warmup", NULL, "the warm-up on a GPU cannot be switched off" },
    { "mlock", NULL, "use --no-mmap to copy the weights" },
    { "json-schema", NULL, "use --schema FILE" },
    { "model-url|docker-repo|hf-token|gpt-oss-*|vision-*|-mu|-dr|-hft", NULL, "models are not fetched: use -m FILE" },
    { "model-draft|spec-draft-model|-md", NULL, "use --draft FILE" },
    { "lora", NULL, "use --merge-lora FILE" },
    { "lora-scaled", "lora", NULL },
    { "mirostat|mirostat-*", NULL, "not supported: use --min-p or --typical" },
    { "color|-co", NULL, "reasoning is dim on a terminal unless NO_COLOR is set" },
    { "keep|context-shift", NULL, "contexts are not shifted: use a larger --ctx" },
    { "override-kv", NULL, "use --experts N for the number of experts; the rest is as the file says" },
    { "rope-scaling|xtc-probability|top-nsigma|override-kv|dynatemp-range|control-vector|check-tensors|"
      "adaptive-*|dynatemp-*|xtc-*|top-n-sigma|control-vector-*|rerank*|pooling|props",
      NULL, "not supported" },
    { "samplers|sampler-seq|sampling-seq", NULL, "the order is fixed: see SAMPLING in the manual" },
    { "device|-dev", "device", NULL },
    { "alias|-a", "alias", NULL },
    { "host|port", NULL, "use --listen ADDRESS:PORT" },
    { "host|port", NULL, "chimere-serve-stdio answers over HTTP" },
    { "api-key", NULL, "use --api-key-file FILE" },
    { "slots|-sps", NULL, "use --parallel N for answers side by side" },
    { "np|-np", "parallel", NULL },
    { "np|parallel|-np", NULL, "chimere-serve-stdio answers side by side" },
    { "logit-bias|-l", "logit-bias", NULL },
    { "no-cont-batching|-nocb", NULL, "requests always share steps" },
    { "no-cache-prompt", NULL, "what prompts share is always kept" },
    { "mmproj|image|mmproj-*|no-mmproj*|image-*|video|-mm|-mmu|-mmdev", NULL, "images are not read" },
    { "numa", NULL, "not supported: use numactl(8)" },
    { "*-draft|-ctkd|-ctvd|-td|-tbd|-cd|-devd|-ngld|-otd|-cmoed|-ncmoed|-hfd|-hfrd|-Cd|-Crd|-Cbd", NULL,
      "a drafter runs where the model does: only --draft FILE is to be set" },
    { "cpu-mask|cpu-range*|cpu-mask-*|cpu-strict*|-C|-Cr|-Cb|-Crb|-Cd|-Crd|-Cbd", NULL,
      "not supported: use taskset(1)" },
    { "prio|prio-*", NULL, "not supported: use nice(1)" },
    { "escape|-e", NULL, "use the shell's $'...\\n'" },
    { "rope-freq-base|rope-*|yarn-*", NULL, "not supported: the file says it" },
    { "card", NULL, "use --vram SIZE, the memory of the card" },
    { "list-devices", NULL, "--version lists them" },
    { "kv-offload|no-kv-offload|-kvo|-nkvo|-no-kvo", NULL,
      "has no switch: the KV cache of a layer is on the device that computes the layer" },
    { "ctx-checkpoints|swa-checkpoints|cache-ram|-ctxcp|-cram", NULL, "use --checkpoints BYTES" },
    { "ctx-checkpoints|swa-checkpoints|cache-ram|-ctxcp|-cram", NULL,
      "use --session FILE, which keeps what to go on from" },
    { "slot-save-path", NULL, "use --cache-dir DIRECTORY" },
    { "no-kv-unified", NULL, "requests share the KV cache (--kv-tokens)" },
    { "multiline-input|-mli", NULL, "in -i a message of several lines begins and ends with \"\"\"" },
    { "rea|-rea", NULL, "use --think on|off" },
    { "reasoning-preserve|no-reasoning-preserve", NULL, "the template decides, and a session keeps all (--session)" },
    { "verbosity|log-verbosity|-lv", NULL, "use --verbose or --quiet" },
    { "log-verbose", "verbose", NULL },
    { "log-file", NULL, "messages are on the standard error: use the shell's 2> FILE" },
    { "log-*|no-log-*|log-prompts-dir", NULL, "messages are lines on the standard error: there is nothing to set" },
    { "perf|show-timings", NULL, "use --verbose: it says where the time went" },
    { "usage", "help", NULL },
    { "completion-bash", NULL, "use --completion bash" },
    { "no-jinja", NULL, "chat templates are always rendered; --raw goes without" },
    { "mmap", NULL, "weights are mapped unless --no-mmap is given; --no-mmap=off takes back that of CHIMERE_OPTS" },
    { "load-mode|direct-io|no-direct-io|-dio|-ndio|-lm", NULL, "weights are mapped; --no-mmap copies them" },
    { "no-repack|-nr", NULL, "use --repack off" },
    { "fit|fit-*|-fit|-fitt|-fitc", NULL, "use --vram SIZE: what does not fit stays on the host" },
    { "op-offload|no-op-offload", NULL, "there is nothing to switch: experts beside the GPU are computed by the CPU" },
    { "no-host|swa-full|defrag-thold|warmup|-dt", NULL, "there is nothing to switch" },
    { "backend-sampling|-bs", NULL, "there is nothing to switch: on a GPU it finds the best tokens itself" },
    { "rpc", NULL, "not supported: the model runs on this machine" },
    { "server-base", NULL, "not supported: the model is opened here" },
    { "spec-*|no-spec-*|draft-min|draft-n-min|draft-p-min|draft-p-split", NULL,
      "use --draft NAME; how many guesses pay is measured (--draft-max)" },
    { "lookup-cache-*|-lcs|-lcd", NULL, "use --draft ngram" },
    { "display-prompt", NULL, "the prompt is never written; --show-prompt prints it and ends" },
    { "special|-sp", NULL, "special tokens are not written; --json has the ids of all" },
    { "audio", NULL, "sound is not read" },
    { "output|output-file|-o", NULL, "use the shell's > FILE" },
    { "skip-chat-parsing", NULL, "use --parser plain" },
    { "no-skip-chat-parsing", NULL, "answers are read by the template, or by --parser" },
    { "poll|poll-*", NULL, "there is nothing to set" },
    { "prompt-cache-all", NULL, "use --session FILE: it keeps prompts and answers" },
    { "in-prefix|in-suffix", NULL, "the chat template says what stands around a message; --raw goes without" },
    { "ssl-*", NULL, "not supported: put a proxy with TLS in front" },
    { "threads-http", NULL, "use --connections N" },
    { "webui*", NULL, "the page to chat with comes with --listen and has no settings" },
    { "no-webui", NULL, "the page to chat with comes with --listen" },
    { "no-slots", NULL, "there are no slots to look at" },
    { "cache-list|-cl", NULL, "use --inspect FILE ... on the files that you have" },
    { "-to", "timeout", NULL },
};

/* What changes nothing here is accepted in programs that open models, so that scripts for llama.cpp and Ollama work,
 * and named with -v. */
static const struct {
    const char *names; /* as above */
    const char *arg;   /* NULL: none; "on|off|auto" may be left out */
    const char *why;
} no_ops[] = {
    { "jinja", NULL, "chat templates are always rendered" },
    { "no-display-prompt", NULL, "the prompt is never written" },
    { "flash-attn|-fa", "on|off|auto", "attention is always computed in one pass" },
    { "single-turn|-st", NULL, "one turn is what the program does without -i" },
    { "simple-io", NULL, "lines are edited on a terminal only" },
    { "no-context-shift", NULL, "contexts are never shifted" },
    { "cont-batching|-cb", NULL, "requests always share steps" },
    { "metrics", NULL, "/metrics is always there" },
    { "embeddings|embedding", NULL, "/v1/embeddings is always there" },
    { "cache-prompt", NULL, "what prompts share is always kept" },
    { "cache-reuse", "n", "what prompts share is always kept" },
    { "kv-unified|-kvu", NULL, "requests always share the KV cache" },
    { "no-perf|no-show-timings", NULL, "only --verbose says where the time went" },
    { "no-escape", NULL, "nothing is escaped" },
    { "offline", NULL, "models are never fetched" },
    { "keepalive", "time", "the model is closed when the program ends" }, /* Ollama's, and the next */
    { "nowordwrap", NULL, "lines are never wrapped" },
};
enum { N_NO_OPS = sizeof no_ops / sizeof *no_ops };
static const char *no_op_typed[N_NO_OPS]; /* how it was given last; NULL: it was not */

/* Options of one of chimere-run and chimere-serve-stdio only. Both read the same variable and the same file beside a
 * model, and each leaves aside what is the other's. */
static const struct {
    const char *names;
    bool takes; /* an argument; of "think" it may be left out */
} elsewhere[] = {
    { "alias|answer|api-key-file|bandwidth|batch|best-of|cache-dir|cache-size|chat-kwargs|checkpoints|classify|"
      "connections|"
      "context|cors|drain|dvts|exit-idle|"
      "embed-layer|errors|expert-profile|files|files-size|grammar|kv-tokens|listen|logit-bias|logits|logits-last|"
      "logprobs|max-body|max-queue|metrics-names|"
      "merge|messages|min-tokens|mix|notice|now|output|parallel|parse|pipeline|pipeline-state|prompt|rate|"
      "reasoning|"
      "reasoning-"
      "budget|"
      "reasoning-budget-message|"
      "reasoning-effort|reasoning-grace|reasoning-min|regex|render|retrieve|retrieve-below|schema|seed|"
      "session|shape|shard|step-end|stop|stop-token|stuck|system|think|table-memory|timeout|tokens|tool-choice|tools|"
      "vars|via|"
      "verifier|verifier-time|vote",
      true },
    { "check|continue|detokenize|drop-oldest|engram-drafts|ignore-eos|inspect|interactive|json|jsonl|lenient|"
      "mcp|no-stdin|one-call|plain|plan|raw|reasoning-open|session-ro|show|show-prompt|stream|strict|tokenize|"
      "uncertainty|verify",
      false },
};
static const char with_letters[] = "interactive|json|output|prompt|raw|system"; /* of these, their first */

static const struct cli_opt *option(const struct cli *cli, const char *name)
{
    const struct cli_opt *o;

    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++)
        if (o->kind != OPT_SECTION && strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

/* Letters to put in, take out, change, or swap with the next (Damerau 1964, each place once). */
static int distance(const char *a, size_t n, const char *b)
{
    int d[NAME_MAX_BYTES + 1][NAME_MAX_BYTES + 1];
    size_t m = strlen(b);

    if (n > NAME_MAX_BYTES || m > NAME_MAX_BYTES)
        return NAME_MAX_BYTES;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = (int)(i + j);
                continue;
            }
            d[i][j] = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < d[i][j])
                d[i][j] = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < d[i][j])
                d[i][j] = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    return d[n][m];
}

/* Whether the program has the option that the answer names first; without one: whether it opens models. */
static bool applies(const struct cli *cli, const char *say)
{
    const char *at = strstr(say, "--");
    char name[NAME_MAX_BYTES + 1] = "device";

    if (at != NULL) {
        size_t n = strspn(at + 2, "abcdefghijklmnopqrstuvwxyz-");

        if (n >= sizeof name)
            return false;
        memcpy(name, at + 2, n);
        name[n] = '\0';
    }
    return option(cli, name) != NULL;
}

/* Whether the row has a meaning in this program. */
static bool has_meaning(const struct cli *cli, int row)
{
    return foreign[row].ours != NULL ? option(cli, foreign[row].ours) != NULL : applies(cli, foreign[row].say);
}

/* Also among the names of llama.cpp that mean something here; false: none is near. */
static bool find_nearest(const struct cli *cli, const char *name, size_t n, char best[CLI_NAME_BYTES])
{
    const struct cli_opt *o;
    char one[CLI_NAME_BYTES];
    int least = n > 5 ? 3 : n > 2 ? 2 : 1, d; /* less than this is near */

    *best = '\0';
    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++) {
        d = o->kind == OPT_SECTION ? NAME_MAX_BYTES : distance(name, n, o->name);
        if (d < least) {
            least = d;
            snprintf(best, CLI_NAME_BYTES, "%s", o->name);
        }
    }
    for (int i = 0; i < (int)(sizeof foreign / sizeof *foreign); i++)
        for (const char *list = foreign[i].names; cli_pair_name(&list, one) != NULL;) {
            d = one[0] == '-' || strchr(one, '*') != NULL ? NAME_MAX_BYTES : distance(name, n, one);
            if (d < least && has_meaning(cli, i)) {
                least = d;
                snprintf(best, CLI_NAME_BYTES, "%s", foreign[i].ours != NULL ? foreign[i].ours : one);
            }
        }
    return *best != '\0';
}

static bool is_called(const char *names, const char *name, size_t n)
{
    char one[CLI_NAME_BYTES];

    while (cli_pair_name(&names, one) != NULL) {
        const size_t m = strlen(one);

        if (one[0] == '*'       ? name[0] != '-' && n >= m && memcmp(name + n - (m - 1), one + 1, m - 1) == 0
            : one[m - 1] == '*' ? n >= m - 1 && memcmp(name, one, m - 1) == 0
                                : n == m && memcmp(name, one, n) == 0)
            return true;
    }
    return false;
}

/* The row that says something for this program, else any of that name; -1: none. */
static int find_foreign(const struct cli *cli, const char *name, size_t n)
{
    int found = -1;

    for (int i = 0; i < (int)(sizeof foreign / sizeof *foreign); i++) {
        if (!is_called(foreign[i].names, name, n))
            continue;
        if (has_meaning(cli, i))
            return i;
        found = i;
    }
    return found;
}

static const struct cli_opt *known_option(const struct cli *cli, const char *from, const char *word, size_t n, int row)
{
    if (!has_meaning(cli, row))
        cli_usage("unknown option %s%.*s", from, (int)n, word);
    if (foreign[row].ours == NULL)
        cli_usage("%s%.*s: %s", from, (int)n, word, foreign[row].say);
    return option(cli, foreign[row].ours);
}

/* The option that stands for one that changes nothing, for -hf, or for one that only llama.cpp has a name for; NULL: it
 * is none. */
static const struct cli_opt *find_no_op(const struct cli *cli, const char *name, size_t n, const char *typed)
{
    static const char *value;
    static bool flag;
    static int choice;
    static struct cli_opt as;
    const struct cli_opt *fetch = option(cli, "model") != NULL ? cli_fetch_option(name, n) : NULL;

    if (fetch != NULL)
        return fetch;
    if (option(cli, "split") != NULL && is_called("split-mode|-sm", name, n)) {
        as = (struct cli_opt){ OPT_CHOICE, 0, "", "none|layer|row|tensor", "", &cli_devices_foreign.mode, 0, 0 };
        return &as;
    }
    if (option(cli, "split") != NULL && is_called("main-gpu|-mg", name, n)) {
        as = (struct cli_opt){ OPT_I32, 0, "", "n", "", &cli_devices_foreign.main_gpu, 0, 999 };
        return &as;
    }
    for (int i = 0; i < N_NO_OPS && option(cli, "device") != NULL; i++) {
        const char *arg = no_ops[i].arg;

        if (!is_called(no_ops[i].names, name, n))
            continue;
        no_op_typed[i] = typed;
        as = (struct cli_opt){ .kind = OPT_FLAG, .name = "", .to = &flag };
        if (arg != NULL)
            as = strchr(arg, '|') != NULL
                     ? (struct cli_opt){ .kind = OPT_CHOICE, .name = "", .arg = arg, .to = &choice }
                     : (struct cli_opt){ .kind = OPT_STR, .name = "", .arg = arg, .to = &value };
        return &as;
    }
    return NULL;
}

void cli_note_no_ops(void)
{
    for (int i = 0; i < N_NO_OPS; i++) {
        if (no_op_typed[i] != NULL)
            cli_note("options  %s changes nothing: %s", no_op_typed[i], no_ops[i].why);
        no_op_typed[i] = NULL;
    }
}

static const struct cli_opt *note_typed(const struct cli_opt *o, const char *from)
{
    cli_devices_foreign.mode_typed |= *from == '\0' && o->to == &cli_devices_foreign.mode;
    return o;
}

bool cli_is_foreign(const struct cli *cli, const char *name, size_t n)
{
    const int row = find_foreign(cli, name, n);

    return (row >= 0 && has_meaning(cli, row)) || find_no_op(cli, name, n, NULL) != NULL;
}

const struct cli_opt *cli_foreign(const struct cli *cli, const char *from, const char *word, size_t n)
{
    const int row = word[2] != '-' ? find_foreign(cli, word + 2, n - 2) : -1;
    const struct cli_opt *none = word[2] != '-' ? find_no_op(cli, word + 2, n - 2, word) : NULL;
    char near[CLI_NAME_BYTES];

    if (none != NULL)
        return note_typed(none, from);
    if (row >= 0)
        return known_option(cli, from, word, n, row);
    if (find_nearest(cli, word + 2, n - 2, near))
        cli_usage("unknown option %s%.*s: did you mean --%s?", from, (int)n, word, near);
    cli_usage("unknown option %s%.*s", from, (int)n, word);
}

bool cli_of_one_call(const char *name)
{
    /* What the prompt is or what else is read, and what is done with it. */
    return cli_is_listed("prompt|messages|tokens|interactive|tokenize|detokenize|show-prompt|render|show|inspect|check|"
                         "parse|pipeline|pipeline-state|plan|batch|merge|mcp",
                         name);
}

bool cli_elsewhere(const struct cli *cli, const char *word, const char *next, char name[CLI_NAME_BYTES], bool *takes)
{
    const bool is_long = word[1] == '-';
    const size_t n = is_long ? strcspn(word + 2, "=") : 0;
    const int row = is_long ? find_foreign(cli, word + 2, n) : -1;
    const char *ours = row >= 0 ? foreign[row].ours : NULL;

    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        for (const char *list = elsewhere[i].names; cli_pair_name(&list, name) != NULL;) {
            const bool same = is_long ? (strlen(name) == n && strncmp(name, word + 2, n) == 0) ||
                                            (ours != NULL && strcmp(ours, name) == 0)
                                      : name[0] == word[1] && cli_is_listed(with_letters, name);

            if (!same || option(cli, name) != NULL)
                continue;
            *takes = elsewhere[i].takes && next != NULL && word[is_long ? n + 2 : 2] == '\0' &&
                     (strcmp(name, "think") != 0 || next[0] != '-');
            return true;
        }
    return false;
}

const struct cli_opt *cli_foreign_short(const struct cli *cli, const char *from, const char *word)
{
    const struct cli_opt *o;

    for (size_t i = 0; word[2] == '\0' && (o = cli_opt_at(cli, i)) != NULL; i++)
        if (o->letter == word[1])
            return NULL;
    const struct cli_opt *none = find_no_op(cli, word, strlen(word), word);
    const int row = find_foreign(cli, word, strlen(word));

    if (none != NULL)
        return note_typed(none, from);
    return row >= 0 ? known_option(cli, from, word, strlen(word), row) : NULL;
}

void cli_foreign_value(const struct cli *cli, const struct cli_opt *o, const char *name, const char *arg)
{
    if (strcmp(name, "-s") == 0 && strcmp(o->name, "system") == 0 && *arg != '\0' &&
        arg[strspn(arg, "0123456789")] == '\0')
        cli_usage("-s %s: did you mean --seed %s? For a system message of digits use --system", arg, arg);
    if (strcmp(o->name, "reasoning") == 0 &&
        (strcmp(arg, "on") == 0 || strcmp(arg, "off") == 0 || strcmp(arg, "auto") == 0))
        cli_usage("%s %s: --reasoning says where reasoning goes; did you mean --think %s?", name, arg,
                  strcmp(arg, "off") == 0 ? "off" : "on");
    if (strcmp(name, "-t") == 0 && strcmp(o->name, "threads") == 0 && strchr(arg, '.') != NULL &&
        option(cli, "temp") != NULL)
        cli_usage("-t %s: -t is the number of threads; did you mean --temp %s?", arg, arg);
}
