"""Messages that come in while an execution runs: when the model sees them, and that it must answer them."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.hooks import Changes
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.base.bounds import MESSAGES_WAITING_MAX
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.stop_reasons import StopReason
from tests.core.building import COMPLETED, Run, call, hook_at, stopped

SUMMARY = ContextPolicy(summary=SummaryPolicy(above_input_tokens=50, keep_messages=0))


def test_a_message_during_the_model_call_is_seen_by_the_next_one_even_behind_a_final_answer() -> None:
    run = Run().begin("one").says("two")
    assert run.commands == ()
    assert run.answer("first").model_call.step_number == 2
    assert run.said == ["one", "first", "two"]
    assert run.answer("second").ended == COMPLETED
    assert run.state.final_response == "second"


def test_a_message_during_tools_comes_behind_their_results() -> None:
    run = Run().begin("one").answer("", call("a"), call("b")).returns("b").says("two").returns("a")
    assert [(m.role, m.text) for m in run.state.messages][2:] == [("tool", "fine"), ("tool", "fine"), ("user", "two")]
    assert run.answer("done").ended == COMPLETED
    assert run.state.step_count == 2, "it had been seen with the call that was made anyway"


def test_messages_keep_their_order_and_tell_whose_they_are() -> None:
    run = Run().begin("one").says("two").says("three").answer("first")
    assert run.said == ["one", "first", "two", "three"]
    assert all(m.metadata["execution_id"] == run.state.running.execution_id for m in run.state.messages)


def test_each_message_is_answered_once() -> None:
    run = Run().begin("one")
    for number in range(5):
        run.says(f"more {number}").answer(f"answer {number}")
    assert run.answer("the last").ended == COMPLETED
    assert run.state.step_count == 6


def test_a_message_needs_another_step_and_the_limits_hold() -> None:
    run = Run(ExecutionBudget(max_steps=1)).begin("one").says("two").answer("first")
    assert run.ended == stopped(StopReason.STEPS_LIMIT)
    assert run.said == ["one", "first", "two"], "it is kept for the next execution"


def test_a_message_before_the_model_is_asked_is_seen_at_once() -> None:
    run = Run(hooks=[hook_at("before_inference")]).begin("one").says("two").hooked()
    assert run.said == ["one", "two"]
    assert run.answer("both").ended == COMPLETED
    assert run.state.step_count == 1


def test_a_message_during_the_evaluation_is_still_answered() -> None:
    run = Run(hooks=[hook_at("after_step")]).begin("one").answer("first").says("two").hooked()
    assert run.model_call.step_number == 2


@pytest.mark.parametrize("trigger", ["on_stop", "after_execution"])
def test_a_message_while_the_run_ends_is_kept_for_the_next_one(trigger: str) -> None:
    run = Run(hooks=[hook_at(trigger)]).begin("one").answer("first").says("two").hooked()
    assert run.ended == COMPLETED
    assert run.said == ["one", "first", "two"]


def test_a_message_does_not_hold_up_a_stop() -> None:
    run = Run().begin("one").says("two").stop()
    assert run.ended == stopped(StopReason.USER_REQUESTED)
    assert run.said == ["one", "two"]


def test_a_message_beside_a_stop_after_the_step_is_kept_unanswered() -> None:
    run = Run().begin("one").says("two").stop(mode="after_step").answer("first")
    assert run.ended == stopped(StopReason.USER_REQUESTED)
    assert run.said == ["one", "first", "two"]


def test_messages_beyond_the_limit_are_not_taken_and_that_is_told() -> None:
    run = Run().begin("one")
    for number in range(MESSAGES_WAITING_MAX + 5):
        run.says(str(number))
    run.answer("first")
    assert len(run.said) == 2 + MESSAGES_WAITING_MAX
    assert run.state.warnings[:1] == (
        f"more than {MESSAGES_WAITING_MAX} messages wait for one step; the rest was not accepted",
    )
    assert run.says("one more").answer("second").wanted(type(run.model_call))


def test_what_hooks_say_beside_somebodys_message_does_not_count_as_its_answer_being_due() -> None:
    run = Run(hooks=[hook_at("after_inference")]).begin("one").answer("first")
    run.hooked(Changes(messages=(user_message("from a hook"),)))
    assert run.ended == COMPLETED


# --- summaries


def summarising() -> Run:
    run = Run(context=SUMMARY).begin("one").answer("", call("a"), usage=Usage(input_tokens=60)).returns("a")
    assert run.state.running.summary_under_way
    return run


def test_a_long_conversation_is_summarised_before_the_next_model_call() -> None:
    run = summarising().summarises("they talked", Usage(input_tokens=30, output_tokens=5))
    assert run.model_call.step_number == 2
    assert run.said == ["one"], "the question that is being worked on stays"
    assert [message.text[-11:] for message in run.state.store.section("summary").messages] == ["they talked"]
    assert run.state.usage.total_tokens == 95
    run.answer("done", usage=Usage(input_tokens=20))
    assert run.state.last_step_usage == Usage(input_tokens=50, output_tokens=5), "a summary is its step's overhead"


def test_a_summary_that_fails_loses_nothing_and_is_told() -> None:
    run = summarising().summary_fails()
    assert run.model_call.step_number == 2
    assert [message.role for message in run.state.store.section("buffer").messages] == ["assistant", "tool"]
    assert run.state.warnings[1:] == ("older messages could not be summarised: Boom: it broke",)


def test_a_message_during_a_summary_is_seen_by_the_model_call_behind_it() -> None:
    run = summarising().says("two").summarises()
    assert run.said == ["one", "two"]
    assert run.answer("done").ended == COMPLETED
    assert run.state.step_count == 2


def test_a_summary_that_uses_up_the_budget_is_the_last_call() -> None:
    run = Run(ExecutionBudget(max_tokens=2_000), context=SUMMARY).begin("one")
    run.answer("", call("a"), usage=Usage(input_tokens=60)).returns("a").summarises(usage=Usage(input_tokens=1_940))
    assert run.ended == stopped(StopReason.TOKEN_LIMIT)
    assert run.state.usage.total_tokens == 2_000


def test_a_stop_during_a_summary_ends_the_run_and_keeps_what_was_said() -> None:
    run = summarising().stop()
    assert run.ended == stopped(StopReason.USER_REQUESTED)
    ended = run.state
    assert run.summarises().state is ended
    assert len(run.state.store.section("buffer").messages) == 2


def test_an_answer_of_the_model_during_a_summary_is_not_wanted() -> None:
    run = summarising()
    before = run.state
    assert run.answer("early").model_fails().state is before
