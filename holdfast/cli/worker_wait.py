"""Waiting for a worker: after two seconds without one the command says so, and keeps waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.cli.busy_indicator import BusyIndicator
from holdfast.cli.screens import output
from holdfast.core.base.errors import HoldfastError, ServerUnavailable
from holdfast.core.wire.workflow_ids import session_workflow_id

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.connection.queue_routing import TaskTarget

T = TypeVar("T")

HINT_SECONDS: Final = 2.0
"""What takes no longer than this to be answered needs no explanation."""

AGAIN_SECONDS: Final = 0.5
"""The pause before a command asks again."""

WAIT_SECONDS_MAX: Final = 600.0
"""How long a command waits for the first worker; Ctrl-C leaves at any time."""


async def when_served(
    client: Holdfast, ask: Callable[[], Awaitable[T]], waiting: BusyIndicator, what: str, agent_id: str
) -> T:
    """Return what `ask` gives, which can be repeated; `what` is the subject of the sentence that says what waits.

    `agent_id` is whose session answers. Where no worker would take its tasks, that is said once, and it is asked again
    until one does. Raises what `ask` does, also its ServerUnavailable once there is such a worker, or none has come in
    WAIT_SECONDS_MAX.
    """
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    session_id = session_workflow_id(agent_id)
    hinting = asyncio.create_task(_hint(client, waiting, what, session_id))
    try:
        while True:
            try:
                return await ask()
            except ServerUnavailable:
                if time.monotonic() >= deadline or await _unserved(client, session_id) is None:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)
    finally:
        hinting.cancel()
        await asyncio.gather(hinting, return_exceptions=True)


async def _hint(client: Holdfast, waiting: BusyIndicator, what: str, workflow_id: str) -> None:
    await asyncio.sleep(HINT_SECONDS)
    if (target := await _unserved(client, workflow_id)) is not None:
        waiting.done()
        output.hint(f"{target.problem}: {what} waits for {target.command} (Ctrl-C leaves)")
        waiting.show_later("waiting for a worker")


async def _unserved(client: Holdfast, workflow_id: str) -> TaskTarget | None:
    """Return whose workers a workflow waits for in vain; none where the server does not say."""
    from holdfast.client.worker_presence import unserved

    try:
        return await unserved(client.temporal, client.settings.task_queue, workflow_id)
    except HoldfastError:
        return None
