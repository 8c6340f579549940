"""Calls user code (tools and hooks) isolated from our event loop and our threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Literal, get_args

from holdfast.core.base.errors import HoldfastError
from holdfast.runtime.thread_interruption import Interruptible

THREADS_MAX: Final = 1_000
"""The most sync calls of one kind in one process, including abandoned ones that have not returned yet."""

BEGIN_SECONDS: Final = 2.0
"""How long an async function waits to begin before it moves to another loop. Hooks have 5 s in all."""

ONCE_MORE_SECONDS: Final = 0.5
"""The length of a second wait: after a stall of the whole process, its loops run again by then."""

LOOPS_MAX: Final = 32
"""The most event loops: as many async functions can block before others must wait."""

Kind = Literal["tool", "hook", "process", "resource"]
"""The kind of call: tools that never return do not use up the threads of hooks."""

THREADS: Final[Mapping[str, threading.BoundedSemaphore]] = {
    kind: threading.BoundedSemaphore(THREADS_MAX) for kind in get_args(Kind)
}
"""The free threads of each kind."""


class TooManyThreads(HoldfastError):
    """So many sync calls have not returned that no further one can begin."""


class Exited(Exception):
    """Wraps an exception that is no ordinary one: raised as it is, it would end a thread, a loop or our process."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def call_foreign(
    kind: Kind,
    name: str,
    function: Callable[[], object],
    *,
    apart: bool,
    loop: asyncio.AbstractEventLoop | None = None,
) -> object:
    """Call `function`, sync or async, and return its value; its thread is called by `kind` and `name`.

    A sync one gets a daemon thread of its own: one that never returns costs a thread and delays nobody. `apart` runs
    an async one on a shared loop in another thread: one that blocks does not stop everything else. Those that cannot
    begin because of it move to another loop. With `loop`, an async one runs on that loop and no other.

    Raises whatever it raised, anything but an ordinary exception (SystemExit, a cancellation of its own) inside
    Exited; TooManyThreads. Cancelling cancels an async one; in the thread of a sync one it raises
    CallCancelled, and does not wait for it.
    """
    if inspect.iscoroutinefunction(function):
        return await (_apart(function(), loop) if apart else _guarded(function()))
    value = await _in_thread(kind, name, function)
    if not inspect.isawaitable(value):
        return value
    return await (_apart(value, loop) if apart else _guarded(value))


def was_cancelled(error: BaseException) -> bool:
    """Return whether `error` is a cancellation of this task; foreign code can raise one itself."""
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    return task is not None and task.cancelling() > 0


def start_apart() -> None:
    """Start the event loop for async functions that are called apart, unless it runs already."""
    current_loop()


def current_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that async functions share that are called apart."""
    return LOOPS.current()


async def _apart(value: Awaitable[object], pinned: asyncio.AbstractEventLoop | None) -> object:
    """Await `value` on a loop of another thread; if that one is blocked, on the next, but for a `pinned` one."""
    if pinned is not None:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_guarded(value), pinned))
    while True:
        loop, turn = LOOPS.current(), threading.Lock()  # whoever takes it decides: begin, or move on

        async def work(turn: threading.Lock = turn) -> object:
            if not turn.acquire(blocking=False):
                raise asyncio.CancelledError
            return await _guarded(value)

        doing = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))
        try:
            for seconds in (BEGIN_SECONDS, ONCE_MORE_SECONDS):
                await asyncio.wait([doing], timeout=seconds)
                if doing.done() or turn.locked():
                    break
            if doing.done() or not turn.acquire(blocking=False):
                return await doing
        except asyncio.CancelledError:
            if turn.acquire(blocking=False) and inspect.iscoroutine(value):
                value.close()  # a loop that is busy would begin also what was cancelled before its turn
            doing.cancel()
            raise
        doing.cancel()
        LOOPS.leave(loop)


class Loops:
    """The event loops, each in a daemon thread of its own, that async functions share.

    All use the first, so that a client that one function created there serves the others, too. The rest are for times
    when a function blocks it.
    """

    def __init__(self) -> None:
        self._loops: list[asyncio.AbstractEventLoop] = []
        self._stuck = set[asyncio.AbstractEventLoop]()
        self._lock = threading.Lock()

    def current(self) -> asyncio.AbstractEventLoop:
        """Return the loop to begin on: the first that is not blocked, created when first needed."""
        with self._lock:
            free = next((each for each in self._loops if each not in self._stuck), None)
            if free is None and len(self._loops) < LOOPS_MAX:
                free = asyncio.new_event_loop()
                threading.Thread(target=free.run_forever, name="foreign", daemon=True).start()
                self._loops.append(free)
            return free or self._loops[-1]

    def leave(self, stuck: asyncio.AbstractEventLoop) -> None:
        """Have calls begin on other loops until this one runs again."""
        with self._lock:
            if stuck in self._stuck:
                return  # it will report when it runs again
            self._stuck.add(stuck)
        stuck.call_soon_threadsafe(self._come_back, stuck)

    def _come_back(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._stuck.discard(loop)


LOOPS: Final = Loops()


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
            return  # abandoned meanwhile
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
