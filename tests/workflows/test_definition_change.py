"""A definition that changes while a run is under way, on a real server: from its next step on, and never before."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from holdfast import AgentDefinition, ExecutionBudget, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.contracts import CHANGE_SIGNAL, INFERENCE_ACTIVITY, DefinitionChange
from holdfast.testing.holds import Hold
from holdfast.testing.script import Call, Reply, call, calls, say
from tests.replay.replaying import replayer
from tests.serving import Serve, Served
from tests.serving import served as served_at
from tests.workflows.chains import chain_of
from tests.workflows.histories import history_of, replayed
from tests.workflows.waiting import waiting_calls

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="chameleon", system_prompt="Be green.", tools=("look",))
OTHER = AgentDefinition(name="chameleon", system_prompt="Be blue.", tools=("look", "listen"), llm=LLM(model="bluer"))
LONG = "x" * 20_000


@tool
def look(number: int = 0) -> str:
    """Look somewhere."""
    return f"{number}: {LONG}"


@tool
def listen() -> str:
    """Listen."""
    return "a sound"


async def change(client: Holdfast, execution_id: str, definition: AgentDefinition, **given: Any) -> None:  # noqa: ANN401  # fields
    wanted = DefinitionChange(definition=definition, **given)
    await client.temporal.get_workflow_handle(execution_id).signal(CHANGE_SIGNAL, wanted)


async def ended(served: Served, execution_id: str) -> AgentState:
    """Return the end of a run of which every history can be replayed."""
    state = await served.client.result(execution_id)
    await replayed(served.client, execution_id)
    return state


def prompts(served: Served) -> list[str]:
    return [each.body["messages"][0]["content"] for each in served.endpoint.requests]


def offered(served: Served, request: int) -> list[str]:
    return [each["function"]["name"] for each in served.endpoint.requests[request].body["tools"]]


def gated(hold: Hold) -> list[AnyTool]:
    """The tools, of which `look` stands until it is let go."""

    @tool(name="look")
    async def looking(number: int = 0) -> str:
        """Look somewhere."""
        await hold.stand()
        return f"{number}: {LONG}"

    return [looking, listen]


async def test_a_change_during_a_model_call_is_of_the_next_one(serve: Serve) -> None:
    hold = Hold()
    async with serve([Reply(calls=(Call("look"),), hold=hold), say("done")], [look, listen]) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await hold.until_held()
        await change(served.client, execution_id, OTHER)
        hold.release()
        state = await ended(served, execution_id)
        assert prompts(served) == ["Be green.", "Be blue."]
        assert [offered(served, request) for request in (0, 1)] == [["look"], ["look", "listen"]]
        assert [each.body["model"] for each in served.endpoint.requests] == ["scripted", "bluer"]
    assert (state.status, state.context.system_prompt) == (ExecutionStatus.COMPLETED, "Be blue.")
    assert state.llm == OTHER.llm


async def test_a_change_during_a_tool_waits_for_all_of_its_step(serve: Serve) -> None:
    hold = Hold()
    async with serve([calls(Call("look"), Call("look")), say("done")], gated(hold)) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await hold.until_held(2)
        await change(served.client, execution_id, replace(OTHER, tools=("look", "nothing")))
        await change(served.client, execution_id, OTHER)
        hold.release()
        state = await ended(served, execution_id)
        assert prompts(served) == ["Be green.", "Be blue."], "of several the last one counts"
    assert state.step_count == 2
    assert not [each for each in state.warnings if "not changed" in each]


async def test_a_change_before_the_first_task_is_there_from_the_beginning(settings: Settings, tmp_path: Path) -> None:
    client = await Holdfast.connect(settings)
    execution_id = await client.start(AGENT, "Go.")
    await change(client, execution_id, OTHER)
    offer = Toolset(tools=(look, listen))
    async with served_at(settings, tmp_path / "ledger.jsonl", [call("listen"), say("done")], offer) as served:
        state = await ended(served, execution_id)
        assert prompts(served) == ["Be blue."] * 2
    assert state.step_count == 2


async def test_a_change_during_an_approval_has_its_rules_from_the_next_call_on(serve: Serve) -> None:
    careful = replace(AGENT, approvals=(ApprovalRule(tools=("look",), expires_seconds=3_600),))
    async with serve([call("look"), call("look", number=1), say("done")], [look, listen]) as served:
        execution_id = await served.client.start(careful, "Go.")
        (call_id,) = await waiting_calls(served.client, execution_id)
        await change(served.client, execution_id, OTHER)
        await served.client.decide(execution_id, call_id, Verdict(decision="deny", by="ann", reason="not yet"))
        state = await ended(served, execution_id)
        assert prompts(served) == ["Be green.", "Be blue.", "Be blue."]
    assert [each.outcome for step in state.steps for each in step.tool_executions] == ["denied", "succeeded"]


async def changed_meanwhile(serve: Serve, definition: AgentDefinition, then: Reply, **given: Any) -> AgentState:  # noqa: ANN401  # fields
    """Change the agent while its first tool runs; return the end."""
    hold = Hold()
    async with serve([call("look"), then], gated(hold)) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await hold.until_held()
        await change(served.client, execution_id, definition, **given)
        hold.release()
        return await ended(served, execution_id)


async def test_a_budget_that_is_spent_already_ends_the_run(serve: Serve) -> None:
    state = await changed_meanwhile(serve, AGENT, say("too late"), budget=ExecutionBudget(max_steps=1))
    assert (state.stop_reason, state.step_count) == (StopReason.STEPS_LIMIT, 1)


@pytest.mark.slow
async def test_a_new_time_limit_has_its_timer(serve: Serve) -> None:
    state = await changed_meanwhile(serve, AGENT, Reply(hang=True), budget=ExecutionBudget(max_seconds=6))
    assert (state.stop_reason, state.step_count) == (StopReason.TIME_LIMIT, 1)
    assert state.budget == ExecutionBudget(max_seconds=6)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"tools": ("lok",)}, "did you mean 'look'"), ({"tools": ("look",), "subagents": ("nobody",)}, "'nobody'")],
)
async def test_what_the_worker_does_not_offer_is_a_warning_and_the_run_goes_on_as_it_was(
    serve: Serve, wrong: dict[str, Any], told: str
) -> None:
    state = await changed_meanwhile(serve, replace(OTHER, **wrong), say("done"))
    assert (state.status, state.context.system_prompt) == (ExecutionStatus.COMPLETED, AGENT.system_prompt)
    assert told in next(text for text in state.warnings if "not changed" in text)


async def test_a_stop_that_comes_with_a_change_stops(serve: Serve) -> None:
    hold = Hold()
    async with serve([call("look"), say("done")], gated(hold)) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await hold.until_held()
        await change(served.client, execution_id, OTHER)
        await served.client.stop(execution_id, mode="after_step")
        hold.release()
        state = await ended(served, execution_id)
    assert state.stop_reason is StopReason.USER_REQUESTED
    assert state.step_count == 1


@pytest.mark.slow
async def test_a_change_in_every_step_of_a_run_that_always_goes_on_elsewhere(
    settings: Settings, tmp_path: Path
) -> None:
    often = dataclasses.replace(settings, continue_events=1)
    script = [*(call("look", number=number) for number in range(5)), say("done")]
    hold = Hold()
    async with served_at(often, tmp_path / "ledger.jsonl", script, Toolset(tools=tuple(gated(hold)))) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await hold.until_held()
        changing = asyncio.create_task(_changed_often(served.client, execution_id))
        hold.release()
        state = await served.client.result(execution_id)
        await changing
        for history in await chain_of(served.client, execution_id):
            await replayer(served.client.temporal.data_converter).replay_workflow(history)
        seen = prompts(served)
    assert state.final_response == "done"
    assert seen[0] == "Be green."
    assert seen[-1] != "Be green."
    assert len(seen) == 6, "nothing is asked twice"


async def _changed_often(client: Holdfast, execution_id: str) -> None:
    for number in range(100):
        try:
            await change(client, execution_id, replace(OTHER, system_prompt=f"Be {number}."))
        except RPCError as error:
            assert error.status is RPCStatusCode.NOT_FOUND, error  # noqa: PT017  # it has ended
            return


@pytest.mark.slow
async def test_what_was_said_long_ago_is_not_written_again(serve: Serve) -> None:
    hold = Hold()
    tools = [look, *(each for each in gated(hold) if each.name != "look"), gate(hold)]
    script = [*(call("look", number=number) for number in range(5)), call("stand"), say("done")]
    async with serve(script, tools) as served:
        agent = replace(AGENT, tools=("look", "stand"), context=ContextPolicy(tool_output_chars_max=None))
        execution_id = await served.client.start(agent, "Go.")
        await hold.until_held()
        await change(served.client, execution_id, replace(agent, system_prompt="Be blue."))
        hold.release()
        await ended(served, execution_id)
        history = await history_of(served.client, execution_id)
        assert len(served.endpoint.requests[-1].raw) > 5 * len(LONG), "the model is told all of it"
    asked = [
        event.activity_task_scheduled_event_attributes.input.ByteSize()
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == INFERENCE_ACTIVITY
    ]
    assert asked[-1] < 8_000, asked


def gate(hold: Hold) -> AnyTool:
    @tool
    async def stand() -> str:
        """Stand."""
        await hold.stand()
        return "stood"

    return stand
