"""What a cancel of the run must not reach: work that is done to its end in any case."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from temporalio import workflow

T = TypeVar("T")


async def in_any_case(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` comes to, however often the run is cancelled meanwhile."""
    doing = asyncio.create_task(work)
    while not doing.done():
        try:
            await workflow.wait_condition(doing.done)
        except asyncio.CancelledError:
            if workflow.cancellation_reason() is None:  # the worker puts this run aside
                doing.cancel()
                raise
    return doing.result()
