"""Calling functions of the user's, tools and hooks, where they harm nobody: not our event loop, not our threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Final, Literal, get_args

from holdfast.core.errors import HoldfastError
from holdfast.interrupts import Interruptible

THREADS_MAX: Final = 1_000
"""Sync calls of one kind in one process, those included that were given up on and have not returned yet."""

Kind = Literal["tool", "hook", "process"]
"""What is called: tools that never return leave hooks their threads."""

THREADS: Final[Mapping[str, threading.BoundedSemaphore]] = {
    kind: threading.BoundedSemaphore(THREADS_MAX) for kind in get_args(Kind)
}
"""Those that are left of each kind."""


class TooManyThreads(HoldfastError):
    """So many sync calls have not returned that no further one can begin."""


class Exited(Exception):
    """Carries what is no ordinary exception: passed on as it is, it would end a thread, a loop or our process."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def call_foreign(kind: Kind, name: str, function: Callable[[], object], *, apart: bool) -> object:
    """Call `function`, sync or async, and return its value; its thread is called by `kind` and `name`.

    A sync one gets a daemon thread of its own: one that never returns costs a thread, not others' turn. `apart` runs
    an async one on the loop of another thread, so that one that blocks does not stop everything else.

    Raises whatever it raised, what is no ordinary exception (SystemExit, a cancellation nobody asked for) inside
    Exited; TooManyThreads. Cancelling cancels an async one; in the thread of a sync one it raises
    CallCancelled, and waits no longer for it.
    """
    if inspect.iscoroutinefunction(function):
        return await _awaited(function(), apart=apart)
    value = await _in_thread(kind, name, function)
    return await _awaited(value, apart=apart) if inspect.isawaitable(value) else value


def was_cancelled(error: BaseException) -> bool:
    """Return whether `error` is a cancellation that somebody asked this task for; foreign code can raise one itself."""
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    return task is not None and task.cancelling() > 0


async def _awaited(value: Awaitable[object], *, apart: bool) -> object:
    work = _guarded(value)
    return await (asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _apart())) if apart else work)


@cache
def _apart() -> asyncio.AbstractEventLoop:
    """Return the event loop that async functions share, in a daemon thread of its own; made when first asked for."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="foreign", daemon=True).start()
    return loop


async def _guarded(value: Awaitable[object]) -> object:
    try:
        return await value
    except BaseException as error:
        if isinstance(error, Exception) or was_cancelled(error):
            raise
        raise Exited(error) from None


async def _in_thread(kind: Kind, name: str, function: Callable[[], object]) -> object:
    if not THREADS[kind].acquire(blocking=False):
        raise TooManyThreads(f"{THREADS_MAX:,} sync {kind} calls have not returned yet; restart the worker")
    call = Interruptible()
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()
    inherited = contextvars.copy_context()

    def settle(value: object, error: BaseException | None) -> None:
        if done.done():
            return  # given up on meanwhile
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def work() -> None:
        value, failed = None, None
        try:
            try:
                call.begin()
                value = inherited.run(function)
            finally:
                call.end()
        except BaseException as error:  # noqa: BLE001  # handed to whoever awaits the call
            # a future cannot carry StopIteration, and would pass SystemExit on to the event loop
            ordinary = isinstance(error, Exception) and not isinstance(error, StopIteration)
            failed = error if ordinary else Exited(error)
        finally:
            THREADS[kind].release()
        with suppress(RuntimeError):  # the loop is closed: nobody awaits it any more
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=work, name=f"{kind} {name}", daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        call.interrupt()
        raise
