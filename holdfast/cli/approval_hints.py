"""Saying on standard error that a run waits for a person, while a command waits for the run. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime

from holdfast.cli.busy_indicator import Busy
from holdfast.cli.screens import output
from holdfast.client.watch_events import Watched
from holdfast.core.base.call_digest import short_digest
from holdfast.core.base.errors import HoldfastError
from holdfast.core.conversation.amounts import moment
from holdfast.core.conversation.decision_text import marked
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.wire.execution_events import ApprovalRequested


@asynccontextmanager
async def approval_hints(events: AsyncGenerator[Watched, None], showing: Busy) -> AsyncGenerator[None]:
    """Within the block, tell of each call among `events` that waits for a person; a watch that fails tells of none."""
    telling = asyncio.create_task(_tell(events, showing))
    try:
        yield
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling


async def _tell(events: AsyncGenerator[Watched, None], showing: Busy) -> None:
    with suppress(HoldfastError):
        async with aclosing(events) as watched:
            async for each in watched:
                if isinstance(each, ApprovalRequested):
                    showing.done()
                    output.hint(waiting_text(each.execution_id, each.call, each.expires_at))


def waiting_text(execution_id: str, call: ToolCall, expires_at: datetime | None) -> str:
    """Return that a call waits for a person, with what it would do and how to decide."""
    until = "" if expires_at is None else f" until {moment(expires_at)}"
    told = f"waits for a person{until}: {call.name} {marked(call.arguments_text, output.WAITING_CHARS_MAX)}"
    return f"{told}; holdfast approve {execution_id} {call.id} --digest {short_digest(call.digest)}"
