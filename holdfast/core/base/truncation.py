"""Truncated texts that end with a reference to the rest: one last line, which further cuts keep correct."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from holdfast.core.base.safe_text import JSON_BYTES_PER_CHAR_MAX, clamped, clamped_json, encodable, fitting, json_size

FETCH_TOOL: Final = "fetch_result"
"""The tool that reads the rest of a truncated result; a worker offers it beside its own."""

RECORDS_TOOL: Final = "read_records"
"""The tool that lets an agent read its own earlier executions."""

LINE_CHARS_MAX: Final = 400
"""The longest such line, generously."""

_LINE: Final = re.compile(
    r'\n\[cut: bytes ([\d,]{1,20}) to [\d,]{1,20} of ([^\n;]{1,100}); fetch_result\(ref="([0-9a-f]{1,64})"[^\n]*\]\Z'
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to a stored text: its name, its total size, and the byte at which the part shown begins."""

    ref: str
    total: str
    start: int = 0

    def shown(self, text: str, bytes_max: int, chars_max: int | None = None) -> str:
        """Return as much of the beginning of `text` as fits (in bytes of JSON, in characters) and where to read on.

        Offsets are bytes of UTF-8, so that a reader fetches only the bytes it needs.
        """
        text = encodable(text[: bytes_max if chars_max is None else chars_max])  # what could be shown at the most
        longest = self._line(self.start + len(text.encode()))
        fits = fitting(
            text, bytes_max - json_size(longest), None if chars_max is None else max(0, chars_max - len(longest))
        )
        beginning = text[:fits]
        return beginning + self._line(self.start + len(beginning.encode()))

    def _line(self, end: int) -> str:
        reads_on = f'{FETCH_TOOL}(ref="{self.ref}", offset={end}) reads on, where you may call it'
        return f"\n[cut: bytes {self.start:,} to {end:,} of {self.total}; {reads_on}]"


def reference_of(text: str) -> str | None:
    """Return the reference in the last line of a truncated text; none where it has no such line."""
    match = _LINE.search(text, max(0, len(text) - LINE_CHARS_MAX))
    return None if match is None else match[3]


def shortened(text: str, bytes_max: int, chars_max: int | None = None) -> str:
    """Return `text` cut as `clamped_json` does; one that ends with a reference still does, and goes on at the cut."""
    if (match := _LINE.search(text, max(0, len(text) - LINE_CHARS_MAX))) is None:
        return clamped_json(text, bytes_max, chars_max)
    if (chars_max is None or len(text) <= chars_max) and json_size(text) <= bytes_max:
        return text
    reference = Reference(ref=match[3], total=match[2], start=int(match[1].replace(",", "")))
    return reference.shown(text[: match.start()], bytes_max, chars_max)


def trimmed(text: str, chars_max: int) -> str:
    """Return `text` cut as `clamped` does; one that ends with a reference still does where there is room for it."""
    if chars_max < LINE_CHARS_MAX or _LINE.search(text, max(0, len(text) - LINE_CHARS_MAX)) is None:
        return clamped(text, chars_max)
    return shortened(text, JSON_BYTES_PER_CHAR_MAX * (chars_max + 1), chars_max)
