"""Suggestions for unknown names, as the end of an error's sentence. Checks no name itself."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from holdfast.core.base.bounds import NAMES_LISTED_MAX


def nearest(name: str, choices: Collection[str]) -> str:
    """Return that `name` is not there, with the nearest of `choices`, or all of them."""
    return f"which is not there; {suggestion(name, choices)}"


def suggestion(name: str, choices: Collection[str]) -> str:
    """Return the nearest of `choices` as a question, or all of them in a list."""
    if close := get_close_matches(name, choices, n=1):
        return f"did you mean {close[0]!r}?"
    listed = ", ".join(sorted(choices)[:NAMES_LISTED_MAX]) or "none"
    more = f" and {len(choices) - NAMES_LISTED_MAX} more" if len(choices) > NAMES_LISTED_MAX else ""
    return f"there are: {listed}{more}"
