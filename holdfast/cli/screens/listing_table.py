"""Tables that fit the terminal: a narrow one shortens ids first, then names, then omits columns.

Whatever is cut ends with an ellipsis. The beginning of an id is enough for every command.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

SHORT_ID_CHARS: Final = 9
"""Eight digits of an id, and the ellipsis."""

GAP_CHARS: Final = 2

NAME_CHARS_MIN: Final = 4
"""No name is cut shorter than this, whatever the terminal's width."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `rank` 0 stays; of the others, the highest gives way first.

    It may be cut to `least` characters; 0: it stays whole.
    """

    name: str
    rank: int = 0
    least: int = 0
    right: bool = False


def id_column(name: str) -> Column:
    """Return a column of ids, which are whole or of eight digits."""
    return Column(name, least=SHORT_ID_CHARS)


def print_listing(screen: Console, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of cells in Rich's markup, one line per row where the screen has 50 columns or more."""
    cells = [[Text.from_markup(cell) for cell in row] for row in rows]
    widths = _widths(columns, _natural(columns, cells), screen.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP_CHARS, 0, 0))
    for place in widths:
        column = columns[place]
        table.add_column(column.name, justify="right" if column.right else "left", no_wrap=True, overflow="ellipsis")
    for row in cells:
        for place, width in widths.items():
            row[place].truncate(width, overflow="ellipsis")
        table.add_row(*(row[place] for place in widths))
    screen.print(table)


def whole_width(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> int:
    """Return how wide the table is where nothing gives way."""
    natural = _natural(columns, [[Text.from_markup(cell) for cell in row] for row in rows])
    return sum(natural) + GAP_CHARS * (len(natural) - 1)


def _natural(columns: Sequence[Column], cells: Sequence[Sequence[Text]]) -> list[int]:
    return [max(len(column.name), *(row[place].cell_len for row in cells)) for place, column in enumerate(columns)]


def _widths(columns: Sequence[Column], natural: Sequence[int], available: int) -> dict[int, int]:
    """Return the places of the columns that are shown, in order, with the width of each."""
    places = list(range(len(columns)))
    while True:
        widths = _cut({place: natural[place] for place in places}, {at: columns[at].least for at in places}, available)
        droppable = [place for place in places if columns[place].rank]
        if _total(widths) <= available or not droppable:
            break
        places.remove(max(droppable, key=lambda place: columns[place].rank))
    if _total(widths) > available:  # rather a name of four letters than a line that breaks
        names = {place: NAME_CHARS_MIN if columns[place].least > SHORT_ID_CHARS else 0 for place in places}
        widths = _cut(widths, names, available)
    return widths


def _cut(widths: dict[int, int], least: dict[int, int], available: int) -> dict[int, int]:
    """Return the widths as far cut as there is need: ids to their short form, then the widest of the names."""
    widths = dict(widths)
    for place in (each for each in widths if least[each] == SHORT_ID_CHARS):
        if _total(widths) > available:
            widths[place] = min(widths[place], SHORT_ID_CHARS)
    while _total(widths) > available:
        names = [each for each in widths if least[each] and widths[each] > least[each]]
        if not names:
            break
        widths[max(names, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP_CHARS * (len(widths) - 1)
