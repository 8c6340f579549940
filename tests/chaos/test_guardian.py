"""What a guardian is for: a death is known at once, silence is no death, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType, TaskQueueKind, TimeoutType

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.server.embedded import EmbeddedServer
from holdfast.server.worker_process import WorkerProcess
from holdfast.testing.ledger import Entry, Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, calls, say
from tests.chaos.processes import READY_SECONDS_MAX, freeze, frozen, guardian_of, worker
from tests.pids import alive, until_gone

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

AGENT = AgentDefinition(name="noter", tools=("note", "pay", "hog"))
SILENT_SECONDS = 9
"""Longer than a worker was allowed to be silent (2.5 s, and 5 s until the SDK gave the call up)."""

HOGS, HOG_SECONDS, BURNERS = 5, 5, 20
HOG_RUNS = int(os.environ.get("HOLDFAST_HOG_RUNS", "8"))
HOG_WORKERS = int(os.environ.get("HOLDFAST_HOG_WORKERS", "2"))
"""Forty calls: each worker's twenty keep its lock for 100 s in all, of which its own loop gets a turn now and then."""

LINGERING_SECONDS = 4.0
"""Shorter than a report to a server that does not answer is waited for."""

LOST_SECONDS_MAX = 12.0
"""Far less than the 30 s after which the server takes a silent machine for lost."""


async def begun(ledger: Ledger, name: str, times: int = 1) -> list[Entry]:
    """Return the first entries of a tool once there are so many."""
    async with asyncio.timeout(READY_SECONDS_MAX):
        while len(entries := [*ledger.entries(name=name, phase="started")]) < times:  # noqa: ASYNC110  # a file tells nobody that it has grown
            await asyncio.sleep(0.02)
    return entries


@pytest.mark.slow
async def test_a_call_whose_worker_was_killed_is_begun_anew_at_once(settings: Settings, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    script = [calls(Call("note", {"text": "one", "seconds": 2})), say("noted")]
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, ledger.path) as one, worker(settings, endpoint, ledger.path) as two:
            execution_id = await client.start(AGENT, "note")
            [first] = await begun(ledger, "note")
            killed_at = time.time()
            os.kill(first.pid, signal.SIGKILL)
            again = (await begun(ledger, "note", 2))[1]
            state = await client.result(execution_id)
    assert {first.pid, again.pid} == {one.pid, two.pid}
    assert again.key == first.key
    assert again.at - killed_at < LOST_SECONDS_MAX
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "noted")


@pytest.mark.slow
async def test_a_tool_that_keeps_the_interpreters_lock_is_begun_once(settings: Settings, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    script = [calls(Call("hog", {"seconds": SILENT_SECONDS}), Call("pay", {"amount": 5})), say("done")]
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, ledger.path):
            state = await client.run(AGENT, "go")
    assert [each.result for each in state.state.steps[0].tool_executions] == [f"held {SILENT_SECONDS}", "paid 5"]
    assert (ledger.count(name="hog", phase="started"), ledger.count(name="pay")) == (1, 1)


@pytest.mark.chaos
@pytest.mark.timeout(200)
async def test_a_tool_that_keeps_it_longer_than_a_lost_machine_is_silent_is_begun_once(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    async with FakeOpenAI([calls(Call("hog", {"seconds": 60})), say("done")]) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, ledger.path):
            state = await client.run(AGENT, "go")
    assert [each.result for each in state.state.steps[0].tool_executions] == ["held 60"]
    assert ledger.count(name="hog", phase="started") == 1


@pytest.mark.chaos
@pytest.mark.timeout(1_800)
async def test_on_a_busy_machine_tools_that_keep_the_lock_are_begun_once_and_none_is_given_up(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    held = [calls(*(Call("hog", {"seconds": HOG_SECONDS}) for _ in range(HOGS))), say("done")]
    async with FakeOpenAI(held) as endpoint, AsyncExitStack() as stack:
        client = await Holdfast.connect(settings)
        for _ in range(HOG_WORKERS):
            await stack.enter_async_context(worker(settings, endpoint, ledger.path))
        burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BURNERS)]  # noqa: ASYNC220
        try:
            states = await asyncio.gather(*(client.run(AGENT, "go") for _ in range(HOG_RUNS)))
        finally:
            for each in burners:
                each.kill()
                each.wait()
    results = [each.result for state in states for each in state.state.steps[0].tool_executions]
    assert results == [f"held {HOG_SECONDS}"] * HOGS * HOG_RUNS, "none is given up"
    assert ledger.count(name="hog", phase="started") == HOGS * HOG_RUNS, "none is begun twice"


@pytest.mark.slow
async def test_a_worker_that_stops_as_it_should_leaves_no_guardian(settings: Settings, tmp_path: Path) -> None:
    async with FakeOpenAI([say("hello")]) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl") as process:
            guardian = guardian_of(process)
            assert (await client.run(AgentDefinition(name="speaker"), "hi")).output == "hello"
            await asyncio.to_thread(process.stop)
            assert process.exit_code == 0
            assert not alive(guardian)


@pytest.mark.slow
async def test_a_guardian_that_is_killed_is_replaced_by_one_that_knows_all(settings: Settings, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    script = [calls(Call("note", {"text": "one", "seconds": 4})), say("noted")]
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, ledger.path) as first:
            execution_id = await client.start(AGENT, "note")
            await begun(ledger, "note")
            killed = guardian_of(first)
            os.kill(killed, signal.SIGKILL)
            await _other_guardian(first, killed)
            first.kill()
        async with worker(settings, endpoint, ledger.path):
            state = await client.result(execution_id)
    assert state.final_response == "noted"
    assert ledger.count(name="note", phase="finished") == 1


@pytest.mark.slow
async def test_a_lost_machine_is_noticed_by_its_silence_and_its_call_begins_anew(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    script = [
        calls(Call("note", {"text": "one", "seconds": 20}), Call("pay", {"amount": 5, "seconds": 20})),
        say("told"),
    ]
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, ledger.path) as lost:
            execution_id = await client.start(AGENT, "note and pay")
            [first] = await begun(ledger, "note")
            await begun(ledger, "pay")
            freeze(lost.pid)  # a frozen worker cannot replace its guardian, which dies before it and so tells nobody
            guardian = guardian_of(lost)
            assert guardian, "the worker has no guardian"
            os.kill(guardian, signal.SIGKILL)
            lost.kill()
        async with worker(settings, endpoint, ledger.path):
            state = await client.result(execution_id)
        history = await client.temporal.get_workflow_handle(execution_id).fetch_history()
    begun_again = [each.activity_task_started_event_attributes for each in history.events]
    why = [each.last_failure.timeout_failure_info.timeout_type for each in begun_again if each.attempt > 1]
    assert TimeoutType.TIMEOUT_TYPE_HEARTBEAT in why, "nobody told the server"
    again = [*ledger.entries(name="note", phase="started")][1:]
    assert [each.key for each in again] == [first.key]
    assert ledger.count(name="pay", phase="started") == 1
    outcomes = {each.call.name: each.error and each.error.type for each in state.steps[0].tool_executions}
    assert outcomes == {"note": None, "pay": "OutcomeUnknown"}
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "told")


@pytest.mark.slow
async def test_what_a_dead_worker_had_in_its_cache_is_offered_to_every_worker(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    async with FakeOpenAI([say("hello"), say("again")]) as endpoint:
        client = await Holdfast.connect(settings)
        agent = client.agent(definition=AgentDefinition(name="speaker"))
        session = client.temporal.get_workflow_handle(session_workflow_id(agent.agent_id))
        async with worker(settings, endpoint, ledger.path, {"HOLDFAST_STICKY_SECONDS": "60"}) as first:
            assert (await agent.ask("hi")).output == "hello"
            guardian = guardian_of(first)
            before = [each async for each in session.fetch_history_events()]
            first.kill()
            await until_gone([guardian])
        async with worker(settings, endpoint, ledger.path):
            assert (await agent.ask("hi again")).output == "again"
        after = [each async for each in session.fetch_history_events()][len(before) :]
    tasks = [each.workflow_task_scheduled_event_attributes.task_queue.kind for each in after]
    assert next(kind for kind in tasks if kind) == TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    assert not any(each.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT for each in after)


@pytest.mark.slow
async def test_a_guardian_that_cannot_tell_of_a_death_waits_without_computing_and_ends(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    with EmbeddedServer.start(tmp_path / "server", port=0, ui_port=0) as server:
        storage = (tmp_path / "objects").as_uri()
        here = Settings(address=server.address.address, task_queue="test", storage=storage)
        async with FakeOpenAI([calls(Call("note", {"text": "one", "seconds": 60})), say("noted")]) as endpoint:
            client = await Holdfast.connect(here)
            async with worker(here, endpoint, ledger.path) as process:
                await client.start(AGENT, "note")
                await begun(ledger, "note")
                guardian = guardian_of(process)
                with frozen(server.address.pid):
                    process.kill()
                    computed = processor_seconds(guardian)
                    await asyncio.sleep(LINGERING_SECONDS)
                    assert alive(guardian), "it still tries to tell of the death"
                    assert processor_seconds(guardian) - computed < LINGERING_SECONDS / 10
                await until_gone([guardian])


def processor_seconds(pid: int) -> float:
    """Return how long a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _other_guardian(process: WorkerProcess, killed: int) -> int:
    async with asyncio.timeout(READY_SECONDS_MAX):
        while (found := guardian_of(process)) in (0, killed):  # noqa: ASYNC110  # nothing tells of a new process
            await asyncio.sleep(0.05)
    return found
