"""Parses a response, streamed or plain, into our terms. Nothing in it is trusted; what is no response is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, cast

from holdfast.core.agent.usage_estimates import answered_usage
from holdfast.core.base.bounds import REASONING_BYTES_MAX, RESPONSE_BYTES_MAX, WORD_CHARS_MAX
from holdfast.core.base.safe_text import clamped, clamped_json, encodable
from holdfast.core.base.server_tools import counted_calls
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_errors import AnswerCut, ErrorInAnswer, UnusableAnswer
from holdfast.models.event_stream import fields_of
from holdfast.models.lenient_values import count_of, text_of
from holdfast.models.openai_responses.response_items import Item, kept_items, own_item
from holdfast.models.openai_responses.server_tools import called_tool
from holdfast.models.requested_calls import RequestedCall, read_calls

NO_RESPONSE: Final = "the answer is JSON but not a response of the Responses API; check OPENAI_BASE_URL"

OUTPUT_ITEMS_MAX: Final = 4_096
"""The most items of one answer that are read at all."""

CUT: Final = {"max_output_tokens": "length"}
"""Our words for why an answer is incomplete; `content_filter` is the same in both."""

UNDER_WAY: Final = ("queued", "in_progress")
"""The statuses of a response that has not ended."""

ANSWERED: Final = (None, "completed", "incomplete")
"""The statuses of an answer; some servers send none."""

FAILED: Final = ("failed", "cancelled")
"""The statuses of a response that has ended without an answer."""

UNANSWERABLE: Final = frozenset({
    "apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "mcp_approval_request",
    "shell_call", "tool_search_call",
})  # fmt: skip
"""Calls of tools that are never offered: each would need an output that nobody here can make."""

REFUSED: Final = frozenset({
    "invalid_prompt", "data_residency_mismatch", "bio_policy", "misalignment_policy_violation", "invalid_image",
    "invalid_image_format", "invalid_base64_image", "invalid_image_url", "image_too_large", "image_too_small",
    "image_parse_error", "image_content_policy_violation", "invalid_image_mode", "image_file_too_large",
    "unsupported_image_media_type", "empty_image_file", "failed_to_download_image", "image_file_not_found",
})  # fmt: skip
"""Codes of failed responses that would fail again; the others are failures of the server."""


def read_response(
    response: object, *, input_max: Callable[[], int], output_max: int | None, route: str
) -> InferenceResponse:
    """Return the answer that a parsed `response` is; its own items are marked with `route`.

    Usage that is missing or impossible is replaced by what the call can have used at the most, as with chat
    completions. A refusal is the answer's text. Raises UnusableAnswer; ErrorInAnswer for a failed response; AnswerCut
    for one that has not ended.
    """
    fields = fields_of(response)
    output = fields.get("output")
    check_status(fields)
    if not isinstance(output, list):
        raise UnusableAnswer(NO_RESPONSE)
    items = cast("list[object]", output)
    if len(items) > OUTPUT_ITEMS_MAX:
        raise UnusableAnswer(f"the answer has {len(items):,} items, at most {OUTPUT_ITEMS_MAX:,} are read")
    read = _Output()
    for item in items:
        read.take(fields_of(item))
    reason = text_of(fields_of(fields.get("incomplete_details")).get("reason"))
    finish = CUT.get(reason, reason) or text_of(fields.get("status")) or "completed"
    model, id_ = clamped(text_of(fields.get("model")), WORD_CHARS_MAX), text_of(fields.get("id"))
    return InferenceResponse(
        text=clamped_json("".join(read.texts), RESPONSE_BYTES_MAX),
        reasoning=clamped_json("\n\n".join(read.reasoning), REASONING_BYTES_MAX),
        tool_calls=read_calls(read.calls, cut=bool(reason)),
        finish_reason=finish[:WORD_CHARS_MAX],
        usage=_used(fields.get("usage"), items, input_max, output_max),
        model=model,
        response_id=clamped(id_, WORD_CHARS_MAX),
        items=kept_items(read.order, route=route, model=model),
        server_tool_calls=counted_calls(read.server_calls),
    )


def check_status(response: dict[str, object]) -> None:
    """Raise ErrorInAnswer for a response that has failed, AnswerCut for one that has not ended.

    One that came to nothing has failed, too, where its status is another word than those we know, such as `expired`.
    """
    status, error = response.get("status"), response.get("error")
    if status in UNDER_WAY:
        raise AnswerCut
    came_to_nothing = status not in ANSWERED and response.get("output") == []
    if status in FAILED or came_to_nothing or (error and not response.get("output")):
        raise failed(error or f"the response has the status {status!r} and names no error")


def failed(error: object) -> ErrorInAnswer:
    """Return the error of a failed response, with the status of a refusal where it would fail again."""
    fields = fields_of(error)
    return ErrorInAnswer({**fields, "status": 400} if text_of(fields.get("code")) in REFUSED else error)


def reported(usage: object) -> Usage | None:
    """Return the usage that a response's `usage` reports, none where it reports nothing; its parts fit their whole."""
    fields = fields_of(usage)
    given, made = count_of(fields.get("input_tokens")), count_of(fields.get("output_tokens"))
    if given is None and made is None:
        return None
    sent, hidden = fields_of(fields.get("input_tokens_details")), fields_of(fields.get("output_tokens_details"))
    cached, written = (count_of(sent.get(name)) or 0 for name in ("cached_tokens", "cache_write_tokens"))
    whole = Usage(input_tokens=given or 0, output_tokens=made or 0)
    return whole.with_parts(cached, written, count_of(hidden.get("reasoning_tokens")) or 0)


def _used(usage: object, output: list[object], input_max: Callable[[], int], output_max: int | None) -> Usage:
    made = count_of(fields_of(usage).get("output_tokens"))
    # an answer with words that reports 0 tokens is counted by its bytes; one without has used what it says
    is_reported = bool(made) if output else made is not None
    received = 0 if is_reported else len(json.dumps(output, ensure_ascii=False).encode("utf-8", "replace"))
    return answered_usage(reported(usage), input_max, received, output_max)


class _Output:
    """The items of an answer, sorted into what we have a field for, and their order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[RequestedCall] = []
        self.server_calls: list[str] = []
        self.order: list[Item] = []

    def take(self, item: dict[str, object]) -> None:
        kind = item.get("type")
        if not isinstance(kind, str):
            raise UnusableAnswer(NO_RESPONSE)
        if kind == "message":
            self._message(item)
        elif kind == "function_call":
            self._call(item)
        elif kind in UNANSWERABLE:
            raise UnusableAnswer(f"the answer calls for {kind!r}, which is no tool that was offered")
        else:  # reasoning, and whatever the provider adds: an item that is not known goes back as it came
            if kind == "reasoning" and (text := _reasoning(item)):
                self.reasoning.append(text)
            if name := called_tool(encodable(kind)):
                self.server_calls.append(name)
            self.order.append(own_item(item))

    def _message(self, item: dict[str, object]) -> None:
        content = item.get("content")
        parts = (
            cast("list[object]", content) if isinstance(content, list) else [{"type": "output_text", "text": content}]
        )
        text = "".join(_part_text(fields_of(part)) for part in parts)
        # newer models want to know again which message was the final answer
        phase = item.get("phase")
        fields = {"fields": {"phase": phase}} if isinstance(phase, str) else {}
        if text or fields:
            self.texts.append(text)
            self.order.append({"text": len(text), **fields})

    def _call(self, item: dict[str, object]) -> None:
        namespace = item.get("namespace")
        fields = {"fields": {"namespace": namespace}} if isinstance(namespace, str) else {}
        self.order.append({"call": len(self.calls), **fields})
        id_, name, arguments = (text_of(item.get(field)) for field in ("call_id", "name", "arguments"))
        self.calls.append(RequestedCall(id_, name, arguments))


def _part_text(part: dict[str, object]) -> str:
    match part.get("type"):
        case "output_text":
            return text_of(part.get("text"))
        case "refusal":  # it comes in place of a text, as the answer that the user is to read
            return text_of(part.get("refusal"))
        case kind:
            raise UnusableAnswer(
                f"the answer's message has a part of the type {encodable(str(kind))[:WORD_CHARS_MAX]!r}"
            )


def _reasoning(item: dict[str, object]) -> str:
    """Return a summary of the reasoning, else the reasoning where a server shows it."""
    for field in ("summary", "content"):
        parts = item.get(field)
        texts = (
            [text_of(fields_of(part).get("text")) for part in cast("list[object]", parts)]
            if isinstance(parts, list)
            else []
        )
        if any(texts):
            return "\n\n".join(text for text in texts if text)
    return ""
