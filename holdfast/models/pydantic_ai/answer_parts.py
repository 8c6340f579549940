"""The parts of an answer as `ProviderItem`s and back: kept verbatim, in order, for the route and provider they are of.

An answer's text and tool calls are fields of their own. Where other parts stand among them, or they have fields that
the provider wants back (a signature, an id), items hold their places: `{"text": 12}` are the next twelve characters of
the text, `{"call": 0}` is the first call, each with such fields beside it. The first item has the fields of the answer
itself, by which Pydantic AI knows whose signatures it holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import ModelResponse

from holdfast.core.base.safe_text import encodable
from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.provider_items import ITEMS_MAX, ProviderItem
from holdfast.models.event_stream import fields_of
from holdfast.models.lenient_values import item_bodies

API: Final = "pydantic_ai"
"""How the name of the API in an item begins; behind a colon follows Pydantic AI's name of the provider."""

EMPTY: Final = "(empty)"
"""What stands for a message without words: some APIs refuse blank texts, and turns without content."""

ANSWER: Final = "answer"
TEXT: Final = "text"
CALL: Final = "call"
PART: Final = "part"

ANSWER_FIELDS: Final = (
    "model_name",
    "provider_name",
    "provider_url",
    "canonical_system",
    "provider_details",
    "provider_response_id",
    "finish_reason",
)
"""The fields of an answer that goes back."""

OWN_FIELDS: Final = ("id", "provider_name", "provider_details")
"""The fields of a text or a call that its provider may want back."""

LEFT_OUT: Final = frozenset({"file", "speech"})
"""The kinds of parts that are not kept: pictures and sounds that the model has made."""

_RESPONSE: Final = TypeAdapter(ModelResponse)


class TooManyItems(Exception):
    """An answer has more than ITEMS_MAX parts, and one that is neither text nor a call."""


def api_of(system: str) -> str:
    """Return the API in the items of Pydantic AI's provider `system`: another one's are of no use to it."""
    return f"{API}:{system}"


def fields_of_answer(response: ModelResponse) -> dict[str, Any]:
    """Return an answer as JSON: its parts, and the fields of each."""
    return cast("dict[str, Any]", _RESPONSE.dump_python(response, mode="json", exclude_none=True, fallback=str))


def left_out(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which kinds of parts are not kept."""
    return tuple(dict.fromkeys(part["part_kind"] for part in answer["parts"] if part["part_kind"] in LEFT_OUT))


def items_of(answer: Mapping[str, Any], *, route: str, system: str) -> tuple[ProviderItem, ...]:
    """Return the items of an answer; none where all of it is plain text and calls. Raises TooManyItems."""
    calls = count()
    bodies = [_body(part, calls) for part in answer["parts"] if part["part_kind"] not in LEFT_OUT]
    if all(body.keys() <= {TEXT} or body.keys() <= {CALL} for body in bodies):
        return ()
    if len(bodies) >= ITEMS_MAX:
        raise TooManyItems
    bodies.insert(0, {ANSWER: {name: answer[name] for name in ANSWER_FIELDS if name in answer}})
    model = str(answer.get("model_name", ""))[:200]
    return tuple(ProviderItem(route=route, api=api_of(system), model=model, body=_json(body)) for body in bodies)


def answer_of(message: Message, *, route: str, system: str, url: str | None) -> ModelResponse:
    """Return an answer as Pydantic AI's: with its own parts, where this route's provider at `url` gave it."""
    bodies = [body for body in item_bodies(message.items, api=api_of(system), route=route) if _is_readable(body)]
    answer = fields_of(next((body[ANSWER] for body in bodies if ANSWER in body), None))
    if answer.get("provider_url") == url:
        parts = list(_parts([body for body in bodies if ANSWER not in body], message))
        try:
            return _RESPONSE.validate_python({**answer, "kind": "response", "parts": parts})
        except ValidationError:  # no answer of ours, or another version of Pydantic AI has written it
            pass
    return _RESPONSE.validate_python({"kind": "response", "parts": [*_parts((), message)]})


def _body(part: Mapping[str, Any], calls: Iterator[int]) -> dict[str, Any]:
    own = {name: part[name] for name in OWN_FIELDS if name in part}
    match part["part_kind"]:
        case "text":
            return {TEXT: len(encodable(part["content"])), **own}
        case "tool-call":
            return {CALL: next(calls), **own}
        case _:
            return {PART: part}


def _parts(bodies: Sequence[Mapping[str, Any]], message: Message) -> Iterator[dict[str, Any]]:
    """Yield the parts of an answer: as they came, or, where a hook has changed it, the provider's own first."""
    text, calls = message.text, message.tool_calls
    if not _describes(bodies, text, len(calls)):
        yield from (body[PART] for body in bodies if PART in body)
        if text.strip() or not calls:
            yield _text(text)
        yield from map(_call, calls)
        return
    place = 0
    for body in bodies:
        own = {name: body[name] for name in OWN_FIELDS if name in body}
        if PART in body:
            yield body[PART]
        elif CALL in body:
            yield _call(calls[cast("int", body[CALL])]) | own
        else:
            yield _text(text[place : place + body[TEXT]]) | own
            place += body[TEXT]


def _describes(bodies: Sequence[Mapping[str, Any]], text: str, calls_count: int) -> bool:
    """Return whether the items have places for exactly this text and these calls."""
    if not bodies:
        return False
    chars = sum(body[TEXT] for body in bodies if TEXT in body)
    return chars == len(text) and [body[CALL] for body in bodies if CALL in body] == list(range(calls_count))


def _text(text: str) -> dict[str, Any]:
    return {"part_kind": "text", "content": text if text.strip() else EMPTY}


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "part_kind": "tool-call",
        "tool_name": call.name,
        "args": call.sent_arguments,
        "tool_call_id": call.id,
    }


def _is_readable(body: Mapping[str, Any]) -> bool:
    """Return whether a body is the answer's fields, a part or a placeholder."""
    return any(type(body.get(name)) is kind for name, kind in ((ANSWER, dict), (PART, dict), (TEXT, int), (CALL, int)))


def _json(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=True, separators=(",", ":"))
