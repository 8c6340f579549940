"""What sinks are told of runs that an operator resets (`temporal workflow reset`): each event once, by its own id."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.wire.event_envelope import from_dict, to_dict
from holdfast.sinks import Batch, SinkAway, position, stream_discovery
from holdfast.sinks.delivery import Delivery
from holdfast.sinks.event_stream import EventStream
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from holdfast.testing.holds import Hold
from holdfast.testing.script import Reply, call, say
from tests.resets import deleted, reset
from tests.sinks.delivering import end_sink, until, worker_with

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

ADDER = AgentDefinition(name="adder", tools="all", llm=LLM(model="adder"))
END = "AgentExecutionCompleted"


class Kept:
    """A sink that keeps everything, also what comes twice."""

    def __init__(self, name: str = "kept") -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.away_at: str | None = None
        self.refused = 0

    async def open(self) -> None: ...

    async def deliver(self, batch: Batch) -> None:
        """Keep it; nothing while it is away, which it is for batches with an event of the kind `away_at`."""
        if self.away_at in {each.event.kind for each in batch.events}:
            self.refused += 1
            raise SinkAway("for now", after=0.1)
        self.events += [to_dict(each) for each in batch.events]

    async def close(self) -> None: ...

    def numbers(self) -> dict[str, list[int]]:
        """Return the numbers of the events, in the order in which they came, by what their ids begin with."""
        told: dict[str, list[int]] = {}
        for each in self.events:
            told.setdefault(each["id"].partition("/")[0], []).append(each["sequence"])
        return told

    def ends(self) -> int:
        return sum(each["kind"] == END for each in self.events)

    async def until_step(self, number: int) -> None:
        await until(lambda: any(each["step_number"] == number for each in self.events), lambda: self.events)

    async def until_ends(self, count: int) -> None:
        await until(lambda: self.ends() >= count, lambda: [(each["id"], each["kind"]) for each in self.events])


class Answers:
    """A model that has a tool called and then answers; its first answer is held."""

    def __init__(self) -> None:
        self.first = Hold()

    def __call__(self, request: dict[str, Any]) -> Reply:
        if request["messages"][-1]["role"] != "tool":
            return call("add", a=1, b=2)
        return say("again") if self.first.held else Reply(text="at first", hold=self.first)


async def run_id(client: Holdfast, execution_id: str) -> str:
    """Return the latest Temporal run of an execution."""
    return (await client.temporal.get_workflow_handle(execution_id).describe()).run_id


async def remembers(settings: Settings, sink: Kept, execution_id: str) -> bool:
    """Return whether the sink's stored position has the run: what was told of it, or that all was."""
    records, namespace = Records(Objects(settings.storage_place)), settings.namespace or "default"
    place = await records.read_sink(f"{namespace}/{settings.task_queue}/{sink.name}/place")
    assert place is not None
    return execution_id.encode() in place


@pytest.fixture
async def answers() -> AsyncGenerator[Answers]:
    model = Answers()
    yield model
    model.first.release()


def told_whole(kept: Kept, execution_id: str, reset_run_id: str) -> None:
    """Check that a run was told up to its reset, and then from there to its end, each event once."""
    numbers = kept.numbers()
    assert [*numbers] == [execution_id, reset_run_id]
    before, after = numbers[execution_id], numbers[reset_run_id]
    assert before == [*range(1, len(before) + 1)]
    assert after == [*range(after[0], after[0] + len(after))]
    assert 1 < after[0] <= len(before) + 1, "from the place on to which it was reset"
    assert [to_dict(from_dict(each)) for each in kept.events] == kept.events


async def test_a_run_that_is_reset_is_told_on_from_there(settings: Settings, answers: Answers) -> None:
    kept = Kept()
    async with worker_with(settings, [kept], answers) as client:
        execution_id = await client.start(ADDER, "Add.")
        await answers.first.until_held()
        await kept.until_step(2)
        await reset(client, execution_id, 2)
        await kept.until_ends(1)
        told_whole(kept, execution_id, await run_id(client, execution_id))
        once_more = await client.start(ADDER, "Add.")  # what comes later is told once, too
        await kept.until_ends(2)
    assert {*kept.numbers()} == {execution_id, once_more, await run_id(client, execution_id)}
    await end_sink(client.temporal, settings, kept.name)


async def test_a_run_that_is_reset_again_and_again_after_its_end_is_told_each_time(
    settings: Settings, answers: Answers
) -> None:
    answers.first.release()
    kept = Kept()
    async with worker_with(settings, [kept], answers) as client:
        execution_id = await client.start(ADDER, "Add.")
        await kept.until_ends(1)
        await reset(client, execution_id, 2)
        await kept.until_ends(2)
        second = await run_id(client, execution_id)
        told_whole(kept, execution_id, second)
        await reset(client, execution_id, 0)
        await kept.until_ends(3)
        third = await run_id(client, execution_id)
        once_more = await client.start(ADDER, "Add.")
        await kept.until_ends(4)
    assert [*kept.numbers()] == [execution_id, second, third, once_more]
    await end_sink(client.temporal, settings, kept.name)


@pytest.mark.slow
async def test_a_run_that_is_reset_when_it_is_forgotten_is_told_from_its_beginning_by_other_ids(
    settings: Settings, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (position, stream_discovery):
        monkeypatch.setattr(each, "MARGIN", timedelta(seconds=6))
    answers.first.release()
    kept = Kept()
    async with worker_with(settings, [kept], answers) as client:
        execution_id = await client.start(ADDER, "Add.")
        await kept.until_ends(1)
        ends = 1
        while await remembers(settings, kept, execution_id):
            await client.start(ADDER, "Add.")
            await kept.until_ends(ends := ends + 1)
        await reset(client, execution_id, 2)
        await kept.until_ends(ends + 1)
        again = await run_id(client, execution_id)
    numbers = kept.numbers()
    assert len(numbers) == ends + 1
    assert numbers[again] == [*range(1, len(numbers[again]) + 1)]
    assert numbers[execution_id] == [*range(1, len(numbers[execution_id]) + 1)]
    await end_sink(client.temporal, settings, kept.name)


@pytest.mark.slow
async def test_a_run_that_is_reset_while_nobody_delivers_is_told_to_both_ends(
    settings: Settings, answers: Answers
) -> None:
    kept, late = Kept(), Kept("late")
    async with worker_with(settings, [kept], answers) as client:
        execution_id = await client.start(ADDER, "Add.")
        await answers.first.until_held()
        await kept.until_step(2)
    async with worker_with(settings, script=answers) as client:
        await reset(client, execution_id, 2)
        assert (await client.result(execution_id)).final_response == "again"
    async with worker_with(settings, [kept, late], answers) as client:
        await kept.until_ends(1)
        await late.until_ends(1)
        of_reset = await run_id(client, execution_id)
    told_whole(kept, execution_id, of_reset)
    assert late.numbers() == {of_reset: [*range(1, len(late.events) + 1)]}, "only what holds"
    for each in (kept, late):
        await end_sink(client.temporal, settings, each.name)


async def test_a_reset_of_which_a_sink_that_is_away_has_heard_is_told_once_by_the_next_worker(
    settings: Settings, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[EventStream] = []
    begin = cast("Any", Delivery)._begin

    def noted(self: Delivery, stream: EventStream, *, ended: bool, after: int = 0) -> None:
        begun.append(stream)
        begin(self, stream, ended=ended, after=after)

    monkeypatch.setattr(Delivery, "_begin", noted)
    kept = Kept()
    kept.away_at = "AgentExecutionStarted"
    async with worker_with(settings, [kept], answers) as client:
        execution_id = await client.start(ADDER, "Add.")
        await answers.first.until_held()
        await until(lambda: kept.refused > 0, lambda: "it was offered nothing")
        await reset(client, execution_id, 2)
        await client.result(execution_id)
        of_reset = await run_id(client, execution_id)
        await until(lambda: EventStream(execution_id, of_reset) in begun, lambda: begun)
    assert await remembers(settings, kept, f"{execution_id}/{of_reset}"), "both are under way"
    kept.away_at = None
    async with worker_with(settings, [kept], answers) as client:
        await kept.until_ends(1)
        await client.start(ADDER, "Add.")  # what would come twice has come by the end of this
        await kept.until_ends(2)
    kept.events = [each for each in kept.events if each["execution_id"] == execution_id]
    told_whole(kept, execution_id, of_reset)
    await end_sink(client.temporal, settings, kept.name)


async def test_a_run_that_is_reset_before_its_end_is_delivered_is_told_to_both_ends(
    settings: Settings, answers: Answers
) -> None:
    answers.first.release()
    kept = Kept()
    kept.away_at = END
    async with worker_with(settings, [kept], answers) as client:
        execution_id = await client.start(ADDER, "Add.")
        await until(lambda: kept.refused > 10, lambda: "its end was not offered, which nothing followed then")
        await reset(client, execution_id, 2)
        await client.result(execution_id)
        of_reset = await run_id(client, execution_id)
        kept.away_at = None
        await kept.until_ends(2)
    told_whole(kept, execution_id, of_reset)
    await end_sink(client.temporal, settings, kept.name)


@pytest.mark.slow
async def test_a_run_of_which_the_server_has_deleted_where_a_reset_began_is_told_to_its_end(settings: Settings) -> None:
    first, second = Hold(), Hold()

    def answer(request: dict[str, Any]) -> Reply:
        returned = sum(each["role"] == "tool" for each in request["messages"])
        if returned == 1 and not first.held:
            return Reply(text="at first", hold=first)
        return call("add", a=1, b=2) if returned < 2 else Reply(text="again", hold=second)

    kept, restless = Kept(), replace(settings, continue_events=1)
    async with worker_with(restless, [kept], answer) as client:
        execution_id = await client.start(ADDER, "Add.")
        await first.until_held()
        await kept.until_step(2)
        await reset(client, execution_id, 0)
        await second.until_held()
        await kept.until_step(3)
        [of_reset] = {*kept.numbers()} - {execution_id}
    assert await run_id(client, execution_id) != of_reset, "it has continued as new"
    await deleted(client, execution_id, of_reset)
    second.release()
    async with worker_with(restless, [kept], answer) as client:
        await kept.until_ends(1)
    first.release()
    told_whole(kept, execution_id, of_reset)
    await end_sink(client.temporal, settings, kept.name)
