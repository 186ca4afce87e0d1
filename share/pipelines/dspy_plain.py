#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An adapter of dspy for models that do not write its marks: the instruction is the system message, examples are earlier
turns, and all that comes is the answer. With a server at URL, for a signature with one output:

    lm = dspy.LM("openai/chimere", api_base=URL + "/v1", api_key="none",
                 extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    dspy.configure(lm=lm, adapter=Plain())
"""
import dspy
from dspy.adapters.utils import parse_value


class Plain(dspy.Adapter):
    def format(self, signature, demos, inputs):
        (output,) = signature.output_fields
        ask = lambda given: "\n\n".join(str(given[k]) for k in signature.input_fields if k in given)
        turns = [turn for d in demos for turn in (("user", ask(d)), ("assistant", str(d[output])))] + [("user", ask(inputs))]
        if not signature.instructions.startswith("Given the fields "):  # what dspy says where nobody says anything
            turns.insert(0, ("system", signature.instructions))
        return [{"role": role, "content": text} for role, text in turns]

    def parse(self, signature, completion):
        ((output, field),) = signature.output_fields.items()
        return {output: parse_value(completion.strip(), field.annotation)}
