"""Hints on standard error about calls that wait for a person, while a command waits for the run. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress

from holdfast.cli.busy_indicator import BusyIndicator
from holdfast.cli.screens import output
from holdfast.client.watch_events import Watched
from holdfast.core.base.errors import HoldfastError
from holdfast.core.wire.execution_events import ApprovalRequested, InputRequested


@asynccontextmanager
async def approval_hints(events: AsyncGenerator[Watched, None], indicator: BusyIndicator) -> AsyncGenerator[None]:
    """Within the block, tell of each call among `events` that waits for a person; a watch that fails tells of none."""
    printer = asyncio.create_task(_print_hints(events, indicator))
    try:
        yield
    finally:
        printer.cancel()
        with suppress(asyncio.CancelledError):
            await printer


async def _print_hints(events: AsyncGenerator[Watched, None], indicator: BusyIndicator) -> None:
    with suppress(HoldfastError):
        async with aclosing(events) as watched:
            async for each in watched:
                if isinstance(each, ApprovalRequested | InputRequested):
                    indicator.done()
                    output.hint(output.wait_text(each))
