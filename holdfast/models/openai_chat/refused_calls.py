"""A tool call that the endpoint itself refuses: the model wrote it badly, so the model has to hear of it.

Groq parses what its models write, and answers 400 with the code `tool_use_failed` and the text in `failed_generation`
where that is no call of a tool offered. The text becomes an answer that cannot be used: the loop tells the model why
and asks again, as often as `reasks_max` allows.
"""

from __future__ import annotations

from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.usage_estimates import answered_usage, input_bound
from holdfast.core.base.bounds import FORMAT_PROBLEM_CHARS_MAX, RESPONSE_BYTES_MAX, WORD_CHARS_MAX
from holdfast.core.base.safe_text import clamped, clamped_json
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_errors import ErrorInAnswer
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.event_stream import fields_of
from holdfast.models.http_errors import ErrorStatus
from holdfast.models.lenient_values import text_of
from holdfast.models.provider_errors import redacted
from holdfast.runtime.answer_check import TOOL_USE_FAILED


def refused_call(
    error: Exception, request: ModelRequest, settings: ProviderSettings, reported: Usage | None
) -> InferenceResponse | None:
    """Return the answer that a refusal of the model's own tool call is; none for any other error.

    The endpoint reports no usage with it, so that counts as for any answer without a report.
    """
    fields = fields_of(error.error) if isinstance(error, ErrorStatus | ErrorInAnswer) else {}
    if fields.get("code") != TOOL_USE_FAILED:
        return None
    text, message = (text_of(fields.get(name)) for name in ("failed_generation", "message"))

    received, most = len(text.encode()) or 1, request.max_output_tokens
    problem = f"your tool call could not be read ({redacted(message, settings)})"
    remedy = "call a tool that you were given, with JSON arguments"
    return InferenceResponse(
        text=clamped_json(text, RESPONSE_BYTES_MAX),
        finish_reason=TOOL_USE_FAILED,
        format_problem=clamped(f"{problem}; {remedy}", FORMAT_PROBLEM_CHARS_MAX),
        usage=answered_usage(reported, lambda: input_bound(request), received, most),
        model=clamped(request.llm.model or settings.model or "", WORD_CHARS_MAX),
    )
