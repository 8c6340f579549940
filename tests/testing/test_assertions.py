"""The assertions: silent where they should be, and readable and bounded where they fail."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.testing import (
    a_call,
    a_state,
    assert_called,
    assert_completed,
    assert_every_call_answered,
    assert_failed,
    assert_same_run,
    assert_stopped,
    assert_within_budget,
    assistant,
    calls_of,
    differences,
    run_summary,
    scripted_tool,
    user,
)

DONE = a_state(conversation=[user("Where?"), assistant("Here.")], steps=3)
STOPPED = a_state(steps=2, status="stopped")
FAILED = a_state(steps=2, status="failed")


def refusal(assertion: Any, *args: Any, **options: Any) -> str:  # noqa: ANN401  # any of the assertions
    with pytest.raises(AssertionError) as caught:
        assertion(*args, **options)
    return str(caught.value)


def test_a_completed_run_is_told_from_others() -> None:
    assert_completed(DONE)
    assert_completed(DONE, answer="Here.")
    assert refusal(assert_completed, DONE, answer="There.").startswith("the answer is not 'There.':")
    assert refusal(assert_completed, STOPPED).startswith("the run is not completed:\n  stopped (user_requested)")


def test_a_stopped_run_is_told_from_others() -> None:
    assert_stopped(STOPPED)
    assert_stopped(STOPPED, "user_requested")
    assert_stopped(STOPPED, StopReason.USER_REQUESTED)
    assert "not stopped for time_limit" in refusal(assert_stopped, STOPPED, "time_limit")
    assert "the run is not stopped" in refusal(assert_stopped, DONE)
    with pytest.raises(ValueError, match="tired"):
        assert_stopped(STOPPED, "tired")


def test_a_failed_run_is_told_from_others() -> None:
    assert_failed(FAILED)
    assert_failed(FAILED, "Boom")
    assert "did not fail with Bang" in refusal(assert_failed, FAILED, "Bang")
    assert "has not failed" in refusal(assert_failed, DONE)
    assert "error: 'Boom: it broke' of test" in refusal(assert_completed, FAILED)


def test_calls_are_counted_by_tool_and_arguments() -> None:
    assert_called(DONE, "look")
    assert_called(DONE, scripted_tool("look", 1), times=2)
    assert_called(DONE, "look", times=1, number=2)
    assert_called(DONE, "look", times=0, number=3)
    assert_called(DONE, "look", times=0, other=1)
    assert_called(DONE, "other", times=0)
    assert [call.arguments["number"] for call in calls_of(DONE, "look")] == [1, 2]
    assert refusal(assert_called, DONE, "other").startswith("other() ran 0 times, not at least once:")
    assert refusal(assert_called, DONE, "look", times=3).startswith("look() ran 2 times, not 3 times:")
    assert refusal(assert_called, DONE, "look", number="1").startswith("look(number='1') ran 0 times")


def test_a_failure_shows_the_run() -> None:
    assert run_summary(DONE).splitlines() == [
        "completed (completed) after 3 steps",
        "  answer: 'Here.'",
        "  step 1: tool_execution",
        "    look(number=1) succeeded: 'fine'",
        "  step 2: tool_execution",
        "    look(number=2) succeeded: 'fine'",
        "  step 3: final_response",
    ]


def test_a_failure_shows_what_is_under_way() -> None:
    assert run_summary(a_state(steps=1, status="in_progress")).endswith("step 2: the model has not answered")
    assert run_summary(a_state(status="pending")) == "pending (no stop reason) after 0 steps"


def test_a_failure_is_bounded() -> None:
    long = a_state(steps=500, conversation=[user(), assistant("x" * 10_000)])
    told = refusal(assert_stopped, long)
    assert "(490 earlier steps)" in told
    assert len(told) < 5_000


ASKED = Message(role="assistant", tool_calls=(a_call("add", "1"), a_call("add", "2")))


def answer(call_id: str) -> Message:
    return Message(role="tool", tool_call_id=call_id, content="x")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([ASKED, answer("1")], "there is no answer to '2'"),
        ([ASKED, answer("1"), user(), answer("2")], "message 2 comes before an answer to '2'"),
        ([ASKED, answer("2"), answer("1")], "message 1 answers '2', which is not the next open call"),
        ([ASKED, answer("1"), answer("2"), answer("2")], "message 3 answers '2'"),
        ([answer("1")], "message 0 answers '1'"),
        ([Message(role="assistant", tool_calls=(a_call("add", "1"),) * 2)], "without an id of their own: '1', '1'"),
        ([Message(role="assistant", tool_calls=(a_call("add", ""),))], "without an id of their own: ''"),
    ],
)
def test_calls_that_are_not_answered_as_they_must_be_are_named(said: list[Message], told: str) -> None:
    assert told in refusal(assert_every_call_answered, said)


def test_calls_that_are_answered_pass() -> None:
    assert_every_call_answered(DONE)
    assert_every_call_answered([ASKED, answer("1"), answer("2"), user()])


def within(state: AgentState, **limits: Any) -> AgentState:  # noqa: ANN401  # fields of any type
    """Return `state` as if it had had another budget."""
    return replace(state, execution=replace(state.running, budget=ExecutionBudget(**limits)))


def test_a_run_within_its_budget_passes() -> None:
    assert_within_budget(DONE)
    assert_within_budget(within(DONE, max_steps=3, max_tokens=360, max_seconds=60))
    assert_within_budget(within(DONE, max_tokens=300), tokens_over=60)
    assert_within_budget(a_state(status="pending"))


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_steps": 2}, "used 3 steps, its budget allows 2"),
        ({"max_tokens": 359}, "used 360 tokens, its budget allows 359"),
        ({"max_seconds": 1}, "seconds, its budget allows 1"),
        ({"deadline": DONE.running.started_at}, "its deadline was"),
    ],
)
def test_a_run_over_its_budget_is_told_with_figures(limits: dict[str, Any], told: str) -> None:
    assert told in refusal(assert_within_budget, within(DONE, **limits), seconds_over=1)


def test_a_cost_is_held_against_the_models_prices() -> None:
    dear = replace(within(DONE, max_cost=1.0), llm=LLM(prices=Prices(input_usd=1e6, output_usd=0)))
    assert "used 300 US dollars, its budget allows 1" in refusal(assert_within_budget, dear)
    with pytest.raises(InvalidInput, match="no prices"):
        assert_within_budget(within(DONE, max_cost=1.0))


def test_runs_that_differ_in_their_times_alone_are_the_same() -> None:
    later = AgentState.from_dict(_moved(DONE.to_dict()))
    assert later != DONE
    assert_same_run(DONE, later)
    assert "state.created_at" in refusal(assert_same_run, DONE, later, ignoring=())


def _moved(data: Any) -> Any:  # noqa: ANN401  # JSON
    """Return JSON data with every moment an hour later."""
    if isinstance(data, dict):
        return {name: _moved(value) for name, value in data.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(data, list):
        return [_moved(value) for value in data]  # pyright: ignore[reportUnknownVariableType]
    moment = isinstance(data, str) and re.match(r"2025-01-01T\d\d:", data)
    return data.replace("2025-01-01T12", "2025-01-01T13") if moment else data


def test_differences_are_listed_by_their_path() -> None:
    found = differences(DONE, a_state(conversation=[user("Where?"), assistant("There.")], steps=3))
    assert "state.context.store.sections[2].messages[5].content: 'Here.' and 'There.'" in found


def test_what_has_ended_and_what_has_not_differ_though_times_are_ignored() -> None:
    found = differences({"completed_at": None, "n": 1}, {"completed_at": "today"})
    assert found == ["state.completed_at: None and 'today'", "state.n: 1 and nothing"]
    assert differences({"at": "today"}, {}) == ["state.at: 'today' and nothing"]


def test_a_tools_arguments_are_compared_whatever_their_names() -> None:
    assert differences({"arguments": {"at": 1}}, {"arguments": {"at": 2}}) == ["state.arguments.at: 1 and 2"]


def test_lists_of_unequal_length_are_told_with_what_differs_in_them() -> None:
    assert differences([1, 2], [3]) == ["state: 2 items and 1", "state[0]: 1 and 3"]


def test_many_differences_are_cut() -> None:
    one, other = a_state(steps=60), a_state(steps=60, conversation=[user("x")])
    wasteful = a_state(steps=60, usage=replace(DONE.usage, input_tokens=7))
    many = replace(other, llm=LLM(model="m" * 200), execution=wasteful.execution)
    told = refusal(assert_same_run, one, many)
    assert re.search(r"and \d+ more$", told)
    assert len(told) < 10_000
