"""Responses that a fake server makes in the background: stored, polled, streamed again and cancelled. No HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from holdfast.testing.responses_wire_format import RESPONSE_ID, answer_events, begun, event_bytes, response_object
from holdfast.testing.script import Reply

ENCRYPTED = "reasoning.encrypted_content"
EVENTS_BEFORE = 2
"""The events of a response before the model begins: it is created, and queued."""


class BackgroundResponse:
    """One response, made whether anybody listens or not. `status` is what the API calls it now.

    A turn's `delay_seconds` and, without `pieces_max`, its `hold` keep it in the queue; with `pieces_max` it stands
    after so many events. `hang` never ends. `disconnect` and `reset` break the connection that asked for it, no other.
    """

    def __init__(self, id_: str, turn: Reply, request: Mapping[str, Any], model: str) -> None:
        self.id, self.turn, self.model = id_, turn, model
        self.streamed = request.get("stream") is True
        self.status = "queued"
        self.can_be_streamed = self.streamed
        """False once the API refuses to stream it, as it does some minutes after it was created."""
        self._request = {**request, RESPONSE_ID: id_}
        self._whole = response_object(turn, self._request)
        self._events = tuple(answer_events(turn, self._request))
        self._count = EVENTS_BEFORE
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._make())

    @property
    def has_ended(self) -> bool:
        """Whether it is final."""
        return self.status not in ("queued", "in_progress")

    def body(self, include: frozenset[str]) -> dict[str, Any]:
        """Return it as it is now; reasoning only as far as it is to be included."""
        if not self.has_ended or self.status == "cancelled":
            return begun(self._request) | {"status": self.status}
        output = [
            {name: value for name, value in item.items() if name != "encrypted_content" or ENCRYPTED in include}
            for item in self._whole["output"]
        ]
        return self._whole | {"output": output}

    async def events(self, after: int, *, breaks: bool = False) -> AsyncIterator[bytes]:
        """Yield the events behind that number until the response has ended; with `breaks` until its turn's fault."""
        at, until = after + 1, self.turn.pieces_max if breaks else None
        while True:
            while at < self._count:
                if until is not None and at >= until:
                    return
                yield event_bytes(self._events[at])
                at += 1
            if self.has_ended or (until is not None and at >= until):
                return
            await self._changed.wait()

    async def until(self, *statuses: str) -> None:
        """Wait until it has one of these statuses."""
        while self.status not in statuses:
            await self._changed.wait()

    def cancel(self) -> None:
        """Cancel it; one that has ended stays as it is."""
        if not self.has_ended:
            self._task.cancel()
            self._change("cancelled", self._count)

    def close(self) -> None:
        """End the work on it without a trace."""
        self._task.cancel()

    async def _make(self) -> None:
        turn = self.turn
        await asyncio.sleep(turn.delay_seconds)
        if turn.pieces_max is None:
            await self._stand()
        else:
            self._change("in_progress", min(turn.pieces_max, len(self._events) - 1))
            await self._stand()
        for count in range(self._count, len(self._events)):
            self._change("in_progress", count)
            await asyncio.sleep(turn.piece_seconds)
        self._change(self._whole["status"], len(self._events))

    async def _stand(self) -> None:
        if self.turn.hang:
            await asyncio.Event().wait()
        if self.turn.hold is not None:
            await self.turn.hold.stand()

    def _change(self, status: str, count: int) -> None:
        self.status, self._count = status, count
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
