"""What chat completions servers want back with an answer: read from its message, put into the next requests.

    `reasoning_content`   DeepSeek, Qwen     within a turn that called tools: `with_items`
    `reasoning_details`   OpenRouter         always
    `extra_content`       Gemini             of the message and of each call: it holds thought signatures
    parts of the content  Mistral            thinking, and whatever else is no text

An answer has one item at most. Its body is a JSON object with these fields of the message. Texts in the content stand
there as their length alone, and calls by their place: the message has both, and a hook may have changed its text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from holdfast.core.base.bounds import CALLS_KEPT_MAX, TEXT_CHARS_MAX, WORD_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped, encodable
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.models.event_stream import fields_of
from holdfast.models.lenient_values import item_bodies, json_of

API: Final = "openai_chat"
"""The name of the API in its items."""

REASONING: Final = "reasoning_content"

RETURNED: Final = ("reasoning_details", "extra_content")
"""Fields of a message that always go back as they came."""

NOT_KEPT: Final = ("annotations", "executed_tools", "audio", "images", "thinking_blocks")
"""Fields of a message that are neither kept nor sent back; an answer names those that it had."""


def items_of(message: Mapping[str, object], *, route: str, model: str) -> tuple[tuple[ProviderItem, ...], bool]:
    """Return the item of an answer's `message`, if it needs one, and whether all of it could be kept."""
    body = _body(message)
    if not body:
        return (), True
    text = json_of(body)
    if text is None or len(text) > TEXT_CHARS_MAX:  # what is no JSON cannot go back either
        return (), False
    return (ProviderItem(route=clamped(route, WORD_CHARS_MAX), api=API, model=model, body=text),), True


def _body(message: Mapping[str, object]) -> dict[str, object]:
    body: dict[str, object] = {name: message[name] for name in RETURNED if message.get(name)}
    reasoning, calls = message.get(REASONING), _calls(message)
    # beside calls an empty one has to go back as well: DeepSeek misses the field
    if isinstance(reasoning, str) and (reasoning or calls):
        body[REASONING] = reasoning
    parts = _parts(message.get("content"))
    if any(part.get("type") != "text" for part in parts):
        body["content"] = [_without_text(part) for part in parts]
    extra = {str(at): call["extra_content"] for at, call in enumerate(calls) if call.get("extra_content")}
    if extra:
        body["calls"] = extra
    return body


def _calls(message: Mapping[str, object]) -> list[dict[str, object]]:
    calls = message.get("tool_calls")
    first = cast("list[object]", calls)[:CALLS_KEPT_MAX] if isinstance(calls, list) else []
    return [fields_of(call) for call in first]


def _parts(content: object) -> list[dict[str, object]]:
    return [fields_of(part) for part in cast("list[object]", content)] if isinstance(content, list) else []


def _without_text(part: dict[str, object]) -> dict[str, object]:
    text = part.get("text")
    if not isinstance(text, str):
        return part
    return {**{name: value for name, value in part.items() if name != "text"}, "chars": len(encodable(text))}


def thinking_of(content: object) -> str:
    """Return the text of the parts of a content that are thinking."""
    return "".join(thinking_text(part) for part in _parts(content))


def thinking_text(part: Mapping[str, object]) -> str:
    """Return the text of one part that is thinking: a text, or parts itself; empty for any other."""
    thinking = part.get("thinking") if part.get("type") == "thinking" else None
    if isinstance(thinking, str):
        return thinking
    texts = (each.get("text") for each in _parts(thinking))
    return "".join(text for text in texts if isinstance(text, str))


def not_kept(message: Mapping[str, object], choice: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the parts of an answer that are not kept."""
    names = [name for name in NOT_KEPT if message.get(name)]
    return (*names, "logprobs") if choice.get("logprobs") else tuple(names)


def merge(into: dict[str, object], more: Mapping[str, object]) -> int:
    """Add the fields of `more`, also those within objects, and return how many characters they have as JSON.

    A flag is about the delta in which it comes, and no part of the whole.
    """
    chars = json_chars(more)
    _merge(into, more)
    return chars


def _merge(into: dict[str, object], more: Mapping[str, object]) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            inner = into.setdefault(name, {})
            if isinstance(inner, dict):
                _merge(cast("dict[str, object]", inner), cast("dict[str, object]", value))
        elif value not in (None, "") and not isinstance(value, bool):
            into[name] = value


def json_chars(value: object) -> int:
    """Return how many characters `value` has as JSON. Raises ValueError where it is nested too deeply."""
    try:
        return len(json.dumps(value))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def with_calls_moved(items: Iterable[ProviderItem], kept: Sequence[int]) -> tuple[ProviderItem, ...]:
    """Return the items of an answer that keeps only the calls at the places `kept`; other APIs' items know these."""
    return tuple(_with_calls_moved(item, kept) if item.api == API else item for item in items)


def _with_calls_moved(item: ProviderItem, kept: Sequence[int]) -> ProviderItem:
    try:
        body = fields_of(json.loads(item.body))
    except (ValueError, RecursionError):  # no answer of ours
        return item
    if "calls" not in body:
        return item
    extra = fields_of(body.pop("calls"))
    moved = {str(new): extra[str(old)] for new, old in enumerate(kept) if str(old) in extra}
    whole = {**body, **({"calls": moved} if moved else {})}
    return replace(item, body=json.dumps(whole, ensure_ascii=False, separators=(",", ":")))


# --- the way back


def wire_messages(messages: Iterable[tuple[Message, dict[str, Any]]], route: str) -> list[dict[str, Any]]:
    """Return each message in the API's form, given beside it, with what `route` wants back with it.

    DeepSeek refuses a request without the `reasoning_content` of answers in a turn that called tools, also in later
    turns; its older models refuse one that has it elsewhere, and newer ones ignore it there.
    https://api-docs.deepseek.com/guides/thinking_mode
    """
    sent: list[dict[str, Any]] = []
    calling = False
    for message, plain in messages:
        wire = plain
        calling = message.role != "user" and (calling or bool(message.tool_calls))
        for body in item_bodies(message.items, api=API, route=route):
            wire = _with_item(wire, body, message, calling=calling)
        sent.append(wire)
    return sent


def _with_item(wire: dict[str, Any], body: Mapping[str, object], message: Message, *, calling: bool) -> dict[str, Any]:
    wire = {**wire, **{name: body[name] for name in RETURNED if name in body}}
    if calling and REASONING in body:
        wire[REASONING] = body[REASONING]
    if parts := _parts(body.get("content")):
        wire["content"] = list(_with_texts(parts, message.text)) or None
    for at, extra in fields_of(body.get("calls")).items():
        # calls may have been left out since; the calls' texts are our own
        if at.isdecimal() and int(at) < len(message.tool_calls):
            wire["tool_calls"][int(at)]["extra_content"] = extra
    return wire


def _with_texts(parts: list[dict[str, object]], text: str) -> Iterable[dict[str, object]]:
    """Yield the parts with the message's text where theirs was, all of it in the first place where it has changed."""
    lengths = [chars if isinstance(chars := part.get("chars"), int) else 0 for part in parts]
    changed = sum(lengths) != len(text)
    place = 0
    for part, length in zip(parts, lengths, strict=True):
        if "chars" not in part:
            yield part
            continue
        end = len(text) if changed else place + length
        if text[place:end]:
            yield {**{name: value for name, value in part.items() if name != "chars"}, "text": text[place:end]}
        place = end
    if text[place:]:  # there was no text before
        yield {"type": "text", "text": text[place:]}
