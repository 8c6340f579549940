"""Where what happens to one execution waits for the loop, messages first. One for each execution."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.core.loop.events import Event, MessageArrived


class Inbox:
    """Events in the order they came, but for messages: none of those may be left over when something else ends us."""

    def __init__(self) -> None:
        self._messages: deque[Event] = deque()
        self._others: deque[Event] = deque()
        self._filled = asyncio.Event()

    def put(self, event: Event) -> None:
        """Take an event in."""
        (self._messages if isinstance(event, MessageArrived) else self._others).append(event)
        self._filled.set()

    @property
    def waiting(self) -> tuple[Event, ...]:
        """What is there."""
        return (*self._messages, *self._others)

    async def get(self) -> Event:
        """Return the next event; wait for one where there is none."""
        while not (self._messages or self._others):
            self._filled.clear()
            await self._filled.wait()
        return (self._messages or self._others).popleft()
