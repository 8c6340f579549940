"""Values that servers get wrong although their API promises them: what cannot be read counts as missing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from holdfast.core.base.bounds import REPORTED_TOKENS_MAX
from holdfast.core.base.safe_text import encodable
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.models.event_stream import fields_of


def text_of(value: object) -> str:
    """Return a text, and no text for any other value."""
    return encodable(value) if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """Return a number of tokens, at most REPORTED_TOKENS_MAX; none for what is no such number."""
    # JSON has true where a number should be, and floats; a budget must not become negative or infinite
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return int(min(value, REPORTED_TOKENS_MAX))
    return None


def json_of(value: object) -> str | None:
    """Return compact JSON that any client can send on; none for what no JSON has, such as NaN, and for too deep nests.

    Half a character, as a cut answer may end with, is replaced: UTF-8 cannot carry it.
    """
    try:
        return encodable(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    except (ValueError, RecursionError):
        return None


def item_bodies(items: Iterable[ProviderItem], *, api: str, route: str) -> list[dict[str, Any]]:
    """Return the bodies of the items that `route` has given by `api`, in order: only these go back.

    One that is no JSON object is left out: a snapshot may come from anywhere.
    """
    own = (item for item in items if item.api == api and item.route == route and item.digest is None)
    return [body for item in own if (body := _object(item.body))]


def _object(text: str) -> dict[str, Any]:
    try:
        return fields_of(json.loads(text))
    except (ValueError, RecursionError):
        return {}
