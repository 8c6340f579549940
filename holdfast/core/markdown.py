"""Markdown of what people, models and tools have said: escaped, so that it is words wherever it stands. Pure text.

Read by Temporal's UI (CommonMark with tables); nothing that is shown makes a link, markup, or another row of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.excerpts import on_a_line
from holdfast.core.texts import clamped, printable

_ESCAPES: Final = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#&~"})
_CODE: Final = str.maketrans({"`": "'", "|": "¦"})
"""What would end a code span, or a table's cell within one, where no escape holds."""

BAR_CELLS: Final = 10


def words(text: str, chars_max: int) -> str:
    """Return the beginning of `text` on one line, to stand within a line or a cell as the words that it is."""
    return on_a_line(text, chars_max).translate(_ESCAPES)


def code(text: str, chars_max: int) -> str:
    """Return the same as code; backticks and bars are shown as their like."""
    return f"`{on_a_line(text, chars_max).translate(_CODE) or ' '}`"


def block(text: str, chars_max: int) -> str:
    """Return the beginning of a text of several lines as a block of its own, its lines kept."""
    shown = printable(clamped(text, chars_max)).rstrip()
    fence = "```"
    while fence in shown:
        fence += "`"
    return f"{fence}text\n{shown}\n{fence}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a column whose name begins with `>` has its cells to the right. Cells are Markdown already."""
    marks = ("---:" if name.startswith(">") else "---" for name in columns)
    head = (name.removeprefix(">") for name in columns)
    return "\n".join(f"| {' | '.join(row)} |" for row in (tuple(head), tuple(marks), *rows))


def bar(used: float, limit: float) -> str:
    """Return how much of `limit` is used, as `███████░░░ 70 %`; full only when all of it is."""
    share = min(1.0, used / limit) if limit > 0 else 1.0
    full = int(share * BAR_CELLS)
    return f"{'█' * full}{'░' * (BAR_CELLS - full)} {int(share * 100)} %"
