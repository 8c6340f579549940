"""The screen of `holdfast top`: all agents at work, refreshed; it stops runs and decides about calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static

from holdfast.cli.commands.approvals import login
from holdfast.cli.screens.output import short
from holdfast.cli.screens.progress_bars import Glyphs, glyphs_of
from holdfast.cli.screens.top_columns import COLUMNS, FIRST, Column, ordered, visible_columns, waiting
from holdfast.cli.screens.top_details import call, details
from holdfast.cli.screens.top_prompts import Answer, Question
from holdfast.client.holdfast import Holdfast
from holdfast.client.progress_query import text_so_far
from holdfast.client.waiting_calls import WaitingCall
from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.base.frozen import replace as replaced
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.verdicts import Decision, Verdict
from holdfast.view.server_overview import Overview, Row, overview, progress, rows

if TYPE_CHECKING:
    from holdfast.client import Holdfast

LIST_SECONDS: Final = 1.5
"""How often the server is asked for what is under way."""

ASK_SECONDS: Final = 2.0
"""How often the workers of the rows that are to be seen are asked, at most."""

BUSY_SHARE: Final = 2
"""After answers that took their time, we wait so many times as long: what is busy is asked less often."""

DECIDE_SECONDS_MAX: Final = 10.0
"""How long a worker is waited for that is to tell what one wants to decide about."""

CLOCK_SECONDS: Final = 1.0

CELL_CHARS_MAX: Final = 32
"""How wide a column becomes; the details have the whole."""

INTERRUPTED: Final = 130


class Rows(DataTable[Text]):
    """The table."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "app.details", "details")]


class TopScreen(App[int]):
    """The screen; it returns the exit code."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "holdfast top"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave(0)", "quit"),
        Binding("ctrl+c", f"leave({INTERRUPTED})", show=False, priority=True),
        Binding("s", "stop", "stop"),
        Binding("a", "approve", "approve"),
        Binding("d", "deny", "deny"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("less_than_sign,comma", "order(-1)", "order by", key_display="< >"),
        Binding("greater_than_sign,full_stop", "order(1)", show=False),
        Binding("r", "turn", "reverse"),
        Binding("escape", "close", show=False),
    ]
    CSS = """
    #head { height: 1; color: $text-muted; }
    #banner { height: auto; max-height: 4; display: none; background: $error; color: $text; }
    #rows { height: 1fr; }
    #details { height: 45%; border-top: solid $accent; display: none; }
    #filter { display: none; }
    """

    def __init__(
        self, client: Holdfast, first: Overview, *, query: str, limit: int, list_seconds: float = LIST_SECONDS
    ) -> None:
        super().__init__()
        self._client = client
        self._limit = limit
        self._list_seconds = list_seconds
        self._query = query
        self._pending_query = query
        """The query that is being tried."""
        self._overview = first
        self._rows: dict[str, Row] = {each.id: Row(each) for each in first.rows}
        self._widths: dict[str, int] = {}
        self._order: list[str] = []
        """The ids of the rows as they stand in the table."""
        self._columns: tuple[Column, ...] = COLUMNS
        self._column, self._turned = FIRST, False
        self._refused = ""
        """Why the server has not taken the query that was typed."""
        self._away = ""
        """Why the server did not tell what is under way."""
        self._coming = ("", "")
        """A run's id, and the end of the answer that is coming there."""
        self._again, self._ask_again = asyncio.Event(), asyncio.Event()

    def compose(self) -> ComposeResult:
        """Lay it out."""
        yield Static(id="head")
        yield Static(id="banner")
        yield Rows(id="rows", cursor_type="row")
        with VerticalScroll(id="details"):
            yield Static(id="told")
        yield Input(placeholder="a visibility query, such as HoldfastAgent = 'clerk'; empty: all", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        for each in COLUMNS:
            self._widths[each.name] = cell_len(each.name)
            self._table.add_column(each.name, key=each.name)
        self._draw()
        self._table.focus()
        self.set_interval(CLOCK_SECONDS, self._draw)
        self.run_worker(self._list_for_ever(), name="list")
        self.run_worker(self._ask_for_ever(), name="ask")

    # --- asking

    async def _list_for_ever(self) -> None:
        while self.is_running:
            query = self._pending_query
            try:
                listing = await overview(self._client, query or None, self._limit)
            except InvalidInput as error:
                self._refuse(query, str(error))
            except HoldfastError as error:
                self._away = str(error)
            else:
                self._away = ""
                self._take(query, listing)
            self._draw()
            await _passed(self._again, self._list_seconds)

    def _take(self, query: str, listing: Overview) -> None:
        """Take in what is under way, and that the server has understood the query."""
        if not self._still_tries(query):
            return
        if query != self._query or self._filter.has_class("trying"):
            self._query = query
            self._close_filter()
        self._overview = listing
        previous = self._rows
        self._rows = {}
        for each in listing.rows:
            row = previous.get(each.id)
            self._rows[each.id] = Row(each) if row is None else replace(row, listed=each)

    def _refuse(self, query: str, problem: str) -> None:
        """Say what is wrong with a query; what is shown stays, and so does what was typed."""
        if self._still_tries(query):
            self._pending_query = self._query
            self._refused = problem
            self._filter.remove_class("trying")

    def _still_tries(self, query: str) -> bool:
        """Whether, while the server was asked, no other query was typed and the screen was not closed."""
        return self.is_running and query == self._pending_query

    async def _ask_for_ever(self) -> None:
        while self.is_running:
            began = time.monotonic()
            answers = await rows(self._client, [self._rows[id_].listed for id_ in self._visible() if id_ in self._rows])
            for row in answers:
                self._update_row(row)
            await self._ask_details()
            self._draw()
            await _passed(self._ask_again, max(ASK_SECONDS, (time.monotonic() - began) * BUSY_SHARE))

    def _update_row(self, row: Row) -> None:
        """Take in what a worker has told; where it has not, what it told before still stands."""
        previous = self._rows.get(row.listed.id)
        if previous is not None:
            latest = row if row.run else replace(previous, unread=row.unread)
            self._rows[row.listed.id] = replace(latest, listed=previous.listed)

    def _visible(self) -> list[str]:
        """Return the ids of the rows that are to be seen."""
        first = max(0, int(self._table.scroll_offset.y))
        return self._order[first : first + max(1, self._table.size.height)]

    async def _ask_details(self) -> None:
        row = self._selected if self.is_running else None
        if row is None or row.listed.kind != "run" or not self._pane.display:
            return
        try:
            answer = await progress(self._client, row.listed, whole=True)
            coming = ""
            if answer.step is not None and answer.step.asking:
                coming = await text_so_far(self._client, row.listed.id, row.listed.run_id, answer.step.number)
        except HoldfastError:
            return  # the row says so already
        self._coming = row.listed.id, coming
        self._update_row(answer)

    # --- drawing

    @property
    def _table(self) -> Rows:
        return self.query_one("#rows", Rows)

    @property
    def _pane(self) -> VerticalScroll:
        return self.query_one("#details", VerticalScroll)

    @property
    def _filter(self) -> Input:
        return self.query_one("#filter", Input)

    @property
    def _glyphs(self) -> Glyphs:
        return glyphs_of(self.console)

    @property
    def _selected(self) -> Row | None:
        place = self._table.cursor_row
        return self._rows.get(self._order[place]) if 0 <= place < len(self._order) else None

    def _draw(self) -> None:
        """Show everything as it is known now."""
        if not self.is_running or len(self.screen_stack) > 1:
            return  # a question is being asked: what is below it waits
        now = _now()
        self._draw_head()
        away = f"{short(self._away)}; trying again, what is shown may be old" if self._away else ""
        banner = self.query_one("#banner", Static)
        banner.display = bool(self._refused or away)
        banner.update(Text("\n".join(filter(None, (printable(self._refused), away)))))
        self._draw_rows(now)
        self._draw_details(now)

    def _draw_head(self) -> None:
        count, total = len(self._rows), self._overview.in_all
        many = f"{count:,} of {total:,}" if total > count else f"{count:,}"
        waits = sum(waiting(each) > 0 for each in self._rows.values())
        column = COLUMNS[self._column]
        arrow = "falling" if column.falling != self._turned else "rising"
        head = [f"{self._client.address}", f"{many} under way", f"by {column.name}, {arrow}"]
        head += [f"{waits} waiting"] if waits else []
        head += [f"only {short(self._query)}"] if self._query else []
        self.query_one("#head", Static).update(Text(" · ".join(head) if self._glyphs.more == "…" else ", ".join(head)))

    def _draw_rows(self, now: datetime) -> None:
        table, selected = self._table, self._selected
        in_order = ordered(self._rows.values(), self._column, now, turned=self._turned)
        order = [row.listed.id for row in in_order]
        columns = visible_columns(in_order, self.size.width)
        if columns == self._columns and order == self._order and self._draw_visible(now):
            return
        self._columns = columns
        cells = [self._cells(row, now) for row in in_order]
        scrolled, place = table.scroll_offset, table.cursor_row
        table.clear(columns=True)
        for number, column in enumerate(self._columns):
            # measured here and not by the table, which takes a second for a thousand rows
            needed = max([cell_len(column.name), *(row[number].cell_len for row in cells)])
            self._widths[column.name] = min(needed, CELL_CHARS_MAX)
            table.add_column(column.name, key=column.name, width=self._widths[column.name])
        for id_, texts in zip(order, cells, strict=True):
            table.add_row(*texts, key=id_)
        self._order = order
        if selected is not None and selected.listed.id in self._rows:
            place = order.index(selected.listed.id)
        table.move_cursor(row=max(0, min(place, len(order) - 1)), scroll=False, animate=False)
        table.scroll_to(scrolled.x, scrolled.y, animate=False, immediate=True)

    def _draw_visible(self, now: datetime) -> bool:
        """Bring what is to be seen up to date; False where a column has become too narrow for it."""
        table = self._table
        for id_ in self._visible():
            for column, text in zip(self._columns, self._cells(self._rows[id_], now), strict=True):
                if min(text.cell_len, CELL_CHARS_MAX) > self._widths[column.name]:
                    return False
                if table.get_cell(id_, column.name) != text:
                    table.update_cell(id_, column.name, text)
        return True

    def _cells(self, row: Row, now: datetime) -> list[Text]:
        cells = [each.text(row, now, self._glyphs) for each in self._columns]
        for column, text in zip(self._columns, cells, strict=True):
            text.justify = "right" if column.right else "left"
        return cells

    def _draw_details(self, now: datetime) -> None:
        row = self._selected
        if self._pane.display:
            id_, coming = self._coming
            coming = coming if row is not None and row.listed.id == id_ else ""
            self.query_one("#told", Static).update(
                Text("nothing is selected") if row is None else details(row, now, self._glyphs, coming)
            )

    def on_data_table_row_highlighted(self) -> None:
        """Show the details of the row that was chosen."""
        if len(self.screen_stack) == 1:
            self._draw_details(_now())

    def on_data_table_row_selected(self) -> None:
        """Take Enter in the table."""
        self.action_details()

    def on_data_table_header_selected(self, chosen: DataTable.HeaderSelected) -> None:
        """Order by the column that was clicked; the other way round at the second click."""
        same = chosen.column_index == self._column
        self._column, self._turned = chosen.column_index, same and not self._turned
        self._draw()

    # --- keys

    def action_leave(self, code: int) -> None:
        """End."""
        self.exit(code, return_code=code)

    def action_details(self) -> None:
        """Open the details, or close them."""
        self._pane.display = not self._pane.display
        self._draw_details(_now())
        self._ask_again.set()

    def action_close(self) -> None:
        """Close what was opened last: the filter, else the details."""
        if self._filter.display:
            self._pending_query = self._query
            self._close_filter()
        else:
            self._pane.display = False

    def action_order(self, by: int) -> None:
        """Order by the column beside."""
        self._column, self._turned = (self._column + by) % len(COLUMNS), False
        self._draw()

    def action_turn(self) -> None:
        """Order the other way round."""
        self._turned = not self._turned
        self._draw()

    def action_filter(self) -> None:
        """Open the filter."""
        self._filter.value = self._query
        self._filter.display = True
        self.screen.set_focus(self._filter)  # at once: what is typed next is meant for it

    @on(Input.Submitted, "#filter")
    def try_query(self, typed: Input.Submitted) -> None:
        """Try the query that was typed; the server says whether it understands it."""
        self._pending_query, self._refused = typed.value.strip(), ""
        self._filter.add_class("trying")
        self._again.set()

    def _close_filter(self) -> None:
        self._refused = ""
        self._filter.remove_class("trying")
        self._filter.display = False
        self.screen.set_focus(self._table)

    def action_stop(self) -> None:
        """Ask whether to stop what is selected, and why."""
        row = self._selected
        if row is None:
            return
        about = Text(f"{row.listed.kind} {row.listed.id} of {short(row.listed.summary.agent or 'an agent')}")
        self._ask(
            Question("stop it?", [about], reason="why; kept with the run"), lambda answer: self._stop(row, answer)
        )

    async def _stop(self, row: Row, answer: Answer) -> None:
        if row.listed.kind == "session":
            view = await self._client.agent(row.listed.id).stop(answer.reason, source="top")
            accepted = view.running_id is not None
        else:
            accepted = await self._client.stop(row.listed.id, answer.reason, source="top")
        self.notify(f"stop requested for {row.listed.id}" if accepted else "nothing was running any more", markup=False)

    def action_approve(self) -> None:
        """Ask whether to let a call run that waits."""
        self._decide("approve", "approve this call?", "")

    def action_deny(self) -> None:
        """Ask whether to keep a call from running that waits, and why."""
        self._decide("deny", "deny this call?", "why; the model is told")

    def _decide(self, decision: Decision, question: str, reason: str) -> None:
        row = self._selected
        if row is None:
            return
        if row.listed.kind == "session":
            self.notify("this is a session; choose the run that waits", severity="warning")
            return

        async def ask() -> None:
            # as it is now, not as it was last shown
            latest = await progress(self._client, row.listed, seconds_max=DECIDE_SECONDS_MAX)
            if not self.is_running:
                return
            self._update_row(latest)
            calls = [each for each in latest.waiting if each.message is None]
            if not calls:
                self.notify("no call of this run waits", severity="warning")
                return
            about = [call(each) for each in calls]
            asking = Question(question, about, reason=reason)
            self._ask(asking, lambda answer: self._decided(calls[answer.place], decision, answer.reason))

        self._do(ask())

    async def _decided(self, about: WaitingCall, decision: Decision, reason: str) -> None:
        """Decide about the call as it was shown: its digest says which that was."""
        verdict = replaced(Verdict(decision=decision, by=login(), reason=reason), digest=about.digest)
        accepted = await self._client.decide(about.execution_id, about.call_id, verdict)
        done = f"{decision}: {about.tool} {about.call_id}"
        self.notify(short(done) if accepted else "the run had already ended", markup=False)

    # --- doing what was asked for

    def _ask(self, question: Question, then: Callable[[Answer], Awaitable[None]]) -> None:
        def answered(answer: Answer | None) -> None:
            if answer is not None:
                self._do(then(answer))

        self.push_screen(question, answered)

    def _do(self, doing: Awaitable[None]) -> None:
        """Do it beside the screen; say what is wrong, and look what has come of it."""

        async def do() -> None:
            try:
                await doing
            except HoldfastError as error:
                self.notify(printable(str(error)), severity="error", title=type(error).__name__, markup=False)
            self._again.set()
            self._ask_again.set()

        self.run_worker(do())


def _now() -> datetime:
    return datetime.now(UTC)


async def _passed(event: asyncio.Event, seconds: float) -> None:
    """Return when so much time has passed, or the event is set; it is not set any more then."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
    event.clear()
