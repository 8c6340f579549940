"""Several reads at once, bounded; the first error ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable


async def all_of(work: Iterable[Coroutine[object, object, None]], at_once: int) -> None:
    """Do all of it, so many at once; of errors, raise the first, after the rest was cancelled."""
    bound = asyncio.Semaphore(at_once)

    async def bounded(each: Coroutine[object, object, None]) -> None:
        try:
            async with bound:
                await each
        finally:
            each.close()

    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(bounded(each))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
