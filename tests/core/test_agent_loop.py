"""The arrows of the loop's docstring: begin, model call, tool calls, archive, next step, finish."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id, step_id
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.base.bounds import (
    CALL_ID_CHARS_MAX,
    CALLS_KEPT_MAX,
    CALLS_PER_STEP_MAX,
    ERROR_CHARS_MAX,
    OUTPUT_TOKENS_MAX,
)
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.steps import ErrorRecord, Outcome, ResultType
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel, CallTool, CancelInFlight, Finish
from holdfast.core.loop.events import ToolReturned
from tests.core.building import AGENT_ID, BOOM, COMPLETED, DEFINITION, FAILED, START, Run, call, moment


def test_a_new_agent_is_pending_and_knows_its_definition() -> None:
    state = new_agent(DEFINITION, agent_id=AGENT_ID, at=START)
    assert state.status is ExecutionStatus.PENDING
    assert state.context.system_prompt == "Be brief."
    assert state.metadata == {"agent": "tester"}
    assert len(state.messages) == 0


def test_a_beginning_asks_the_model_with_the_question_in_the_transcript() -> None:
    run = Run().begin("What is it?")
    assert run.commands == (CallModel(step_number=1, max_output_tokens=OUTPUT_TOKENS_MAX),)
    assert [(m.role, m.content) for m in run.state.messages] == [("user", "What is it?")]
    assert run.state.messages[0].metadata == {"execution_id": run.state.running.execution_id, "agent_id": AGENT_ID}
    assert run.state.status is ExecutionStatus.IN_PROGRESS
    assert run.state.execution_count == 1


def test_an_answer_without_tools_completes_the_run() -> None:
    run = Run().begin().answer("42")
    assert run.commands == (Finish(),)
    assert run.ended == COMPLETED
    assert run.state.final_response == "42"
    assert run.state.last_step_type == "final_response"
    assert run.state.running.completed_at == moment(2)


def test_an_empty_answer_completes_without_a_final_response() -> None:
    run = Run().begin().answer(" \n")
    assert run.ended == COMPLETED
    assert not run.state.has_final_response


def test_asked_tools_are_called_and_their_results_lead_to_the_next_model_call() -> None:
    run = Run().begin().answer("let me see", call("a"))
    assert run.commands == (CallTool(step_number=1, index=0, call=call("a")),)
    assert run.state.step_count == 0
    run.returns("a", "3")
    assert run.model_call == CallModel(step_number=2, max_output_tokens=OUTPUT_TOKENS_MAX)
    assert run.state.step_count == 1
    assert run.state.last_step_type == "tool_execution"
    assert run.answers == {"a": "3"}


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_parallel_calls_are_archived_in_request_order_whoever_returns_first(order: tuple[str, ...]) -> None:
    run = Run().begin().answer("", call("a"), call("b", "echo"), call("c"))
    assert run.called == ["a", "b", "c"]
    for id_ in order[:-1]:
        assert run.returns(id_, f"result {id_}").commands == ()
    run.returns(order[-1], f"result {order[-1]}")
    assert [m.content for m in run.state.messages if m.role == "tool"] == ["result a", "result b", "result c"]
    assert run.outcomes == [("a", "succeeded"), ("b", "succeeded"), ("c", "succeeded")]
    assert run.model_call.step_number == 2


def test_each_call_keeps_its_own_times() -> None:
    run = Run().begin().answer("", call("a"), call("b")).returns("b").returns("a")
    first, second = run.state.last_step_tool_executions
    assert (second.started_at, second.completed_at) == (moment(2), moment(3))
    assert (first.started_at, first.completed_at) == (moment(3), moment(4))


def test_records_and_steps_have_ids_that_follow_from_the_execution_alone() -> None:
    run = Run().begin().answer("", call("a"), call("b")).returns("b").returns("a")
    execution_id = run.state.running.execution_id
    assert run.state.steps[0].id == step_id(execution_id, 1)
    assert [e.id for e in run.state.last_step_tool_executions] == [
        named_id(execution_id, call_name(1, index)) for index in (0, 1)
    ]


def test_a_failed_tool_is_told_to_the_model_and_the_run_goes_on() -> None:
    run = Run().begin().answer("", call("a")).fails("a")
    assert run.answers == {"a": "Error (Boom): it broke"}
    assert run.state.last_step_type == "error"
    assert run.model_call.step_number == 2
    run.answer("anyway")
    assert run.ended == COMPLETED
    assert run.state.errors == (BOOM,)


def test_messages_of_a_step_are_tagged_and_only_the_final_answer_is_no_trace() -> None:
    run = Run().begin().answer("thinking", call("a")).returns("a").answer("done")
    tagged = [(m.role, m.metadata.get("is_trace"), m.metadata.get("step_id")) for m in run.state.messages]
    first, second = (step.id for step in run.state.steps)
    assert tagged == [
        ("user", None, None),
        ("assistant", True, first),
        ("tool", True, first),
        ("assistant", None, second),
    ]
    assert all(m.metadata["agent_id"] == AGENT_ID for m in run.state.messages)


def test_usage_is_counted_as_soon_as_the_model_has_answered() -> None:
    run = Run().begin().answer("", call("a"), usage=Usage(input_tokens=7, output_tokens=3))
    assert run.state.usage.total_tokens == 10
    run.returns("a").answer("done", usage=Usage(input_tokens=20, output_tokens=1))
    assert run.state.usage == Usage(input_tokens=27, output_tokens=4)
    assert run.state.last_step_usage == Usage(input_tokens=20, output_tokens=1)


def test_a_step_begins_before_its_model_call_and_ends_with_its_last_answer() -> None:
    run = Run().begin().answer("", call("a"), after=10).returns("a")
    done = run.state.step_executions[0]
    assert (done.started_at, done.completed_at) == (moment(1), moment(12))
    assert done.duration.total_seconds() == 11
    assert run.state.last_step_duration == done.duration


def test_an_unknown_tool_is_answered_with_the_nearest_name_and_never_called() -> None:
    run = Run().begin().answer("", call("a", "ad"))
    assert run.called == []
    assert run.answers == {
        "a": "Error (UnknownTool): the model asked for the tool 'ad', which is not there; did you mean 'add'?"
    }
    assert run.model_call.step_number == 2


def test_the_answer_about_an_unknown_tool_is_bounded_however_many_tools_there_are() -> None:
    run = Run(tools=[f"tool_{number:04}_{'x' * 40}" for number in range(1_000)]).begin().answer("", call("a", "zzz"))
    assert len(run.answers["a"]) <= ERROR_CHARS_MAX + 100


def test_malformed_arguments_are_answered_and_not_run() -> None:
    run = Run().begin().answer("", call("a", malformed="it is cut off"), call("b"))
    assert run.called == ["b"]
    run.returns("b")
    assert run.answers == {"a": "Error (InvalidArguments): it is cut off", "b": "fine"}


def test_refused_calls_alone_lead_straight_to_the_next_model_call() -> None:
    run = Run().begin().answer("", call("a", "nope"), call("b", malformed="no JSON"))
    assert run.wanted(CallTool) == ()
    assert run.model_call.step_number == 2
    assert run.state.last_step_type == "error"


def test_calls_beyond_the_limit_of_a_step_are_answered_and_not_run() -> None:
    run = Run().begin().answer("", *(call(f"c{n}") for n in range(CALLS_PER_STEP_MAX + 2)))
    assert len(run.called) == CALLS_PER_STEP_MAX
    for id_ in run.called:
        run.returns(id_)
    assert [outcome for _, outcome in run.outcomes].count("failed") == 2
    assert run.answers[f"c{CALLS_PER_STEP_MAX}"].startswith("Error (TooManyCalls): not run")


def test_calls_beyond_what_is_kept_are_dropped_so_that_none_is_left_without_an_answer() -> None:
    run = Run().begin().answer("", *(call(f"c{n}", "nope") for n in range(CALLS_KEPT_MAX + 50)))
    assert len(run.answers) == CALLS_KEPT_MAX


@pytest.mark.parametrize(
    "ids",
    [("", ""), ("a", "a"), ("a", "a", "a"), ("", "call_1_0"), ("call_1_1", ""), ("call_1_2", "x", "", "call_1_2")],
)
def test_empty_and_repeated_call_ids_become_unique_ones(ids: tuple[str, ...]) -> None:
    run = Run().begin().answer("", *(call(id_) for id_ in ids))
    assert len(set(run.called)) == len(ids)
    assert all(run.called)
    for number, id_ in enumerate(run.called):
        run.returns(id_, str(number))
    assert [m.content for m in run.state.messages if m.role == "tool"] == [str(n) for n in range(len(ids))]


@pytest.mark.parametrize(("chars", "result_type"), [(1_000, "json"), (7_000, "text")])
def test_a_json_result_that_is_cut_to_its_share_of_the_step_is_a_text(chars: int, result_type: ResultType) -> None:
    run = Run().begin().answer("", *(call(str(number)) for number in range(64)))
    result = json.dumps(["x" * chars])
    run.feed(ToolReturned("0", result, moment(1), run.tick(), result_type="json"))
    step = run.state.current_step_or_last
    assert step is not None
    (execution,) = step.tool_executions
    assert execution.result_type == result_type
    assert (execution.result == result) == (result_type == "json")


def test_files_beyond_a_calls_share_of_the_step_are_left_out_with_a_warning() -> None:
    run = Run().begin().answer("", *(call(str(number)) for number in range(32)))
    files = tuple(Attachment(name=f"{n}", media_type="a/b", size=0, digest="0" * 64) for n in range(5))
    run.feed(ToolReturned("0", "drawn", moment(1), run.tick(), attachments=files))
    step = run.state.current_step_or_last
    assert step is not None
    assert step.tool_executions[0].attachments == files[:2]
    assert run.state.warnings[1:] == ("3 files of add (0) are left out: the calls of a step share 64",)


@pytest.mark.parametrize(("chars", "kept"), [(CALL_ID_CHARS_MAX, True), (CALL_ID_CHARS_MAX + 1, False), (5_000, False)])
def test_a_call_id_that_providers_do_not_take_back_becomes_one_of_ours(chars: int, *, kept: bool) -> None:
    run = Run().begin().answer("", call("x" * chars), call("y" * chars))
    assert run.called == (["x" * chars, "y" * chars] if kept else ["call_1_0", "call_1_1"])
    first, second = run.called
    run.returns(second, "2").returns(first, "1")
    assert list(run.answers.items()) == [(first, "1"), (second, "2")]


def test_the_same_call_id_in_two_steps_is_answered_in_each() -> None:
    run = Run().begin().answer("", call("a")).returns("a", "one").answer("", call("a")).returns("a", "two")
    assert [m.content for m in run.state.messages if m.role == "tool"] == ["one", "two"]


def test_a_model_failure_ends_the_run_failed_with_the_error_on_the_state() -> None:
    run = Run().begin().model_fails()
    assert run.commands == (Finish(),)
    assert run.ended == FAILED
    assert run.state.errors == (BOOM,)
    assert run.state.last_step_type == "error"
    assert run.state.stop_signal is not None
    assert run.state.stop_signal.message == "Boom: it broke"


def test_a_model_failure_in_a_later_step_keeps_the_steps_before() -> None:
    run = Run().begin().answer("", call("a")).returns("a", "3").model_fails()
    assert run.ended == FAILED
    assert run.state.step_count == 2
    assert run.answers == {"a": "3"}


def test_a_driver_failure_during_the_model_call_fails_the_run_and_cancels() -> None:
    run = Run().begin().driver_fails(ErrorRecord(type="HistoryLimit", message="too long", source="driver"))
    assert run.commands == (CancelInFlight(), Finish())
    assert run.ended == FAILED
    assert [error.type for error in run.state.errors] == ["HistoryLimit"]
    assert run.state.usage.estimated_tokens > 0, "the call may have been answered"


def test_a_driver_failure_during_tools_keeps_what_has_returned() -> None:
    run = Run().begin().answer("", call("a"), call("b")).returns("b").driver_fails()
    assert run.ended == FAILED
    assert run.outcomes == [("a", "cancelled"), ("b", "succeeded")]


def test_an_error_text_longer_than_a_signal_takes_is_cut_there_and_kept_on_the_error() -> None:
    long = ErrorRecord(type="Boom", message="x" * ERROR_CHARS_MAX, source="test")
    run = Run().begin().model_fails(long)
    assert run.ended == FAILED
    assert run.state.errors == (long,)


def test_events_after_the_end_change_nothing() -> None:
    run = Run().begin().answer("", call("a"), call("b")).returns("a").stop()
    ended = run.state
    run.returns("b").fails("b").answer("late").model_fails().stop().timer().driver_fails()
    assert run.state is ended


def test_events_before_the_beginning_change_nothing() -> None:
    run = Run()
    pending = run.state
    run.answer("early").returns("a").stop().timer().driver_fails()
    assert run.state is pending


def test_a_second_result_for_one_call_changes_nothing() -> None:
    run = Run().begin().answer("", call("a"), call("b")).returns("a", "first")
    once = run.state
    run.returns("a", "second").fails("a").returns("unknown")
    assert run.state is once
    run.returns("b")
    assert run.answers == {"a": "first", "b": "fine"}


def test_a_second_answer_of_the_model_in_one_step_changes_nothing() -> None:
    run = Run().begin().answer("first", call("a"))
    once = run.state
    run.answer("second")
    assert run.state is once
    assert run.commands == ()


def test_a_model_failure_after_the_answer_does_not_end_the_run() -> None:
    run = Run().begin().answer("", call("a")).model_fails()
    assert run.state.status is ExecutionStatus.IN_PROGRESS
    run.returns("a").answer("done")
    assert run.ended == COMPLETED


def test_a_result_for_an_earlier_step_does_not_answer_a_later_one() -> None:
    run = Run().begin().answer("", call("a")).returns("a").answer("", call("b")).returns("a", "stale")
    assert run.state.step_count == 1
    assert run.returns("b").state.step_count == 2


def test_a_terminal_agent_begins_afresh_and_keeps_its_session() -> None:
    run = Run().begin("one").answer("first")
    before = run.state.running.execution_id
    run.begin("two")
    assert run.state.running.execution_id != before
    assert (run.state.step_count, run.state.usage, run.state.stop_signal) == (0, Usage(), None)
    assert run.state.execution_count == 2
    run.answer("second")
    assert [m.content for m in run.state.messages] == ["one", "first", "two", "second"]
    assert run.state.steps[0].input_length == 3


def test_a_failed_agent_begins_afresh_without_its_error() -> None:
    run = Run().begin().model_fails().begin().answer("well now")
    assert run.ended == COMPLETED
    assert not run.state.has_errors


def test_beginning_while_a_run_is_in_progress_goes_on_with_it() -> None:
    run = Run().begin("one")
    before = run.state.running
    run.begin("two")
    assert run.state.running.execution_id == before.execution_id
    assert run.state.execution_count == 1
    assert run.model_call.step_number == 1, "the question that nobody has answered is asked again"
    run.answer("one is done").answer("two as well")
    assert [m.content for m in run.state.messages] == ["one", "one is done", "two", "two as well"]


def test_the_end_of_a_run_decides_its_reason() -> None:
    run = Run().begin().answer("x")
    assert run.state.stop_reason is run.state.last_stop_reason is StopReason.COMPLETED
    assert run.state.running.continuation.stop_signals == ()


def test_what_was_asked_and_what_really_ran_are_told_apart() -> None:
    run = Run().begin().answer("", call("a"), call("b")).returns("a").stop()
    step = run.state.last_step
    assert step is not None
    assert [c.id for c in step.requested_tool_calls] == ["a", "b"]
    assert [c.id for c in step.executed_tool_calls] == ["a"]
    assert step.tool_executions[1].outcome is Outcome.CANCELLED
