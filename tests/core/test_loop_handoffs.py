"""Handoffs in the loop: when they take place, which of several counts, and what a run that ends keeps of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.core.agent.assistants import reachable
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.handoffs import (
    HANDOFFS_MADE_MAX,
    conversation_holder,
    definition_digest,
    handoff_schema,
    taken_over,
)
from holdfast.core.agent.hooks import Changes
from holdfast.core.agent.initial_state import as_defined, new_agent
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.state import UNBORN_ID
from holdfast.core.base.errors import UnknownAgent
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.handoffs import Handover
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel, HandOver, RunHooks
from holdfast.core.loop.start import rests
from holdfast.core.wire.branch_points import cut
from holdfast.core.wire.carry_over import SealedHistory
from tests.core.building import COMPLETED, Run, call, handoff, hook_at, stopped

HELPER = AgentDefinition(name="helper", description="Helps.", system_prompt="You help.", llm=LLM(model="small"))
OTHER = AgentDefinition(name="other", system_prompt="You are another.")
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


def handed(budget: ExecutionBudget | None = None) -> Run:
    """The model has asked for a handoff, and the driver is to carry it out."""
    return Run(budget, handoffs=[HELPER, OTHER], observed=True).begin().answer("", handoff("a", reason="a bill"))


def test_the_driver_is_asked_once_the_step_is_complete_and_the_next_step_is_the_other_agents() -> None:
    run = handed()
    assert run.wanted(HandOver) == (HandOver("helper"),)
    assert run.wanted(CallModel) == ()
    assert run.answers == {"a": "handed over to helper"}
    run.hands_over()
    assert run.model_call.step_number == 2
    state = run.state
    assert (state.context.system_prompt, state.llm, state.active_agent) == ("You help.", HELPER.llm, "helper")
    (made,) = state.running.handoffs
    assert (made.step_number, made.from_agent, made.to_agent, made.reason) == (1, "tester", "helper", "a bill")
    assert run.answer("done").ended == COMPLETED
    assert run.told.count("AgentHandedOff") == 1
    assert run.state.usage.input_tokens == 200


def test_the_other_calls_of_the_answer_run_first() -> None:
    run = Run(handoffs=[HELPER]).begin().answer("", handoff("a"), call("b"))
    assert run.wanted(HandOver) == ()
    assert run.returns("b").wanted(HandOver) == (HandOver("helper"),)


def test_the_first_of_several_handoffs_counts() -> None:
    run = Run(handoffs=[HELPER, OTHER]).begin().answer("", handoff("a", "other"), handoff("b", "helper"))
    assert run.wanted(HandOver) == (HandOver("other"),)
    assert run.answers["a"] == "handed over to other"
    assert "not handed over: the first handoff of an answer counts" in run.answers["b"]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"agent": "helpr"}, "did you mean 'helper'?"),
        ({"agent": 3}, "give `agent` and, if you like, `reason`"),
        ({"agent": "helper", "task": "x"}, "give `agent` and, if you like, `reason`"),
        ({"agent": "helper", "reason": 3}, "give `agent` and, if you like, `reason`"),
    ],
)
def test_a_handoff_that_cannot_be_made_is_an_error_for_the_model(arguments: dict[str, object], answer: str) -> None:
    bad = replace(handoff("a"), arguments=arguments)
    run = Run(handoffs=[HELPER]).begin().answer("", bad)
    assert answer in run.answers["a"]
    assert run.model_call.step_number == 2
    assert run.state.active_agent == "tester"


def test_without_handoffs_there_is_no_such_tool() -> None:
    run = Run().begin().answer("", handoff("a"))
    assert "the model asked for the tool 'handoff', which is not there" in run.answers["a"]


def test_two_agents_that_send_a_person_to_each_other_come_to_an_end() -> None:
    tester = Run(handoffs=[HELPER]).loop.definition
    run = Run(handoffs=[HELPER]).begin()
    for number in range(HANDOFFS_MADE_MAX):
        there, back = (HELPER, tester) if number % 2 == 0 else (tester, HELPER)
        run.answer("", handoff(f"c{number}", there.name)).hands_over(handoffs=[back])
    run.answer("", handoff("last", "helper"))
    assert f"one run has at most {HANDOFFS_MADE_MAX} handoffs" in run.answers["last"]
    assert run.model_call
    assert len(run.state.running.handoffs) == HANDOFFS_MADE_MAX
    assert run.state.active_agent == "tester"


def test_the_other_agents_hooks_run_from_the_next_step_on() -> None:
    run = Run(handoffs=[HELPER], hooks=[hook_at("before_step", "old")]).begin().hooked().answer("", handoff("a"))
    assert run.wanted(RunHooks) == ()
    run.hands_over(hooks=[hook_at("before_step", "new")])
    assert [each.name for each in run.wanted(RunHooks)[0].hooks] == ["new"]


def test_hooks_around_the_call_can_block_it_and_see_it() -> None:
    hooks = [hook_at("before_tool", tools=("handoff",)), hook_at("after_tool", tools=("handoff",))]
    run = Run(handoffs=[HELPER], hooks=hooks).begin().answer("", handoff("a"))
    run.hooked()
    assert run.hook_context.trigger == "after_tool"
    assert run.hooked().wanted(HandOver)
    blocked = Run(handoffs=[HELPER], hooks=hooks).begin().answer("", handoff("a")).hooked(Changes(block="no"))
    assert blocked.wanted(HandOver) == ()
    assert blocked.model_call


def test_a_person_may_be_asked_first_and_may_choose_another_agent() -> None:
    rules = (ApprovalRule(tools=("handoff",)),)
    run = Run(handoffs=[HELPER, OTHER], approvals=rules).begin().answer("", handoff("a"))
    assert run.asked == ["a"]
    assert run.decide("a", "edit", arguments={"agent": "other"}).wanted(HandOver) == (HandOver("other"),)
    denied = Run(handoffs=[HELPER], approvals=rules).begin().answer("", handoff("a")).decide("a", "deny")
    assert denied.wanted(HandOver) == ()


def test_a_refused_handoff_is_told_to_the_model_and_the_agent_goes_on() -> None:
    run = handed().handoff_refused(ErrorRecord(type="UnknownTool", message="no tool x", source="worker"))
    assert run.said[-1].startswith("the conversation was not handed over to 'helper': no tool x")
    assert (run.state.active_agent, run.state.running.handoffs, run.model_call.step_number) == ("tester", (), 2)
    assert run.state.warnings[-1] == "the conversation was not handed over to 'helper': no tool x"
    assert run.answer("done").ended == COMPLETED


def test_a_refusal_of_what_nobody_asked_for_changes_nothing() -> None:
    run = Run().begin()
    before = run.state
    assert run.handoff_refused().state is before


def test_where_the_run_ends_with_the_handoff_the_other_agent_has_the_conversation() -> None:
    run = handed(ExecutionBudget(max_steps=1))
    assert run.ended == stopped(StopReason.STEPS_LIMIT)
    assert run.wanted(HandOver) == ()
    assert run.state.active_agent == "helper"
    assert run.told.count("AgentHandedOff") == 1
    run = handed().stop()
    assert run.ended == stopped(StopReason.USER_REQUESTED)
    assert (run.state.active_agent, run.state.running.handing_over) == ("helper", None)


def test_a_stop_after_the_handoff_ends_the_run_before_the_next_model_call() -> None:
    run = handed().stop(mode="after_step").hands_over()
    assert run.ended == stopped(StopReason.USER_REQUESTED)
    assert run.state.step_count == 1


def test_a_driver_that_takes_the_run_up_is_asked_again() -> None:
    assert handed().resume().wanted(HandOver) == (HandOver("helper"),)


def test_a_loop_that_rests_between_steps_rests_after_the_handoff() -> None:
    run = Run(handoffs=[HELPER], step_by_step=True).begin().answer("", handoff("a"))
    assert run.wanted(HandOver)
    assert not rests(run.state.running)
    run.hands_over()
    assert rests(run.state.running)
    assert run.step_due().model_call.step_number == 2


def test_a_change_of_the_agent_takes_the_conversation_back() -> None:
    run = handed().becomes(system_prompt="Be long.")
    assert (run.state.handover, run.state.running.handing_over) == (None, None)
    assert run.model_call.step_number == 2
    later = handed().hands_over().answer("", call("b")).returns("b").becomes(system_prompt="Be long.")
    assert later.state.handover is None


def test_the_last_agent_goes_on_by_the_definition_that_the_conversation_began_with() -> None:
    run = handed()
    definition = run.loop.definition
    state = run.hands_over().answer("done").state
    assert state.handover == Handover(agent="helper", origin="tester", origin_digest=definition_digest(definition))
    agents = (HELPER, OTHER)
    assert conversation_holder(state, definition, agents) is HELPER
    changed = replace(definition, system_prompt="Be long.")
    assert conversation_holder(state, changed, agents) is changed
    assert conversation_holder(state, definition, (OTHER,)) is definition
    assert taken_over(state, HELPER) is state
    back = taken_over(state, changed)
    assert (back.handover, back.context.system_prompt, back.active_agent) == (None, "Be long.", "tester")


def test_a_state_that_ended_with_the_handoff_gets_the_other_agents_prompt() -> None:
    state = taken_over(handed(ExecutionBudget(max_steps=1)).state, HELPER)
    assert (state.context.system_prompt, state.active_agent) == ("You help.", "helper")


def test_a_cut_before_a_handoff_gives_the_conversation_back() -> None:
    tester = Run(handoffs=[HELPER]).loop.definition
    run = handed().hands_over(handoffs=[tester]).answer("", handoff("b", "tester")).hands_over().answer("done")
    state = run.state
    assert (state.status, state.active_agent) == (ExecutionStatus.COMPLETED, "tester")
    snapshot = SealedHistory().snapshot(state)
    holders = [cut(snapshot, state, steps).head.handover for steps in range(4)]
    assert [each and each.agent for each in holders] == ["tester", "helper", "tester", "tester"]
    assert [len(cut(snapshot, state, steps).head.running.handoffs) for steps in range(4)] == [0, 1, 2, 2]


def test_the_model_reads_what_each_agent_is_for() -> None:
    schema = handoff_schema({"other": OTHER, "helper": HELPER})
    assert "helper: Helps.; other" in schema.description
    assert schema.parameters["properties"]["agent"]["enum"] == ["helper", "other"]  # type: ignore[index,call-overload]


def test_agents_are_reached_through_handoffs_and_back() -> None:
    front = AgentDefinition(name="front", handoffs=("billing",))
    billing = AgentDefinition(name="billing", handoffs=("front",), subagents=("clerk",))
    clerk = AgentDefinition(name="clerk")
    assert {each.name for each in reachable(front, (billing, clerk))} == {"front", "billing", "clerk"}
    with pytest.raises(UnknownAgent, match=r"names the handoff 'biling', which is not there; did you mean 'billing'\?"):
        reachable(replace(front, handoffs=("biling",)), (billing, clerk))
    assert front.name not in {each.name for each in reachable(clerk, (front, billing))}


def test_metadata_of_the_conversation_stay_and_those_of_the_other_definition_fill_gaps() -> None:
    before = new_agent(AgentDefinition(name="front", metadata={"desk": 1}), agent_id=UNBORN_ID, at=NOON)
    state = replace(before, context=replace(before.context, metadata={**before.metadata, "customer": "run"}))
    other = AgentDefinition(name="billing", metadata={"desk": 2, "customer": "def", "floor": 3})
    assert as_defined(state, other, NOON, handoff=True).metadata == {
        "agent": "billing",
        "desk": 1,
        "customer": "run",
        "floor": 3,
    }
    assert as_defined(state, other, NOON).metadata["customer"] == "def", "a change by a person counts"
