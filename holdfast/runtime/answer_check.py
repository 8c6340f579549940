"""Checks a final answer against the response format, for every driver. Does not re-ask."""

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

TOOL_USE_FAILED: Final = "tool_use_failed"
"""The finish reason of an answer that is a tool call which its endpoint could not read."""


def checked(response: InferenceResponse, response_format: ResponseFormat) -> InferenceResponse:
    """Return `response` with its `format_problem` set; an answer with tool calls has none.

    The problem of a call that the endpoint itself could not read stays: its text alone may look like an answer.
    """
    if response.finish_reason == TOOL_USE_FAILED and not response.tool_calls:
        return response
    problem = None if response.tool_calls else format_problem(response.text, response_format)
    if problem is not None and response.finish_reason == CUT_SHORT:
        problem = _line(f"the answer was cut at the output limit, answer more briefly; {problem}")
    return replace(response, format_problem=problem)


def unusable(response: InferenceResponse, problem: str) -> InferenceResponse:
    """Return `response` as an answer that the model is asked for again, told `problem`; its calls do not run."""
    text = _line(problem)
    return replace(response, tool_calls=(), finish_reason=TOOL_USE_FAILED, format_problem=text)


def format_problem(text: str, response_format: ResponseFormat) -> str | None:
    """Return why `text` does not fit `response_format`, none when it does. Never raises.

    The problem is one line of at most FORMAT_PROBLEM_CHARS_MAX characters that a model can act on. The work is bounded
    by the answer's size (RESPONSE_BYTES_MAX) and the limits of `holdfast.runtime.json_schema`.
    """
    if isinstance(response_format, TextFormat):
        return None
    try:
        value = read_json(text)
    except ValueError as error:
        return _line(_unreadable(text, error))
    if isinstance(response_format, JsonSchemaFormat):
        from holdfast.runtime.json_schema import schema_problems  # noqa: PLC0415  # 0.1 s that only its users pay

        problems = schema_problems(value, response_format.json_schema)
        return _line(f"the answer does not fit the schema: {'; '.join(problems)}") if problems else None
    return None if isinstance(value, dict) else "the answer is JSON but not an object; answer with one JSON object"


def schema_problem(response_format: ResponseFormat) -> str | None:
    """Return why no answer could be checked against `response_format`, if so; called before anything starts."""
    if not isinstance(response_format, JsonSchemaFormat):
        return None
    from holdfast.runtime.json_schema import broken_schema  # noqa: PLC0415  # as above

    problem = broken_schema(response_format.json_schema)
    return None if problem is None else _line(problem)


def _unreadable(text: str, error: ValueError) -> str:
    if not text.strip():
        return "the answer is empty; answer with JSON alone"
    if any(line.lstrip().startswith(FENCE) for line in text.splitlines()):
        return f"the answer has a Markdown code fence ({FENCE}); answer with JSON alone, without a fence"
    return f"the answer is not usable JSON: {error}; answer with JSON alone"


def _line(text: str) -> str:
    return " ".join(clamped(text, FORMAT_PROBLEM_CHARS_MAX).split())
