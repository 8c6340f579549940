"""The columns of `holdfast top`: the text of each cell, and the order of rows. Asks and prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from holdfast.cli.screens import listing_table
from holdfast.cli.screens.listing_table import SHORT_ID_CHARS
from holdfast.cli.screens.output import COLOURS, short
from holdfast.cli.screens.progress_bars import Glyphs, bar, share_line
from holdfast.cli.screens.session_views import SESSION_COLOURS
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.conversation.amounts import ESTIMATED, counted, duration, short_dollars
from holdfast.view.budget_use import Share, tightest

if TYPE_CHECKING:
    from holdfast.view.server_overview import Row

ID_CHARS: Final = 8
BAR_CHARS: Final = 10
NOTHING: Final = "-"
WIDE_CHARS: Final = 120
"""How wide a terminal must be for all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(listing_table.Column):
    """One column: its text and its place in the order; `falling` is how it is ordered at first."""

    text: Callable[[Row, datetime, Glyphs], Text]
    order: Callable[[Row, datetime], Any]
    falling: bool = False


def _agent(row: Row) -> str:
    return row.listed.summary.agent or (row.run.agent if row.run else "")


def _status(row: Row) -> Text:
    status = row.listed.status
    if row.listed.kind == "session":
        return Text(f"session {status}", SESSION_COLOURS.get(status, ""))
    colour = COLOURS[ExecutionStatus(status)] if status in set(ExecutionStatus) else ""
    return Text(short(status.replace("_", " ")), colour)


def steps(row: Row) -> int | None:
    """Return how many steps of it are complete."""
    return row.run.step_count if row.run else row.listed.steps


def tokens(row: Row) -> int | None:
    """Return what it has used."""
    return row.run.usage.total_tokens if row.run else row.listed.summary.tokens


def cost(row: Row) -> float | None:
    """Return the same in US dollars, without `unpriced` models."""
    return (row.run or row.listed.summary).cost


def scarce(row: Row, now: datetime) -> Share | None:
    """Return the limit of which most is used."""
    return tightest(row.shares(now))


def _budget(row: Row, now: datetime, glyphs: Glyphs) -> Text:
    if row.unread:
        return Text("no answer", "yellow")
    share = scarce(row, now)
    if share is None:
        return Text(NOTHING, "dim")
    return Text.assemble(bar(share, BAR_CHARS, glyphs), f" {share.fraction:4.0%} ", (share.limit, "dim"))


def waiting(row: Row) -> int:
    """Return how many calls of it wait for a person, at least."""
    return len(row.waiting) if row.run else int(row.listed.waiting)


def _waiting(row: Row) -> Text:
    number = waiting(row)
    return Text(counted(number, "call") if number else NOTHING, "yellow" if number else "dim")


def _cell(value: float | str | None, form: str = "{}") -> Text:
    return Text(NOTHING, "dim") if value in (None, "") else Text(short(form.format(value)))


def _tokens(row: Row) -> Text:
    estimated = row.run.usage.estimated_tokens if row.run else row.listed.summary.estimated_tokens
    return _cell(tokens(row), f"{ESTIMATED if estimated else ''}{{:,}}")


def _cost(row: Row) -> Text:
    """Return the cost; in a table that fits a screen the models without a price go unnamed."""
    amount = cost(row)
    return _cell(None if amount is None else short_dollars(amount, (row.run or row.listed.summary).unpriced))


def _last(value: float | None) -> float:
    """Return a number to order by: what is not known is less than anything known."""
    return -1.0 if value is None else value


def _of(text: Callable[[Row], Text]) -> Callable[[Row, datetime, Glyphs], Text]:
    """Return the text of a column that neither time nor terminal makes any difference to."""
    return lambda row, _now, _glyphs: text(row)


def _used(row: Row, now: datetime) -> float:
    return _last(share.fraction if (share := scarce(row, now)) else None)


def _number(name: str, rank: int, text: Callable[[Row], Text], value: Callable[[Row], float | None]) -> Column:
    """Return a column of numbers, the largest on top."""
    return Column(name, rank=rank, right=True, text=_of(text), order=lambda row, _: _last(value(row)), falling=True)


COLUMNS: Final = (
    Column("agent", least=8, text=_of(lambda row: _cell(_agent(row))), order=lambda row, _: _agent(row)),
    Column(
        "id",
        least=SHORT_ID_CHARS,
        text=_of(lambda row: Text(row.listed.id[:ID_CHARS], "dim")),
        order=lambda row, _: row.listed.id,
    ),
    Column("status", least=8, text=_of(_status), order=lambda row, _: (row.listed.kind, row.listed.status)),
    _number("steps", 1, lambda row: _cell(steps(row)), steps),
    _number("tokens", 5, _tokens, tokens),
    _number("cost", 4, _cost, cost),
    Column("budget", rank=2, text=_budget, order=_used, falling=True),
    Column(
        "elapsed",
        rank=3,
        right=True,
        text=lambda row, now, _: Text(duration(row.elapsed(now))),
        order=lambda row, now: row.elapsed(now),
    ),
    Column("waiting", text=_of(_waiting), order=lambda row, _: waiting(row), falling=True),
    Column(
        "tenant",
        rank=6,
        text=_of(lambda row: _cell(row.listed.tenant)),
        order=lambda row, _: row.listed.tenant or "",
    ),
    Column(
        "parent",
        rank=7,
        text=_of(lambda row: _cell((row.listed.parent or "")[:ID_CHARS])),
        order=lambda row, _: row.listed.parent or "",
    ),
)
"""From left to right; `rank` and `least` say how they give way where the table is printed once."""

NAMES: Final = tuple(each.name for each in COLUMNS)
FIRST: Final = NAMES.index("elapsed")
"""What rows are ordered by at first: the latest to begin on top."""


def visible_columns(of: Iterable[Row], width: int) -> tuple[Column, ...]:
    """Return the columns for a terminal of that width: in a narrow one the last two only where they say something."""
    if width >= WIDE_CHARS or any(row.listed.tenant or row.listed.parent for row in of):
        return COLUMNS
    return COLUMNS[:-2]


def ordered(of: Iterable[Row], column: int, now: datetime, *, turned: bool = False) -> list[Row]:
    """Return the rows ordered by a column, the other way round where `turned`; equals by their ids."""
    by = COLUMNS[column]
    rows = sorted(of, key=lambda row: row.listed.id)
    return sorted(rows, key=lambda row: by.order(row, now), reverse=by.falling != turned)


def as_data(row: Row, now: datetime) -> dict[str, Any]:
    """Return a row as JSON holds it."""
    listed = row.listed
    return {
        "id": listed.id,
        "kind": listed.kind,
        "agent": _agent(row) or None,
        "status": listed.status,
        "steps": steps(row),
        "tokens": tokens(row),
        "cost": cost(row),
        "unpriced": list((row.run or listed.summary).unpriced),
        "budget": [{"limit": each.limit, "used": each.used, "most": each.most} for each in row.shares(now)],
        "seconds": round(row.elapsed(now), 3),
        "waiting": waiting(row),
        "tenant": listed.tenant,
        "parent": listed.parent,
        "started_at": row.started_at.isoformat(),
        "unread": row.unread or None,
    }


def limits(row: Row, now: datetime, glyphs: Glyphs) -> list[Text]:
    """Return a line with a bar for each limit."""
    theirs = row.run is not None and row.run.steps_used != row.run.step_count
    return [share_line(each, 2 * BAR_CHARS, glyphs, with_subagents=theirs) for each in row.shares(now)]
