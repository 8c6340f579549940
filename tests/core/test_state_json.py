"""A state saved and read: nothing is lost, and what is no state is refused with the place of the fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agent import state_json
from holdfast.core.agent.execution_state import ExecutionState, ExecutionStatus
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.state_json import FORMAT, PROBLEMS_READ_MAX
from holdfast.core.base.bounds import STATE_BYTES_MAX
from holdfast.core.base.errors import InvalidInput, StateInvalid
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import MESSAGE_BYTES_MAX, Message, ToolCall
from holdfast.core.conversation.steps import (
    AgentStep,
    ErrorRecord,
    InferenceResponse,
    Outcome,
    StepExecution,
    ToolExecution,
)
from tests.core.building import AGENT_ID, DEFINITION, START
from tests.core.strategies import states

ERROR_CHARS_MAX = 2_000
AT = datetime(2026, 1, 1, 12, 0, 0, 123457, tzinfo=UTC)


def mid_run() -> AgentState:
    """A state with one of everything: an archived step with an error, a step under way."""
    call = ToolCall(id="c", name="add", arguments={"a": 1})
    boom = ErrorRecord(type="Boom", message="it broke", source="add")
    ended = ToolExecution(
        id="e", call=call, outcome=Outcome.FAILED, error=boom, started_at=AT, completed_at=AT + timedelta(seconds=1)
    )
    step = AgentStep(
        id="s",
        number=1,
        input_length=1,
        inference_response=InferenceResponse(tool_calls=(call,)),
        tool_executions=(ended,),
    )
    execution = ExecutionState(execution_id=AGENT_ID, status=ExecutionStatus.IN_PROGRESS, started_at=AT)
    done = StepExecution(step=step, started_at=AT, completed_at=AT, continuation=execution.continuation)
    state = new_agent(DEFINITION, agent_id=AGENT_ID, at=START)
    state = state.changed(
        AT, execution=replace(execution, step_executions=execution.step_executions.append(done), current_step=step)
    )
    return state.with_messages(Message(role="user", content="Hello"), *step.output_messages, at=AT)


STATE = mid_run()
MESSAGES = ("context", "store", "sections", 2, "messages")


def spoilt(*path: str | int, value: Any) -> str:  # noqa: ANN401  # any JSON
    data: Any = json.loads(STATE.to_json())
    inner = data
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return json.dumps(data)


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(StateInvalid) as caught:
        work()
    message = str(caught.value)
    assert len(message) < ERROR_CHARS_MAX
    assert "\n" not in message
    return message


@given(states)
def test_nothing_is_lost(state: AgentState) -> None:
    written, data = state.to_json(), state.to_dict()
    assert (
        AgentState.from_json(written) == AgentState.from_json(written.decode()) == AgentState.from_dict(data) == state
    )
    assert AgentState.from_json(written).to_json() == written
    assert json.loads(written) == data
    assert AgentState.from_dict(json.loads(json.dumps(data))) == state


@given(states)
def test_the_session_alone_is_everything_but_the_execution(state: AgentState) -> None:
    assert AgentState.from_json(state.to_json(session_only=True)) == replace(state, execution=None)
    assert state.to_dict(session_only=True) == {**state.to_dict(), "execution": None}


def test_microseconds_errors_and_the_step_under_way_are_kept() -> None:
    again = AgentState.from_json(STATE.to_json())
    assert again.running.started_at == AT
    assert again.updated_at.microsecond == 123457
    assert [error.message for error in again.errors] == ["it broke"]
    assert again.running.current_step == STATE.running.current_step
    assert again.status is ExecutionStatus.IN_PROGRESS


def test_what_was_read_can_go_on_without_disturbing_what_was_saved() -> None:
    again = AgentState.from_json(STATE.to_json())
    longer = again.with_messages(Message(role="user", content="More"), at=AT)
    assert len(longer.messages) == len(STATE.messages) + 1
    assert again == STATE


def test_a_saved_state_of_ten_thousand_steps_fits() -> None:
    step = len(STATE.to_json()) + 2 * 2_048  # a result stands in its execution and in its message
    assert step * 10_000 < STATE_BYTES_MAX


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("agent_id",), "me", "agent_id: 'me' is not a UUID"),
        (("agent_id",), None, "agent_id: Input should be a valid string (it is None)"),
        (("created_at",), "2025-01-01T00:00:00", "created_at: Input should have timezone info"),
        (("created_at",), 1_700_000_000, "created_at: Input should be a valid datetime"),
        (("execution_count",), -1, "execution_count: Input should be greater than or equal to 0 (it is -1)"),
        (("execution_count",), "5", "execution_count: Input should be a valid integer (it is '5')"),
        (
            ("execution_count",),
            -(10**3_000),
            "execution_count: Input should be greater than or equal to 0 (it is a num",
        ),
        (("execution", "status"), "asleep", "execution.status: Input should be 'pending', 'in_progress'"),
        (("execution", "budget", "max_steps"), -1, "execution.budget.max_steps: Input should be greater than or equal"),
        (
            ("execution", "budget", "max_cost"),
            float("nan"),
            "execution.budget.max_cost: Input should be a finite number",
        ),
        (("execution", "budget"), [1, 2], "execution.budget: Input should be an object (it is a list of 2)"),
        (
            ("execution", "step_executions", 0, "step", "number"),
            {"a": 1},
            "0.step.number: Input should be a valid integer (it",
        ),
        (
            ("execution", "step_executions", 0, "step", "tool_executions", 0, "outcome"),
            "great",
            "0.outcome: Input should",
        ),
        (
            ("context", "store", "sections", 0, "name"),
            "messages",
            "context.store.sections: there are two sections called 'messages'",
        ),
        (
            ("context", "store", "sections", 2, "name"),
            "other",
            "context.store.sections: the section 'messages' is missing",
        ),
        ((*MESSAGES, 0, "role"), "robot", "context.store.sections.2.messages.0.role: Input should be 'system', 'user'"),
        (
            (*MESSAGES, 0, "content"),
            "x" * 10_000_000,
            "context.store.sections.2.messages.0.content.constrained-str: String should have at",
        ),
        ((*MESSAGES, 1), "x" * 10_000_000, "messages.1: Input should be an object (it is 'xxx"),
        (("surprise",), 1, "surprise: Extra inputs are not permitted"),
        (("two\nlines" * 1_000_000,), 1, "'two\\nlinestwo\\nlines"),
    ],
)
def test_a_bad_field_is_told_by_its_place_and_a_little_of_its_value(
    path: tuple[str | int, ...], value: object, told: str
) -> None:
    text = spoilt(*path, value=value)
    message = refusal(lambda: AgentState.from_json(text))
    assert told in message
    assert message.endswith("Restore it from an intact copy")
    if value == value:  # noqa: PLR0124  # NaN is not itself, and json.loads would read it
        assert refusal(lambda: AgentState.from_dict(json.loads(text))) == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"5",
        b"{}",
        b"\xff\xfe{}",
        STATE.to_json()[:-1],
        STATE.to_json() + b"x",
        STATE.to_json().replace(b"Hello", b"\xff"),
        STATE.to_json().replace(b"Hello", rb"\ud800"),
        STATE.to_json().decode().replace("Hello", "\ud800"),
        "[" * 1_000_000,
        '{"a":' * 1_000_000,
        '{"format":1,"context":' + "[" * 150 + "]" * 150 + "}",
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_no_json_or_no_object_is_refused(data: bytes | str) -> None:
    assert "this is not a saved agent state" in refusal(lambda: AgentState.from_json(data))


def test_nesting_that_nobody_could_read_again_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert "not JSON-ready data" in refusal(lambda: AgentState.from_dict(deep))
    endless: dict[str, Any] = {}
    endless["a"] = endless
    assert "Circular reference" in refusal(lambda: AgentState.from_dict(endless))


def test_what_json_does_not_have_is_refused() -> None:
    assert "unknown type: <class 'object'>" in refusal(
        lambda: AgentState.from_dict({**STATE.to_dict(), "llm": object()})
    )


@pytest.mark.parametrize("version", [0, 2, "1", None, [1], "x" * 10_000_000])
def test_a_foreign_version_is_told_first_with_both_versions_and_what_to_do(version: object) -> None:
    data = {"format": version, "agent": {"name": "of another shape"}}
    message = refusal(lambda: AgentState.from_dict(data))
    assert message.startswith(f"the saved state has format {str(version)[:1] if isinstance(version, int) else ''}")
    assert f"this Holdfast reads format {FORMAT}" in message
    assert "update" in message
    assert "agent_id" not in message


def test_a_state_without_a_version_is_refused() -> None:
    data = STATE.to_dict()
    del data["format"]
    assert "format: it is missing" in refusal(lambda: AgentState.from_dict(data))


def test_only_so_many_problems_are_told() -> None:
    data = STATE.to_dict() | {f"extra{number}": number for number in range(100)}
    message = refusal(lambda: AgentState.from_dict(data))
    assert message.count("Extra inputs") == 5
    assert "; and 95 more." in message
    crowd = {"format": FORMAT} | {f"extra{number}": 0 for number in range(PROBLEMS_READ_MAX)}
    assert f"more than {PROBLEMS_READ_MAX:,} fields are wrong" in refusal(lambda: AgentState.from_dict(crowd))


def test_a_long_path_is_told_by_its_ends() -> None:
    loc: tuple[int | str, ...] = tuple(range(100))
    path = list(state_json._path(loc))  # pyright: ignore[reportPrivateUsage]  # no field lies so deep yet
    assert path[:2] + path[-2:] == ["0", "1", "98", "99"]
    assert "…" in path
    assert len(path) < 20


def test_input_that_is_too_large_is_refused_before_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_json, "STATE_BYTES_MAX", 100)
    message = refusal(lambda: AgentState.from_json(b"not even JSON" * 10))
    assert "130 bytes is refused, at most 100" in message
    assert "session_only" in refusal(STATE.to_json)


def test_a_state_that_json_cannot_carry_is_not_written() -> None:
    broken = STATE.changed(AT, context=replace(STATE.context, system_prompt="\ud800"))
    assert "cannot be written" in refusal(broken.to_json)


def test_the_longest_text_comes_back() -> None:
    state = STATE.with_messages(Message(role="user", content="\x00" * MESSAGE_BYTES_MAX), at=AT)
    assert AgentState.from_json(state.to_json()) == state


def test_a_refused_state_is_invalid_input() -> None:
    assert issubclass(StateInvalid, InvalidInput)


@given(st.binary(max_size=50) | st.text(max_size=50))
def test_noise_is_refused_in_the_same_way(noise: bytes | str) -> None:
    refusal(lambda: AgentState.from_json(noise))


@given(states, st.data())
def test_a_spoilt_byte_gives_a_state_or_a_refusal_never_anything_else(state: AgentState, data: st.DataObject) -> None:
    written = bytearray(state.to_json())
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255))
    try:
        read = AgentState.from_json(bytes(written))
    except StateInvalid:
        return
    read.to_json()
