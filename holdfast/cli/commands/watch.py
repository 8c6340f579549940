"""`holdfast watch`: a run while it happens, as a live tree in a terminal and as lines anywhere else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import typer

from holdfast.cli.busy_indicator import ASKING, busy
from holdfast.cli.command_context import connected, paused_text, resolve_id, session_of
from holdfast.cli.commands.runs import STOPPED
from holdfast.cli.options import AsJson, WatchedId, with_server
from holdfast.cli.screens import output
from holdfast.cli.screens.run_progress import EventLines
from holdfast.client.watch_events import Watched, to_dict
from holdfast.connection.settings import Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.wire.execution_events import AgentExecutionCompleted

RESTS: Final = frozenset({"idle", "suspended", "away"})
"""What a session is that has no run under way."""


@with_server()
def watch(
    execution_id: WatchedId,
    *,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Watch a run, or all runs of a session from now on. Exit code 0 completed, 3 stopped, 4 failed."""
    raise typer.Exit(asyncio.run(_watch(settings, execution_id, as_json=as_json)))


async def _watch(settings: Settings, id_: str, *, as_json: bool) -> int:
    with busy(ASKING):
        holdfast = await connected(settings)
        id_, is_session = await resolve_id(holdfast, id_)
        session = await session_of(holdfast, id_) if is_session else None
        paused = await paused_text(holdfast, id_, session)
    if paused:
        output.hint(f"{paused}; it is watched meanwhile, and Ctrl-C leaves")
    try:
        watched = holdfast.agent(id_).watch() if is_session else holdfast.watch(id_)
        if as_json or not _draws():
            if session is not None and session.status in RESTS and not as_json:
                output.hint(f"agent {id_} is {session.status}: its next run is shown once it begins; Ctrl-C leaves")
            stopped = await _print_events(watched, as_json=as_json)
        else:
            from holdfast.cli.screens.tree_screen import TreeView

            stopped = await TreeView(holdfast, output.console(), None if is_session else id_).show(watched)
    except asyncio.CancelledError:
        on = f"the session stays open: holdfast chat --id {id_}"
        output.hint(on if is_session else f"the run continues: holdfast show {id_}, holdfast stop {id_}")
        raise
    if is_session and not as_json:
        output.hint(f"the session of agent {id_} has ended: holdfast records {id_}")
    return STOPPED if stopped and not is_session else 0


def _draws() -> bool:
    """Return whether standard output is a terminal that pictures can be drawn on."""
    return sys.stdout.isatty() and not output.console().is_dumb_terminal


async def _print_events(events: AsyncGenerator[Watched, None], *, as_json: bool) -> bool:
    """Print what happens until its end; return whether the last event was that of a stop."""
    lines, stopped = EventLines(), False
    async with aclosing(events) as watched:
        async for each in watched:
            if as_json:
                output.as_json(to_dict(each))
            else:
                lines.show(each)
            # the last event is the run's own
            stopped = isinstance(each, AgentExecutionCompleted) and each.status is ExecutionStatus.STOPPED
    return stopped
