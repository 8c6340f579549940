"""`Listeners`: the event listeners of a run in this process, isolated so that none can harm it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from holdfast.core.base.bounds import LISTENER_EVENTS_MAX, LISTENER_SECONDS_MAX, NAMES_LISTED_MAX
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.core.wire.execution_events import KINDS, Observed

LOGGER: Final = logging.getLogger("holdfast.listeners")

ListenerFunction: TypeAlias = Callable[[Any], Awaitable[object] | object]
"""A listener: a function or a coroutine function of one event."""

Kind: TypeAlias = type[Observed] | str
"""An event's class, or its name."""


@dataclass(slots=True)
class _Subscription:
    """One listener and its kinds of events."""

    kinds: tuple[type[Observed], ...]
    listener: ListenerFunction
    warned: bool = False
    waiting: asyncio.Queue[Awaitable[object]] = field(default_factory=lambda: asyncio.Queue(LISTENER_EVENTS_MAX))
    """The awaitables of its events that have not run yet, in the order of the events."""
    working: asyncio.Task[None] | None = None

    def warn(self, why: str) -> None:
        """Log the first problem of this listener."""
        if not self.warned:
            self.warned = True
            LOGGER.warning("the listener %s %s; the run goes on; this is logged once", _name(self.listener), why)


class Listeners:
    """The listeners of one driver. Their errors and delays do not affect the run."""

    def __init__(self) -> None:
        self._subscriptions: list[_Subscription] = []

    def __bool__(self) -> bool:
        return bool(self._subscriptions)

    def add(self, kinds: Kind | tuple[Kind, ...], listener: ListenerFunction) -> None:
        """Call `listener` with every event of these kinds. Raises InvalidInput for an unknown kind of event."""
        if not callable(listener):
            raise InvalidInput(f"a listener is a function of one event, not {type(listener).__name__}")
        kind_names = kinds if isinstance(kinds, tuple) else (kinds,)
        if not kind_names:
            raise InvalidInput("a listener of no kind of event hears nothing; name one, or use wiretap")
        self._subscriptions.append(_Subscription(tuple(map(_kind, kind_names)), listener))

    def remove(self, listener: ListenerFunction) -> None:
        """Remove `listener`. Raises InvalidInput for one that was not added."""
        remaining = [each for each in self._subscriptions if each.listener != listener]
        if len(remaining) == len(self._subscriptions):
            raise InvalidInput(f"{_name(listener)} does not listen here; give the very function that was subscribed")
        self._subscriptions = remaining

    def notify(self, event: Observed) -> None:
        """Call the listeners of `event`'s kind, without waiting for them."""
        for each in tuple(self._subscriptions):
            if isinstance(event, each.kinds):
                _notify(each, event)

    async def caught_up(self) -> None:
        """Wait until coroutine listeners have handled all events, at most LISTENER_SECONDS_MAX."""
        behind = {each.working: each for each in self._subscriptions if each.working is not None}
        if not behind:
            return
        _, late = await asyncio.wait(behind, timeout=LISTENER_SECONDS_MAX)
        for task in late:
            task.cancel()
            behind[task].warn(f"was not done with its events {LISTENER_SECONDS_MAX:g} s after the run's end")


def _notify(subscription: _Subscription, event: Observed) -> None:
    try:
        result = subscription.listener(event)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # a listener must not harm the run
        subscription.warn(f"raised {_error_text(error)}")
        return
    if not inspect.isawaitable(result):
        return
    try:
        subscription.waiting.put_nowait(result)
    except asyncio.QueueFull:
        subscription.warn(f"is more than {LISTENER_EVENTS_MAX:,} events behind and misses some")
        _drop(result)
        return
    if subscription.working is None:
        subscription.working = asyncio.create_task(_work(subscription))
        subscription.working.add_done_callback(partial(_rest, subscription))


async def _work(subscription: _Subscription) -> None:
    """Await the listener's awaitables, one event after another, until none is left."""
    while not subscription.waiting.empty():
        try:
            await subscription.waiting.get_nowait()
        except Exception as error:  # noqa: BLE001  # as above
            subscription.warn(f"raised {_error_text(error)}")


def _rest(subscription: _Subscription, _: object) -> None:
    """Mark the listener's task as ended, and drop what has not run."""
    subscription.working = None
    while not subscription.waiting.empty():
        _drop(subscription.waiting.get_nowait())


def _drop(unawaited: Awaitable[object]) -> None:
    if inspect.iscoroutine(unawaited):
        unawaited.close()  # else Python warns that it was never awaited


def _kind(kind: object) -> type[Observed]:
    """Return the event class for a class or a name."""
    if isinstance(kind, type) and issubclass(kind, Observed):
        return kind
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    if isinstance(kind, str):
        raise InvalidInput(f"there is no event {kind[:80]!r}; {suggestion(kind, KINDS)}")
    names = ", ".join(sorted(KINDS)[:NAMES_LISTED_MAX])
    raise InvalidInput(
        f"{kind!r:.80} is not a kind of event; give a class of holdfast.core.wire.execution_events or a name: {names}"
    )


def _name(listener: object) -> str:
    return str(getattr(listener, "__qualname__", type(listener).__name__))


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
