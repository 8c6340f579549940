"""What an execution leaves: the whole state comes back, and parts are shared and never sealed twice."""

from __future__ import annotations

from uuid import uuid4

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import RECORDED_TEXT_CHARS_MAX, SEGMENT_BYTES_MIN
from holdfast.core.base.errors import InvalidInput, StateInvalid
from holdfast.core.base.framing import framed
from holdfast.core.base.frozen import canonical
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import BUFFER_SECTION, pairing_problem, user_message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.events import ExecutionStarted, ModelAnswered, ToolReturned
from holdfast.core.wire.branch_points import cut, messages_before
from holdfast.core.wire.carry_over import SealedHistory, latest, message_parts, snapshot_of, whole
from holdfast.core.wire.contracts import RecordRequest
from holdfast.core.wire.execution_record import parts_needed, record_of
from holdfast.core.wire.records import Snapshot
from tests.core.building import Run, call

USAGE = Usage(input_tokens=1)


def worked(run: Run, steps: int, result: str, answer: str = "done") -> Run:
    """Take steps with a tool call each and an answer, with the loop alone."""
    asked = InferenceResponse(text="let me see", tool_calls=(call("a"),), usage=USAGE)
    for _ in range(steps):
        for event in (ModelAnswered(asked, run.tick()), ToolReturned("a", result, run.tick(), run.tick())):
            run.state, _ = run.loop.step(run.state, event)
    run.state, _ = run.loop.step(run.state, ModelAnswered(InferenceResponse(text=answer, usage=USAGE), run.tick()))
    assert run.state.status is ExecutionStatus.COMPLETED
    return run


def asked_again(run: Run, question: str) -> str:
    """Begin the next execution; return its id."""
    execution_id = str(uuid4())
    event = ExecutionStarted(execution_id, (user_message(question),), run.budget, run.tick())
    run.state, _ = run.loop.step(run.state.for_next_execution(run.tick()), event)
    return execution_id


def stored(past: SealedHistory, snapshot: Snapshot) -> list[bytes]:
    """Return the parts of a snapshot as a store gives them back."""
    found = [past.part(part.digest) for part in snapshot.parts]
    return [data for data in found if data is not None]


def arrived(past: SealedHistory, state: AgentState, agent_id: str) -> tuple[SealedHistory, AgentState, Snapshot]:
    """Return what the next execution begins with, as it comes out of the store."""
    snapshot = past.snapshot(state)
    parts = [past.part(part.digest) or b"" for part in message_parts(snapshot)]
    following = SealedHistory()
    return following, following.restored(framed((canonical(snapshot), *parts)), agent_id=agent_id), snapshot


def test_a_snapshot_comes_back_whole_with_its_steps() -> None:
    past, run = SealedHistory(), worked(Run().begin(), 60, "x" * 3_000)
    snapshot = snapshot_of(canonical(past.snapshot(run.state)))
    assert {part.series for part in snapshot.parts} == {None, "messages"}
    assert len(canonical(snapshot)) < 3 * SEGMENT_BYTES_MIN
    assert whole(snapshot, stored(past, snapshot)) == run.state


def test_a_snapshot_taken_twice_is_the_same_one() -> None:
    past, run = SealedHistory(), worked(Run().begin(), 60, "x" * 3_000)
    assert canonical(past.snapshot(run.state)) == canonical(past.snapshot(run.state))
    assert past.part("0" * 64) is None


def test_the_next_execution_begins_with_the_conversation_alone_and_seals_nothing_anew() -> None:
    past, run = SealedHistory(), worked(Run().begin(), 60, "x" * 3_000)
    agent_id = str(uuid4())
    following, state, before = arrived(past, run.state, agent_id)
    assert (state.agent_id, state.execution, state.messages) == (agent_id, None, run.state.messages)
    assert state.execution_count == run.state.execution_count
    run.state = state
    asked_again(run, "and now?")
    worked(run, 1, "y")
    after = following.snapshot(run.state)
    assert message_parts(after) == message_parts(before), "the same parts, and what is new in the tails"
    assert whole(after, stored(following, after)) == run.state


def test_a_state_that_has_never_run_anything_has_a_snapshot_too() -> None:
    state = worked(Run().begin(), 1, "x").state.for_next_execution(Run().tick())
    assert whole(SealedHistory().snapshot(state), ()) == state


@pytest.mark.parametrize("what", ["nothing", "no snapshot", "a part too few", "a part too many", "another part"])
def test_frames_that_are_not_a_snapshot_and_its_parts_are_refused(what: str) -> None:
    past, run = SealedHistory(), worked(Run().begin(), 20, "x" * 3_000)
    snapshot = past.snapshot(run.state)
    parts = [past.part(part.digest) or b"" for part in message_parts(snapshot)]
    first = canonical(snapshot)
    frames = {
        "nothing": [],
        "no snapshot": [b"{}", *parts],
        "a part too few": [first, *parts[1:]],
        "a part too many": [first, *parts, b"[]"],
        "another part": [first, *parts[1:], b"[]"],
    }[what]
    with pytest.raises(StateInvalid, match="its store was changed"):
        SealedHistory().restored(framed(frames), agent_id=run.state.agent_id)


@pytest.mark.parametrize("steps", [0, 1, 2, 17, 59, 60])
def test_after_any_step_a_branch_holds_what_had_been_said_by_then_and_shares_all_parts(steps: int) -> None:
    run = worked(Run().begin(), 10, "before" * 500)
    following, run.state, _ = arrived(SealedHistory(), run.state, run.state.agent_id)
    asked_again(run, "go on")
    before = len(run.state.messages) - 1
    lengths = [len(run.state.messages)]
    asked = InferenceResponse(tool_calls=(call("a"), call("b")), usage=USAGE)
    for _ in range(60):
        run.state, _ = run.loop.step(run.state, ModelAnswered(asked, run.tick()))
        for each in ("a", "b"):
            run.state, _ = run.loop.step(run.state, ToolReturned(each, "z" * 1_500, run.tick(), run.tick()))
        lengths.append(len(run.state.messages))
    worked(run, 0, "", "the end")
    snapshot = following.snapshot(run.state)
    branch = cut(snapshot, run.state, steps)
    state = whole(branch, stored(following, branch))
    assert state.messages == run.state.messages.before(lengths[steps])
    assert state.running.step_executions == run.state.running.step_executions.before(steps)
    assert pairing_problem(state.messages) is None
    assert (state.usage, state.status) == (Usage(input_tokens=steps), ExecutionStatus.COMPLETED)
    assert {part.digest for part in branch.parts} <= {part.digest for part in snapshot.parts}
    assert messages_before(run.state) == messages_before(state) == before
    parts = [following.part(part.digest) or b"" for part in message_parts(branch)]
    taken = SealedHistory()
    gone_on = taken.restored(framed((canonical(branch), *parts)), agent_id=run.state.agent_id)
    assert gone_on.messages == state.messages
    again = taken.snapshot(gone_on)
    assert whole(again, stored(taken, again)) == gone_on, "what was cut within a part is sealed anew"


def test_the_end_of_an_execution_is_its_own_snapshot() -> None:
    past, run = SealedHistory(), worked(Run().begin(), 3, "x")
    snapshot = past.snapshot(run.state)
    assert cut(snapshot, run.state, 4) is snapshot


def test_a_branch_before_a_step_whose_model_said_nothing_stands_where_that_stood() -> None:
    run = Run().begin()
    run.model_fails()
    snapshot = SealedHistory().snapshot(run.state)
    state = whole(cut(snapshot, run.state, 0), ())
    assert [each.role for each in state.messages] == ["user"]
    assert state.running.error is None


@pytest.mark.parametrize("steps", [-1, 5])
def test_a_step_that_there_is_not_cannot_be_gone_on_from(steps: int) -> None:
    run = worked(Run().begin(), 3, "x")
    with pytest.raises(InvalidInput, match=r"has 4 steps.*give 0 to 4"):
        cut(SealedHistory().snapshot(run.state), run.state, steps)


def test_what_was_summarised_since_cannot_be_gone_on_from() -> None:
    run = worked(Run().begin(), 3, "x")
    run.state = run.state.with_store(run.state.store.moved(5, "messages", BUFFER_SECTION), at=run.tick())
    snapshot = SealedHistory().snapshot(run.state)
    for steps in (0, 1, 2):
        with pytest.raises(InvalidInput, match=r"messages of step . were summarised since.*name a later step"):
            cut(snapshot, run.state, steps)
    assert len(whole(cut(snapshot, run.state, 3), ()).messages) == 2


def test_a_record_says_what_was_asked_and_answered_last_however_long_the_conversation() -> None:
    run = worked(Run().begin(), 100, "x" * 3_000)
    past, run.state, _ = arrived(SealedHistory(), run.state, run.state.agent_id)
    asked_again(run, "and now?")
    worked(run, 100, "y" * 3_000, "the very end " * 1_000)
    snapshot = past.snapshot(run.state)
    needed = {part.digest: past.part(part.digest) or b"" for part in parts_needed(snapshot)}
    assert len(needed) == 1 < len(snapshot.parts)
    record = record_of(RecordRequest(agent="a", task="work"), snapshot, "d" * 64, needed)
    assert record.answer.startswith("the very end")
    assert len(record.answer) <= RECORDED_TEXT_CHARS_MAX
    assert (record.step_count, record.steps_used, record.number) == (101, 101, 2)
    assert (record.usage, record.task, record.snapshot) == (run.state.usage, "work", "d" * 64)
    assert len(latest(snapshot, {}).messages) < 10


def test_a_record_of_an_execution_without_an_answer_has_none_of_an_earlier_one() -> None:
    run = worked(Run().begin(), 1, "x", "the first answer")
    asked_again(run, "and now?")
    run.model_fails()
    snapshot = SealedHistory().snapshot(run.state)
    record = record_of(RecordRequest(agent="a"), snapshot, "d" * 64, {})
    assert (record.answer, record.status) == ("", ExecutionStatus.FAILED)


def test_an_execution_under_way_has_no_record() -> None:
    run = Run().begin()
    with pytest.raises(ValueError, match="has not ended yet"):
        record_of(RecordRequest(agent="a"), SealedHistory().snapshot(run.state), "d" * 64, {})


def test_a_branch_is_without_the_models_that_only_later_steps_used() -> None:
    run = Run(llm=LLM(model="model-x")).begin().answer("", call("a")).returns("a").answer("done")
    snapshot = SealedHistory().snapshot(run.state)
    assert [whole(cut(snapshot, run.state, steps), ()).running.unpriced for steps in (0, 1)] == [(), ("model-x",)]
