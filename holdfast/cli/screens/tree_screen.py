"""The live tree of `holdfast watch`: redrawn on a screen of its own; the last frame stays when the run ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group
from rich.live import Live

from holdfast.cli.screens.output import print_end
from holdfast.cli.screens.progress_bars import glyphs_of
from holdfast.cli.screens.tree_frame import Viewport
from holdfast.cli.terminal_restore import put_back
from holdfast.client.watch_events import Watched
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.frozen import replace as changed
from holdfast.view.live_tree import LiveView, after, headed
from holdfast.view.run_view import RunView

if TYPE_CHECKING:
    from holdfast.client import Holdfast

FRAME_SECONDS: Final = 0.125
"""How often the picture is drawn."""

IDLE_SHARE: Final = 4
"""After a picture that took its time, we wait so many times as long: a watch leaves the machine to others."""

HEAD_SECONDS: Final = 5.0
"""How often a worker is asked for the limits, which can change, and so found to be there."""

FIRST_HEAD_SECONDS: Final = 0.5
"""The same at the beginning, and while there is something amiss."""

LIMITS_SECONDS_MAX: Final = 1.0
"""How long the first picture waits for the limits, whose bars stand above everything."""

LAST_LINES_MAX: Final = 100
"""How many lines of the tree stay when all is over."""


class TreeView:
    """One watch on one terminal, of the run of that id, or of whatever an agent runs."""

    def __init__(self, client: Holdfast, console: Console, execution_id: str | None) -> None:
        self._client = client
        self._console = console
        self._execution_id = execution_id
        self._view = LiveView()
        self._head: AgentState | None = None
        """What a worker has said last."""
        self._notice = ""
        """What is not as it should be."""
        self._late = 0.0
        """How many seconds the workers' clocks are ahead of ours, as far as events have told."""

    async def show(self, events: AsyncGenerator[Watched, None]) -> bool:
        """Draw what happens until its end; return whether the last run was stopped. Raises what the watch raises."""
        try:
            with put_back(), Live(console=self._console, screen=True, auto_refresh=False) as live:
                watching = asyncio.current_task()
                beside = [asyncio.create_task(self._draw(live)), asyncio.create_task(self._ask())]
                for task in beside:  # one that fails must not leave a picture that stands still
                    task.add_done_callback(lambda done: _end(watching) if _failed(done) else None)
                try:
                    async with aclosing(events) as watched:
                        async for each in watched:
                            self._take(each)
                finally:
                    for task in beside:
                        task.cancel()
                    for ended in await asyncio.gather(*beside, return_exceptions=True):
                        if isinstance(ended, Exception):
                            raise ended
        finally:
            self._leave()
        root = self._view.root
        return root is not None and root.status == ExecutionStatus.STOPPED

    def _take(self, each: Watched) -> None:
        self._view = after(self._view, each)
        self._mind_head()
        at: datetime | None = getattr(each, "at", None)
        if at is not None:
            self._late = max(self._late, (at - datetime.now(UTC)).total_seconds())

    def _picture(self, height: int) -> Viewport:
        now = datetime.fromtimestamp(time.time() + self._late, UTC)
        return Viewport(now, self._console.width, height, glyphs_of(self._console))

    def _is_known(self, seconds: float) -> bool:
        """Return whether the limits are known or LIMITS_SECONDS_MAX is over: with them the tree keeps its place."""
        return self._head is not None or bool(self._notice) or seconds > LIMITS_SECONDS_MAX

    async def _draw(self, live: Live) -> None:
        first = time.monotonic()
        while True:
            began = time.monotonic()
            view = self._view if self._is_known(began - first) else LiveView()
            lines = self._picture(self._console.height).frame(view, self._notice)
            live.update(Group(*lines), refresh=True)
            await asyncio.sleep(max(FRAME_SECONDS, (time.monotonic() - began) * IDLE_SHARE))

    async def _ask(self) -> None:
        """Poll for what no event carries: the limits, and whether any worker serves the run."""
        from holdfast.client.progress_query import head

        while True:
            asked_for = self._runs
            if asked_for is None:
                self._notice, pause = "", FIRST_HEAD_SECONDS
            else:
                try:
                    page = await head(self._client, asked_for)
                except HoldfastError as error:
                    self._notice, pause = str(error), FIRST_HEAD_SECONDS
                else:
                    self._head = page.head
                    self._mind_head()
                    self._notice, pause = "", HEAD_SECONDS if self._head.execution else FIRST_HEAD_SECONDS
            await self._pause(asked_for, pause)

    @property
    def _runs(self) -> str | None:
        """The id of the running execution, as far as is known."""
        root = self._view.root
        if root is None:
            return self._execution_id
        return None if root.is_over else root.execution_id

    def _mind_head(self) -> None:
        """Merge the worker's answer into the view; it can arrive before the run's first event."""
        if self._head is not None:
            self._view = headed(self._view, self._head)

    async def _pause(self, asked_for: str | None, seconds: float) -> None:
        """Wait until the next poll; stop early if another run has started or a model call has ended."""
        began, tokens = time.monotonic(), self._tokens
        while time.monotonic() < began + seconds and (self._runs == asked_for or not self._view.roots):
            if self._tokens != tokens and time.monotonic() > began + FIRST_HEAD_SECONDS:
                return  # no event carries its cost until the step is over
            await asyncio.sleep(FRAME_SECONDS)

    @property
    def _tokens(self) -> int:
        return 0 if self._view.root is None else self._view.root.usage.total_tokens

    def _leave(self) -> None:
        """Leave the tree as it is now, and below it the end of the run with its answer."""
        root = self._view.root
        if root is None:
            return
        with suppress(OSError):  # nobody may be there any more to read it
            for line in self._picture(LAST_LINES_MAX).last(without_end(self._view)):
                self._console.print(line)
            if root.is_over:
                self._end(root)

    def _end(self, root: RunView) -> None:
        seconds = None
        if root.started_at is not None and root.completed_at is not None:
            seconds = (root.completed_at - root.started_at).total_seconds()
        print_end(self._console, replace(root, seconds=seconds), root.why_stopped)


def _failed(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is not None


def _end(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()


def without_end(view: LiveView) -> LiveView:
    """Return the view without what is printed whole below the tree: the answer, and why the run has ended."""
    root = view.runs.get(view.roots[-1]) if view.roots else None
    if root is None or not root.is_over:
        return view
    last = root.steps[-1] if root.answer and root.steps else None
    steps = tuple(changed(each, text="") if each is last else each for each in root.steps)
    return replace(view, runs={**view.runs, root.execution_id: replace(root, steps=steps, stop_reason=None, why="")})
