"""The record store's activities on a real server: whatever a run has come to, its record is there when it has ended."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import records as keeping_records
from activities.records import RecordActivities
from activities.run_queries import ask_run
from holdfast import AgentDefinition, tool
from holdfast.client import Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.errors import StorageFailed
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.wire.contracts import PART_QUERY, SNAPSHOT_QUERY, PartPage, PartRequest, RecordRequest
from holdfast.core.wire.records import Snapshot
from holdfast.core.wire.session_contracts import Branch, BranchRequest, FindSession, SaveSession
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from holdfast.testing.script import Call, Reply, calls, say
from tests.serving import Serve, Served
from tests.storage.keeping import Kept
from tests.workflows.chats import Chat, texts

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="keeper", tools="all")
LATER = "2026-01-02T00:00:00Z"


def long_answer(request: dict[str, Any]) -> Reply:
    """Answer with 12,000 characters, whatever the question."""
    return say("a" * 12_000) if request["messages"] else say("")


@tool
def look(number: int) -> str:
    """Look somewhere."""
    return f"{number}: {'x' * 40_000}"


def records_of(settings: Settings) -> Records:
    """Return the store as another process sees it."""
    return Records(Objects(settings.storage_place))


@pytest.mark.slow
async def test_an_execution_that_stands_alone_is_kept_with_all_its_steps(serve: Serve, settings: Settings) -> None:
    script = [calls(*(Call("look", {"number": at}) for at in range(3))) for _ in range(20)]
    async with serve([*script, say("seen")], [look]) as served:
        state = await served.client.run(AGENT, "look around")
    record = await records_of(settings).by_id(state.execution_id)
    assert (record.task, record.answer, record.step_count) == ("look around", "seen", 21)
    assert (record.agent, record.status, record.usage) == ("keeper", ExecutionStatus.COMPLETED, state.usage)
    kept = await records_of(settings).state(record.snapshot)
    assert len(canonical(kept)) > 2 * 1024 * 1024, "more than one answer of a query may have"
    assert (kept.messages, kept.running.step_executions) == (state.messages, state.state.running.step_executions)
    assert await records_of(settings).by_agent(state.state.agent_id) == [record]


class Asked:
    """Notes which queries the activity asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queries = list[str]()

        async def noted(run: WorkflowHandle[Any, Any], query: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            self.queries.append(query)
            return await ask_run(run, query, *arguments, **options)

        monkeypatch.setattr(keeping_records, "ask_run", noted)


async def test_an_execution_in_the_workers_cache_is_not_asked_for_what_is_to_be_kept(
    serve: Serve, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, script = Asked(monkeypatch), [calls(Call("look", {"number": 1})), say("seen")]
    async with serve(script, [look], serving=WorkerSettings(cached_runs=100)) as served:
        state = await served.client.run(AGENT, "look around")
    record = await records_of(settings).by_id(state.execution_id)
    kept = await records_of(settings).state(record.snapshot)
    assert (kept.messages, kept.running.step_executions) == (state.messages, state.state.running.step_executions)
    assert asked.queries == []


@dataclasses.dataclass
class Stale:
    """An execution in a worker's cache that has ended in a task that the server has not recorded."""

    ended: Snapshot

    def snapshot(self) -> Snapshot:
        return self.ended

    def part(self, request: PartRequest) -> PartPage:
        raise ValueError(f"there is no part {request.digest} in this run")


async def test_one_that_has_ended_another_way_there_is_not_what_is_kept(
    serve: Serve, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = Asked(monkeypatch)
    async with serve([calls(Call("look", {"number": 1})), say("seen")], [look]) as served:
        execution_id = await served.client.start(AGENT, "look around")
        await served.client.result(execution_id)
        record = await records_of(settings).by_id(execution_id)
        snapshot = await records_of(settings).read_snapshot(record.snapshot)
        ended_at = snapshot.head.updated_at
        stale = Stale(replace(snapshot, head=replace(snapshot.head, updated_at=ended_at + timedelta(seconds=1))))
        other = Records.in_folder(tmp_path / "other")
        recorded = await environment(served, execution_id).run(
            RecordActivities(other, lambda _: stale).record, RecordRequest(agent="keeper", ended_at=ended_at)
        )
    assert recorded.snapshot == record.snapshot
    assert {*asked.queries} == {SNAPSHOT_QUERY, PART_QUERY}


async def test_a_failed_and_a_stopped_execution_are_kept_too(serve: Serve, settings: Settings) -> None:
    async with serve([Reply(status=400)]) as served:
        execution_id = await served.client.start(AGENT, "break")
        with pytest.raises(Exception, match="400"):
            await served.client.result(execution_id)
    record = await records_of(settings).by_id(execution_id)
    assert (record.status, record.answer, record.step_count) == (ExecutionStatus.FAILED, "", 1)
    async with serve([say("too late", delay_seconds=600)]) as served:
        execution_id = await served.client.start(AGENT, "wait")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        await served.client.stop(execution_id)
        await served.client.result(execution_id)
    record = await records_of(settings).by_id(execution_id)
    assert record.status is ExecutionStatus.STOPPED


async def test_recording_again_changes_nothing(serve: Serve, settings: Settings) -> None:
    async with serve([say("hello")]) as served:
        state = await served.client.run(AGENT, "say hello")
        execution_id = state.execution_id
        before = await records_of(settings).by_id(execution_id)
        await environment(served, execution_id).run(
            RecordActivities(records_of(settings)).record, RecordRequest(agent="keeper", task="say hello")
        )
    assert await records_of(settings).by_id(execution_id) == before
    assert await records_of(settings).by_agent(state.state.agent_id) == [before]


async def test_a_run_that_has_not_ended_has_nothing_to_record_yet(serve: Serve, settings: Settings) -> None:
    async with serve([say("too late", delay_seconds=600)]) as served:
        execution_id = await served.client.start(AGENT, "wait")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        with pytest.raises(ApplicationError, match=r"cannot be asked for its state.*has not ended") as failed:
            await environment(served, execution_id).run(
                RecordActivities(records_of(settings)).record, RecordRequest(agent="keeper")
            )
        await served.client.stop(execution_id)
        await served.client.result(execution_id)
    assert (failed.value.type, failed.value.non_retryable) == ("RunUnreadable", False)


def environment(served: Served, execution_id: str) -> ActivityEnvironment:
    """Return what an activity of that run finds around it."""
    made = ActivityEnvironment(client=served.client.temporal)
    made.info = dataclasses.replace(made.info, workflow_id=execution_id, workflow_run_id=None)
    return made


@pytest.mark.slow
async def test_a_session_reads_of_its_conversation_what_is_new(serve: Serve, settings: Settings) -> None:
    async with serve(long_answer) as served:
        chat = Chat(served.client, AGENT)
        state = await chat.ask("question 0")
        for number in range(1, 6):
            state = await chat.ask(f"question {number}")
        record = (await records_of(settings).by_agent(chat.agent_id))[0]
        history = await served.client.temporal.get_workflow_handle(record.execution_id).fetch_history()
    assert [text for role, text in texts(state) if role == "user"] == [f"question {at}" for at in range(6)]
    assert record.number == 6
    started = history.events[0].workflow_execution_started_event_attributes.input.payloads
    assert sum(payload.ByteSize() for payload in started) < 8 * 1024, "a child's input is constant"
    folder = Path(settings.storage_place.removeprefix("file://"))
    assert not (folder / "payloads").exists(), "what the record store has is not kept once more"


async def test_what_cannot_be_found_fails_for_good_and_a_store_that_is_away_is_tried_again(tmp_path: Path) -> None:
    keeping = RecordActivities(Records(Objects((tmp_path / "here").as_uri())))
    place = Branch(agent_id=str(uuid4()), execution_id=str(uuid4()))
    asked = BranchRequest(branch=place, agent_id=place.agent_id)
    with pytest.raises(ApplicationError, match="no record of the run") as failed:
        await ActivityEnvironment().run(keeping.branch, asked)
    assert (failed.value.type, failed.value.non_retryable) == ("RecordNotFound", True)
    (tmp_path / "away").write_text("no folder")
    away = RecordActivities(Records(Objects((tmp_path / "away").as_uri())))
    with pytest.raises(ApplicationError) as failed:
        await ActivityEnvironment().run(away.keep_session, SaveSession(agent_id=place.agent_id, state="{}"))
    assert (failed.value.type, failed.value.non_retryable) == (StorageFailed.__name__, False)


async def test_of_a_session_the_newest_is_kept_whoever_comes_last(tmp_path: Path) -> None:
    keeping, agent_id = RecordActivities(Records(Objects(tmp_path.as_uri()))), str(uuid4())
    run = ActivityEnvironment().run
    found = await run(keeping.find_session, FindSession(agent_id=agent_id))
    assert (found.kept, found.latest) == (None, None)
    early, late = '{"updated_at":"2026-01-01T00:00:00Z","n":1}', f'{{"updated_at":"{LATER}","n":2}}'
    for state in (early, late, early):
        await run(keeping.keep_session, SaveSession(agent_id=agent_id, state=state))
    assert (await run(keeping.find_session, FindSession(agent_id=agent_id))).kept == late


async def test_a_worker_that_was_frozen_after_it_had_looked_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, agent_id = Records(Objects(tmp_path.as_uri())), str(uuid4())
    old, new = '{"updated_at":"2026-01-01T00:00:00Z"}', f'{{"updated_at":"{LATER}"}}'
    read = records.read_session

    async def slowly(agent_id: str) -> bytes | None:
        found = await read(agent_id)
        await records.write_session(agent_id, new.encode())  # another worker's
        await asyncio.sleep(0.02)
        return found

    monkeypatch.setattr(records, "read_session", slowly)
    monkeypatch.setattr(keeping_records, "LOOK_SECONDS_MAX", 0.01)
    with pytest.raises(ApplicationError, match="it is read again"):
        await ActivityEnvironment().run(
            RecordActivities(records).keep_session, SaveSession(agent_id=agent_id, state=old)
        )
    assert await read(agent_id) == new.encode()


async def test_where_its_latest_execution_is_newer_than_what_is_kept_an_agent_is_found_there(tmp_path: Path) -> None:
    records = Records(Objects(tmp_path.as_uri()))
    keeping, agent = RecordActivities(records), Kept(records)
    record = await agent.turn("question", "answer")
    found = await ActivityEnvironment().run(keeping.find_session, FindSession(agent_id=agent.agent_id))
    assert found.kept is None
    assert found.latest is not None
    assert found.latest.snapshot == record.snapshot
    kept = f'{{"updated_at":"{record.completed_at.isoformat()}"}}'
    await records.write_session(agent.agent_id, kept.encode())
    found = await ActivityEnvironment().run(keeping.find_session, FindSession(agent_id=agent.agent_id))
    assert (found.kept, found.latest) == (kept, None)
    later = await agent.turn("another", "answer")
    found = await ActivityEnvironment().run(keeping.find_session, FindSession(agent_id=agent.agent_id))
    assert (found.kept, found.latest and found.latest.snapshot) == (kept, later.snapshot)
