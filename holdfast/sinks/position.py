"""`ConsumerPosition`: how far a sink has got, in the record store: its latest batch, and the position in each stream.

    sinks/NAMESPACE/QUEUE/CONSUMER/place      all of it, written before each batch is delivered
    sinks/NAMESPACE/QUEUE/CONSUMER/aside/ID   what the sink would not take, or an execution that could not be read

Executions and the Temporal runs of sessions stand in it by the keys of their streams (`EventStream`).

A batch is written down before it is delivered and struck off after it: whoever goes on offers it again as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from urllib.parse import quote
from uuid import uuid4

from pydantic import AwareDatetime, JsonValue, ValidationError
from pydantic_core import to_json

from holdfast.core.base.errors import StorageFailed
from holdfast.core.base.frozen import Frozen, canonical
from holdfast.core.base.stored_forms import SINK_POSITION
from holdfast.core.wire.event_envelope import NumberedEvent, from_dict, to_dict
from holdfast.core.wire.sink_contracts import SinkStart
from holdfast.sinks.event_stream import EventStream
from holdfast.storage.records import Records

SINK_STATE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most that a sink's place is read as: far more than SINK_FOLLOWED_MAX cursors and one batch."""

MARGIN: Final = timedelta(minutes=5)
"""How long after its end an execution may be missing in the server's lists; so long it is remembered as done."""


class _SavedPosition(Frozen):
    """What is written. `events` are those of the batch under way, `singly` whether they are offered one by one."""

    format: Literal[1] = 1
    runner: str
    looked_until: AwareDatetime
    told: Mapping[str, int]
    done: Mapping[str, AwareDatetime]
    events: tuple[Mapping[str, JsonValue], ...] = ()
    singly: bool = False


class Superseded(Exception):
    """Another worker delivers to this consumer now."""


class ConsumerPosition:
    """What one runner knows of its consumer. Not to be shared between runners: the last one to load it owns it."""

    def __init__(self, records: Records, namespace: str, start: SinkStart) -> None:
        names = (quote(each, safe="") for each in (namespace, start.task_queue, start.consumer))
        self._records, self._folder = records, "/".join(names)
        self._runner = str(uuid4())
        self.looked_until: datetime
        """Everything that ended before this is known, done or under way."""
        self.told: dict[str, int] = {}
        """Up to which event it was delivered, of every stream that goes on."""
        self.done: dict[str, datetime] = {}
        """The streams of which everything was delivered lately, and when."""
        self.batch: tuple[NumberedEvent, ...] = ()
        self.singly = False

    async def load(self, otherwise: datetime) -> None:
        """Take the place over; a new consumer has heard of nothing that ended after `otherwise`."""
        data = await self._records.read_sink(f"{self._folder}/place")
        if data is None:
            self.looked_until = otherwise
        else:
            self._take(data)
        await self._write()

    def _take(self, data: bytes) -> None:
        try:
            saved = _read(data)
            self.batch = tuple(map(from_dict, saved.events))
        except (ValidationError, ValueError) as error:
            problem = f"the stored position of a sink, {self._folder}, cannot be read: {type(error).__name__}"
            raise StorageFailed(f"{problem}; restore it, or delete it to have everything delivered again") from None
        self.looked_until, self.singly = saved.looked_until, saved.singly
        self.told, self.done = dict(saved.told), dict(saved.done)

    async def save(self) -> None:
        """Write it down. Raises Superseded where another runner has taken over, StorageFailed."""
        data = await self._records.read_sink(f"{self._folder}/place")
        if data is not None and _read(data).runner != self._runner:
            raise Superseded
        await self._write()

    async def put_aside(self, name: str, why: str, events: Iterable[NumberedEvent] = ()) -> str:
        """Keep what is not delivered, and return under which name."""
        name = f"{self._folder}/aside/{quote(name, safe='')}"
        document: dict[str, Any] = {"why": why, "events": [to_dict(each) for each in events]}
        await self._records.write_sink(name, to_json(document))
        return name

    def begin(self, batch: Iterable[NumberedEvent], *, singly: bool = False) -> None:
        """Take note that these are about to be delivered."""
        self.batch, self.singly = tuple(batch), singly

    def delivered(self, events: Iterable[NumberedEvent]) -> None:
        """Strike off what was delivered of the batch."""
        gone = {each.id: each for each in events}
        for each in gone.values():
            self.told[EventStream.of(each).key] = each.sequence
        self.batch = tuple(each for each in self.batch if each.id not in gone)

    def end(self, key: str, at: datetime) -> None:
        """Take note that everything of a stream was delivered."""
        self.told.pop(key, None)
        self.done[key] = at

    def looked(self, until: datetime) -> None:
        """Take note that everything that ended before `until` is known; forget what was done long before.

        Not that of an execution which is under way once more, for a reset: else it would be told again.
        """
        self.looked_until = max(until, self.looked_until)
        oldest = self.looked_until - MARGIN - MARGIN
        self.done = {id_: at for id_, at in self.done.items() if at >= oldest or id_ in self.told}

    async def _write(self) -> None:
        saved = _SavedPosition(
            runner=self._runner,
            looked_until=self.looked_until,
            told=self.told,
            done=self.done,
            events=tuple(map(to_dict, self.batch)),
            singly=self.singly,
        )
        await self._records.write_sink(f"{self._folder}/place", canonical(saved))


def _read(data: bytes) -> _SavedPosition:
    if len(data) > SINK_STATE_BYTES_MAX:
        raise ValueError(f"{len(data):,} bytes")
    try:
        return _SavedPosition.model_validate_json(data)
    except ValidationError:
        SINK_POSITION.check(data, "the stored position of a sink")
        raise
