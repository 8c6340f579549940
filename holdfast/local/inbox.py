"""`Inbox`: the queue of events for the loop of one execution, messages first; and the events that programs cause."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime

from pydantic import JsonValue, ValidationError

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.validation_errors import problem_text
from holdfast.core.conversation.messages import Message, user_message
from holdfast.core.conversation.stop_reasons import StopMode, StopSignal
from holdfast.core.loop.events import Event, MessageArrived, StopRequested, TimerFired
from holdfast.core.loop.pending_messages import ROLES, ROLES_RULE
from holdfast.core.wire.contracts import StopRequest


class Inbox:
    """Events in the order they came, but messages first: none may be left over when another event ends the run."""

    def __init__(self) -> None:
        self._messages: deque[Event] = deque()
        self._others: deque[Event] = deque()
        self._filled = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add an event."""
        (self._messages if isinstance(event, MessageArrived) else self._others).append(event)
        self._filled.set()

    @property
    def waiting(self) -> tuple[Event, ...]:
        """The events in the queue."""
        return (*self._messages, *self._others)

    async def get(self) -> Event:
        """Return the next event; wait for one where there is none."""
        while not (self._messages or self._others):
            self._filled.clear()
            await self._filled.wait()
        return (self._messages or self._others).popleft()

    async def until(self, wanted: Callable[[Event], bool]) -> None:
        """Wait until an event that is `wanted` is in the queue; take none. Nobody may `get` meanwhile."""
        while not any(map(wanted, self.waiting)):
            self._filled.clear()
            await self._filled.wait()


def is_stop(event: Event) -> bool:
    """Return whether `event` asks the execution to stop."""
    return isinstance(event, StopRequested)


def is_end(event: Event) -> bool:
    """Return whether `event` is to end the execution: a stop, or its time limit."""
    return isinstance(event, StopRequested | TimerFired)


def stop_event(reason: str, mode: StopMode, context: Mapping[str, JsonValue], at: datetime) -> StopRequested:
    """Return the event of a stop that a program asks for. Raises InvalidInput for one that is too long."""
    try:
        request = StopRequest(reason=reason, mode=mode, source="local", context=context)
    except ValidationError as error:
        raise InvalidInput(f"the stop cannot be asked for: {problem_text(error.errors()[0])}") from None
    signal = StopSignal.requested(request.reason, request.source, at, request.context)
    return StopRequested(signal=signal, mode=mode, at=at)


def message_event(message: str | Message, at: datetime) -> MessageArrived:
    """Return the event of a message that a program sends. Raises InvalidInput for a role that is not accepted."""
    message = user_message(message) if isinstance(message, str) else message
    if message.role not in ROLES:
        raise InvalidInput(f"a message of the role {message.role!r} is not accepted: {ROLES_RULE}")
    return MessageArrived(message=message, at=at)
