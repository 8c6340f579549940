"""`OpenResources`: the resources of one worker or one in-process run, open on one event loop, for tools and hooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import Any, Final, cast

from holdfast.core.base.errors import HoldfastError
from holdfast.core.conversation.error_records import error_record
from holdfast.core.tools.resources import Resource, ResourceTaker, resources_for, values_for
from holdfast.runtime.user_code import Exited, call_foreign, current_loop

LOGGER: Final = logging.getLogger("holdfast.worker")

OPEN_SECONDS_MAX: Final = 60.0
"""How long one resource may take to open; a worker serves nothing before."""

CLOSE_SECONDS_MAX: Final = 10.0
"""How long one resource may take to close; a worker's end waits for it."""

LEFT_SECONDS: Final = 1.0
"""The time that closing may take besides: the loop of the tools may be blocked by one of them."""


class ResourceFailed(HoldfastError):
    """A resource could not be opened; the message names it. Nothing was started."""


class OpenResources:
    """Opens and closes resources, in one task of one loop: what was entered in a task must be left in it.

    Args:
        takers: the tools and hooks that will run; only what they take is opened.
        resources: what there is.

    Raises InvalidInput, as `resources_for` does.
    """

    def __init__(self, takers: Iterable[ResourceTaker] = (), resources: Sequence[Resource] = ()) -> None:
        self._resources = resources_for(takers, resources)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._values: list[tuple[Resource, object]] = []
        self._leave = asyncio.Event()
        self._holding: Future[None] | None = None

    @property
    def closing_seconds(self) -> float:
        """How long closing all of them may take."""
        return CLOSE_SECONDS_MAX * len(self._resources) + LEFT_SECONDS if self._resources else 0.0

    def loop_for(self, taker: ResourceTaker) -> asyncio.AbstractEventLoop | None:
        """Return the loop on which an async tool or hook must run; none for one that takes no resource."""
        return self._loop if taker.resources else None

    def values_for(self, taker: ResourceTaker) -> Mapping[str, object]:
        """Return the arguments that are resources. Raises InvalidInput where one of them is not open."""
        return values_for(taker, self._values)

    async def open(self, *, apart: bool) -> None:
        """Open all of them, in order; `apart` on the loop that async tools share in a worker, else on this one.

        Raises ResourceFailed; those that are open by then are closed, also where this is cancelled.
        """
        if not self._resources:
            return
        self._loop = current_loop() if apart else asyncio.get_running_loop()
        self._values, self._leave = [], asyncio.Event()
        ready, closed = Future[None](), Future[None]()
        self._holding = asyncio.run_coroutine_threadsafe(self._hold(ready, closed), self._loop)
        try:
            await asyncio.wrap_future(ready)
        except asyncio.CancelledError:
            self._holding.cancel()
            await asyncio.wait([asyncio.wrap_future(closed)], timeout=self.closing_seconds)
            raise

    async def close(self) -> None:
        """Close all that are open, the last one first, each within its time; errors are logged."""
        loop, holding = self._loop, self._holding
        if loop is None or holding is None:
            return
        loop.call_soon_threadsafe(self._leave.set)
        left = asyncio.wrap_future(holding)
        done, _ = await asyncio.wait([left], timeout=self.closing_seconds)
        if not done:
            left.cancel()
            seconds = self.closing_seconds
            LOGGER.warning("the resources did not close within %g s: a tool blocks the loop of the tools", seconds)
        self._loop = self._holding = None
        self._values = []

    async def _hold(self, ready: Future[None], closed: Future[None]) -> None:
        """Open everything, say so, wait for the end, and close everything: all in one task."""
        entered: list[tuple[Resource, AbstractAsyncContextManager[Any]]] = []
        leaving, failed = asyncio.create_task(self._leave.wait()), None
        try:
            for each in self._resources:
                manager = _manager(each)
                self._values.append((each, await _entered(each, manager)))
                entered.append((each, manager))
            ready.set_result(None)
            await leaving
        except ResourceFailed as error:
            failed = error
        finally:
            leaving.cancel()
            for each, manager in reversed(entered):
                await _left(each, manager)
            if not ready.done():  # whatever ended this, somebody waits
                name = self._resources[len(entered)].name
                why = f"the resource {name!r} could not be opened: it was cancelled, or broke off"
                ready.set_exception(failed or ResourceFailed(why))
            closed.set_result(None)


NO_RESOURCES: Final = OpenResources()
"""For tools that take none."""


async def _entered(resource: Resource, manager: AbstractAsyncContextManager[Any]) -> object:
    limit = asyncio.timeout(OPEN_SECONDS_MAX)
    try:
        async with limit:
            return cast("object", await manager.__aenter__())
    except TimeoutError:
        if limit.expired():
            why = f"it took longer than {OPEN_SECONDS_MAX:g} s"
            raise ResourceFailed(f"the resource {resource.name!r} could not be opened: {why}") from None
        raise _failed(resource, TimeoutError("it timed out")) from None
    except Exited as exited:
        raise _failed(resource, exited.error) from None
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise _failed(resource, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # user code can raise anything
        raise _failed(resource, error) from None


def _failed(resource: Resource, error: BaseException) -> ResourceFailed:
    record = error_record(error, resource.name)
    return ResourceFailed(f"the resource {resource.name!r} could not be opened: {record.type}: {record.message}")


async def _left(resource: Resource, manager: AbstractAsyncContextManager[Any]) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await manager.__aexit__(None, None, None)
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # the others are to be closed all the same
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise
        record = error_record(error.error if isinstance(error, Exited) else error, resource.name)
        why = f"{record.type}: {record.message}"
        if isinstance(error, TimeoutError):
            why = f"it took longer than {CLOSE_SECONDS_MAX:g} s"
        LOGGER.warning("the resource %s could not be closed: %s", resource.name, why)


def _is_cancelled() -> bool:
    """Return whether somebody cancels this task: else a CancelledError is the resource's own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _manager(resource: Resource) -> AbstractAsyncContextManager[Any]:
    function = resource.function
    if isasyncgenfunction(function):
        return asynccontextmanager(function)()
    if isgeneratorfunction(function):
        return _threaded(resource.name, contextmanager(function))
    return _made(resource)


@asynccontextmanager
async def _made(resource: Resource) -> AsyncGenerator[Any]:
    """Hold the context manager that a plain function returns."""
    manager: object = resource.function()
    if isinstance(manager, AbstractAsyncContextManager):
        async with manager as value:
            yield value
    elif isinstance(manager, AbstractContextManager):
        async with _threaded(resource.name, partial(_same, manager)) as value:
            yield value
    else:
        raise TypeError(f"it returned a {type(manager).__name__}; yield the resource, or return a context manager")


def _same(manager: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    return manager


@asynccontextmanager
async def _threaded(name: str, make: Callable[[], AbstractContextManager[Any]]) -> AsyncGenerator[Any]:
    """Hold a sync context manager: opened and closed in threads, so that it delays nobody."""
    manager = make()
    value = await call_foreign("resource", name, manager.__enter__, apart=False)
    try:
        yield value
    finally:
        await call_foreign("resource", name, partial(manager.__exit__, None, None, None), apart=False)
