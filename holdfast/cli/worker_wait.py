"""Waiting for a worker: after two seconds without one the command says so, and keeps waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.cli.busy_indicator import BusyIndicator
from holdfast.cli.screens import output
from holdfast.core.base.errors import HoldfastError, ServerUnavailable

if TYPE_CHECKING:
    from holdfast.client import Holdfast

T = TypeVar("T")

HINT_SECONDS: Final = 2.0
"""What takes no longer than this to be answered needs no explanation."""

AGAIN_SECONDS: Final = 0.5
"""The pause before a command asks again."""

WAIT_SECONDS_MAX: Final = 600.0
"""How long a command waits for the first worker; Ctrl-C leaves at any time."""


async def when_served(client: Holdfast, ask: Callable[[], Awaitable[T]], waiting: BusyIndicator, what: str) -> T:
    """Return what `ask` gives, which can be repeated; `what` is the subject of the sentence that says what waits.

    Where no worker serves, that is said once, and it is asked again until one has come. Raises what `ask` does, also
    its ServerUnavailable once there is a worker, or none has come in WAIT_SECONDS_MAX.
    """
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    hinting = asyncio.create_task(_hint(client, waiting, what))
    try:
        while True:
            try:
                return await ask()
            except ServerUnavailable:
                if time.monotonic() >= deadline or not await _unserved(client):
                    raise
                await asyncio.sleep(AGAIN_SECONDS)
    finally:
        hinting.cancel()
        await asyncio.gather(hinting, return_exceptions=True)


async def _hint(client: Holdfast, waiting: BusyIndicator, what: str) -> None:
    await asyncio.sleep(HINT_SECONDS)
    if await _unserved(client):
        waiting.done()
        queue = client.settings.task_queue
        output.hint(f"no worker serves the task queue {queue!r}: {what} waits for `holdfast worker` (Ctrl-C leaves)")
        waiting.show_later("waiting for a worker")


async def _unserved(client: Holdfast) -> bool:
    """Return whether no worker serves, as far as the server can say."""
    try:
        return not await client.has_worker()
    except HoldfastError:
        return False
