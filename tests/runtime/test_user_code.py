"""Async functions called apart: one that blocks harms no other, and what was cancelled before its turn is not begun."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.runtime.user_code import call_foreign

BEGUN_SECONDS_MAX = 60


async def test_an_async_function_that_was_cancelled_before_its_turn_is_not_begun() -> None:
    busy, free = threading.Event(), threading.Event()
    begun: list[str] = []

    async def block() -> None:
        busy.set()
        free.wait(BEGUN_SECONDS_MAX)

    async def pay() -> None:
        begun.append("paid")

    async def last() -> None:
        begun.append("last")

    blocking = asyncio.create_task(call_foreign("tool", "block", block, apart=True))
    await asyncio.to_thread(busy.wait, BEGUN_SECONDS_MAX)
    paying = asyncio.create_task(call_foreign("tool", "pay", pay, apart=True))
    await asyncio.sleep(0)  # it is on its way to the other loop, which is busy
    paying.cancel()
    await asyncio.gather(paying, return_exceptions=True)
    free.set()
    await blocking
    await call_foreign("tool", "last", last, apart=True)
    assert paying.cancelled()
    assert begun == ["last"]


@pytest.mark.parametrize("blocking", [1, 3])
async def test_an_async_function_does_not_wait_for_those_that_block(blocking: int) -> None:
    busy, free = threading.Semaphore(0), threading.Event()
    begun: list[str] = []

    async def block() -> None:
        busy.release()
        free.wait(BEGUN_SECONDS_MAX)

    async def work() -> str:
        begun.append("begun")
        await asyncio.sleep(0.01)
        return "done"

    blocked = [asyncio.create_task(call_foreign("tool", "block", block, apart=True)) for _ in range(blocking)]
    for _ in blocked:
        assert await asyncio.to_thread(busy.acquire, timeout=BEGUN_SECONDS_MAX)
    results = await asyncio.gather(*(call_foreign("hook", "work", work, apart=True) for _ in range(5)))
    assert not free.is_set()
    assert (results, begun) == (["done"] * 5, ["begun"] * 5)
    free.set()
    await asyncio.gather(*blocked)
    assert begun == ["begun"] * 5, "each is begun once, also on the loops that were left"


async def test_async_functions_come_back_to_the_loop_that_they_left() -> None:
    """A client that belongs to an event loop serves them again."""
    busy, free = threading.Event(), threading.Event()

    async def block() -> None:
        busy.set()
        free.wait(BEGUN_SECONDS_MAX)

    async def where() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    home = await call_foreign("tool", "where", where, apart=True)
    blocked = asyncio.create_task(call_foreign("tool", "block", block, apart=True))
    assert await asyncio.to_thread(busy.wait, BEGUN_SECONDS_MAX)
    assert await call_foreign("tool", "where", where, apart=True) is not home
    free.set()
    await blocked
    await asyncio.sleep(0.1)  # it says that it turns again
    assert await call_foreign("tool", "where", where, apart=True) is home
