"""A run with everything in it replays, wherever it is stopped and whatever is asked meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from holdfast import ExecutionStatus, StopReason
from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.contracts import APPROVAL_SIGNAL, MESSAGE_SIGNAL, ApprovalDecision
from holdfast.testing.comparison import TIMES, differences
from tests.serving import served
from tests.workflows.histories import history_of, replayed, written
from tests.workflows.rich import PLACES, Stage, start

pytestmark = pytest.mark.temporal

KEY = b"test-key"  # what `tests.serving` gives its worker


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("early", [False, True], ids=["on time", "early signals and queries"])
async def test_a_stop_anywhere_in_a_rich_run_replays(
    settings: Settings, tmp_path: Path, place: str, *, early: bool
) -> None:
    stage, client = Stage(place), await Holdfast.connect(settings)
    execution_id = await start(client)
    asked = [asyncio.create_task(client.debug(execution_id))] if early else []
    if early:
        handle: Any = client.temporal.get_workflow_handle(execution_id)
        await handle.signal(MESSAGE_SIGNAL, user_message("an early word"))
        early_word = ApprovalDecision(call_id="call_1_0", verdict=Verdict(decision="approve"))
        await handle.signal(APPROVAL_SIGNAL, early_word)
    if place == "start":
        await client.stop(execution_id, "enough")
    async with served(settings, tmp_path / "ledger.jsonl", stage.play, stage.offer) as at_work:
        await asyncio.gather(*asked)
        if place != "start":
            await stage.drive(at_work, execution_id)
            await client.stop(execution_id, "enough")
        stage.hook.release()
        state = await client.result(execution_id)
        await replayed(client, execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)


@pytest.mark.slow
async def test_a_rich_run_comes_to_the_same_state_whatever_is_kept_in_memory(
    settings: Settings, tmp_path: Path
) -> None:
    ends: list[AgentState] = []
    for cached in (2_000, 0):
        stage, name = Stage(), str(uuid4())
        serving = WorkerSettings(cached_runs=cached)
        async with served(settings, tmp_path / "ledger.jsonl", stage.play, stage.offer, serving=serving) as at_work:
            execution_id = await start(at_work.client, name)
            await stage.drive(at_work, execution_id)
            ends.append(await at_work.client.result(execution_id))
            await replayed(at_work.client, execution_id)
            events = (await history_of(at_work.client, execution_id)).events
            await replayed(at_work.client, named_id(execution_id, call_name(3, 0)))
        assert KEY not in written(events)
        assert KEY not in ends[-1].model_dump_json().encode()
        assert at_work.endpoint.base_url.encode() not in written(events)
    warm, cold = (_nameless(each) for each in ends)
    assert ends[0].final_response == '{"right": true}'
    assert [each.outcome.value for each in ends[0].steps[1].tool_executions] == [
        "succeeded",
        "denied",
        "succeeded",
        "denied",
    ]
    assert not differences(warm, cold)


def _nameless(state: AgentState) -> object:
    """The state without times and without the ids that each run has of its own."""
    return _without(state.to_dict(), {"id", "step_id", "agent_id", "execution_id", *TIMES})


def _without(value: object, names: set[str]) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _without(each, names) for name, each in fields.items() if name not in names}
    return [_without(each, names) for each in cast("list[object]", value)] if isinstance(value, list) else value
