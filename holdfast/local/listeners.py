"""`Listeners`: who hears what of a run in this process, and how none of them can harm it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from holdfast.core.base.bounds import LISTENER_EVENTS_MAX, LISTENER_SECONDS_MAX, NAMES_TOLD_MAX
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.core.wire.execution_events import KINDS, Observed

LOGGER: Final = logging.getLogger("holdfast.listeners")

Heard: TypeAlias = Callable[[Any], Awaitable[object] | object]
"""A listener: a function or a coroutine function of one event."""

Kind: TypeAlias = type[Observed] | str
"""An event's class, or its name."""


@dataclass(slots=True)
class _Subscription:
    """One listener and what it wants to hear."""

    kinds: tuple[type[Observed], ...]
    listener: Heard
    warned: bool = False
    waiting: asyncio.Queue[Awaitable[object]] = field(default_factory=lambda: asyncio.Queue(LISTENER_EVENTS_MAX))
    """What it has begun of events and not ended: one after another, in their order."""
    working: asyncio.Task[None] | None = None

    def warn(self, why: str) -> None:
        """Tell once that this listener does not do well."""
        if not self.warned:
            self.warned = True
            LOGGER.warning("the listener %s %s; the run goes on, and this is told once", _name(self.listener), why)


class Listeners:
    """The listeners of one driver. What they raise, and how long they take, is theirs alone."""

    def __init__(self) -> None:
        self._subscriptions: list[_Subscription] = []

    def __bool__(self) -> bool:
        return bool(self._subscriptions)

    def add(self, kinds: Kind | tuple[Kind, ...], listener: Heard) -> None:
        """Have `listener` hear every event of these kinds. Raises InvalidInput for what is no kind of event."""
        if not callable(listener):
            raise InvalidInput(f"a listener is a function of one event, not {type(listener).__name__}")
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        if not wanted:
            raise InvalidInput("a listener of no kind of event hears nothing; name one, or use wiretap")
        self._subscriptions.append(_Subscription(tuple(map(_kind, wanted)), listener))

    def remove(self, listener: Heard) -> None:
        """Have `listener` hear nothing any more. Raises InvalidInput for one that does not listen."""
        left = [each for each in self._subscriptions if each.listener != listener]
        if len(left) == len(self._subscriptions):
            raise InvalidInput(f"{_name(listener)} does not listen here; give the very function that was subscribed")
        self._subscriptions = left

    def tell(self, event: Observed) -> None:
        """Let everybody hear `event` who wants to; nobody is waited for."""
        for each in tuple(self._subscriptions):
            if isinstance(event, each.kinds):
                _tell(each, event)

    async def caught_up(self) -> None:
        """Return when coroutine listeners have heard all that was told, at most after LISTENER_SECONDS_MAX."""
        behind = {each.working: each for each in self._subscriptions if each.working is not None}
        if not behind:
            return
        _, late = await asyncio.wait(behind, timeout=LISTENER_SECONDS_MAX)
        for task in late:
            task.cancel()
            behind[task].warn(f"was not done with its events {LISTENER_SECONDS_MAX:g} s after the run's end")


def _tell(subscription: _Subscription, event: Observed) -> None:
    try:
        heard = subscription.listener(event)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # who listens must not harm the run
        subscription.warn(f"raised {_said(error)}")
        return
    if not inspect.isawaitable(heard):
        return
    try:
        subscription.waiting.put_nowait(heard)
    except asyncio.QueueFull:
        subscription.warn(f"is more than {LISTENER_EVENTS_MAX:,} events behind and misses some")
        _drop(heard)
        return
    if subscription.working is None:
        subscription.working = asyncio.create_task(_work(subscription))
        subscription.working.add_done_callback(partial(_rest, subscription))


async def _work(subscription: _Subscription) -> None:
    """Do what the listener has begun, one event after another, until it is through."""
    while not subscription.waiting.empty():
        try:
            await subscription.waiting.get_nowait()
        except Exception as error:  # noqa: BLE001  # as above
            subscription.warn(f"raised {_said(error)}")


def _rest(subscription: _Subscription, _: object) -> None:
    """Take note that nobody works for the listener; what it has not begun it never will."""
    subscription.working = None
    while not subscription.waiting.empty():
        _drop(subscription.waiting.get_nowait())


def _drop(heard: Awaitable[object]) -> None:
    if inspect.iscoroutine(heard):
        heard.close()  # else Python complains that nobody has awaited it


def _kind(kind: object) -> type[Observed]:
    """Return the event class that is meant."""
    if isinstance(kind, type) and issubclass(kind, Observed):
        return kind
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    if isinstance(kind, str):
        raise InvalidInput(f"there is no event {kind[:80]!r}; {suggestion(kind, KINDS)}")
    told = ", ".join(sorted(KINDS)[:NAMES_TOLD_MAX])
    raise InvalidInput(
        f"{kind!r:.80} is no kind of event; give a class of holdfast.core.wire.execution_events or a name: {told}"
    )


def _name(listener: object) -> str:
    return str(getattr(listener, "__qualname__", type(listener).__name__))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
