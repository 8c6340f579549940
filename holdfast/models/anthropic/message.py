"""Parses a message, the answer of the Messages API, into our terms. Nothing in it is trusted.

`message_stream` assembles a streamed one first; then both are parsed alike. The client builds its types without
validating them. Parsing is lenient where it can be; what is no message at all is UnusableAnswer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from holdfast.core.agent.usage_estimates import answered_usage
from holdfast.core.base.bounds import REASONING_BYTES_MAX, REPORTED_TOKENS_MAX, RESPONSE_BYTES_MAX, WORD_CHARS_MAX
from holdfast.core.base.safe_text import clamped, clamped_json, encodable
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import CUT_OFF, FILTERED
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_errors import UnusableAnswer
from holdfast.models.anthropic.answer_items import NoJson, TooManyItems, items_of
from holdfast.models.anthropic.server_tools import server_calls
from holdfast.models.event_stream import fields_of
from holdfast.models.lenient_values import count_of, text_of
from holdfast.models.requested_calls import RequestedCall, read_calls

NO_MESSAGE: Final = "the answer is JSON but not a message of the Messages API; check ANTHROPIC_BASE_URL"

ARGUMENTS: Final = "partial_json"
"""The field in which `message_stream` leaves the text of a call's arguments as it came."""

UNKNOWN: Final = "unknown_delta"
"""The field in which it leaves the type of a delta that is unknown here: its block is not whole."""

INPUT_COUNTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The parts of a message's input: they stand beside one another, where ours are parts of the first."""

OUTPUT_COUNTS: Final = ("output_tokens",)

NOT_BACK: Final = "its signed thinking is not sent back"
"""What becomes of an answer whose items cannot be kept whole."""

FINISH_REASONS: Final[Mapping[str, str]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": FILTERED,
}
"""The loop's words for answers that were cut off; other reasons keep the API's.

`pause_turn` is an answer that the provider breaks off after many rounds of its own tools: it is not gone on with.
"""


def read_message(
    message: object, *, route: str, input_max: Callable[[], int], output_max: int | None
) -> InferenceResponse:
    """Return the answer that a parsed `message` is; raise UnusableAnswer.

    Usage that is missing or impossible is replaced by what the call can have used at the most: `input_max`, and a token
    for each byte received, up to `output_max`. Blocks that are neither text nor calls become items for `route`.
    """
    fields = fields_of(message)
    blocks = _blocks(fields.get("content"))
    stop = text_of(fields.get("stop_reason"))
    finish = FINISH_REASONS.get(stop, stop)
    texts = [encodable(block["text"]) for block in blocks if block["type"] == "text"]
    thoughts = [encodable(block["thinking"]) for block in blocks if block["type"] == "thinking"]
    calls = [_requested(block) for block in blocks if block["type"] == "tool_use"]
    model = clamped(text_of(fields.get("model")), WORD_CHARS_MAX)
    items, problem = _items(blocks, text_of(fields.get(UNKNOWN)), route, model)
    received = sum(len(json.dumps(block)) for block in blocks)
    return InferenceResponse(
        text=clamped_json("".join(texts), RESPONSE_BYTES_MAX),
        reasoning=clamped_json("\n\n".join(filter(None, (problem, *thoughts))), REASONING_BYTES_MAX),
        tool_calls=read_calls(calls, cut=finish in CUT_OFF),
        finish_reason=finish[:WORD_CHARS_MAX],
        usage=answered_usage(reported(fields.get("usage")), input_max, received, output_max),
        model=model,
        response_id=clamped(text_of(fields.get("id")), WORD_CHARS_MAX),
        items=items,
        server_tool_calls=server_calls(blocks, fields.get("usage")),
    )


def reported(usage: object) -> Usage | None:
    """Return the usage that a message's `usage` reports, in our terms; none where it reports nothing."""
    counts = {name: count_of(value) for name, value in fields_of(usage).items()}
    sent, output = [counts.get(name) for name in INPUT_COUNTS], counts.get("output_tokens")
    if output is None and all(each is None for each in sent):
        return None
    fresh, cached, written = (each or 0 for each in sent)
    hidden = count_of(fields_of(fields_of(usage).get("output_tokens_details")).get("thinking_tokens")) or 0
    whole = Usage(input_tokens=min(fresh + cached + written, REPORTED_TOKENS_MAX), output_tokens=output or 0)
    return whole.with_parts(cached, written, hidden)


def merged(before: Mapping[str, object], later: Mapping[str, object]) -> dict[str, object]:
    """Return the counts of a `usage` with those of a later event, which are of the whole call as well.

    The later ones count, where there are any. Some gateways leave a part out there, or say 0 of what they have
    reported: neither input nor output becomes less.
    """
    both: dict[str, object] = {**before, **{name: count for name, count in later.items() if count is not None}}
    for names in (INPUT_COUNTS, OUTPUT_COUNTS):
        if _sum(both, names) < _sum(before, names):
            rest = {name: count for name, count in both.items() if name not in names}
            both = {**rest, **{name: before[name] for name in names if name in before}}
    return both


def _sum(counts: Mapping[str, object], names: tuple[str, ...]) -> int:
    return sum(count_of(counts.get(name)) or 0 for name in names)


def _blocks(content: object) -> list[dict[str, Any]]:
    """Return the blocks of an answer. Raises UnusableAnswer for what is no list of them."""
    if not isinstance(content, list):
        raise UnusableAnswer(NO_MESSAGE)
    return [_checked(block) for block in cast("list[object]", content)]


def _checked(value: object) -> dict[str, Any]:
    """Return a block with the fields that its type has; a type that is unknown here is kept as it is."""
    block = cast("dict[str, Any]", fields_of(value))
    kind = block.get("type")
    if not isinstance(kind, str) or (kind == "tool_use" and not isinstance(block.get("name"), str)):
        raise UnusableAnswer(NO_MESSAGE)
    if kind in ("text", "thinking") and not isinstance(block.get(kind), str):
        raise UnusableAnswer(NO_MESSAGE)
    return block


def _requested(block: dict[str, Any]) -> RequestedCall:
    arguments = block.get(ARGUMENTS)
    if not arguments:
        given: object = block.get("input")
        arguments = "" if given in (None, {}) else json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    return RequestedCall(text_of(block.get("id")), encodable(block["name"]), encodable(arguments))


def _items(blocks: list[dict[str, Any]], unknown: str, route: str, model: str) -> tuple[tuple[ProviderItem, ...], str]:
    """Return the items of an answer; where they cannot go back, none and a text that says why."""
    if unknown:
        return (), f"[A block of this answer grows by {unknown[:WORD_CHARS_MAX]!r}, which is unknown here; {NOT_BACK}.]"
    try:
        return items_of(blocks, route, model), ""
    except TooManyItems:
        return (), f"[This answer has {len(blocks)} blocks; {NOT_BACK}.]"
    except NoJson:
        return (), f"[A block of this answer is no JSON; {NOT_BACK}.]"
