"""`holdfast watch`: a run's events while they happen, for people and for programs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import typer

from holdfast.client.cli import render
from holdfast.client.cli.asking import connected
from holdfast.client.cli.options import AsJson, ExecutionId, with_server
from holdfast.client.cli.progress import Lines
from holdfast.client.cli.runs import STOPPED
from holdfast.client.settings import Settings
from holdfast.client.watched import to_dict
from holdfast.core.observed import AgentExecutionStopped

if TYPE_CHECKING:
    from holdfast.client import Client


@with_server()
def watch(
    execution_id: ExecutionId,
    *,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Show what happens in a run, from its beginning to its end. Exit code 0 completed, 3 stopped, 4 failed."""
    raise typer.Exit(asyncio.run(_watch(settings, execution_id, as_json=as_json)))


async def _watch(settings: Settings, execution_id: str, *, as_json: bool) -> int:
    client = await connected(settings)
    try:
        return STOPPED if await _print_events(client, execution_id, as_json=as_json) else 0
    except asyncio.CancelledError:
        render.hint(f"the run goes on: holdfast show {execution_id}, holdfast stop {execution_id}")
        raise


async def _print_events(client: Client, execution_id: str, *, as_json: bool) -> bool:
    """Print what happens in a run until its end; return whether it was stopped."""
    lines, stopped = Lines(), False
    async with aclosing(client.watch(execution_id)) as watched:
        async for each in watched:
            if as_json:
                render.as_json(to_dict(each))
            else:
                lines.show(each)
            stopped = isinstance(each, AgentExecutionStopped)  # the last event is the run's own
    return stopped
