"""A worker that freezes, or has the wrong time: its work is done once, and in time."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from shutil import which

import pytest

from holdfast.client import Client, Settings
from holdfast.core.budget import ExecutionBudget
from holdfast.core.definition import AgentDefinition
from holdfast.core.state import AgentState, ExecutionStatus
from holdfast.core.stopping import StopReason
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import call, say
from tests.chaos.processes import READY_SECONDS_MAX, frozen, worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(90)]

HOURS_OFF = 5
OTHER_CLOCK = Path(__file__).with_name("other_clock.c")


async def test_a_worker_frozen_beyond_its_heartbeats_loses_the_call_and_its_late_answer_counts_for_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = tmp_path / "tools.jsonl"
    async with FakeOpenAI([say("once", delay_seconds=1)]) as endpoint:
        client = await Client.connect(settings)
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


@pytest.mark.skipif(which("cc") is None, reason="the wrong clock is written in C; no compiler is here")
@pytest.mark.parametrize("hours", [HOURS_OFF, -HOURS_OFF])
async def test_a_worker_whose_clock_is_hours_off_keeps_every_time_limit(
    settings: Settings, tmp_path: Path, hours: int
) -> None:
    library = tmp_path / "other_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, OTHER_CLOCK, "-ldl"], check=True)  # noqa: S607, ASYNC221
    environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_SECONDS": str(hours * 3600)}
    script = {"quick": [call("clock"), say("done")], "slow": [say("too late", delay_seconds=60)]}
    async with FakeOpenAI(script) as endpoint:
        client = await Client.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl", environment):
            quick, slow = await asyncio.gather(
                client.run(_agent("quick"), "go", budget=ExecutionBudget(max_seconds=60)),
                client.run(_agent("slow"), "go", budget=ExecutionBudget(max_seconds=2)),
            )
    told = float(quick.step_executions[0].step.tool_executions[0].result or 0)
    assert abs(told - time.time() - hours * 3600) < 60, "the worker's clock was off"
    assert quick.status is ExecutionStatus.COMPLETED
    assert (slow.status, slow.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert all(_lasted(state) < 60 for state in (quick, slow))


def _agent(model: str) -> AgentDefinition:
    return AgentDefinition.model_validate({"name": "doer", "llm": {"model": model}})


def _lasted(state: AgentState) -> float:
    assert state.execution_duration is not None
    return state.execution_duration.total_seconds()
