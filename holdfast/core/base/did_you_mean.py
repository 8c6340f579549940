"""The end of a sentence about an unknown name. Judges no name itself."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from holdfast.core.base.bounds import NAMES_TOLD_MAX


def nearest(name: str, known: Collection[str]) -> str:
    """Return that `name` is not there, with the nearest known one, or all of them."""
    return f"which is not there; {suggestion(name, known)}"


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the nearest known name as a question, or all of them in a list."""
    if close := get_close_matches(name, known, n=1):
        return f"did you mean {close[0]!r}?"
    listed = ", ".join(sorted(known)[:NAMES_TOLD_MAX]) or "none"
    more = f" and {len(known) - NAMES_TOLD_MAX} more" if len(known) > NAMES_TOLD_MAX else ""
    return f"there are: {listed}{more}"
