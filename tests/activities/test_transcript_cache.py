"""The worker's memory of conversations: the digest decides what is right, the cache only saves the way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.transcript_cache import Transcript, TranscriptCache, TranscriptMismatch
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.messages import Message
from holdfast.core.wire.contracts import InferenceInput, TranscriptPage, TranscriptRequest
from holdfast.core.wire.transcript_digest import TranscriptMark, TranscriptPrefix, advanced, root, size

OPENING = TranscriptPrefix(definition=AgentDefinition(name="agent"), tools=("add",))
SAID = tuple(Message(role="user", content=f"message {number} {'x' * 40}") for number in range(12))
MESSAGE_BYTES = size(SAID[0])


def mark(length: int, said: Sequence[Message] = SAID) -> TranscriptMark:
    return advanced(root(OPENING), said[:length])


def wanted(base: int, target: int, *, delta: int | None = None, said: Sequence[Message] = SAID) -> InferenceInput:
    """Return the input of a model call; `delta` cuts what travels with it."""
    sent = said[base:target][:delta]
    opening = OPENING if base == 0 else None
    return InferenceInput(opening=opening, base=mark(base, said), delta=tuple(sent), target=mark(target, said))


class Workflow:
    """Answers pages as the workflow does, a few messages each, and counts them."""

    def __init__(self, said: Sequence[Message] = SAID, *, page_size: int = 100) -> None:
        self.said = said
        self.page_size = page_size
        self.asked: list[TranscriptRequest] = []

    async def __call__(self, request: TranscriptRequest) -> TranscriptPage:
        self.asked.append(request)
        stop = min(request.stop, request.start + self.page_size)
        return TranscriptPage(opening=OPENING, start=request.start, messages=tuple(self.said[request.start : stop]))


async def ask(cache: TranscriptCache, request: InferenceInput, workflow: Workflow, execution: str = "run") -> list[str]:
    found = await cache.transcript(execution, request, workflow)
    assert found.marks[-1] == request.target
    assert found.opening == OPENING
    return [message.text for message in found.messages]


def contents(length: int) -> list[str]:
    return [message.text for message in SAID[:length]]


async def test_the_first_call_brings_everything_itself() -> None:
    workflow = Workflow()
    assert await ask(TranscriptCache(), wanted(0, 2), workflow) == contents(2)
    assert workflow.asked == []


async def test_a_later_call_brings_only_what_is_new() -> None:
    cache, workflow = TranscriptCache(), Workflow()
    await ask(cache, wanted(0, 2), workflow)
    assert await ask(cache, wanted(2, 5), workflow) == contents(5)
    assert await ask(cache, wanted(5, 6), workflow) == contents(6)
    assert workflow.asked == []


async def test_a_worker_that_never_saw_the_run_reads_it_back() -> None:
    workflow = Workflow()
    assert await ask(TranscriptCache(), wanted(5, 7), workflow) == contents(7)
    assert workflow.asked == [TranscriptRequest(start=0, stop=7)]


async def test_what_was_read_back_is_kept() -> None:
    cache, workflow = TranscriptCache(), Workflow()
    await ask(cache, wanted(5, 7), workflow)
    await ask(cache, wanted(7, 9), workflow)
    assert len(workflow.asked) == 1


async def test_a_long_transcript_is_read_back_page_by_page() -> None:
    workflow = Workflow(page_size=3)
    assert await ask(TranscriptCache(), wanted(5, 8), workflow) == contents(8)
    assert [request.start for request in workflow.asked] == [0, 3, 6]
    assert {request.stop for request in workflow.asked} == {8}


async def test_a_delta_that_was_cut_is_completed_from_the_workflow() -> None:
    cache, workflow = TranscriptCache(), Workflow()
    await ask(cache, wanted(0, 2), workflow)
    assert await ask(cache, wanted(2, 9, delta=3), workflow) == contents(9)
    assert workflow.asked == [TranscriptRequest(start=5, stop=9)]


async def test_a_first_delta_that_was_cut_is_completed_too() -> None:
    workflow = Workflow(page_size=2)
    assert await ask(TranscriptCache(), wanted(0, 4, delta=1), workflow) == contents(4)
    assert [request.start for request in workflow.asked] == [1, 3]


async def test_a_retry_of_the_same_call_needs_no_reading() -> None:
    cache, workflow = TranscriptCache(), Workflow()
    await ask(cache, wanted(0, 2), workflow)
    for _ in range(3):
        assert await ask(cache, wanted(2, 5), workflow) == contents(5)
    assert workflow.asked == []


async def test_a_retry_of_an_older_base_is_answered_from_what_is_kept() -> None:
    cache, workflow = TranscriptCache(), Workflow()
    for base, target in ((0, 2), (2, 5), (5, 9)):
        await ask(cache, wanted(base, target), workflow)
    assert await ask(cache, wanted(2, 5), workflow) == contents(5)
    assert await ask(cache, wanted(5, 9), workflow) == contents(9)
    assert workflow.asked == []


async def test_a_run_that_was_reset_to_another_past_is_read_anew() -> None:
    other = (*SAID[:3], Message(role="user", content="said differently"), *SAID[4:])
    cache = TranscriptCache()
    await ask(cache, wanted(0, 6), Workflow())
    workflow = Workflow(other)
    found = await ask(cache, wanted(6, 8, said=other), workflow)
    assert found == [message.text for message in other[:8]]
    assert workflow.asked == [TranscriptRequest(start=0, stop=8)]


async def test_a_wrong_delta_is_refetched_and_never_believed() -> None:
    cache, workflow = TranscriptCache(), Workflow()
    await ask(cache, wanted(0, 2), workflow)
    forged = wanted(2, 4).model_copy(update={"delta": (Message(role="user", content="forged"), SAID[3])})
    assert await ask(cache, forged, workflow) == contents(4)
    assert len(workflow.asked) == 1


async def test_a_wrong_continuation_is_read_once_more_from_the_beginning() -> None:
    cache, workflow = TranscriptCache(), Workflow()
    await ask(cache, wanted(0, 2), workflow)
    forged = wanted(2, 6).model_copy(update={"delta": (Message(role="user", content="forged"),)})
    assert await ask(cache, forged, workflow) == contents(6)
    assert [request.start for request in workflow.asked] == [3, 0]


async def test_a_workflow_that_contradicts_itself_is_an_error() -> None:
    other = Workflow([Message(role="user", content="else")] * 12)
    with pytest.raises(TranscriptMismatch, match="digest"):
        await ask(TranscriptCache(), wanted(5, 7), other)


async def test_a_workflow_whose_transcript_ends_early_is_an_error_and_no_endless_reading() -> None:
    with pytest.raises(TranscriptMismatch, match="ends at 4 of 7"):
        await ask(TranscriptCache(), wanted(5, 7), Workflow(SAID[:4]))


async def test_a_failed_reading_leaves_the_cache_as_it_was() -> None:
    cache, workflow = TranscriptCache(), Workflow()
    await ask(cache, wanted(0, 2), workflow)
    with pytest.raises(TranscriptMismatch):
        await ask(cache, wanted(5, 7), Workflow(SAID[:1]))
    assert await ask(cache, wanted(2, 3), workflow) == contents(3)
    assert workflow.asked == []


async def test_runs_do_not_see_each_others_conversations() -> None:
    cache, workflow = TranscriptCache(), Workflow()
    await ask(cache, wanted(0, 5), workflow, "one")
    await ask(cache, wanted(5, 6), workflow, "other")
    assert len(workflow.asked) == 1


def held(messages: int) -> int:
    """Return what a conversation of so many messages counts."""
    return Transcript.of(OPENING).extended(SAID[:messages]).bytes


async def test_the_least_recently_used_run_is_dropped_when_the_bytes_run_out() -> None:
    cache, workflow = TranscriptCache(bytes_max=held(3) + held(4)), Workflow()
    await ask(cache, wanted(0, 3), workflow, "one")
    await ask(cache, wanted(0, 3), workflow, "two")
    await ask(cache, wanted(0, 3), workflow, "one")
    await ask(cache, wanted(0, 3), workflow, "three")
    await ask(cache, wanted(3, 4), workflow, "one")
    assert workflow.asked == []
    await ask(cache, wanted(3, 4), workflow, "two")
    assert len(workflow.asked) == 1


async def test_a_conversation_larger_than_the_cache_is_answered_and_not_kept() -> None:
    cache, workflow = TranscriptCache(bytes_max=MESSAGE_BYTES), Workflow()
    assert await ask(cache, wanted(0, 5), workflow) == contents(5)
    assert await ask(cache, wanted(5, 6), workflow) == contents(6)
    assert len(workflow.asked) == 1


async def test_a_call_that_is_retried_does_not_count_its_bytes_again() -> None:
    cache, workflow = TranscriptCache(bytes_max=held(3) + held(4)), Workflow()
    await ask(cache, wanted(0, 2), workflow, "other")
    await ask(cache, wanted(0, 2), workflow, "retried")
    for _ in range(20):
        await ask(cache, wanted(2, 4), workflow, "retried")
    await ask(cache, wanted(2, 3), workflow, "other")
    assert workflow.asked == [], "seven messages fit; six are kept"


def test_a_transcript_counts_the_bytes_of_what_it_holds() -> None:
    empty, whole = Transcript.of(OPENING), Transcript.of(OPENING).extended(SAID)
    assert empty.bytes >= len(canonical(OPENING))
    assert whole.bytes >= empty.bytes + sum(size(message) for message in SAID)
    older = whole.until(mark(5))
    assert older is not None
    assert older.bytes == held(5)


def test_a_transcript_knows_every_place_it_ever_stood_at_and_no_other() -> None:
    whole = Transcript.of(OPENING).extended(SAID[:6])
    assert whole.until(mark(6)) == whole
    assert whole.until(mark(0)) is not None
    assert whole.until(mark(7)) is None
    assert whole.until(TranscriptMark(length=3, digest="0" * 32)) is None


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=12),
    st.integers(1, 2_000),
    st.integers(1, 4),
)
async def test_whatever_was_asked_before_the_answer_is_the_conversation_at_the_target(
    asked: list[tuple[int, int, int]], bytes_max: int, page_size: int
) -> None:
    cache, workflow = TranscriptCache(bytes_max=bytes_max), Workflow(page_size=page_size)
    for base, more, delta in asked:
        target = min(len(SAID), base + more)
        assert await ask(cache, wanted(base, target, delta=delta), workflow) == contents(target)
