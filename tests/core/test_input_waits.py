"""Calls whose server asks a person for something: every answer, none in time, several rounds, stops meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.input_requests import (
    INPUT_CONTENT_BYTES_MAX,
    INPUT_ROUNDS_MAX,
    InputAction,
    InputAnswer,
    InputRequest,
    InputResponse,
)
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallTool, CancelInFlight, RequestInput
from holdfast.core.loop.events import InputAnswered, InputExpired, InputNeeded
from holdfast.core.loop.input_waits import problem_with_answer
from holdfast.core.wire.execution_events import InputRequested, InputResolved
from tests.core.building import COMPLETED, Run, call, moment, stopped

FORM: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"seats": {"type": "integer", "minimum": 1}, "row": {"type": "string"}},
    "required": ["seats"],
}
SEATS = InputRequest(key="seats", message="How many?", form=FORM)
LINK = InputRequest(key="page", message="Allow it", url="https://example.com/consent")


def needs(run: Run, *requests: InputRequest, call_id: str = "a", seconds_max: float = 100) -> Run:
    at = run.tick()
    run.feed(InputNeeded(call_id, "theatre", requests, seconds_max, started_at=at, at=at))
    return run


def asking(*requests: InputRequest, budget: ExecutionBudget | None = None, **options: Any) -> Run:  # noqa: ANN401  # Run's
    return needs(Run(budget, **options).begin().answer("", call("a")), *(requests or (SEATS,)))


def replies(
    run: Run, action: InputAction = "accept", *, digest: str | None = None, after: float = 1, **values: JsonValue
) -> Run:
    content = values if action == "accept" else None
    run.feed(InputAnswered("a", InputAnswer(action=action, content=content, by="ann", digest=digest), run.tick(after)))
    return run


def warnings(run: Run) -> tuple[str, ...]:
    return tuple(each for each in run.state.running.warnings if each.startswith("an answer"))


def test_a_call_whose_server_asks_waits_until_it_expires() -> None:
    run = asking(observed=True)
    [waiting] = run.state.input_calls
    assert run.wanted(RequestInput) == (RequestInput(1, 0, call("a"), expires_at=moment(103)),)
    assert (waiting.input_request, waiting.expires_at) == (SEATS, moment(103))
    assert run.state.waiting_calls == (), "no decision is wanted"
    [event] = [each for each in run.events if isinstance(each, InputRequested)]
    assert (event.server, event.request, event.round, event.digest) == ("theatre", SEATS, 1, waiting.digest)


def test_the_call_goes_on_with_the_answer_and_the_values_leave_the_state() -> None:
    run = replies(asking(observed=True), seats=2)
    response = InputResponse(action="accept", content={"seats": 2})
    assert run.wanted(CallTool) == (CallTool(1, 0, call("a"), round=1, responses={"seats": response}),)
    assert b'"seats":2' not in run.state.to_json()
    assert b'"seats":2' in replies(asking(SEATS, LINK), seats=2).state.to_json(), "that is how it would be written"
    run.returns("a", "booked")
    [execution] = run.state.last_step_tool_executions
    [record] = execution.inputs
    assert (record.server, record.message, record.action, record.by) == ("theatre", "How many?", "accept", "ann")
    assert execution.started_at == moment(2), "the wait counts as a part of the call"
    [event] = [each for each in run.events if isinstance(each, InputResolved)]
    assert (event.by, event.action, event.digest) == ("ann", "accept", record.digest)
    assert run.answer("done").ended == COMPLETED


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_refusal_goes_to_the_server_which_answers_the_call(action: InputAction) -> None:
    run = replies(asking(), action)
    [command] = run.wanted(CallTool)
    assert command.responses == {"seats": InputResponse(action=action)}
    assert run.returns("a", "nothing booked").answers == {"a": "nothing booked"}


def test_a_link_is_answered_without_values() -> None:
    run = replies(asking(LINK), seats=2)
    assert run.state.input_calls
    [command] = replies(run).wanted(CallTool)
    assert command.responses == {"page": InputResponse(action="accept")}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "seats: it is required"),
        ({"seats": 0}, "seats: 0 is less than 1"),
        ({"seats": "two"}, "seats: 'two' does not fit (integer)"),
        ({"seat": 2}, "the form has no field 'seat'; did you mean 'seats'?"),
    ],
)
def test_an_answer_that_does_not_fit_the_form_changes_nothing_but_a_warning(
    values: dict[str, Any], problem: str
) -> None:
    run = replies(asking(), **values)
    assert run.commands == ()
    assert run.state.input_calls
    [warning] = warnings(run)
    assert problem in warning


def test_an_answer_to_another_request_is_not_taken() -> None:
    run = replies(asking(), digest="0" * 64, seats=2)
    assert run.state.input_calls
    assert "another request" in warnings(run)[0]
    assert replies(run, digest=run.state.input_calls[0].digest, seats=2).called == ["a"]


def test_the_second_answer_changes_nothing() -> None:
    run = replies(asking(), seats=2)
    before = run.state
    assert replies(run, seats=3).commands == ()
    assert run.state == before


def test_several_requests_are_answered_one_by_one_before_the_call_goes_on() -> None:
    run = replies(asking(SEATS, LINK), seats=2)
    assert run.wanted(CallTool) == ()
    assert run.state.input_calls[0].input_request == LINK
    [command] = replies(run, "decline").wanted(CallTool)
    assert command.responses == {
        "seats": InputResponse(action="accept", content={"seats": 2}),
        "page": InputResponse(action="decline"),
    }
    assert [each.action for each in run.state.running.open_calls[0].inputs] == ["accept", "decline"]


def test_nobody_in_time_ends_the_call_and_the_model_is_told_what_was_asked() -> None:
    run = asking(observed=True)
    run.feed(InputExpired("a", run.tick(100)))
    assert "the server 'theatre' asked a person 'How many?', and nobody answered in time" in run.answers["a"]
    [execution] = run.state.last_step_tool_executions
    assert execution.error is not None
    assert execution.error.type == "InputExpired"
    assert [each.action for each in execution.inputs] == ["expired"]
    assert run.model_call.step_number == 2


def test_an_answer_behind_the_expiry_comes_too_late() -> None:
    run = replies(asking(), after=200, seats=2)
    assert run.outcomes == [("a", "failed")]


def test_a_server_may_ask_in_several_rounds_and_only_so_often() -> None:
    run = asking()
    for round_number in range(2, INPUT_ROUNDS_MAX + 1):
        needs(replies(run, seats=1), SEATS)
        assert run.state.input_calls[0].pending_input is not None
        assert run.state.input_calls[0].pending_input.round == round_number
    needs(replies(run, seats=1), SEATS)
    assert "more than 10 times" in run.answers["a"]


def test_a_server_that_asks_for_nothing_is_called_again_at_once() -> None:
    run = needs(Run().begin().answer("", call("a")))
    assert run.wanted(CallTool) == (CallTool(1, 0, call("a"), round=1),)
    for _ in range(INPUT_ROUNDS_MAX):
        needs(run)
    assert "more than 10 times" in run.answers["a"]


def test_a_stop_ends_the_wait() -> None:
    run = asking().stop()
    assert CancelInFlight() in run.commands
    assert run.outcomes == [("a", "cancelled")]
    assert run.ended == stopped(StopReason.USER_REQUESTED)
    state = run.state
    assert replies(run, seats=2).state == state


def test_the_time_limit_ends_the_wait() -> None:
    run = asking(budget=ExecutionBudget(max_seconds=30)).timer(40)
    assert run.ended == stopped(StopReason.TIME_LIMIT)


def test_waiting_does_not_count_where_it_is_not_to() -> None:
    run = replies(asking(budget=ExecutionBudget(max_seconds=30), pause_while_waiting=True), after=90, seats=2)
    assert run.called == ["a"]
    assert run.state.running.paused_seconds == 90


def test_a_state_that_is_resumed_makes_the_call_from_its_start() -> None:
    run = asking().resume()
    assert run.wanted(CallTool) == (CallTool(1, 0, call("a")),)
    assert needs(run, SEATS).state.input_calls[0].input_request == SEATS


def test_a_state_that_waits_comes_back_from_json() -> None:
    state = asking(SEATS, LINK).state
    assert AgentState.from_json(state.to_json()) == state


@pytest.mark.parametrize(
    ("call_id", "answer", "at", "problem"),
    [
        ("b", InputAnswer(content={"seats": 1}), 4, "the call 'b' waits for no answer"),
        ("a", InputAnswer(content={"seats": 1}), 200, "could be answered until"),
        ("a", InputAnswer(content={"seats": 0}), 4, "0 is less than 1"),
        ("a", InputAnswer(action="decline", digest="0" * 64), 4, "look at the call again"),
        ("a", InputAnswer(content={"seats": 1}), 4, None),
        ("a", InputAnswer(action="decline"), 4, None),
    ],
)
def test_a_sender_is_told_why_an_answer_would_change_nothing(
    call_id: str, answer: InputAnswer, at: float, problem: str | None
) -> None:
    found = problem_with_answer(call_id, answer, asking().state, moment(at))
    assert found is None if problem is None else problem in (found or "")


def test_an_answer_is_bounded_and_only_an_accepted_one_has_values() -> None:
    with pytest.raises(ValueError, match="bytes of JSON"):
        InputAnswer(content={"seats": "x" * INPUT_CONTENT_BYTES_MAX})
    with pytest.raises(ValueError, match="takes no values"):
        InputAnswer(action="decline", content={"seats": 1})
