"""`Inbox`: the queue of events for the loop of one execution, messages first."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.core.loop.events import Event, MessageArrived


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
