"""The columns of `holdfast top`: what each says of a row, and how rows are ordered by it. Asks and prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from holdfast.cli.screens.output import COLOURS, short
from holdfast.cli.screens.progress_bars import Glyphs, bar, told_share
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


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its text and its place in the order; `falling` is how it is ordered at first."""

    name: str
    text: Callable[[Row, datetime, Glyphs], Text]
    order: Callable[[Row, datetime], Any]
    right: bool = False
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


def _told(value: float | str | None, form: str = "{}") -> Text:
    return Text(NOTHING, "dim") if value in (None, "") else Text(short(form.format(value)))


def _tokens(row: Row) -> Text:
    estimated = row.run.usage.estimated_tokens if row.run else row.listed.summary.estimated_tokens
    return _told(tokens(row), f"{ESTIMATED if estimated else ''}{{:,}}")


def _cost(row: Row) -> Text:
    """Return the cost; in a table that fits a screen the models without a price go unnamed."""
    known = cost(row)
    return _told(None if known is None else short_dollars(known, (row.run or row.listed.summary).unpriced))


def _last(value: float | None) -> float:
    """Return a number to order by: what is not known is less than anything known."""
    return -1.0 if value is None else value


def _of(text: Callable[[Row], Text]) -> Callable[[Row, datetime, Glyphs], Text]:
    """Return the text of a column that neither time nor terminal makes any difference to."""
    return lambda row, _now, _glyphs: text(row)


def _used(row: Row, now: datetime) -> float:
    return _last(share.fraction if (share := scarce(row, now)) else None)


COLUMNS: Final = (
    Column("agent", _of(lambda row: _told(_agent(row))), lambda row, _: _agent(row)),
    Column("id", _of(lambda row: Text(row.listed.id[:ID_CHARS], "dim")), lambda row, _: row.listed.id),
    Column("status", _of(_status), lambda row, _: (row.listed.kind, row.listed.status)),
    Column("steps", _of(lambda row: _told(steps(row))), lambda row, _: _last(steps(row)), right=True, falling=True),
    Column(
        "tokens",
        _of(_tokens),
        lambda row, _: _last(tokens(row)),
        right=True,
        falling=True,
    ),
    Column("cost", _of(_cost), lambda row, _: _last(cost(row)), right=True, falling=True),
    Column("budget", _budget, _used, falling=True),
    Column(
        "elapsed", lambda row, now, _: Text(duration(row.elapsed(now))), lambda row, now: row.elapsed(now), right=True
    ),
    Column("waiting", _of(_waiting), lambda row, _: waiting(row), falling=True),
    Column("tenant", _of(lambda row: _told(row.listed.tenant)), lambda row, _: row.listed.tenant or ""),
    Column(
        "parent",
        _of(lambda row: _told((row.listed.parent or "")[:ID_CHARS])),
        lambda row, _: row.listed.parent or "",
    ),
)
"""From left to right."""

NAMES: Final = tuple(each.name for each in COLUMNS)
FIRST: Final = NAMES.index("elapsed")
"""What rows are ordered by at first: the latest to begin on top."""


def shown(of: Iterable[Row], width: int) -> tuple[Column, ...]:
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
    return [told_share(each, 2 * BAR_CHARS, glyphs, with_subagents=theirs) for each in row.shares(now)]
