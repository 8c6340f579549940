"""Calls and questions as one short line, safe wherever they are shown. Decides nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from holdfast.core.base.bounds import SUMMARY_LINE_CHARS_MAX, WORD_CHARS_MAX
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.messages import ToolCall

SUMMARY_LINE_BYTES_MAX: Final = 240
"""The same in UTF-8 bytes: Temporal's limit is 400, of which a codec needs some."""

REPORTED_TEXT_CHARS_MAX: Final = 4_000
"""How much of one text (a result, arguments, an answer of the model) a report shows, and a transcript on a screen."""

CUT: Final = "…"
HIDDEN: Final = "•••"
"""Replaces the value of an argument whose name suggests a secret."""

DEPTH_SHOWN_MAX: Final = 3

_SECRET: Final = re.compile(
    r"passw|passphrase|secret|token(?!s)|api[-_]?key|private[-_]?key|access[-_]?key|authori[sz]ation|credential|cookie|headers?$",
    re.IGNORECASE,
)

_LINK: Final = re.compile(r"\]\s*([(\[])")
_ADDRESS: Final = re.compile(r"(https?|ftps?|file|mailto|javascript|data):", re.IGNORECASE)


def on_a_line(text: str, chars_max: int = SUMMARY_LINE_CHARS_MAX) -> str:
    """Return the beginning of `text` as one line of at most so many characters, without control characters.

    Line ends and runs of blanks become one blank; control and direction characters are shown as escapes.
    """
    shown = " ".join(text[: 4 * chars_max].split())
    whole = len(shown) <= chars_max and len(text) <= 4 * chars_max
    shown = shown[: chars_max + 1]
    if not shown.isprintable():
        shown = printable(shown)
    if whole and len(shown) <= chars_max:
        return shown
    return shown[: chars_max - 1].rstrip() + CUT


def summary_line(text: str, chars_max: int = SUMMARY_LINE_CHARS_MAX) -> str:
    """Return `text` as Temporal's UI shows it beside a call, or as a run's own summary, where it is read as Markdown.

    It makes no link and no markup there; it stays within what a server takes (SUMMARY_LINE_BYTES_MAX).
    """
    line = on_a_line(_ADDRESS.sub(r"\1: ", _LINK.sub(r"]·\1", text[: 4 * chars_max])).replace("<", "‹"), chars_max)
    room = SUMMARY_LINE_BYTES_MAX
    if len(line) * 4 <= room or len(line.encode()) <= room:
        return line
    return line.encode()[: room - len(CUT.encode())].decode(errors="ignore") + CUT


def call_line(call: ToolCall, chars_max: int = SUMMARY_LINE_CHARS_MAX) -> str:
    """Return a tool call as `read_file(src/a.py)`, its arguments shortened and secrets among them hidden."""
    pieces, length = [call.name[: chars_max + 1], "("], 0
    for piece in _arguments(call.arguments):
        pieces.append(piece[: chars_max + 1])
        length += len(piece)
        if length > chars_max:
            break
    return on_a_line("".join((*pieces, ")")), chars_max)


def _arguments(arguments: Mapping[str, object]) -> Iterator[str]:
    """Yield the arguments piece by piece, so that no more of them is written than is shown."""
    if len(arguments) == 1:
        ((name, value),) = arguments.items()
        yield from _value(name, value, DEPTH_SHOWN_MAX)
    else:
        yield from _fields(arguments, DEPTH_SHOWN_MAX)


def _fields(values: Mapping[str, object], depth: int) -> Iterator[str]:
    for place, (name, value) in enumerate(values.items()):
        yield f"{', ' if place else ''}{name}="
        yield from _value(name, value, depth)


def _value(name: str, value: object, depth: int) -> Iterator[str]:
    match value:
        case _ if _SECRET.search(name[:WORD_CHARS_MAX]):
            yield HIDDEN
        case str():
            yield value
        case bool() | None:
            yield {True: "true", False: "false", None: "null"}[value]
        case Mapping() | list() | tuple() if depth == 0:
            yield CUT
        case Mapping():
            yield "{"
            yield from _fields(cast("Mapping[str, object]", value), depth - 1)
            yield "}"
        case list() | tuple():
            yield "["
            for place, each in enumerate(cast("Sequence[object]", value)):
                yield ", " if place else ""
                yield from _value("", each, depth - 1)
            yield "]"
        case _:
            yield str(value)


def beginning(text: str, chars_max: int = REPORTED_TEXT_CHARS_MAX) -> tuple[str, str]:
    """Return the beginning of `text`, and what to say about the rest: nothing where there is none."""
    if len(text) <= chars_max:
        return text, ""
    return text[:chars_max], f"{len(text) - chars_max:,} of {len(text):,} characters are left out here"
