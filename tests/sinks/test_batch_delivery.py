"""How a batch is offered: until it is taken, one by one where it is refused, aside in the end; what a crash leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from holdfast.core.base.errors import StorageFailed
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.sink_contracts import SinkStart
from holdfast.sinks import Batch, SinkAway, SinkRefused, batch_delivery
from holdfast.sinks.batch_delivery import BatchDelivery
from holdfast.sinks.position import ConsumerPosition, Superseded
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from tests.sinks.examples import EXECUTION, NUMBERED

START = SinkStart(consumer="test", task_queue="a queue/with: signs")
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
Answer = Callable[[Batch], Exception | None]


class Scripted:
    """Takes what it is offered unless its answer is an error; remembers all offers."""

    name = "test"

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.offers: list[tuple[tuple[int, ...], bool]] = []
        self.taken: list[int] = []

    async def open(self) -> None: ...

    async def deliver(self, batch: Batch) -> None:
        numbers = tuple(each.sequence for each in batch.events)
        self.offers.append((numbers, batch.again))
        if error := self._answer(batch):
            raise error
        self.taken += numbers

    async def close(self) -> None: ...


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setattr(batch_delivery, "BACKOFF_SECONDS", 0.0)
    return Records(Objects(f"memory://{uuid4()}"))


async def loaded(records: Records) -> ConsumerPosition:
    place = ConsumerPosition(records, "default", START)
    await place.load(LONG_AGO)
    return place


async def offered(
    place: ConsumerPosition, answer: Answer, events: tuple[NumberedEvent, ...] = NUMBERED[:3]
) -> Scripted:
    sink = Scripted(answer)
    place.begin(events)
    await BatchDelivery(place, sink, "test").deliver_batch()
    return sink


async def test_what_is_away_is_offered_until_it_is_back(records: Records) -> None:
    left = [SinkAway("not now", after=0.0)] * 50
    sink = await offered(await loaded(records), lambda _: left.pop() if left else None)
    assert sink.offers == [((1, 2, 3), False)] + [((1, 2, 3), True)] * 50


async def test_what_is_refused_is_offered_one_by_one_and_put_aside(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    place = await loaded(records)
    sink = await offered(
        place, lambda batch: SinkRefused("no twos") if 2 in {e.sequence for e in batch.events} else None
    )
    assert [each for each, _ in sink.offers] == [(1, 2, 3), (1,), (2,), (2,), (2,), (3,)]
    assert (sink.taken, place.batch, place.told, place.singly) == ([1, 3], (), {EXECUTION: 3}, False)
    assert f"refused event {EXECUTION}/2: SinkRefused: no twos" in caplog.text
    aside = json.loads(await records.read_sink(caplog.text.split("see ")[1].split()[0]) or b"")
    assert [each["id"] for each in aside["events"]] == [f"{EXECUTION}/2"]


async def test_what_fails_again_and_again_is_put_aside_in_the_end(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_delivery, "SINK_TRIES_MAX", 4)
    place = await loaded(records)
    sink = await offered(place, lambda batch: ValueError("3") if batch.events[-1].sequence == 3 else None)
    assert sink.offers == [
        ((1, 2, 3), False),
        *[((1, 2, 3), True)] * 3,
        ((1,), True),
        ((2,), True),
        *[((3,), True)] * 3,
    ]
    assert sink.taken == [1, 2]
    alone = await offered(place, lambda _: ValueError("4"), NUMBERED[3:4])
    assert alone.offers == [((4,), False), *[((4,), True)] * 3]


async def test_who_comes_after_a_crash_offers_the_same_batch_again(records: Records) -> None:
    with pytest.raises(KeyboardInterrupt):
        await offered(await loaded(records), _crash)
    place = await loaded(records)
    sink = Scripted(lambda _: None)
    await BatchDelivery(place, sink, "test").deliver_batch(again=True)
    assert (sink.offers, place.told) == ([((1, 2, 3), True)], {EXECUTION: 3})


def _crash(_: Batch) -> Exception | None:
    raise KeyboardInterrupt


async def test_a_crash_among_single_offers_leaves_the_rest_of_them(records: Records) -> None:
    def refuse_then_crash(batch: Batch) -> Exception | None:
        if len(batch.events) > 1:
            return SinkRefused("not together")
        return _crash(batch) if batch.id.endswith("/2") else None

    with pytest.raises(KeyboardInterrupt):
        await offered(await loaded(records), refuse_then_crash)
    place, sink = await loaded(records), Scripted(lambda _: None)
    await BatchDelivery(place, sink, "test").deliver_batch(again=True)
    assert sink.offers == [((2,), True), ((3,), True)]


async def test_whoever_loads_a_place_owns_it(records: Records) -> None:
    first = await loaded(records)
    second = await loaded(records)
    with pytest.raises(Superseded):
        await first.save()
    await second.save()


async def test_a_place_remembers_what_was_told_and_forgets_what_was_done_long_ago(records: Records) -> None:
    place = await loaded(records)
    await offered(place, lambda _: None)
    place.end("another", LONG_AGO)
    place.looked(LONG_AGO)
    await place.save()
    again = await loaded(records)
    assert (again.told, again.done, again.looked_until) == ({EXECUTION: 3}, {"another": LONG_AGO}, LONG_AGO)
    again.looked(LONG_AGO + timedelta(hours=1))
    assert again.done == {}


async def test_a_place_that_cannot_be_read_says_what_to_do(records: Records) -> None:
    name = "default/a%20queue%2Fwith%3A%20signs/test"
    await loaded(records)
    assert await records.read_sink(f"{name}/place")
    await records.write_sink(f"{name}/place", b"{}")
    with pytest.raises(StorageFailed, match="cannot be read: ValidationError; restore it, or delete it"):
        await loaded(records)


async def test_what_was_told_of_a_run_is_remembered_as_long_as_a_reset_of_it_is_looked_for(records: Records) -> None:
    place = await loaded(records)
    for key in (EXECUTION, "another"):
        place.end(key, LONG_AGO)
    place.told[EXECUTION] = 0  # once more under way
    place.looked(LONG_AGO + timedelta(hours=1))
    assert [*place.done] == [EXECUTION], "it would be told again from its beginning"
