"""Escapes texts of people, models and tools for Markdown, by writing them as code. Pure text.

Temporal's UI reads it, in some versions more generously than CommonMark (`[a] (b)` is a link, so is a bare address, and
escapes do not help): in code nothing is a link, markup, or another row of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.base.safe_text import clamped, printable
from holdfast.core.conversation.display_text import on_a_line

_CODE: Final = str.maketrans({"`": "'", "|": "¦"})
"""The characters that would end a code span or a table cell; inside code no escape helps."""

BAR_CELLS: Final = 10

GAP: Final = "\u2003"
"""An em space after a cell: the UI may draw tables without any room between their columns."""


def code(text: str, chars_max: int) -> str:
    """Return the beginning of `text` on one line as code, for a line or a cell; backticks and bars become others."""
    return f"`{on_a_line(text, chars_max).translate(_CODE) or ' '}`"


def block(text: str, chars_max: int) -> str:
    """Return the beginning of a text of several lines as a block of its own, its lines kept."""
    shown = printable(clamped(text, chars_max)).rstrip().replace("```", "'''")
    return f"```text\n{shown}\n```"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a column whose name begins with `>` has its cells to the right. Cells are Markdown already."""
    marks = ("---:" if name.startswith(">") else "---" for name in columns)
    head = (name.removeprefix(">") for name in columns)
    apart = f"{GAP} | "
    lines = (apart.join(head), " | ".join(marks), *(apart.join(row) for row in rows))
    return "\n".join(f"| {line} |" for line in lines)


def bar(used: float, limit: float) -> str:
    """Return how much of `limit` is used, as `███████░░░ 70 %`; full only when all of it is."""
    share = min(1.0, used / limit) if limit > 0 else 1.0
    full = int(share * BAR_CELLS)
    return f"{'█' * full}{'░' * (BAR_CELLS - full)} {int(share * 100)} %"
