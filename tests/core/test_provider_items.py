"""What a provider wants back stays with its message, whatever happens to the conversation, and no observer sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.client.events_from_state import reconstructed
from holdfast.client.watch_events import to_dict
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.hooks import Changes
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.token_bounds import message_tokens
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message, ToolCall, pairing_problem
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.commands import CallModel
from holdfast.core.loop.events import ModelAnswered, ModelCancelled
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.branch_points import cut
from holdfast.core.wire.carry_over import SealedHistory, whole
from holdfast.core.wire.transcript_digest import TranscriptMark, advanced
from tests.core.building import COMPLETED, Run, call, handoff, hook_at
from tests.core.test_carry_over import handed_on
from tests.core.test_carrying_snapshots import stored

START = TranscriptMark(length=0, digest="0" * 32)
HELPER = AgentDefinition(name="helper", system_prompt="You help.")
BACK = ToolTraits(name="go_back", loop="go_back", required=("step", "note"))


def item(body: str) -> ProviderItem:
    return ProviderItem(route="r", api="a", model="m", body=body)


def answered(run: Run, body: str, *calls: ToolCall, text: str = "so", tokens: int = 10) -> Run:
    """Let the model answer with the item `body`."""
    response = InferenceResponse(text=text, tool_calls=calls, usage=Usage(input_tokens=tokens), items=(item(body),))
    run.feed(ModelAnswered(response, run.tick()))
    return run


def bodies(state: AgentState) -> list[str]:
    return [each.body for section in state.store.sections for message in section.messages for each in message.items]


def worked(run: Run | None = None) -> Run:
    """A run of two steps whose answers have items."""
    run = answered((run or Run(observed=True)).begin(), "sig-1", call("a")).returns("a")
    return answered(run, "sig-2")


def test_the_items_of_an_answer_stand_in_its_message_and_in_the_state() -> None:
    run = worked()
    assert run.ended == COMPLETED
    assert [[each.body for each in message.items] for message in run.state.messages] == [[], ["sig-1"], [], ["sig-2"]]
    assert AgentState.from_json(run.state.to_json()) == run.state


def test_no_event_has_them_neither_the_loops_nor_those_derived_from_a_state() -> None:
    run = worked()
    events: list[Any] = [*run.events, *reconstructed(run.state, "tester")]
    assert {"InferenceResponseReceived", "AgentStepCompleted"} <= {type(each).__name__ for each in events}
    assert not [each for each in events if "sig-" in json.dumps(to_dict(each))]


def test_a_partial_answer_has_none() -> None:
    run = Run(observed=True).begin()
    run.grace = True
    run.stop()
    partial = InferenceResponse(text="half", items=(item("sig"),))
    run.feed(ModelCancelled(partial, run.tick()))
    step = run.state.running.current_step
    assert step is not None
    assert step.partial_response == InferenceResponse(text="half", cost=0.0)


def test_they_stay_where_a_hook_gives_the_answer_another_text() -> None:
    run = answered(Run(hooks=[hook_at("after_inference")]).begin(), "sig", text="secret").hooked(Changes(answer="-"))
    (message,) = [each for each in run.state.messages if each.role == "assistant"]
    assert (message.text, [each.body for each in message.items]) == ("-", ["sig"])


def test_they_stay_where_a_hook_changes_a_call_and_where_the_loop_gives_calls_ids_of_its_own() -> None:
    run = Run(hooks=[hook_at("before_tool")]).begin()
    answered(run, "sig", call("", "add"), call("", "add"))
    for command in (*run.hooks_asked,):
        run.hooked(Changes(arguments={"a": 2}), about=command.context.call.id if command.context.call else None)
    message = run.state.running.current_step
    assert message is not None
    assert message.inference_response is not None
    assert [each.id for each in message.inference_response.tool_calls] == ["call_1_0", "call_1_1"]
    for id_ in ("call_1_0", "call_1_1"):
        run.returns(id_)
    assert bodies(run.state) == ["sig"]


def test_a_resumed_a_carried_and_a_stored_state_have_them() -> None:
    run = answered(Run().begin(), "sig-1", call("a")).returns("a")
    _, carried, _, _ = handed_on(SealedHistory(), run.state)
    past = SealedHistory()
    snapshot = past.snapshot(run.state)
    assert bodies(carried) == bodies(whole(snapshot, stored(past, snapshot))) == ["sig-1"]
    assert bodies(answered(run.resume(), "sig-2").state) == ["sig-1", "sig-2"]


def test_a_rewind_and_a_fork_keep_those_of_the_steps_that_stay() -> None:
    state, past = worked().state, SealedHistory()
    snapshot = past.snapshot(state)
    branched = cut(snapshot, state, 1)
    assert bodies(whole(branched, [past.part(part.digest) or b"" for part in branched.parts])) == ["sig-1"]


def test_a_step_back_takes_away_those_of_the_steps_left_out() -> None:
    run = answered(Run(tools=("add", BACK)).begin(), "sig-1", call("a")).returns("a")
    answered(run, "sig-2", call("b")).returns("b")
    answered(run, "sig-3", ToolCall(id="c", name="go_back", arguments={"step": 2, "note": "Try the other door."}))
    assert bodies(run.state) == ["sig-1"]
    assert pairing_problem(run.state.messages) is None


def test_a_handoff_and_the_next_execution_keep_them() -> None:
    run = answered(Run(handoffs=[HELPER]).begin(), "sig-1", handoff("a"))
    run.hands_over()
    assert bodies(run.state) == ["sig-1"]
    answered(run, "sig-2")
    run.state = run.state.for_next_execution(run.tick())
    assert bodies(answered(run.begin("And now?"), "sig-3").state) == ["sig-1", "sig-2", "sig-3"]


def test_a_summary_takes_those_of_its_messages_away_and_leaves_legal_pairs() -> None:
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=1_000, keep_messages=2))
    run = Run(context=policy).begin()
    answered(run, "sig-1", call("a")).returns("a")
    answered(run, "sig-2", call("b"), tokens=2_000).returns("b")
    assert bodies(run.state) == ["sig-1", "sig-2"], "until the summary is there the model sees the old messages"
    run.summarises()
    assert run.wanted(CallModel)
    assert bodies(run.state) == ["sig-2"]
    assert pairing_problem(run.state.messages) is None


def test_they_are_part_of_the_transcripts_digest_and_of_the_bound_on_its_tokens() -> None:
    plain, signed = (Message(role="assistant", content="so", items=items) for items in ((), (item("s" * 900),)))
    assert advanced(START, [plain]) != advanced(START, [signed])
    assert message_tokens(signed) - message_tokens(plain) >= 900
    away = ProviderItem(route="r", api="a", body="", digest="0" * 64, size=5_000)
    stored_away = Message(role="assistant", content="so", items=(away,))
    assert message_tokens(stored_away) - message_tokens(plain) == 5_000


def test_an_item_is_in_the_message_or_in_the_store_and_only_an_answer_has_any() -> None:
    with pytest.raises(ValidationError, match="leave out `body`"):
        ProviderItem(route="r", api="a", body="x", digest="0" * 64)
    with pytest.raises(ValidationError, match="only an assistant's message"):
        Message(role="user", items=(item("x"),))


def test_a_part_of_an_answer_that_is_not_kept_is_warned_of_once() -> None:
    run = Run().begin()
    for id_ in ("a", "b"):
        run.feed(ModelAnswered(InferenceResponse(tool_calls=(call(id_),), dropped=("audio", "logprobs")), run.tick()))
        run.returns(id_)
    assert run.state.warnings == (
        "the model's answer had a part that is not kept: audio",
        "the model's answer had a part that is not kept: logprobs",
    )
