"""Approvals on a real server: they outlast workers, hold no run up past its end, and mean one call each."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowUpdateFailedError

from holdfast import AgentDefinition, ExecutionBudget, ExecutionStatus, StopReason, tool
from holdfast.client import Holdfast, Settings, workflow_updates
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import ARGUMENTS_BYTES_MAX
from holdfast.core.base.errors import DecisionRefused, InvalidArguments, InvalidInput, ServerUnavailable
from holdfast.core.conversation.verdicts import Decision, Verdict
from holdfast.core.wire.contracts import APPROVAL_SIGNAL, BUDGET_QUERY, ApprovalDecision
from holdfast.testing.script import Call, call, calls, say
from tests.serving import Serve, served
from tests.workflows.histories import history_of, replayed
from tests.workflows.waiting import state_when, waiting_calls

pytestmark = pytest.mark.temporal

RULES: dict[str, Any] = {"name": "careful", "tools": "all", "approvals": [{"tools": ["pay"]}]}
AGENT = AgentDefinition.model_validate(RULES)
CLOSED_SECONDS_MAX = 30.0


def till(paid: list[int]) -> Toolset:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    return Toolset(tools=(pay,))


YES = Verdict(decision="approve", by="ann")


@pytest.mark.slow
async def test_an_approval_outlasts_its_worker(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[int] = []
    script, ledger = [call("pay", amount=5), say("done")], tmp_path / "ledger.jsonl"
    async with served(settings, ledger, script, till(paid)) as before:
        execution_id = await before.client.start(AGENT, "pay")
        (call_id,) = await waiting_calls(before.client, execution_id)
    client = await Holdfast.connect(settings)
    monkeypatch.setattr(workflow_updates, "UPDATE_SECONDS_MAX", 1.0)
    with pytest.raises(ServerUnavailable, match="it is too busy, or gone; the approval may"):
        await client.decide(execution_id, call_id, YES)
    handle: Any = client.temporal.get_workflow_handle(execution_id)
    await handle.signal(APPROVAL_SIGNAL, ApprovalDecision(call_id=call_id, verdict=YES))  # needs nobody
    async with served(settings, ledger, script, till(paid)) as after:
        assert (await after.client.result(execution_id)).final_response == "done"
        assert len(after.endpoint.requests) == 1, "the first model call is not repeated"
        await replayed(client, execution_id)
    assert paid == [5]


@pytest.mark.slow
async def test_a_decision_by_update_is_refused_where_nothing_waits_for_it(serve: Serve) -> None:
    paid: list[int] = []
    async with serve([call("pay", amount=5), say("done")], offer=till(paid)) as served:
        execution_id = await served.client.start(AGENT, "pay")
        (call_id,) = await waiting_calls(served.client, execution_id)
        handle: Any = served.client.temporal.get_workflow_handle(execution_id)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(APPROVAL_SIGNAL, ApprovalDecision(call_id=f"{call_id}x", verdict=YES))
        assert paid == []
        await handle.execute_update(APPROVAL_SIGNAL, ApprovalDecision(call_id=call_id, verdict=YES))
        assert (await served.client.result(execution_id)).final_response == "done"
    assert f"did you mean {call_id!r}" in str(refused.value.cause)
    assert paid == [5]


async def test_the_budget_is_told_while_a_run_waits(serve: Serve) -> None:
    async with serve([call("pay", amount=5), say("done")], offer=till([])) as served:
        execution_id = await served.client.start(AGENT, "pay", budget=ExecutionBudget(max_steps=3, max_tokens=50_000))
        await waiting_calls(served.client, execution_id)
        handle: Any = served.client.temporal.get_workflow_handle(execution_id)
        told = await handle.query(BUDGET_QUERY)
        used = (await served.client.state(execution_id)).usage.total_tokens
        await served.client.stop(execution_id)
        await served.client.result(execution_id)
    assert (told["budget"]["max_steps"], told["budget"]["max_cost"]) == (3, None)
    assert (told["remaining"]["max_tokens"], told["remaining"]["max_cost"]) == (50_000 - used, None)
    assert used > 0


async def test_decisions_that_decide_nothing_change_nothing(serve: Serve) -> None:
    paid: list[int] = []
    async with serve([call("pay", amount=5), say("done")], offer=till(paid)) as served:
        client = served.client
        execution_id = await client.start(AGENT, "pay")
        (call_id,) = await waiting_calls(client, execution_id)
        with pytest.raises(DecisionRefused, match="the call 'call_that_is_not_there' does not wait"):
            await client.decide(execution_id, "call_that_is_not_there", YES)
        assert await waiting_calls(client, execution_id) == [call_id]
        assert await client.decide(execution_id, call_id, YES)
        with suppress(DecisionRefused):  # or the run has ended
            assert not await client.decide(execution_id, call_id, Verdict(decision="deny", by="bob"))
        state = await client.result(execution_id)
        assert not await client.decide(execution_id, call_id, YES), "the run has ended"
        await replayed(client, execution_id)
    assert (state.final_response, paid) == ("done", [5])


async def test_a_decision_means_one_call_although_its_provider_repeats_the_id(serve: Serve) -> None:
    paid: list[int] = []
    again = [calls(Call("pay", {"amount": amount}, id="call_0")) for amount in (5, 7)]
    async with serve([*again, say("done")], offer=till(paid)) as served:
        client = served.client
        execution_id = await client.start(AGENT, "pay")
        (first,) = await waiting_calls(client, execution_id)
        await client.decide(execution_id, first, YES)
        await state_when(client, execution_id, lambda state: state.step_count == 1)
        (second,) = await waiting_calls(client, execution_id)
        with pytest.raises(DecisionRefused):  # somebody clicks twice
            await client.decide(execution_id, first, YES)
        assert await waiting_calls(client, execution_id) == [second]
        await client.decide(execution_id, second, Verdict(decision="deny", by="ann"))
        state = await client.result(execution_id)
    assert (paid, state.final_response) == ([5], "done")


async def test_a_decision_that_cannot_travel_is_refused_before_temporal(serve: Serve) -> None:
    async with serve([call("pay", amount=5), say("done")], offer=till([])) as served:
        execution_id = await served.client.start(AGENT, "pay")
        (call_id,) = await waiting_calls(served.client, execution_id)
        too_much = Verdict(decision="edit", arguments={"amount": "x" * ARGUMENTS_BYTES_MAX})
        for id_, verdict in ((call_id, too_much), ("x" * 1_000, YES)):
            with pytest.raises(InvalidInput):
                await served.client.decide(execution_id, id_, verdict)
        events = (await history_of(served.client, execution_id)).events
        assert not any(event.HasField("workflow_execution_update_accepted_event_attributes") for event in events)
        await served.client.stop(execution_id)
        await served.client.result(execution_id)


async def test_a_stop_ends_a_run_that_waits(serve: Serve) -> None:
    async with serve([call("pay", amount=5), say("done")], offer=till([])) as served:
        execution_id = await served.client.start(AGENT, "pay")
        await waiting_calls(served.client, execution_id)
        asked_at = time.monotonic()
        await served.client.stop(execution_id)
        state = await served.client.result(execution_id)
        assert time.monotonic() - asked_at < CLOSED_SECONDS_MAX
        await replayed(served.client, execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert [message.role for message in state.messages] == ["user", "assistant", "tool"]


async def test_the_time_limit_ends_a_run_that_waits(serve: Serve) -> None:
    async with serve([call("pay", amount=5), say("done")], offer=till([])) as served:
        begun = time.monotonic()
        state = await served.client.run(AGENT, "pay", budget=ExecutionBudget(max_seconds=0.5))
        assert time.monotonic() - begun < 0.5 + CLOSED_SECONDS_MAX
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)


@pytest.mark.slow
async def test_time_spent_waiting_does_not_count_where_the_definition_says_so(serve: Serve) -> None:
    paid: list[int] = []
    agent = AgentDefinition.model_validate({**RULES, "pause_while_waiting": True})
    async with serve([call("pay", amount=5), say("done")], offer=till(paid)) as served:
        execution_id = await served.client.start(agent, "pay", budget=ExecutionBudget(max_seconds=6))
        (call_id,) = await waiting_calls(served.client, execution_id)
        await asyncio.sleep(6.5)  # longer than the limit: that is what is tested
        await served.client.decide(execution_id, call_id, YES)
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert (state.status, paid) == (ExecutionStatus.COMPLETED, [5])
    assert state.running.paused_seconds > 6


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_the_timer_of_a_call_is_cancelled_when_the_decision_comes(serve: Serve, decision: Decision) -> None:
    agent = AgentDefinition.model_validate(
        {"name": "careful", "tools": "all", "approvals": [{"tools": ["pay"], "expires_seconds": 3_600}]}
    )
    again = [calls(Call("pay", {"amount": amount}, id="call_0")) for amount in (5, 7)]
    async with serve([*again, say("done")], offer=till([])) as served:
        client = served.client
        execution_id = await client.start(agent, "pay")
        for step in (0, 1):
            await state_when(client, execution_id, lambda state: state.step_count == step)  # noqa: B023
            (call_id,) = await waiting_calls(client, execution_id)
            kinds = [event.event_type for event in (await history_of(client, execution_id)).events]
            assert kinds.count(EventType.EVENT_TYPE_TIMER_STARTED) == step + 1
            assert kinds.count(EventType.EVENT_TYPE_TIMER_CANCELED) == step, "before the run ends"
            await client.decide(execution_id, call_id, Verdict(decision=decision, by="ann"))
        await client.result(execution_id)
        await replayed(client, execution_id)


# --- edits that do not fit the tool

BAD_EDITS: list[tuple[dict[str, Any], str]] = [
    ({"amount": "a lot"}, "amount: "),
    ({"amont": 5}, "amount: Field required"),
    ({}, "amount: Field required"),
    ({"amount": 5, "currency": "EUR"}, "currency: "),
]


def not_taken(state: AgentState) -> tuple[str, ...]:
    return tuple(each for each in state.running.warnings if "was not accepted" in each)


@pytest.mark.slow
async def test_an_edit_that_breaks_the_tools_schema_is_refused_and_the_call_waits_on(serve: Serve) -> None:
    paid: list[int] = []
    async with serve([call("pay", amount=5), say("done")], offer=till(paid)) as served:
        client = served.client
        execution_id = await client.start(AGENT, "pay")
        (call_id,) = await waiting_calls(client, execution_id)
        for arguments, words in BAD_EDITS:
            edit = Verdict(decision="edit", by="ann", arguments=arguments)
            with pytest.raises(InvalidArguments, match=words) as refused:
                await client.decide(execution_id, call_id, edit)
            assert refused.value.message.endswith("the call is still waiting")
            assert await waiting_calls(client, execution_id) == [call_id]
        assert await client.decide(execution_id, call_id, Verdict(decision="edit", by="ann", arguments={"amount": 3}))
        state = await client.result(execution_id)
        await replayed(client, execution_id)
    assert paid == [3]
    assert (state.final_response, not_taken(state)) == ("done", ())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"amount": "a lot"}, "amount: "),
        ("amount=3", "must be a JSON object"),
        ([3], "must be a JSON object"),
    ],
)
async def test_a_signal_with_such_an_edit_is_dropped_with_a_warning_and_the_call_waits_on(
    serve: Serve, arguments: object, words: str
) -> None:
    paid: list[int] = []
    async with serve([call("pay", amount=5), say("done")], offer=till(paid)) as served:
        client = served.client
        execution_id = await client.start(AGENT, "pay")
        (call_id,) = await waiting_calls(client, execution_id)
        handle: Any = client.temporal.get_workflow_handle(execution_id)
        verdict = {"decision": "edit", "by": "eve", "arguments": arguments}
        await handle.signal(APPROVAL_SIGNAL, {"call_id": call_id, "verdict": verdict})
        state = await state_when(client, execution_id, lambda state: bool(not_taken(state)))
        (warning,) = not_taken(state)
        assert "was not accepted: " in warning
        assert words in warning
        assert [each.call.id for each in state.waiting_calls] == [call_id]
        await client.decide(execution_id, call_id, YES)
        assert (await client.result(execution_id)).final_response == "done"
        await replayed(client, execution_id)
    assert paid == [5]


async def test_of_an_edit_and_a_decision_that_come_at_once_one_counts(serve: Serve) -> None:
    paid: list[int] = []
    async with serve([call("pay", amount=5), say("done")], offer=till(paid)) as served:
        client = served.client
        execution_id = await client.start(AGENT, "pay")
        (call_id,) = await waiting_calls(client, execution_id)
        edit = Verdict(decision="edit", by="ann", arguments={"amount": 3})
        came = await asyncio.gather(
            *(client.decide(execution_id, call_id, verdict) for verdict in (edit, YES, edit)), return_exceptions=True
        )
        await client.result(execution_id)
        await replayed(client, execution_id)
    assert len(paid) == 1
    assert came.count(True) == 1
    assert all(isinstance(each, DecisionRefused) or each in (True, False) for each in came)


async def test_a_subagents_task_is_judged_before_it_is_taken(serve: Serve) -> None:
    helper = AgentDefinition(name="helper", system_prompt="helper")
    rules = {"name": "boss", "subagents": ["helper"], "approvals": [{"tools": ["spawn"]}]}
    script = [call("spawn", agent="helper", task="look"), say("found"), say("done")]
    async with serve(script) as served:
        client = served.client
        execution_id = await client.start(AgentDefinition.model_validate(rules), "go", subagents=[helper])
        (call_id,) = await waiting_calls(client, execution_id)
        bad: list[tuple[dict[str, Any], str]] = [
            ({"agent": "helpr", "task": "x"}, "the agent 'helpr', which is not there; did you mean 'helper'"),
            ({"task": "x"}, "give `agent` and `task`"),
        ]
        for arguments, words in bad:
            with pytest.raises(InvalidArguments, match=words):
                await client.decide(execution_id, call_id, Verdict(decision="edit", arguments=arguments))
        await client.decide(execution_id, call_id, Verdict(decision="deny", by="ann"))
        assert (await client.result(execution_id)).step_count == 2
