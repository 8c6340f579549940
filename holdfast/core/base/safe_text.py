"""Makes foreign text safe to store: bounded and encodable, whatever a tool or a provider put into it."""

from __future__ import annotations

import unicodedata
from typing import Final

from pydantic_core import to_json

JSON_BYTES_PER_CHAR_MAX: Final = 6
"""A control character as an escape."""


def encodable(text: str) -> str:
    """Return `text` with what UTF-8 cannot carry (lone surrogates) replaced by `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def printable(text: str) -> str:
    """Return `text` with what could steer a terminal or reorder its line shown as escapes; line ends stay."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        else ascii(char)[1:-1]
        for char in text
    )


def clamped(text: str, chars_max: int) -> str:
    """Return `text` cut to at most `chars_max` characters, with a note of the cut at its end."""
    if len(text) <= chars_max:
        return encodable(text)
    note = f"\n[cut: the first {chars_max:,} of {len(text):,} characters]"
    return encodable(text[: max(0, chars_max - len(note))]) + note


def clamped_json(text: str, bytes_max: int, chars_max: int | None = None) -> str:
    """Return `text` cut to `bytes_max` bytes as JSON, and to `chars_max` characters; a note at its end says so."""
    text = encodable(text)
    if (chars_max is None or len(text) <= chars_max) and _fits(text, bytes_max):
        return text
    note = f"\n[cut: the beginning of {len(text):,} characters]"
    fits = fitting(text, bytes_max - json_size(note), None if chars_max is None else chars_max - len(note))
    return text[:fits] + note


def fitting(text: str, bytes_max: int, chars_max: int | None = None) -> int:
    """Return how many characters of `text` take at most `bytes_max` bytes as JSON, and are at most `chars_max`."""
    longest = min(len(text), bytes_max) if chars_max is None else min(len(text), bytes_max, chars_max)
    fits, too_long = 0, longest + 1
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (middle, too_long) if _fits(text[:middle], bytes_max) else (fits, middle)
    return fits


def _fits(text: str, bytes_max: int) -> bool:
    return len(text) * JSON_BYTES_PER_CHAR_MAX <= bytes_max or json_size(text) <= bytes_max


def json_size(text: str) -> int:
    """Return how many bytes `text` takes as a JSON string, quotes and escapes included."""
    return len(to_json(text))
