"""Whether a model's final answer is what its agent promises; one check for every driver. Asks nobody again."""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.policies import JsonSchemaFormat, ResponseFormat, TextFormat
from holdfast.core.base.bounds import FORMAT_PROBLEM_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.json_parsing import read_json
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.steps import InferenceResponse

FENCE: Final = "```"
CUT_SHORT: Final = "length"
"""The finish reason of an answer that met the output limit."""


def checked(response: InferenceResponse, wanted: ResponseFormat) -> InferenceResponse:
    """Return `response` with its `format_problem` set as it stands; an answer that asks for tools has none."""
    problem = None if response.tool_calls else format_problem(response.text, wanted)
    if problem is not None and response.finish_reason == CUT_SHORT:
        problem = _line(f"the answer was cut at the output limit, answer more briefly; {problem}")
    return replace(response, format_problem=problem)


def format_problem(text: str, wanted: ResponseFormat) -> str | None:
    """Return why `text` is not what `wanted` says, none when it is. Never raises.

    The problem is one line of at most FORMAT_PROBLEM_CHARS_MAX characters that a model can act on. The work is bounded
    by the answer's size (RESPONSE_BYTES_MAX) and the limits of `holdfast.runtime.json_schema`.
    """
    if isinstance(wanted, TextFormat):
        return None
    try:
        value = read_json(text)
    except ValueError as error:
        return _line(_unreadable(text, error))
    if isinstance(wanted, JsonSchemaFormat):
        from holdfast.runtime.json_schema import schema_problems  # noqa: PLC0415  # 0.1 s that only its users pay

        problems = schema_problems(value, wanted.json_schema)
        return _line(f"the answer does not fit the schema: {'; '.join(problems)}") if problems else None
    return None if isinstance(value, dict) else "the answer is JSON but not an object; answer with one JSON object"


def schema_problem(wanted: ResponseFormat) -> str | None:
    """Return why no answer could be checked against `wanted`, none when one can: asked before anything starts."""
    if not isinstance(wanted, JsonSchemaFormat):
        return None
    from holdfast.runtime.json_schema import broken_schema  # noqa: PLC0415  # as above

    problem = broken_schema(wanted.json_schema)
    return None if problem is None else _line(problem)


def _unreadable(text: str, error: ValueError) -> str:
    if not text.strip():
        return "the answer is empty; answer with JSON alone"
    if any(line.lstrip().startswith(FENCE) for line in text.splitlines()):
        return f"the answer has a Markdown code fence ({FENCE}); answer with JSON alone, without a fence"
    return f"the answer is not usable JSON: {error}; answer with JSON alone"


def _line(text: str) -> str:
    return " ".join(clamped(text, FORMAT_PROBLEM_CHARS_MAX).split())
