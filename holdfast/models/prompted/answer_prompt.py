"""An answer in JSON that is asked for in words, where the model's endpoint has no form for it. Checks nothing."""

from __future__ import annotations

import json
from typing import Final

from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat, ResponseFormat

JSON_INSTRUCTION: Final = "Answer with a JSON object and nothing else."
"""Asks for an answer in JSON without a schema."""

SCHEMA_INSTRUCTION: Final = "Answer with JSON and nothing else. It must be valid for this JSON Schema:"
"""The same for a schema, which follows on a line of its own."""

BESIDE_TOOLS: Final = "That is for your final answer alone."
"""What is added where the model may call tools before it answers."""

FENCE: Final = "```"


def answer_instruction(form: ResponseFormat) -> str:
    """Return the words that ask for an answer of that form; none for an answer in words.

    They follow from the definition alone, so that a provider's prompt cache holds over them.
    """
    if isinstance(form, JsonObjectFormat):
        return JSON_INSTRUCTION
    if isinstance(form, JsonSchemaFormat):
        schema = json.dumps(dict(form.json_schema), ensure_ascii=False, separators=(",", ":"))
        return f"{SCHEMA_INSTRUCTION}\n{schema}"
    return ""


def with_instruction(system_prompt: str, *instructions: str) -> str:
    """Return the prompt with what is asked for behind it."""
    return "\n\n".join(filter(None, (system_prompt, *instructions)))


def unfenced(text: str) -> str:
    """Return what is in the one code fence that all of `text` is; any other text as it is."""
    whole = text.strip()
    if not whole.startswith(FENCE) or not whole.endswith(FENCE):
        return text
    opening, newline, rest = whole.partition("\n")
    fence = "`" * (len(opening) - len(opening.lstrip("`")))
    inner = rest.removesuffix(fence)
    is_one = newline and inner != rest and not inner.endswith("`") and "`" not in opening.removeprefix(fence)
    # a line of JSON cannot begin with a fence: its texts have no line ends
    if not is_one or any(line.lstrip().startswith(FENCE) for line in inner.splitlines()):
        return text
    return inner.strip()
