"""Glob patterns on the arguments of tool calls: which values a place refers to, and whether they match.

A place is an argument's name, or a dotted path into objects (`order.total`). Its value is split into texts:
a text is itself, a number, `true`, `false` and `null` are as in JSON (`5.0` is `5`), and of a list or an object each
value in it counts, however deep; an empty one is `[]` or `{}`. Lists on the way to a place are gone through.

A pattern is a glob over the whole of a text, capitals told apart: `*` stands for any characters, `?` for one, every
other character for itself. No text can make a match slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Final

from pydantic import AfterValidator, Field, JsonValue
from pydantic_core import to_json

ARGUMENT_PATTERNS_MAX: Final = 16
"""The most arguments that one approval rule has a pattern for."""

ARGUMENT_PATTERN_CHARS_MAX: Final = 200
"""The longest pattern on an argument, and the longest path to one."""

ARGUMENT_PLACE_PARTS_MAX: Final = 8
"""The most names in such a path."""


def _checked_place(place: str) -> str:
    parts = place.split(".")
    if not all(parts):
        raise ValueError(f"{place!r} is not a place: name an argument, or a path into it such as `order.total`")
    if len(parts) > ARGUMENT_PLACE_PARTS_MAX:
        raise ValueError(f"{place[:60]!r} has {len(parts)} parts, at most {ARGUMENT_PLACE_PARTS_MAX} are allowed")
    return place


Place = Annotated[str, Field(max_length=ARGUMENT_PATTERN_CHARS_MAX), AfterValidator(_checked_place)]
Glob = Annotated[str, Field(max_length=ARGUMENT_PATTERN_CHARS_MAX)]
ArgumentPatterns = Annotated[Mapping[Place, Glob], Field(max_length=ARGUMENT_PATTERNS_MAX)]
"""Patterns by place."""


def matches_some(patterns: Mapping[str, str], arguments: Mapping[str, JsonValue]) -> bool:
    """Return whether, at every place, some text matches its pattern; what is not there matches none."""
    return all(any(_fits(text, glob) for text in _texts_at(arguments, place)) for place, glob in patterns.items())


def matches_all(patterns: Mapping[str, str], arguments: Mapping[str, JsonValue]) -> bool:
    """Return whether, at every place, every text matches its pattern and none is missing."""
    return all(_all_fit(list(_texts_at(arguments, place)), glob) for place, glob in patterns.items())


def _all_fit(texts: list[str | None], glob: str) -> bool:
    return bool(texts) and all(_fits(text, glob) for text in texts)


def _fits(text: str | None, glob: str) -> bool:
    return text is not None and glob_matches(glob, text)


def _texts_at(arguments: Mapping[str, JsonValue], place: str) -> Iterator[str | None]:
    return _texts_below(dict(arguments), place.split("."))


def _texts_below(value: JsonValue, parts: list[str]) -> Iterator[str | None]:
    if not parts:
        yield from _texts_of(value)
    elif isinstance(value, list) and value:
        for each in value:
            yield from _texts_below(each, parts)
    else:
        yield from _texts_inside(value, parts)


def _texts_inside(value: JsonValue, parts: list[str]) -> Iterator[str | None]:
    """Follow a path into an object; where a name itself has dots in it, every reading of the path counts."""
    present = False
    if isinstance(value, dict):
        for length in range(1, len(parts) + 1):
            name = ".".join(parts[:length])
            if name in value:
                present = True
                yield from _texts_below(value[name], parts[length:])
    if not present:
        yield None  # in place of a text: one of the values at the place is missing


def _texts_of(value: JsonValue) -> Iterator[str]:
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        for each in inner:
            yield from _texts_of(each)
        if not value:
            yield to_json(value).decode()
    else:
        yield _text_of(value)


def _text_of(value: str | float | bool | None) -> str:  # noqa: FBT001  # JSON
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return to_json(value).decode()


def glob_matches(glob: str, text: str) -> bool:
    """Return whether `text` as a whole is what `glob` says.

    The parts between the stars are searched in turn, each at its leftmost match. Nothing is tried twice, so the time
    grows with the lengths of the two and never with their powers.
    """
    first, *rest = glob.split("*")
    if not rest:
        return len(text) == len(first) and _matches_at(first, text, 0)
    *middle, last = rest
    if len(text) < len(first) + len(last) or not _matches_at(first, text, 0):
        return False
    end = len(text) - len(last)
    if not _matches_at(last, text, end):
        return False
    at = len(first)
    for part in middle:
        start = _position(part, text, at, end)
        if start is None:
            return False
        at = start + len(part)
    return True


def _matches_at(part: str, text: str, at: int) -> bool:
    there = text[at : at + len(part)]
    return len(there) == len(part) and all(char in ("?", other) for char, other in zip(part, there, strict=True))


def _position(part: str, text: str, start: int, end: int) -> int | None:
    """Return the first place between `start` and `end` where `part` begins in `text`; none where it is not there."""
    if "?" not in part:
        at = text.find(part, start, end)
        return None if at < 0 else at
    match = _searcher(part).search(text, start, end)
    return None if match is None else match.start()


@lru_cache(maxsize=256)
def _searcher(part: str) -> re.Pattern[str]:
    """Return a search of fixed length: nothing in it repeats."""
    return re.compile("".join("." if char == "?" else re.escape(char) for char in part), re.DOTALL)
