# SPDX-License-Identifier: Apache-2.0
"""grammar.py - bench/grammar.c's grammars, texts and tokens through llguidance (PyPI).

usage: grammar.py GRAMMARS PIECES    (what grammar --grammars and grammar --pieces print)
"""
import json
import sys
import time

import llguidance
import llguidance.numpy as masks
from llguidance.gbnf_to_lark import gbnf_to_lark

TIMES = 5


class Pieces:
    def __init__(self, path):
        rows = [line.rstrip("\n").split(" ") for line in open(path)]
        self.tokens = [bytes.fromhex(piece) for _, piece in rows]
        self.special_token_ids = [i for i, (kind, _) in enumerate(rows) if kind != "0"]
        self.bos_token_id = None
        self.eos_token_id = next(i for i, (kind, _) in enumerate(rows) if kind == "2")

        self.of = {t: i for i, t in enumerate(self.tokens) if t and i not in set(self.special_token_ids)}
        self.longest = max(map(len, self.of))

    def __call__(self, s):  # the longest tokens first
        out, at = [], 0
        while at < len(s):
            n = next(n for n in range(self.longest, 0, -1) if s[at:at + n] in self.of)
            out.append(self.of[s[at:at + n]])
            at += n
        return out


def grammar_of(case):
    if case["kind"] == "schema":
        schema = json.loads(case["grammar"])
        return llguidance.LLMatcher.grammar_from_json_schema({} if schema is True else schema)
    if case["kind"] == "regex":
        return llguidance.LLMatcher.grammar_from_regex(case["grammar"])
    return llguidance.LLMatcher.grammar_from_lark(gbnf_to_lark(case["grammar"]))


def main():
    cases = [json.loads(line) for line in open(sys.argv[1])]
    pieces = Pieces(sys.argv[2])
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(pieces))
    bits = masks.allocate_token_bitmask(1, len(pieces.tokens))
    for case in cases:
        text = case["text"].encode()
        took = []
        start = time.perf_counter()
        matcher = llguidance.LLMatcher(tokenizer, grammar_of(case))
        open_ms = (time.perf_counter() - start) * 1e3
        for round_ in range(TIMES):
            matcher = llguidance.LLMatcher(tokenizer, grammar_of(case))
            at, n = 0, 0
            while True:
                for token in matcher.compute_ff_tokens():  # what is forced comes without a mask
                    matcher.consume_token(token)
                    at += len(pieces.tokens[token])
                start = time.perf_counter()
                masks.fill_next_token_bitmask(matcher, bits, 0)
                us = (time.perf_counter() - start) * 1e6
                if round_ == 0:
                    took.append(us)
                else:
                    took[n] = min(took[n], us)
                n += 1
                fits = [pieces.of[text[at:at + k]] for k in range(pieces.longest, 0, -1) if text[at:at + k] in pieces.of]
                best = next((i for i in fits if (bits[0, i // 32] >> (i % 32)) & 1), -1)
                if at >= len(text) or best < 0 or not matcher.consume_token(best):
                    break
                at += len(pieces.tokens[best])
        took.sort()
        print("%-13s %7d tokens  open %6.1f ms  masks %3d: mean %5.1f  median %5.1f  worst %6.1f us%s" % (
            case["name"], len(pieces.tokens), open_ms, len(took), sum(took) / len(took), took[len(took) // 2], took[-1],
            "" if at == len(text) else "  (stopped at byte %d: %s)" % (at, matcher.get_error())))


main()
