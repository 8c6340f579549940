"""Questions of the agent itself: what it may ask, how it waits, what the model is told."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue

from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.input_requests import InputAction, InputAnswer
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.loop.commands import CallTool, RequestInput
from holdfast.core.loop.events import InputAnswered, InputExpired
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.execution_events import InputRequested, InputResolved
from tests.core.building import COMPLETED, Run, moment

ASKS = ToolTraits(name="ask_user", loop="ask_user", required=("question",))


def asking(**arguments: JsonValue) -> ToolCall:
    return ToolCall(id="a", name="ask_user", arguments={"question": "Which one?", **arguments})


def asked(*, answer_seconds: float = 100, observed: bool = False, **arguments: JsonValue) -> Run:
    run = Run(tools=(ASKS,), answer_seconds=answer_seconds, observed=observed)
    return run.begin().answer("", asking(**arguments))


def replies(run: Run, action: InputAction = "accept", **values: JsonValue) -> Run:
    content = values if action == "accept" else None
    run.feed(InputAnswered("a", InputAnswer(action=action, content=content, by="ann"), run.tick()))
    return run


def test_a_question_waits_like_a_servers_form_and_calls_no_tool() -> None:
    run = asked(observed=True)
    [waiting] = run.state.input_calls
    [command] = run.wanted(RequestInput)
    assert (command.call, command.expires_at) == (asking(), moment(102))
    assert waiting.input_request is not None
    assert [(each.name, each.kind, each.required) for each in waiting.input_request.fields] == [
        ("answer", "text", True)
    ]
    [event] = [each for each in run.events if isinstance(each, InputRequested)]
    assert (event.server, event.request.message) == ("", "Which one?")
    replies(run, answer="the red one")
    assert run.wanted(CallTool) == ()
    assert run.answers == {"a": "the red one"}
    [execution] = run.state.last_step_tool_executions
    assert [(each.action, each.by) for each in execution.inputs] == [("accept", "ann")]
    assert [each.action for each in run.events if isinstance(each, InputResolved)] == ["accept"]
    assert run.answer("done").ended == COMPLETED


def test_choices_and_fields_bind_the_answer() -> None:
    run = asked(choices=["red", "blue"])
    replies(run, answer="green")
    assert run.state.input_calls, "an answer that is no choice changes nothing"
    assert replies(run, answer="blue").answers == {"a": "blue"}
    fields: list[JsonValue] = [{"name": "seats", "kind": "integer"}, {"name": "row", "required": False}]
    assert replies(asked(fields=fields), seats=2).answers == {"a": '{"seats":2}'}


@pytest.mark.parametrize(("action", "words"), [("decline", "declined to answer"), ("cancel", "without an answer")])
def test_the_model_is_told_of_a_refusal(action: InputAction, words: str) -> None:
    assert words in replies(asked(), action).answers["a"]


def test_nobody_in_time_is_told_and_the_run_goes_on() -> None:
    run = asked()
    run.feed(InputExpired("a", run.tick(100)))
    assert run.answers["a"] == "Error (InputExpired): you asked a person 'Which one?', and nobody answered in time"
    assert run.answer("done").ended == COMPLETED


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"question": " "}, "question"),
        ({"choices": ["a"], "fields": [{"name": "b"}]}, "`choices` or `fields`, not both"),
        ({"fields": [{"name": "b"}, {"name": "b"}]}, "two fields have one name"),
        ({"fields": [{"name": "b", "kind": "choice"}]}, "`choices` belong to"),
        ({"fields": [{"name": f"f{at}", "kind": "choice", "choices": ["x" * 200] * 50} for at in range(9)]}, "32,768"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(arguments: dict[str, Any], problem: str) -> None:
    run = asked(**arguments)
    assert run.wanted(RequestInput) == ()
    assert problem in run.answers["a"]


def test_a_resumed_state_asks_again() -> None:
    run = asked()
    state = AgentState.from_json(run.state.to_json())
    assert state == run.state
    run.resume()
    assert len(run.wanted(RequestInput)) == 1
    assert replies(run, answer="yes").answers == {"a": "yes"}


def test_a_stop_ends_the_wait() -> None:
    run = asked().stop()
    assert run.state.input_calls == ()
    assert run.ended is not None
