"""Pydantic AI's response as our answer. Nothing in it is trusted to be small or possible."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from holdfast.core.agent.usage_estimates import answered_usage
from holdfast.core.base.bounds import REASONING_BYTES_MAX, RESPONSE_BYTES_MAX, WORD_CHARS_MAX
from holdfast.core.base.safe_text import clamped, clamped_json, encodable
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import CUT_OFF
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_errors import UnusableAnswer
from holdfast.models.lenient_values import count_of, text_of
from holdfast.models.pydantic_ai.answer_parts import TooManyItems, fields_of_answer, items_of, left_out
from holdfast.models.requested_calls import RequestedCall, read_calls

RAW_REASON: Final = "finish_reason"
"""The field of `provider_details` with the provider's own word for why the answer ended."""

SUSPENDED: Final = "suspended"
"""The state of an answer that the provider paused, and that Pydantic AI's own agents would ask it to go on with."""

FAILED: Final = "error"
"""The finish reason of an answer that the provider could not finish."""

TOO_MANY: Final = "parts"
"""The name under which the items of an answer with too many parts are reported as not kept."""


def read_answer(
    response: ModelResponse, *, route: str, system: str, input_max: Callable[[], int], output_max: int
) -> InferenceResponse:
    """Return the answer that `response` is. Raises UnusableAnswer for one that is none.

    Usage that is missing or impossible is replaced by what the call can have used at the most: `input_max`, and a token
    for each byte received, up to `output_max`.
    """
    answer = fields_of_answer(response)
    details: Mapping[str, Any] = answer.get("provider_details") or {}
    finish = _finish(response, text_of(details.get(RAW_REASON)))
    parts = answer["parts"]
    text = "".join(part["content"] for part in parts if part["part_kind"] == "text")
    if finish == FAILED and not parts:
        raise UnusableAnswer("the provider could not finish its answer, and nothing of it came")
    thoughts = [part["content"] for part in parts if part["part_kind"] == "thinking"]
    calls = [_requested(part) for part in parts if part["part_kind"] == "tool-call"]
    items, dropped = _items(answer, route, system)
    received = len(json.dumps(parts)) if parts else 0  # one without parts has used what it says
    return InferenceResponse(
        # a refusal in words stands in no part
        text=clamped_json(encodable(text or text_of(details.get("refusal"))), RESPONSE_BYTES_MAX),
        reasoning=clamped_json(encodable("\n\n".join(filter(None, thoughts))), REASONING_BYTES_MAX),
        tool_calls=read_calls(calls, cut=finish in CUT_OFF),
        finish_reason=finish[:WORD_CHARS_MAX],
        usage=answered_usage(reported(response.usage), input_max, received, output_max),
        model=clamped(text_of(response.model_name), WORD_CHARS_MAX),
        response_id=clamped(text_of(response.provider_response_id), WORD_CHARS_MAX),
        items=items,
        dropped=dropped,
    )


def reported(usage: RequestUsage) -> Usage | None:
    """Return the usage that a response reports, in our terms, which are Pydantic AI's; none where it reports none."""
    if usage.unmeasured_requests:
        return None
    given, made = count_of(usage.input_tokens), count_of(usage.output_tokens)
    if not given and not made:
        return None
    parts = (usage.cache_read_tokens, usage.cache_write_tokens, usage.output_reasoning_tokens)
    cached, written, hidden = (count_of(part) or 0 for part in parts)
    return Usage(input_tokens=given or 0, output_tokens=made or 0).with_parts(cached, written, hidden)


def _finish(response: ModelResponse, raw: str) -> str:
    """Return the loop's words for answers that were cut off, else the provider's own."""
    if response.state == SUSPENDED:
        return CUT_OFF[0]
    normal = response.finish_reason or ""
    return normal if normal in (*CUT_OFF, FAILED) else raw or normal


def _requested(part: Mapping[str, Any]) -> RequestedCall:
    arguments = part.get("args")
    text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
    return RequestedCall(text_of(part["tool_call_id"]), text_of(part["tool_name"]), encodable(text))


def _items(answer: Mapping[str, Any], route: str, system: str) -> tuple[tuple[ProviderItem, ...], tuple[str, ...]]:
    """Return what goes back with the answer, and the kinds of parts that do not."""
    try:
        return items_of(answer, route=route, system=system), left_out(answer)
    except TooManyItems:
        return (), (*left_out(answer), TOO_MANY)
