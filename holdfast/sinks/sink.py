"""`Sink`: the protocol, the batch it receives, and the errors with which it refuses one. Delivers nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from holdfast.core.wire.event_envelope import NumberedEvent


class SinkRefused(Exception):
    """A sink will never take this: offering it again does not help. It is put aside after a few tries."""


class SinkAway(Exception):
    """A sink takes nothing now, whatever it is: it is offered again until it does. `after` is when it says so."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True, slots=True)
class Batch:
    """Events to be taken together, those of each execution in their order.

    `id` is that of a single event, else a digest of all: the same events have the same id however often they are
    offered. `again` says that they may have been taken before: by this process, or by one that died over it.
    """

    consumer: str
    events: tuple[NumberedEvent, ...]
    again: bool = False

    @property
    def id(self) -> str:
        """What tells this batch from every other one of its consumer."""
        if len(self.events) == 1:
            return self.events[0].id
        return f"batch-{sha256(_spelled(self.consumer, self.events)).hexdigest()[:32]}"


class Sink(Protocol):
    """Where events go. Whatever else than SinkRefused and SinkAway its methods raise counts as a passing fault."""

    @property
    def name(self) -> str:
        """The consumer id: what was delivered is remembered under it. Letters, digits, `_` and `-`, at most 64."""
        ...

    async def open(self) -> None:
        """Begin: called before anything is delivered, again after a fault; raises SinkAway while it cannot."""
        ...

    async def deliver(self, batch: Batch) -> None:
        """Return when all of the batch is taken for good. One batch comes at a time."""
        ...

    async def close(self) -> None:
        """End; called after every `open`."""
        ...


def _spelled(consumer: str, events: Sequence[NumberedEvent]) -> bytes:
    return "\n".join((consumer, *(each.id for each in events))).encode()
