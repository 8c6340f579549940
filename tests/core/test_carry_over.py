"""What a run hands on: the whole state comes back, sealed segments never change, all that is written grows linearly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

import pytest

from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import SEGMENT_BYTES_MIN
from holdfast.core.base.errors import StateInvalid
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import BUFFER_SECTION
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.events import ModelAnswered, ToolReturned
from holdfast.core.wire.carry_over import JOINED, SealedHistory
from holdfast.core.wire.contracts import CarriedRun
from holdfast.core.wire.paging import without_bulk
from holdfast.core.wire.tool_catalog import ToolCatalog
from holdfast.core.wire.transcript_digest import TranscriptPrefix
from tests.core.building import DEFINITION, START, Run, call

OPENING = TranscriptPrefix(definition=DEFINITION, tools=())


def carried(past: SealedHistory, state: AgentState) -> tuple[CarriedRun, list[bytes]]:
    """Return what `state` is handed on as, as it comes out of Temporal."""
    steps, messages = past.seal(state)
    value = CarriedRun(
        head=without_bulk(state),
        segments=tuple(each.segment for each in past.sealed),
        steps=steps,
        messages=messages,
        opening=OPENING,
        told=None,
        catalog=ToolCatalog(at=START, tools=()),
        events_total=0,
        previous_run_id="one",
    )
    return CarriedRun.model_validate_json(canonical(value)), [each.data for each in past.sealed]


def handed_on(past: SealedHistory, state: AgentState) -> tuple[SealedHistory, AgentState, CarriedRun, list[bytes]]:
    value, segments = carried(past, state)
    following = SealedHistory()
    return following, following.opened(value, segments), value, segments


def steps(run: Run, number: int, result: str) -> Iterator[Run]:
    """Take steps with the loop alone: the checks of `Run.feed` cost as much as the conversation is long."""
    asked = InferenceResponse(tool_calls=(call("a"),), usage=Usage(input_tokens=1))
    for _ in range(number):
        for event in (ModelAnswered(asked, run.tick()), ToolReturned("a", result, run.tick(), run.tick())):
            run.state, _ = run.loop.step(run.state, event)
        yield run


def test_a_short_state_is_handed_on_as_its_tail_alone() -> None:
    run = Run().begin().answer("", call("a")).returns("a", "short")
    _, state, value, segments = handed_on(SealedHistory(), run.state)
    assert state == run.state
    assert segments == []
    assert (len(value.steps), [len(each) for each in value.messages]) == (1, [0, 0, 3])


def test_whatever_is_handed_on_after_every_step_comes_back_whole() -> None:
    run, past = Run().begin(), SealedHistory()
    for each in steps(run, 60, "x" * 3_000):
        past, each.state, value, _ = handed_on(past, each.state)
        assert len(canonical(value)) < 3 * SEGMENT_BYTES_MIN, "the tail is bounded, however long the conversation"
    whole = Run().begin()
    for _ in steps(whole, 60, "x" * 3_000):
        pass
    assert run.state == whole.state
    assert run.state.step_count == 60


def test_a_sealed_segment_is_never_written_again_but_for_being_joined_once() -> None:
    run, past, written, raw = Run().begin(), SealedHistory(), dict[str, int](), 0
    for each in steps(run, 160, "y" * 8_000):
        past, each.state, _, segments = handed_on(past, each.state)
        written |= {sha256(data).hexdigest(): len(data) for data in segments}
        raw = sum(map(len, segments))
        assert len(segments) < 2 * JOINED + raw / (JOINED * SEGMENT_BYTES_MIN)
    assert past.sealed
    assert sum(written.values()) < 2 * raw + 2 * SEGMENT_BYTES_MIN


def test_what_was_moved_away_to_be_summarised_is_sealed_anew() -> None:
    run, past = Run().begin(), SealedHistory()
    for _ in steps(run, 20, "z" * 4_000):
        pass
    past, run.state, _, segments = handed_on(past, run.state)
    assert segments
    store = run.state.store.moved(13, "messages", BUFFER_SECTION)
    run.state = run.state.with_store(store, at=START)
    _, state, value, _ = handed_on(past, run.state)
    assert state == run.state
    assert {each.series for each in value.segments} >= {None, "messages", BUFFER_SECTION}


def damaged(segments: Sequence[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    yield "one too few", [*segments[:-1]]
    yield "one too many", [*segments, b"[]"]
    yield "another one's", [*segments[:-1], b"[]"]


@pytest.mark.parametrize("how", ["one too few", "one too many", "another one's"])
def test_segments_that_are_not_those_that_were_sealed_are_refused(how: str) -> None:
    run = Run().begin()
    for _ in steps(run, 20, "w" * 4_000):
        pass
    value, segments = carried(SealedHistory(), run.state)
    with pytest.raises(StateInvalid, match="segment"):
        SealedHistory().opened(value, dict(damaged(segments))[how])


def test_a_state_of_several_sections_comes_back_with_each_of_them() -> None:
    run = Run().begin()
    for _ in steps(run, 3, "v"):
        pass
    section = replace(run.state.store.section("messages"), name="notes")
    run.state = run.state.with_store(run.state.store.with_section(section, before="messages"), at=START)
    _, state, _, _ = handed_on(SealedHistory(), run.state)
    assert state == run.state
