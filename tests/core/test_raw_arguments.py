"""A model's own text of its arguments: kept with what it requested, sent back, and never against what ran."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agent.hooks import Changes
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.conversation.messages import Message, ToolCall, bounded_spelling
from holdfast.core.loop.commands import CallTool
from holdfast.core.wire.transcript_digest import TranscriptMark, advanced
from tests.core.building import Run, hook_at
from tests.core.strategies import json_maps

PYTHONS = '{"a": 1, "b": [1, 2]}'
OURS = '{"a":1,"b":[1,2]}'
START = TranscriptMark(length=0, digest="0" * 32)


@given(arguments=json_maps, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_any_spelling_of_any_arguments_is_sent_back_as_it_came_also_after_storage(
    *, arguments: dict[str, object], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(arguments, indent=indent, ensure_ascii=ascii_only)
    call = ToolCall.parse("a", "add", text)
    assert call.sent_arguments == text
    assert ToolCall.model_validate_json(canonical(call)).sent_arguments == text


@pytest.mark.parametrize("text", [PYTHONS, '\n{"a":1,"b":[1,2]}\n', '{"a":1,"b":[1,2] }', '{"\\u0061":1,"b":[1,2]}'])
def test_another_spelling_is_kept_beside_the_arguments_and_has_the_same_digest(text: str) -> None:
    call, ours = ToolCall.parse("a", "add", text), ToolCall.parse("a", "add", OURS)
    assert (call.raw_arguments, call.arguments) == (text, ours.arguments)
    assert call.arguments_text == OURS
    assert call.digest == ours.digest
    assert call.normalized == ours


@pytest.mark.parametrize("text", ["", "{}", OURS])
def test_what_is_spelled_as_we_spell_it_adds_nothing_to_what_is_stored(text: str) -> None:
    call = ToolCall.parse("a", "add", text)
    assert call.raw_arguments is None
    assert set(json.loads(canonical(call))) == {"id", "name", "arguments", "malformed"}


@pytest.mark.parametrize("text", ['{"a": 1', "[1]", '{"a": NaN}'])
def test_of_malformed_arguments_no_text_is_kept(text: str) -> None:
    call = ToolCall.parse("a", "add", text)
    assert call.malformed is not None
    assert (call.raw_arguments, call.sent_arguments) == (None, "{}")


def test_a_text_that_names_a_field_twice_is_sent_as_it_was_understood() -> None:
    call = ToolCall.parse("a", "add", '{"a": 1, "a": 2}')
    assert (call.arguments, call.sent_arguments) == ({"a": 2}, '{"a":2}')


@pytest.mark.parametrize("changed", [{"a": 2}, {"a": True, "b": [1, 2]}, {"a": 1.0, "b": [1, 2]}, {}])
def test_a_call_whose_arguments_were_changed_shows_the_change(changed: dict[str, object]) -> None:
    call = replace(ToolCall.parse("a", "add", PYTHONS), arguments=changed)
    assert call.sent_arguments == json.dumps(changed, separators=(",", ":"))


def test_a_transcripts_digest_sees_the_spelling() -> None:
    def mark(text: str) -> TranscriptMark:
        return advanced(START, [Message(role="assistant", tool_calls=(ToolCall.parse("a", "add", text),))])

    assert mark(PYTHONS) != mark(OURS)
    assert mark(PYTHONS) == mark(PYTHONS)


def test_texts_are_kept_in_order_until_the_bound_is_met() -> None:
    large = json.dumps({"a": "x" * 12_000})
    calls = bounded_spelling([ToolCall.parse(str(number), "add", large) for number in range(4)])
    assert [each.sent_arguments == large for each in calls] == [True, False, False, False]
    assert all(each.arguments == {"a": "x" * 12_000} for each in calls)


def test_the_conversation_has_the_models_text_and_what_runs_has_none() -> None:
    run = Run().begin().answer("", ToolCall.parse("a", "add", PYTHONS))
    (command,) = run.wanted(CallTool)
    assert command.call == ToolCall(id="a", name="add", arguments={"a": 1, "b": [1, 2]})
    run.returns("a")
    state = AgentState.from_json(run.state.to_json())
    assert [each.sent_arguments for message in state.messages for each in message.tool_calls] == [PYTHONS]
    assert state.last_step_tool_executions[0].call == command.call


def test_a_hook_changes_what_runs_and_not_what_the_model_wrote() -> None:
    run = Run(hooks=[hook_at("before_tool")]).begin().answer("", ToolCall.parse("a", "add", PYTHONS))
    run.hooked(Changes(arguments={"a": 5})).returns("a")
    assert [each.sent_arguments for message in run.state.messages for each in message.tool_calls] == [PYTHONS]
    assert run.state.last_step_tool_executions[0].call.sent_arguments == '{"a":5}'


def test_a_cancelled_call_is_recorded_as_it_would_have_run() -> None:
    run = Run().begin().answer("", ToolCall.parse("a", "add", PYTHONS), ToolCall.parse("b", "add", PYTHONS))
    run.stop()
    assert [each.call.raw_arguments for each in run.state.last_step_tool_executions] == [None, None]
