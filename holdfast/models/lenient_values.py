"""Values of an answer that its provider promises and servers get wrong: what cannot be read counts as missing."""

from __future__ import annotations

import json

from holdfast.core.base.bounds import REPORTED_TOKENS_MAX
from holdfast.core.base.safe_text import encodable


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
