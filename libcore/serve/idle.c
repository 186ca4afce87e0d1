/* SPDX-License-Identifier: Apache-2.0 */
/* idle.c - members of other interfaces that have no effect here, or none with the value that clients send. room: serve
 *
 * Whoever sends another value is told why it is not served. */
#include <stdio.h>
#include <string.h>

#include "serve/internal.h"

enum {
    TEXT = 1 << SERVE_COMPLETION,
    MSG = 1 << SERVE_MESSAGE,
    EMBED = 1 << SERVE_EMBEDDING,
    ALL = (1 << SERVE_N_METHODS) - 1,
    CHAT = ALL & ~(TEXT | EMBED),
    BOTH = ALL & ~EMBED
};

static const struct {
    const char *names; /* with blanks between them */
    unsigned methods;
    const char *kinds; /* of the values that have no effect, as in members.c; "": there are none */
    const char *why;   /* others are refused */
} rows[] = {
    /* the caller */
    { "user safety_identifier request_id service_tier", ALL, "S", "not a text" },
    { "metadata", BOTH, "O", "not an object" },
    { "store", BOTH, "F", "not false: answers are not kept" },
    { "prompt_cache_retention", BOTH, "S", "not a text" },
    /* the form of the answer */
    { "verbosity", CHAT, "low|medium|high", "not low, medium or high" },
    { "prediction", CHAT, "O", "not an object" },
    { "modalities", CHAT, "L", "not [\"text\"]: answers are texts" },
    { "audio", CHAT, "", "answers are texts" },
    { "web_search_options", CHAT, "", "nothing is searched here: give tools" },
    { "suffix", TEXT, "", "a text is continued, not filled: the prompt alone" },
    { "best_of", TEXT, "1", "each choice is one answer: ask for n, and choose" },
    { "include_stop_str_in_output", BOTH, "F", "not false: an answer ends before its stop text" },
    { "skip_special_tokens detokenize", BOTH, "T", "not true: answers are texts without control tokens" },
    { "return_token_ids return_tokens_as_token_ids return_tokens", BOTH, "F", "not false: answers are texts" },
    { "reasoning_format", CHAT, "auto|deepseek", "not auto or deepseek: reasoning is in reasoning_content" },
    { "include_reasoning separate_reasoning parse_tool_calls", CHAT, "T",
      "not true: reasoning, text and calls are always apart" },
    { "chat_template documents", CHAT, "",
      "the template is the server's (--template), its variables are in "
      "chat_template_kwargs" },
    /* the sampler */
    { "n_probs", BOTH, "0", "ask for logprobs" },
    { "prompt_logprobs", BOTH, "", "ask for completions with echo and logprobs" },
    { "post_sampling_probs", BOTH, "F", "not false: log-probabilities are those of the model" },
    { "mirostat xtc_probability dynatemp_range smoothing_factor top_a", BOTH, "0", "this sampler has no such stage" },
    { "mirostat_tau mirostat_eta xtc_threshold dynatemp_exponent", BOTH, "N", "not a number" },
    { "top_n_sigma", BOTH, "-1|0", "this sampler has no such stage" },
    { "typ_p tfs_z", BOTH, "1", "this sampler has no such stage, but typical_p" },
    { "min_keep", BOTH, "0|1", "more than one token cannot be kept" },
    { "samplers logits_processors", BOTH, "", "the stages of the sampler and their order are fixed" },
    { "allowed_token_ids bad_words", BOTH, "", "use logit_bias or a grammar" },
    { "use_beam_search early_stopping", BOTH, "F", "not false: there is no beam search" },
    { "length_penalty", BOTH, "1", "there is no beam search" },
    /* how it is computed */
    { "cache_prompt", BOTH, "B", "not true or false" },
    { "id_slot", BOTH, "-1", "not -1: sequences are not chosen" },
    { "n_cache_reuse n_keep n_discard ttl", BOTH, "I", "not a whole number" },
    { "t_max_predict_ms t_max_prompt_ms", BOTH, "0|-1", "answers are limited by tokens, not by time" },
    { "speculative.n_max speculative.n_min speculative.p_min", BOTH, "N", "not a number" },
    { "draft_model guided_decoding_backend", BOTH, "S", "not a text" },
    { "keep_alive", ALL, "S|N", "neither a text nor a number" },
    { "kv_transfer_params vllm_xargs mm_processor_kwargs cache_control", BOTH, "O", "not an object" },
    { "truncate_prompt_tokens", ALL, "-1", "nothing is left out of a prompt" },
    { "context_management diagnostics", MSG, "O", "not an object" },
    { "inference_geo speed user_profile_id workspace_id anthropic_version", MSG, "S", "not a text" },
    { "anthropic_beta betas", MSG, "A", "not an array" },
    { "spaces_between_special_tokens add_special_tokens penalize_nl", BOTH, "B", "not true or false" },
};

void serve_note_idle(struct serve_fault *f, struct str name)
{
    for (int i = 0; i < IDLE_MAX; i++)
        if (f->idle[i][0] == '\0') {
            (void)snprintf(f->idle[i], sizeof f->idle[i], "%.*s", STR_ARG(name));
            return;
        }
}

static bool has_name(const char *names, struct str name)
{
    for (const char *p = names; *p != '\0'; p += strcspn(p, " "), p += *p == ' ')
        if (str_is((struct str){ p, strcspn(p, " ") }, name.p))
            return true;
    return false;
}

enum serve_idle serve_idle_member(enum serve_method method, const char *key, const json_t *value, struct serve_fault *f)
{
    char what[SERVE_WHAT_BYTES], pointer[POINTER_BYTES];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!(rows[i].methods >> method & 1) || !has_name(rows[i].names, str_of(key)))
            continue;
        if (json_is_null(value) || (rows[i].kinds[0] != '\0' && serve_is_of(value, rows[i].kinds, what))) {
            serve_note_idle(f, str_of(key));
            return SERVE_IDLE;
        }
        (void)serve_point_to(pointer, 0, key);
        (void)serve_fault(f, 400, pointer, "%s: %s", pointer + 1, rows[i].why);
        return SERVE_REFUSED;
    }
    return SERVE_UNKNOWN;
}
