"""Code Mode on a real server: the history has a script's calls, and a replay runs no script."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from holdfast import AgentDefinition, tool
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.base.retries import SCRIPT_RETRIES
from holdfast.core.conversation.steps import CallStage, ErrorRecord, Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.tools.code_mode import RUN_CODE, CodeMode
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.script_contracts import ADVANCE_SCRIPT_ACTIVITY, ScriptAdvance, ScriptRequest
from holdfast.runtime.script_runner import ScriptProcessLost, advance
from holdfast.testing.script import call, say
from tests.capabilities.twin import assert_same_in_process
from tests.serving import Serve
from tests.workflows.histories import history_of, replayed
from tests.workflows.waiting import state_when

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="coder", tools="all", code=CodeMode(only=True))


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool
async def linger(seconds: float) -> str:
    """Take so long."""
    await asyncio.sleep(seconds)
    return "over"


GATHERED = """
import asyncio
found = await asyncio.gather(*[double(n) for n in range(5)])
total = await double(sum(found))
print(found)
{"total": total}
"""


async def test_a_script_runs_on_a_server_and_a_replay_runs_it_not(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve([call(RUN_CODE, code=GATHERED), say("done")], [double]) as served:
        state = await served.client.result(await served.client.start(AGENT, "go"))
        executions = state.running.step_executions[0].step.tool_executions
        assert executions[0].result == '[0, 2, 4, 6, 8]\n{"total":40}'
        assert [each.args["number"] for each in executions[1:]] == [0, 1, 2, 3, 4, 20]
        assert {each.parent_call_id for each in executions[1:]} == {executions[0].call.id}
        [asked, *_] = served.endpoint.requests
        assert [each["function"]["name"] for each in asked.body["tools"]] == [RUN_CODE]
        history = await history_of(served.client, state.running.execution_id)
        scheduled = [each.activity_task_scheduled_event_attributes.activity_type.name for each in history.events]
        assert scheduled.count("double") == 6
        assert ADVANCE_SCRIPT_ACTIVITY not in scheduled

        def refuse(*_: object) -> None:
            raise AssertionError("a replay ran the script")

        monkeypatch.setattr("activities.scripts.advance", refuse)
        await replayed(served.client, state.running.execution_id)


@pytest.mark.parametrize("losses", [1, 2, 3])
async def test_a_script_whose_process_is_lost_is_run_again_on_the_server_and_in_process(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, losses: int
) -> None:
    lost = 0

    def losing(request: ScriptRequest, tools: Mapping[str, AnyTool]) -> ScriptAdvance:
        nonlocal lost
        if lost < losses:
            lost += 1
            raise ScriptProcessLost("it was killed")
        return advance(request, tools)

    monkeypatch.setattr("activities.scripts.advance", losing)
    monkeypatch.setattr("holdfast.local.script_calls.advance", losing)
    turns = [call(RUN_CODE, code="await double(21)"), say("done")]
    async with serve(turns, [double]) as served:
        state = await served.client.result(await served.client.start(AGENT, "Go."))
    [script, *_] = state.running.step_executions[0].step.tool_executions
    if losses < SCRIPT_RETRIES.attempts_max:
        assert script.result == "42"
    else:
        assert script.error == ErrorRecord(type="ScriptProcessLost", message="it was killed", source=RUN_CODE)
    assert lost == losses
    lost = 0
    await assert_same_in_process(AGENT, turns, state, tools=[double])
    assert lost == losses


async def test_a_call_of_a_script_waits_for_a_person(serve: Serve) -> None:
    agent = AgentDefinition(name="coder", tools="all", code=CodeMode(), approvals=(ApprovalRule(tools=("double",)),))
    async with serve([call(RUN_CODE, code="await double(number=21)"), say("done")], [double]) as served:
        id_ = await served.client.start(agent, "go")
        [each] = (await state_when(served.client, id_, lambda state: bool(state.waiting_calls))).waiting_calls
        assert (each.call.name, each.stage) == ("double", CallStage.APPROVAL)
        await served.client.decide(id_, each.call.id, Verdict(decision="approve", by="kim"))
        state = await served.client.result(id_)
        script, nested = state.running.step_executions[0].step.tool_executions
        assert script.result == "42"
        assert nested.approval is not None


async def test_the_time_limit_ends_a_script_and_its_calls(serve: Serve) -> None:
    code = "for _ in range(100):\n    await linger(seconds=0.5)"
    async with serve([call(RUN_CODE, code=code), say("done")], [linger]) as served:
        id_ = await served.client.start(AGENT, "go", budget=ExecutionBudget(max_seconds=4))
        state = await served.client.result(id_)
        assert state.status is ExecutionStatus.STOPPED
        assert state.stop_signal is not None
        assert state.stop_signal.reason is StopReason.TIME_LIMIT
        script, *nested = state.running.step_executions[0].step.tool_executions
        assert script.outcome is Outcome.CANCELLED
        assert {each.outcome for each in nested} <= {Outcome.SUCCEEDED, Outcome.CANCELLED}
        assert 0 < len(nested) < 10


async def test_a_stop_ends_a_script_at_its_next_calls(serve: Serve) -> None:
    code = "for _ in range(100):\n    await linger(seconds=0.5)"
    async with serve([call(RUN_CODE, code=code), say("done")], [linger]) as served:
        id_ = await served.client.start(AGENT, "go")
        await state_when(served.client, id_, lambda state: bool(state.execution and state.execution.open_calls[1:]))
        await served.client.stop(id_)
        state = await served.client.result(id_)
        script, *nested = state.running.step_executions[0].step.tool_executions
        assert state.status is ExecutionStatus.STOPPED
        assert script.outcome is Outcome.CANCELLED
        assert 0 < len(nested) < 100


async def test_a_tool_that_code_names_and_the_agent_lacks_fails_the_run_at_once(serve: Serve) -> None:
    agent = AgentDefinition(name="coder", tools="all", code=CodeMode(tools=("triple",)))
    async with serve([say("done")], [double]) as served:
        with pytest.raises(Exception, match=r"code\.tools names the tool 'triple'"):
            await served.client.run(agent, "go")
        assert not served.endpoint.requests
