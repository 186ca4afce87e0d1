/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - rows of a program's option table.                               room: cmd
 *
 * Included by the file of a program that has the table, for the short names. Rows of the options
 * that open a model are here, too: they set a struct cli_model_opts (open.h).
 */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H
#include "cli/open.h"

#define ROW(kind, letter, name, arg, help, to, lo, hi) \
    { \
        kind, letter, name, arg, help, to, lo, hi \
    }
#define SECTION(title)                         ROW(OPT_SECTION, 0, NULL, NULL, title, NULL, 0, 0)
#define FLAG(letter, name, help, to)           ROW(OPT_FLAG, letter, name, NULL, help, to, 0, 0)
#define STRING(letter, name, arg, help, to)    ROW(OPT_STR, letter, name, arg, help, to, 0, 0)
#define PATH(letter, name, arg, help, to)      ROW(OPT_FILE, letter, name, arg, help, to, 0, 0)
#define OUTPUT(letter, name, arg, help, to)    ROW(OPT_OUT, letter, name, arg, help, to, 0, 0)
#define OUTPUT_OR_STDOUT(name, arg, help, to)  ROW(OPT_OUT, 0, name, arg, help, to, 1, 0) /* "-" is standard output */
#define REAL(letter, name, arg, help, to)      ROW(OPT_F32, letter, name, arg, help, to, 0, 0)
#define LIST(name, arg, help, to)              ROW(OPT_LIST, 0, name, arg, help, to, 0, 0)
#define CHOICE(name, words, help, to)          ROW(OPT_CHOICE, 0, name, words, help, to, 0, 0)
#define INT32(name, arg, help, to, lo, hi)     ROW(OPT_I32, 0, name, arg, help, to, lo, hi)
#define INT64(letter, name, arg, help, to, lo) ROW(OPT_I64, letter, name, arg, help, to, lo, INT64_MAX)
#define END                                    ROW(OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0)

/* Rows that set m, a struct cli_model_opts. */
#define ROW_MODEL(m) PATH('m', "model", "file", "GGUF model, or its name (MODELS in the manual)", &(m).file)
#define ROW_LORA(m)  LIST("lora", "file[:x]", "adapter, times x (default 1); repeatable", &(m).loras)
#define ROWS_ENGRAM(list, thinking) \
    LIST("engram", "file[:w]", "n-gram table with weight w; repeatable", list), \
        FLAG(0, "engram-thinking", "use tables in the reasoning too", thinking)
#define ROWS_DRAFT(names, max) \
    LIST("draft", "name", "drafter: auto, ngram, mtp, file; repeatable", names), \
        INT32("draft-max", "n", "most draft tokens in a step (default 15)", max, 0, GEN_DRAFT_MAX)
#define ROW_CTX(m, help) INT64('c', "ctx", "tokens", help, &(m).ctx_tokens, 1)
#define ROWS_RUNNING(m)  ROWS_RUNNING_CHUNK(m, "prompt tokens a step (default 512; GPU: 4096)")
#define ROWS_RUNNING_CHUNK(m, help) \
    { OPT_I32, 't', "threads", "n", "threads (default: one for each processor)", &(m).n_threads, 1, 512 }, \
        STRING(0, "device", "name", "cpu (default), cuda, auto; cuda:0,cuda:1 ...", &(m).device), \
        STRING(0, "vram", "size", "GPU memory to use (default: what is free)", &(m).vram), \
        STRING(0, "split", "how", "several devices: layers (default), rows, or 3,1", &(m).split), \
        STRING(0, "kv", "k,v", "KV cache (default f32; on a GPU f16)", &(m).kv), \
        INT32("chunk", "n", help, &(m).chunk, 1, 65536), \
        CHOICE("acts", "i16|i8|f32", "activations: i16 (default), i8, f32 (exact)", &(m).acts), \
        FLAG(0, "no-mmap", "load the CPU's weights into RAM", &(m).no_mmap), \
        INT64(0, "expert-cache", "size", "read experts from disk as used, keep this much", &(m).cache_bytes, 1), \
        CHOICE("repack", "auto|off", "repack loaded weights if that is faster", &(m).repack)
#define ROW_EXPERTS(m)        INT32("experts", "n", "experts of each token (default: trained)", &(m).experts, 1, 65536)
#define ROW_EXAMPLES(to)      PATH(0, "examples", "index[:n]", "put texts of an index before the prompt", to)
#define ROW_CONTEXT(to)       PATH(0, "context", "file", "answer from this text", to)
#define ROW_CONTEXT_TABLE(to) PATH(0, "context-table", "file", "make a table of this text, for this run", to)
#define ROW_RECITE(to)        PATH(0, "recite", "index[:n]", "recite an index text that the prompt names", to)
#define ROWS_RETRIEVE(o) \
    CHOICE("retrieve", "always|auto", "auto: indexes only if the model is unsure", &(o).retrieve), \
        REAL(0, "retrieve-below", "x", "mean log-probability of that (default -0.05)", &(o).retrieve_below)
#define ROWS_PLAN(m) \
    OUTPUT(0, "expert-profile", "file", "read expert counts, add to them", &(m).profile), \
        FLAG(0, "plan", "print what goes to GPU and host; run nothing", &(m).plan)
#endif
