"""Reading a state in pieces: any page size gives the same state, also while it grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import CALLS_PER_STEP_MAX, PAGE_BYTES_MAX, TOOL_RESULT_CHARS_MAX
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.messages import Message
from holdfast.core.loop.commands import SummariseBuffer
from holdfast.core.wire.contracts import PageRequest, StatePage
from holdfast.core.wire.paging import StateReader, fitting, page
from tests.core.building import Run, call
from tests.core.strategies import messages, states

SIZES = st.integers(min_value=1, max_value=3_000)


def read(state: AgentState, reader: StateReader, bytes_max: int) -> int:
    """Read all of `state` and return in how many pages; each goes through JSON as on its way."""
    request: PageRequest | None = reader.refreshed()
    count = 0
    while request is not None:
        arrived = StatePage.model_validate_json(canonical(page(state, request, bytes_max)))
        request = reader.take(arrived)
        count += 1
    return count


def grown(steps: int) -> Run:
    run = Run().begin("a question")
    for number in range(steps):
        run.answer(f"step {number}", call("a"), call("b")).returns("a", "x" * 50).returns("b")
    return run


@given(states, SIZES)
def test_any_page_size_gives_the_same_state_back(state: AgentState, bytes_max: int) -> None:
    reader = StateReader()
    read(state, reader, bytes_max)
    assert reader.state == state


@given(st.lists(messages, max_size=8), SIZES, st.integers(0, 3))
def test_what_fits_is_the_longest_run_from_the_first_on_and_so_many_at_least(
    items: list[Message], bytes_max: int, at_least: int
) -> None:
    taken = fitting(items, bytes_max, at_least=at_least)
    assert list(taken) == items[: len(taken)]
    assert len(taken) >= min(at_least, len(items))
    used = sum(len(canonical(item)) for item in taken)
    assert used <= bytes_max or len(taken) <= at_least
    if len(taken) < len(items):
        assert used + len(canonical(items[len(taken)])) > bytes_max


def test_a_small_state_is_one_page() -> None:
    assert read(grown(3).state, StateReader(), PAGE_BYTES_MAX) == 1


def test_tiny_pages_still_make_progress() -> None:
    state = grown(3).state
    assert read(state, StateReader(), 1) == len(state.messages)


def test_a_later_reading_brings_only_what_is_new() -> None:
    run = grown(2)
    reader = StateReader()
    read(run.state, reader, 100)
    seen = len(run.state.messages)
    run.answer("more", call("c")).returns("c")
    request = reader.refreshed()
    assert request == PageRequest(messages_from=seen, steps_from=2)
    first = page(run.state, request)
    assert [message.content for message in first.messages] == ["more", "fine"]
    read(run.state, reader, 100)
    assert reader.state == run.state


@given(st.integers(1, 4), st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_a_state_that_grows_between_the_pages_is_read_as_it_was_at_the_first(steps: int, sizes: list[int]) -> None:
    run = grown(steps)
    reader = StateReader()
    at_first = run.state
    request: PageRequest | None = reader.refreshed()
    while request is not None:
        bytes_max = sizes[0] if len(sizes) == 1 else sizes.pop()
        request = reader.take(page(run.state, request, bytes_max))
        run.answer("meanwhile", call("z")).returns("z")
    assert reader.state == at_first
    read(run.state, reader, 500)
    assert reader.state == run.state


def test_a_reading_that_broke_off_is_taken_up_again() -> None:
    run = grown(4)
    reader = StateReader()
    assert reader.take(page(run.state, reader.refreshed(), 200)) is not None
    with pytest.raises(ValueError, match="no page"):
        _ = reader.state
    run.answer("meanwhile", call("z")).returns("z")
    read(run.state, reader, 200)
    assert reader.state == run.state


def test_a_request_beyond_what_is_there_gets_what_is_there() -> None:
    state = grown(1).state
    far = page(state, PageRequest(messages_from=50, steps_from=50, messages_total=100, steps_total=100))
    assert (far.messages, far.steps) == ((), ())
    assert (far.messages_total, far.steps_total) == (len(state.messages), 1)


def test_the_head_holds_nothing_that_grows_with_the_conversation() -> None:
    small, large = (len(canonical(page(grown(steps).state, PageRequest(), 1).head)) for steps in (1, 40))
    assert large < small + 100


def test_a_step_with_many_large_results_still_fits_one_answer_of_a_query() -> None:
    run = Run().begin().answer("", *(call(f"c{number}") for number in range(CALLS_PER_STEP_MAX)))
    for id_ in list(run.called):
        run.returns(id_, "x" * TOOL_RESULT_CHARS_MAX)
    first = page(run.state, PageRequest())
    assert len(canonical(first)) <= 2 * PAGE_BYTES_MAX, "the server refuses what is larger than 2 MB"


def test_messages_that_move_to_be_summarised_are_read_again_wherever_that_happens() -> None:
    policy = {"summary": {"above_input_tokens": 1, "keep_messages": 1}}
    run = Run(context=policy).begin("a question")
    reader = StateReader()
    for number in range(4):
        if run.wanted(SummariseBuffer):
            read(run.state, reader, 300)
            assert reader.state == run.state
            assert reader.take(page(run.state, reader.refreshed(), 1)) is None
            run.summarises(f"summary {number}")
        run.answer(f"step {number}", call("a"), call("b")).returns("a", "x" * 50)
        read(run.state, reader, 300)
        assert reader.state == run.state
        half = StateReader()
        half.take(page(run.state, half.refreshed(), 1))
        run.returns("b")
        read(run.state, half, 300)
        assert half.state == run.state
    assert run.state.running.compactions == 3


def test_the_head_holds_no_message_of_any_section() -> None:
    run = Run(context={"summary": {"above_input_tokens": 1, "keep_messages": 0}}).begin("a question")
    run.answer("step", call("a")).returns("a", "x" * 5_000)
    first = page(run.state, PageRequest(), 1_000)
    assert sum(first.sections) == 3
    assert all(not section.messages for section in first.head.store.sections)
