"""A worker that freezes, or has the wrong time: its work is done once, and in time."""

from __future__ import annotations

import asyncio
import subprocess
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from shutil import which

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, call, calls, say
from tests.chaos.processes import READY_SECONDS_MAX, frozen, worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

HOURS_OFF = 5
RUNS = 10
OTHER_CLOCK = Path(__file__).with_name("other_clock.c")


@pytest.mark.slow
async def test_a_worker_frozen_beyond_its_heartbeats_loses_the_call_and_its_late_answer_counts_for_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = tmp_path / "tools.jsonl"
    async with FakeOpenAI([say("once", delay_seconds=1)]) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, ledger) as first:
            execution_id = await client.start(AgentDefinition(name="speaker", tools=()), "speak")
            await endpoint.until(lambda requests: len(requests) == 1, READY_SECONDS_MAX)
            with frozen(first.pid):
                async with worker(settings, endpoint, ledger):
                    state = await client.result(execution_id)
            await endpoint.until(lambda requests: requests[0].ended_at is not None)
            late = await client.state(execution_id)
    assert len(endpoint.requests) == 2, "the call in flight was asked again"
    assert [(message.role, message.text) for message in state.messages] == [("user", "speak"), ("assistant", "once")]
    assert late == state


@pytest.mark.chaos
async def test_three_frozen_workers_with_open_polls_fail_no_run_while_a_healthy_one_serves(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = tmp_path / "tools.jsonl"
    agent = AgentDefinition(name="noter", tools=("note",))
    async with FakeOpenAI([calls(Call("note", {"text": "one"})), say("noted")]) as endpoint:
        client = await Holdfast.connect(settings)
        async with AsyncExitStack() as started:
            starting = (started.enter_async_context(worker(settings, endpoint, ledger)) for _ in range(3))
            stopped = [await each for each in starting]
            async with worker(settings, endpoint, ledger):
                with ExitStack() as stopping:
                    for each in stopped:
                        stopping.enter_context(frozen(each.pid))
                    states = await asyncio.gather(*(client.run(agent, "note") for _ in range(RUNS)))
    assert {state.status for state in states} == {ExecutionStatus.COMPLETED}
    assert [each.result for state in states for each in state.state.steps[0].tool_executions] == ["noted one"] * RUNS
    assert Ledger(ledger).count(name="note", phase="started") == RUNS, "what a frozen worker was given it never began"


@pytest.mark.slow
@pytest.mark.skipif(which("cc") is None, reason="the wrong clock is written in C; no compiler is here")
@pytest.mark.parametrize("hours", [HOURS_OFF, -HOURS_OFF])
async def test_a_worker_whose_clock_is_hours_off_keeps_every_time_limit(
    settings: Settings, tmp_path: Path, hours: int
) -> None:
    library = tmp_path / "other_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, OTHER_CLOCK, "-ldl"], check=True)  # noqa: S607, ASYNC221
    environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_SECONDS": str(hours * 3600)}
    script = {"quick": [call("clock"), say("done")], "slow": [say("too late", delay_seconds=600)]}
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl", environment):
            quick, slow = await asyncio.gather(
                client.run(_agent("quick"), "go", budget=ExecutionBudget(max_seconds=60)),
                client.run(_agent("slow"), "go", budget=ExecutionBudget(max_seconds=2)),
            )
    told = float(quick.state.step_executions[0].step.tool_executions[0].result or 0)
    assert abs(told - time.time() - hours * 3600) < 60, "the worker's clock was off"
    assert quick.status is ExecutionStatus.COMPLETED
    assert (slow.status, slow.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert all(_lasted(state.state) < 60 for state in (quick, slow))


def _agent(model: str) -> AgentDefinition:
    return AgentDefinition.model_validate({"name": "doer", "tools": "all", "llm": {"model": model}})


def _lasted(state: AgentState) -> float:
    assert state.execution_duration is not None
    return state.execution_duration.total_seconds()
