"""Interrupting sync calls in their threads: at once, behind a shield, before they begin, after they have ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from holdfast.runtime.thread_interruption import CallCancelled, Interruptible, shielded
from holdfast.runtime.user_code import THREADS, THREADS_MAX, Kind, TooManyThreads, call_foreign

PROMPTLY_SECONDS = 60.0


def spin(seconds: float = PROMPTLY_SECONDS) -> None:
    """Stay in Python code, where an interrupt can come."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.002)


async def cancelled(work: Callable[[], object]) -> threading.Event:
    """Run `work` as a tool, cancel it once it has begun, and return what is set when its thread has left it."""
    begun, left = threading.Event(), threading.Event()

    def function() -> None:
        begun.set()
        try:
            work()
        finally:
            left.set()

    call = asyncio.create_task(call_foreign("tool", "work", function, apart=False))
    assert await asyncio.to_thread(begun.wait, PROMPTLY_SECONDS)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    return left


async def test_cancelling_a_sync_call_raises_in_its_thread() -> None:
    seen = list[str]()

    def work() -> None:
        try:
            spin()
        except CallCancelled as error:
            seen.append(type(error).__name__)
            raise

    left = await cancelled(work)
    assert await asyncio.to_thread(left.wait, 30)
    assert seen == ["CallCancelled"]


async def test_an_ordinary_except_does_not_catch_it() -> None:
    caught = list[Exception]()

    def work() -> None:
        try:
            spin()
        except Exception as error:  # noqa: BLE001  # what tools do
            caught.append(error)

    left = await cancelled(work)
    assert await asyncio.to_thread(left.wait, 30)
    assert caught == []


async def test_a_shielded_part_is_finished_first() -> None:
    done = list[str]()

    def work() -> None:
        with shielded():
            with shielded():
                spin(0.2)
            done.append("shielded part")
        done.append("what comes after it")

    left = await cancelled(work)
    assert await asyncio.to_thread(left.wait, PROMPTLY_SECONDS)
    assert done == ["shielded part"]


def test_a_call_that_was_cancelled_before_its_thread_began_does_not_begin() -> None:
    call = Interruptible()
    call.interrupt()
    with pytest.raises(CallCancelled):
        call.begin()
    call.end()


def test_nothing_is_raised_in_a_thread_whose_call_has_ended() -> None:
    call = Interruptible()
    call.begin()
    call.end()
    call.interrupt()
    spin(0.05)


def test_interrupts_that_race_the_end_never_leave_the_call() -> None:
    escaped, rounds = list[BaseException](), 300

    def once() -> None:
        call, ready = Interruptible(), threading.Event()

        def come() -> None:
            ready.wait()
            call.interrupt()

        by = threading.Thread(target=come)
        by.start()
        try:
            try:
                call.begin()
                ready.set()
                spin(0.0005)
            finally:
                call.end()
        except CallCancelled:
            pass  # it came within the call, as it should
        by.join()
        try:
            spin(0.0002)
        except CallCancelled as error:  # after the end
            escaped.append(error)

    for _ in range(rounds):
        once()
    assert escaped == []


def test_a_shield_outside_a_call_is_nothing() -> None:
    with shielded():
        pass


def test_a_shield_after_a_call_that_was_interrupted_too_late_is_nothing() -> None:
    call = Interruptible()
    call.begin()
    call.end()
    call.interrupt()
    with shielded():
        pass


@pytest.mark.parametrize(("full", "free"), [("tool", "hook"), ("hook", "tool")])
async def test_threads_of_tools_and_hooks_are_counted_apart(full: Kind, free: Kind) -> None:
    places = [THREADS[full].acquire(blocking=False) for _ in range(THREADS_MAX)]
    try:
        with pytest.raises(TooManyThreads, match=f"1,000 sync {full} calls have not returned"):
            await call_foreign(full, "work", lambda: 1, apart=False)
        assert await call_foreign(free, "work", lambda: 1, apart=False) == 1
    finally:
        for held in places:
            if held:
                THREADS[full].release()
