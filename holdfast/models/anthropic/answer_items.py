"""The blocks of an answer as `ProviderItem`s and back: kept verbatim, in order, for the route that gave them.

An answer's text and tool calls are fields of their own. Where other blocks stand among them, items without a type hold
their places: `{"text": 12}` are the next twelve characters of the text, `{"call": 0}` is the first call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final

from holdfast.core.base.safe_text import encodable
from holdfast.core.conversation.provider_items import ITEMS_MAX, ProviderItem
from holdfast.models.lenient_values import item_bodies, json_of

API: Final = "anthropic"
"""The name of the API in an item."""

ANSWER_TEXT: Final = "text"
"""The field of an item that stands for some of the answer's text: how many characters."""

ANSWER_CALL: Final = "call"
"""The field of an item that stands for one of the answer's tool calls: which one, from 0."""


class TooManyItems(Exception):
    """An answer has more than ITEMS_MAX blocks, and one that is neither text nor a call."""


class NoJson(Exception):
    """An answer has a block that JSON does not have: a number that is none."""


def items_of(blocks: Iterable[dict[str, Any]], route: str, model: str) -> tuple[ProviderItem, ...]:
    """Return the items for the blocks of an answer, none where all are text or calls. Raises TooManyItems, NoJson.

    Thinking without a signature was cut off; the API would not take it back.
    """
    calls = count()
    bodies = [_body(block, calls) for block in blocks if block["type"] != "thinking" or block.get("signature")]
    if not any("type" in body for body in bodies):
        return ()
    if len(bodies) > ITEMS_MAX:
        raise TooManyItems
    return tuple(ProviderItem(route=route, api=API, model=model, body=_json(body)) for body in bodies)


def blocks_of(items: Iterable[ProviderItem], route: str) -> list[dict[str, Any]]:
    """Return the blocks and placeholders of the items of this API and `route`; what is neither is left out."""
    return [body for body in item_bodies(items, api=API, route=route) if _is_readable(body)]


def _is_readable(body: dict[str, Any]) -> bool:
    kind: object = body.get("type")
    if kind is None:
        return any(type(body.get(name)) is int for name in (ANSWER_TEXT, ANSWER_CALL))
    return isinstance(kind, str) and (kind != "text" or isinstance(body.get("text"), str))


def _body(block: dict[str, Any], calls: Iterator[int]) -> dict[str, Any]:
    match block["type"]:
        case "text" if not block.get("citations"):
            return {ANSWER_TEXT: len(encodable(block["text"]))}
        case "tool_use":
            return {ANSWER_CALL: next(calls)}
        case _:
            return block


def _json(body: dict[str, Any]) -> str:
    if (text := json_of(body)) is None:
        raise NoJson
    return text
