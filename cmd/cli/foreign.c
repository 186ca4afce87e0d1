/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.c - names that users of llama.cpp type: aliases, or what to use here; and names that are nearly right.
 * room: cmd */
#include <string.h>
#include "cli/cli.h"

enum { NAME_MAX_BYTES = 32 };

static const struct {
    const char *name, *ours; /* ours: the option that it is another name of, in programs that have it */
    const char *say;         /* an answer, where it applies() */
} longs[] = {
    { "ctx-size", "ctx", NULL },
    { "n-predict", "predict", NULL },
    { "max-tokens", "predict", NULL },
    { "num-predict", "predict", NULL },
    { "num-ctx", "ctx", NULL },
    { "gpu", NULL, "use --device cuda" },
    { "temperature", "temp", NULL },
    { "repeat-last-n", "penalty-last-n", NULL },
    { "repetition-penalty", "repeat-penalty", NULL },
    { "dry-penalty-last-n", "dry-last-n", NULL },
    { "dry-sequence-breaker", "dry-breaker", NULL },
    { "system-prompt", "system", NULL },
    { "typical-p", "typical", NULL },
    { "batch-size", "chunk", NULL },
    { "ubatch-size", "chunk", NULL },
    { "reverse-prompt", "stop", NULL },
    { "grammar-file", "grammar", NULL },
    { "json-schema-file", "schema", NULL },
    { "prompt-cache", "session", NULL },
    { "prompt-cache-ro", "session-ro", NULL },
    { "reasoning-format", NULL, "use --reasoning" },
    { "draft-n", "draft-max", NULL },
    { "n-gen", "tokens", NULL },
    { "n-depth", "depth", NULL },
    { "n-prompt", "prompt", NULL },
    { "repetitions", "reps", NULL },
    { "verbose-prompt", "show-prompt", NULL },
    { "log-disable", "quiet", NULL },
    { "cache-type-k", NULL, "use --kv K,V for both types" },
    { "cache-type-v", NULL, "use --kv K,V for both types" },
    { "n-gpu-layers", NULL, "use --device cuda for all layers; --vram SIZE limits what lies on the GPU" },
    { "gpu-layers", NULL, "use --device cuda for all layers; --vram SIZE limits what lies on the GPU" },
    { "n-cpu-moe", NULL, "use --vram SIZE: it chooses the experts that stay on the CPU" },
    { "cpu-moe", NULL, "use --vram SIZE: it chooses the experts that stay on the CPU" },
    { "main-gpu", NULL, "use --device cuda:N" },
    { "split-mode", NULL, "one GPU is used: --device cuda:N" },
    { "tensor-split", NULL, "one GPU is used: --device cuda:N" },
    { "threads-batch", NULL, "--threads is for prompts, too" },
    { "file", NULL, "name files without an option" },
    { "system-prompt-file", NULL, "use --system \"$(cat FILE)\"" },
    { "conversation", "interactive", NULL },
    { "no-conversation", NULL, "use --raw" },
    { "single-turn", NULL, "one turn is what the program does" },
    { "interactive-first", "interactive", NULL },
    { "jinja", NULL, "chat templates are always rendered" },
    { "chat-template", NULL, "use --template FILE, or none for the model's own" },
    { "chat-template-file", "template", NULL },
    { "chat-template-kwargs", "chat-kwargs", NULL },
    { "no-display-prompt", NULL, "the prompt is never written" },
    { "flash-attn", NULL, "there is nothing to switch: attention is always computed in one pass" },
    { "no-warmup", NULL, "the warm-up on a GPU cannot be switched off" },
    { "mlock", NULL, "use --no-mmap to copy the weights" },
    { "json-schema", NULL, "use --schema FILE" },
    { "hf-repo", NULL, "models are not fetched: use -m FILE" },
    { "hf-file", NULL, "models are not fetched: use -m FILE" },
    { "model-url", NULL, "models are not fetched: use -m FILE" },
    { "model-draft", NULL, "use --draft FILE" },
    { "lora", NULL, "use --merge-lora FILE" },
    { "lora-scaled", "lora", NULL },
    { "mirostat", NULL, "not supported: use --min-p or --typical" },
    { "color", NULL, "reasoning is dim on a terminal unless NO_COLOR is set" },
    { "keep", NULL, "contexts are not shifted: use a larger --ctx" },
    { "context-shift", NULL, "contexts are not shifted: use a larger --ctx" },
    { "rope-scaling", NULL, "not supported" },
    { "xtc-probability", NULL, "not supported" },
    { "top-nsigma", NULL, "not supported" },
    { "samplers", NULL, "the order is fixed: see SAMPLING in the manual" },
    { "n-batch", "chunk", NULL },
    { "device", "device", NULL },
    { "alias", "alias", NULL },
    { "host", NULL, "use --listen ADDRESS:PORT" },
    { "host", NULL, "chimere-serve-stdio answers over HTTP" },
    { "port", NULL, "use --listen ADDRESS:PORT" },
    { "port", NULL, "chimere-serve-stdio answers over HTTP" },
    { "api-key", NULL, "use --api-key-file FILE" },
    { "slots", NULL, "use --parallel N for answers side by side" },
    { "np", "parallel", NULL },
    { "np", NULL, "chimere-serve-stdio answers side by side" },
    { "logit-bias", "logit-bias", NULL },
    { "parallel", NULL, "chimere-serve-stdio answers side by side" },
    { "cont-batching", NULL, "there is nothing to switch: requests always share steps" },
    { "no-cont-batching", NULL, "requests always share steps" },
    { "metrics", NULL, "there is nothing to switch: /metrics is always there" },
    { "embeddings", NULL, "there is nothing to switch: /v1/embeddings is always there" },
    { "cache-reuse", NULL, "there is nothing to switch: what prompts share is kept" },
    { "no-context-shift", NULL, "there is nothing to switch: contexts are never shifted" },
    { "override-kv", NULL, "not supported" },
    { "override-tensor", NULL, "use --vram SIZE: it chooses the experts that stay on the CPU" },
    { "mmproj", NULL, "images are not read" },
    { "image", NULL, "images are not read" },
    { "numa", NULL, "not supported: use numactl(8)" },
    { "cpu-mask", NULL, "not supported: use taskset(1)" },
    { "prio", NULL, "not supported: use nice(1)" },
    { "escape", NULL, "use the shell's $'...\\n'" },
    { "dynatemp-range", NULL, "not supported" },
    { "rope-freq-base", NULL, "not supported: the file says it" },
    { "control-vector", NULL, "not supported" },
    { "reasoning-effort", NULL, "use --chat-kwargs '{\"reasoning_effort\": \"low\"}'" },
    { "list-devices", NULL, "--version lists them" },
    { "kv-offload", NULL, "has no switch: the KV cache of a layer is on the device that computes the layer" },
    { "no-kv-offload", NULL, "has no switch: the KV cache of a layer is on the device that computes the layer" },
    { "ctx-checkpoints", NULL, "use --checkpoints BYTES" },
    { "ctx-checkpoints", NULL, "use --session FILE, which keeps what to go on from" },
    { "swa-checkpoints", NULL, "use --checkpoints BYTES" },
    { "swa-checkpoints", NULL, "use --session FILE, which keeps what to go on from" },
    { "cache-ram", NULL, "use --checkpoints BYTES" },
    { "cache-ram", NULL, "use --session FILE, which keeps what to go on from" },
    { "slot-save-path", NULL, "use --cache-dir DIRECTORY" },
    { "cache-prompt", NULL, "there is nothing to switch: what prompts share is kept" },
    { "no-cache-prompt", NULL, "there is nothing to switch: what prompts share is kept" },
    { "kv-unified", NULL, "there is nothing to switch: requests share the KV cache (--kv-tokens)" },
    { "no-kv-unified", NULL, "there is nothing to switch: requests share the KV cache (--kv-tokens)" },
    { "simple-io", NULL, "there is nothing to switch: lines are edited on a terminal only" },
    { "multiline-input", NULL, "in -i a message of several lines begins and ends with \"\"\"" },
    { "rea", NULL, "use --think on|off" },
    { "reasoning-preserve", NULL, "the template decides, and a session keeps all (--session)" },
    { "no-reasoning-preserve", NULL, "the template decides, and a session keeps all (--session)" },
    { "reasoning-budget-message", NULL, "not supported: --reasoning-budget closes the reasoning without a word" },
    { "verbosity", NULL, "use --verbose or --quiet" },
    { "log-verbosity", NULL, "use --verbose or --quiet" },
    { "log-verbose", "verbose", NULL },
    { "log-file", NULL, "messages are on the standard error: use the shell's 2> FILE" },
    { "log-*", NULL, "messages are lines on the standard error: there is nothing to set" },
    { "no-log-*", NULL, "messages are lines on the standard error: there is nothing to set" },
    { "perf", NULL, "use --verbose: it says where the time went" },
    { "no-perf", NULL, "only --verbose says where the time went" },
    { "show-timings", NULL, "use --verbose: it says where the time went" },
    { "no-show-timings", NULL, "only --verbose says where the time went" },
    { "usage", "help", NULL },
    { "completion-bash", NULL, "use --completion bash" },
    { "no-jinja", NULL, "chat templates are always rendered; --raw goes without" },
    { "mmap", NULL, "weights are mapped unless --no-mmap is given; --no-mmap=off takes back that of CHIMERE_OPTS" },
    { "load-mode", NULL, "weights are mapped; --no-mmap copies them" },
    { "direct-io", NULL, "weights are mapped; --no-mmap copies them" },
    { "no-direct-io", NULL, "weights are mapped; --no-mmap copies them" },
    { "no-repack", NULL, "use --repack off" },
    { "fit", NULL, "use --vram SIZE: what does not fit stays on the host" },
    { "fit-*", NULL, "use --vram SIZE: what does not fit stays on the host" },
    { "op-offload", NULL, "there is nothing to switch: experts beside the GPU are computed by the CPU" },
    { "no-op-offload", NULL, "there is nothing to switch: experts beside the GPU are computed by the CPU" },
    { "no-host", NULL, "there is nothing to switch" },
    { "swa-full", NULL, "there is nothing to switch" },
    { "defrag-thold", NULL, "there is nothing to switch" },
    { "backend-sampling", NULL, "there is nothing to switch: on a GPU it finds the best tokens itself" },
    { "rpc", NULL, "not supported: the model runs on this machine" },
    { "server-base", NULL, "not supported: the model is opened here" },
    { "check-tensors", NULL, "not supported" },
    { "spec-draft-model", NULL, "use --draft FILE" },
    { "spec-draft-n-max", "draft-max", NULL },
    { "spec-*", NULL, "use --draft NAME; how many guesses pay is measured (--draft-max)" },
    { "no-spec-*", NULL, "use --draft NAME; how many guesses pay is measured (--draft-max)" },
    { "draft-min", NULL, "use --draft NAME; how many guesses pay is measured (--draft-max)" },
    { "draft-n-min", NULL, "use --draft NAME; how many guesses pay is measured (--draft-max)" },
    { "draft-p-min", NULL, "use --draft NAME; how many guesses pay is measured (--draft-max)" },
    { "draft-p-split", NULL, "use --draft NAME; how many guesses pay is measured (--draft-max)" },
    { "*-draft", NULL, "a drafter runs where the model does: only --draft FILE is to be set" },
    { "lookup-cache-*", NULL, "use --draft ngram" },
    { "display-prompt", NULL, "the prompt is never written; --show-prompt prints it and ends" },
    { "special", NULL, "special tokens are not written; --json has the ids of all" },
    { "warmup", NULL, "there is nothing to switch" },
    { "mmproj-*", NULL, "images are not read" },
    { "no-mmproj*", NULL, "images are not read" },
    { "image-*", NULL, "images are not read" },
    { "audio", NULL, "sound is not read" },
    { "video", NULL, "images are not read" },
    { "output", NULL, "use the shell's > FILE" },
    { "output-file", NULL, "use the shell's > FILE" },
    { "binary-file", NULL, "name files without an option" },
    { "no-escape", NULL, "nothing is escaped" },
    { "skip-chat-parsing", NULL, "use --parser plain" },
    { "no-skip-chat-parsing", NULL, "answers are read by the template, or by --parser" },
    { "docker-repo", NULL, "models are not fetched: use -m FILE" },
    { "hf-token", NULL, "models are not fetched: use -m FILE" },
    { "offline", NULL, "models are never fetched" },
    { "gpt-oss-*", NULL, "models are not fetched: use -m FILE" },
    { "vision-*", NULL, "models are not fetched: use -m FILE" },
    { "cpu-range*", NULL, "not supported: use taskset(1)" },
    { "cpu-mask-*", NULL, "not supported: use taskset(1)" },
    { "cpu-strict*", NULL, "not supported: use taskset(1)" },
    { "prio-*", NULL, "not supported: use nice(1)" },
    { "poll", NULL, "there is nothing to set" },
    { "poll-*", NULL, "there is nothing to set" },
    { "rope-*", NULL, "not supported: the file says it" },
    { "yarn-*", NULL, "not supported: the file says it" },
    { "adaptive-*", NULL, "not supported" },
    { "dynatemp-*", NULL, "not supported" },
    { "mirostat-*", NULL, "not supported: use --min-p or --typical" },
    { "xtc-*", NULL, "not supported" },
    { "top-n-sigma", NULL, "not supported" },
    { "sampler-seq", NULL, "the order is fixed: see SAMPLING in the manual" },
    { "sampling-seq", NULL, "the order is fixed: see SAMPLING in the manual" },
    { "control-vector-*", NULL, "not supported" },
    { "log-prompts-dir", NULL, "not supported" },
    { "prompt-cache-all", NULL, "use --session FILE: it keeps prompts and answers" },
    { "in-prefix", NULL, "the chat template says what stands around a message; --raw goes without" },
    { "in-suffix", NULL, "the chat template says what stands around a message; --raw goes without" },
    { "embedding", NULL, "there is nothing to switch: /v1/embeddings is always there" },
    { "rerank*", NULL, "not supported" },
    { "pooling", NULL, "not supported" },
    { "ssl-*", NULL, "not supported: put a proxy with TLS in front" },
    { "threads-http", NULL, "use --connections N" },
    { "webui*", NULL, "there are no pages: --cors lets pages of others ask" },
    { "no-webui", NULL, "there are no pages" },
    { "props", NULL, "not supported" },
    { "no-slots", NULL, "there are no slots to look at" },
    { "cache-list", NULL, "use --inspect FILE ... on the files that you have" },
};

/* Words with one dash; those of one letter only where the letter is free. */
static const struct {
    const char *word, *name;
} shorts[] = {
    { "ngl", "gpu-layers" },
    { "ctk", "cache-type-k" },
    { "ctv", "cache-type-v" },
    { "sys", "system-prompt" },
    { "sysf", "system-prompt-file" },
    { "cnv", "conversation" },
    { "no-cnv", "no-conversation" },
    { "st", "single-turn" },
    { "hf", "hf-repo" },
    { "hfr", "hf-repo" },
    { "hff", "hf-file" },
    { "mu", "model-url" },
    { "fa", "flash-attn" },
    { "tb", "threads-batch" },
    { "ub", "ubatch-size" },
    { "md", "model-draft" },
    { "mg", "main-gpu" },
    { "sm", "split-mode" },
    { "ts", "tensor-split" },
    { "ncmoe", "n-cpu-moe" },
    { "cmoe", "cpu-moe" },
    { "if", "interactive-first" },
    { "co", "color" },
    { "f", "file" },
    { "b", "batch-size" },
    { "d", "n-depth" },
    { "p", "n-prompt" },
    { "pg", "n-prompt" },
    { "np", "np" },
    { "cb", "cont-batching" },
    { "nocb", "no-cont-batching" },
    { "ot", "override-tensor" },
    { "mm", "mmproj" },
    { "C", "cpu-mask" },
    { "e", "escape" },
    { "jf", "json-schema-file" },
    { "cl", "cache-list" },
    { "dev", "device" },
    { "a", "alias" },
    { "l", "logit-bias" },
    { "kvo", "kv-offload" },
    { "nkvo", "no-kv-offload" },
    { "no-kvo", "no-kv-offload" },
    { "ctxcp", "ctx-checkpoints" },
    { "cram", "cache-ram" },
    { "kvu", "kv-unified" },
    { "rea", "rea" },
    { "lv", "verbosity" },
    { "mli", "multiline-input" },
    { "sp", "special" },
    { "nr", "no-repack" },
    { "dio", "direct-io" },
    { "ndio", "direct-io" },
    { "lm", "load-mode" },
    { "fit", "fit" },
    { "fitt", "fit-target" },
    { "fitc", "fit-ctx" },
    { "dr", "docker-repo" },
    { "hft", "hf-token" },
    { "bs", "backend-sampling" },
    { "bf", "binary-file" },
    { "dt", "defrag-thold" },
    { "Cr", "cpu-range" },
    { "Cb", "cpu-mask-batch" },
    { "Crb", "cpu-range-batch" },
    { "mmu", "mmproj-url" },
    { "mmdev", "mmproj-device" },
    { "o", "output" },
    { "ctkd", "cache-type-k-draft" },
    { "ctvd", "cache-type-v-draft" },
    { "td", "threads-draft" },
    { "tbd", "threads-draft" },
    { "cd", "ctx-size-draft" },
    { "devd", "device-draft" },
    { "ngld", "gpu-layers-draft" },
    { "otd", "override-tensor-draft" },
    { "cmoed", "cpu-moe-draft" },
    { "ncmoed", "cpu-moe-draft" },
    { "hfd", "hf-repo-draft" },
    { "hfrd", "hf-repo-draft" },
    { "Cd", "cpu-mask-draft" },
    { "Crd", "cpu-range-draft" },
    { "Cbd", "cpu-mask-draft" },
    { "lcs", "lookup-cache-static" },
    { "lcd", "lookup-cache-dynamic" },
    { "sps", "slots" },
    { "to", "timeout" },
};

/* Options of one of chimere-run and chimere-serve-stdio only. Both read the same variable and the same file beside a
 * model, and each leaves aside what is the other's. */
static const struct {
    const char *name;
    char letter;
    bool takes; /* an argument; of "think" it may be left out */
} elsewhere[] = {
    { "alias", 0, true },
    { "api-key-file", 0, true },
    { "batch", 0, true },
    { "cache-dir", 0, true },
    { "cache-size", 0, true },
    { "chat-kwargs", 0, true },
    { "check", 0, false },
    { "checkpoints", 0, true },
    { "connections", 0, true },
    { "continue", 0, false },
    { "cors", 0, true },
    { "detokenize", 0, false },
    { "drain", 0, true },
    { "drop-oldest", 0, false },
    { "engram-drafts", 0, false },
    { "errors", 0, true },
    { "expert-profile", 0, true },
    { "grammar", 0, true },
    { "ignore-eos", 0, false },
    { "inspect", 0, false },
    { "interactive", 'i', false },
    { "json", 'j', false },
    { "jsonl", 0, false },
    { "kv-tokens", 0, true },
    { "lenient", 0, false },
    { "listen", 0, true },
    { "logit-bias", 0, true },
    { "logits", 0, true },
    { "logits-last", 0, true },
    { "logprobs", 0, true },
    { "max-body", 0, true },
    { "max-queue", 0, true },
    { "mcp", 0, false },
    { "messages", 0, true },
    { "min-tokens", 0, true },
    { "now", 0, true },
    { "one-call", 0, false },
    { "output", 'o', true },
    { "parallel", 0, true },
    { "parse", 0, true },
    { "plain", 0, false },
    { "plan", 0, false },
    { "prompt", 'p', true },
    { "raw", 'r', false },
    { "reasoning", 0, true },
    { "reasoning-budget", 0, true },
    { "reasoning-open", 0, false },
    { "regex", 0, true },
    { "render", 0, true },
    { "schema", 0, true },
    { "seed", 0, true },
    { "session", 0, true },
    { "session-ro", 0, false },
    { "shard", 0, true },
    { "show", 0, false },
    { "show-prompt", 0, false },
    { "stop", 0, true },
    { "stop-token", 0, true },
    { "stream", 0, false },
    { "strict", 0, false },
    { "system", 's', true },
    { "think", 0, true },
    { "table-memory", 0, true },
    { "timeout", 0, true },
    { "tokenize", 0, false },
    { "tokens", 0, true },
    { "tool-choice", 0, true },
    { "tools", 0, true },
    { "vars", 0, true },
};

static const struct opt *option(const struct cli *cli, const char *name)
{
    const struct opt *o;

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

/* Also among the names of llama.cpp that mean something here. */
static const char *nearest(const struct cli *cli, const char *name, size_t n)
{
    const struct opt *o;
    const char *best = NULL;
    int least = n > 5 ? 3 : n > 2 ? 2 : 1, d; /* less than this is near */

    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++) {
        d = o->kind == OPT_SECTION ? NAME_MAX_BYTES : distance(name, n, o->name);
        if (d < least) {
            least = d;
            best = o->name;
        }
    }
    for (size_t i = 0; i < sizeof longs / sizeof *longs; i++) {
        d = strchr(longs[i].name, '*') != NULL ? NAME_MAX_BYTES : distance(name, n, longs[i].name);
        if (d < least && (longs[i].ours != NULL ? option(cli, longs[i].ours) != NULL : applies(cli, longs[i].say))) {
            least = d;
            best = longs[i].ours != NULL ? longs[i].ours : longs[i].name;
        }
    }
    return best;
}

/* A star at the beginning or at the end of a row's name stands for anything. */
static bool is_called(const char *row, const char *name, size_t n)
{
    const size_t m = strlen(row);

    if (row[0] == '*')
        return n >= m && memcmp(name + n - (m - 1), row + 1, m - 1) == 0;
    if (row[m - 1] == '*')
        return n >= m - 1 && memcmp(name, row, m - 1) == 0;
    return n == m && memcmp(name, row, n) == 0;
}

/* The row of longs[] that says something for this program, else any of that name; -1: none. */
static int foreign(const struct cli *cli, const char *name, size_t n)
{
    int found = -1;

    for (int i = 0; i < (int)(sizeof longs / sizeof *longs); i++) {
        if (!is_called(longs[i].name, name, n))
            continue;
        if (longs[i].ours != NULL ? option(cli, longs[i].ours) != NULL : applies(cli, longs[i].say))
            return i;
        found = i;
    }
    return found;
}

static const struct opt *answer(const struct cli *cli, const char *from, const char *word, size_t n, int row)
{
    const struct opt *o = row >= 0 && longs[row].ours ? option(cli, longs[row].ours) : NULL;

    if (o == NULL && row >= 0 && longs[row].say != NULL && applies(cli, longs[row].say))
        cli_usage("%s%.*s: %s", from, (int)n, word, longs[row].say);
    if (o == NULL)
        cli_usage("unknown option %s%.*s", from, (int)n, word);
    return o;
}

bool cli_is_foreign(const struct cli *cli, const char *name, size_t n)
{
    int row = foreign(cli, name, n);

    return row >= 0 && (longs[row].ours == NULL ? applies(cli, longs[row].say) : option(cli, longs[row].ours) != NULL);
}

const struct opt *cli_foreign(const struct cli *cli, const char *from, const char *word, size_t n)
{
    int row = foreign(cli, word + 2, n - 2);
    const char *near = nearest(cli, word + 2, n - 2);

    if (row >= 0)
        return answer(cli, from, word, n, row);
    if (near != NULL)
        cli_usage("unknown option %s%.*s: did you mean --%s?", from, (int)n, word, near);
    cli_usage("unknown option %s%.*s", from, (int)n, word);
}

bool cli_of_one_call(const char *name)
{
    /* What the prompt is or what else is read, and what is done with it. */
    static const char *const names[] = { "prompt",     "messages",    "tokens", "interactive", "tokenize",
                                         "detokenize", "show-prompt", "render", "show",        "inspect",
                                         "check",      "parse",       "plan",   "batch",       "mcp" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

const char *cli_elsewhere(const struct cli *cli, const char *word, const char *next, bool *takes)
{
    const bool is_long = word[1] == '-';
    const size_t n = is_long ? strcspn(word + 2, "=") : 0;
    const int row = is_long ? foreign(cli, word + 2, n) : -1;

    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        const char *name = elsewhere[i].name;
        const bool same = is_long ? (strlen(name) == n && strncmp(name, word + 2, n) == 0) ||
                                        (row >= 0 && longs[row].ours != NULL && strcmp(longs[row].ours, name) == 0)
                                  : elsewhere[i].letter == word[1];

        if (!same || option(cli, name) != NULL)
            continue;
        *takes = elsewhere[i].takes && next != NULL && word[is_long ? n + 2 : 2] == '\0' &&
                 (strcmp(name, "think") != 0 || next[0] != '-');
        return name;
    }
    return NULL;
}

const struct opt *cli_foreign_short(const struct cli *cli, const char *from, const char *word)
{
    const struct opt *o;

    for (size_t i = 0; word[2] == '\0' && (o = cli_opt_at(cli, i)) != NULL; i++)
        if (o->letter == word[1])
            return NULL;
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++)
        if (strcmp(shorts[i].word, word + 1) == 0)
            return answer(cli, from, word, strlen(word), foreign(cli, shorts[i].name, strlen(shorts[i].name)));
    return NULL;
}

void cli_foreign_value(const struct cli *cli, const struct opt *o, const char *name, const char *arg)
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
