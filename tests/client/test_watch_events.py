"""What a watcher makes of a model call it looks at: the text without gaps or repeats, a mark when it begins again."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from holdfast.client.watch_events import (
    AnswerSeen,
    AttemptFailed,
    RateLimitAwaited,
    TextDelta,
    ToolProgressed,
    Watched,
    from_dict,
    to_dict,
)
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import PROGRESS_CHARS_MAX, RESPONSE_BYTES_MAX
from holdfast.core.base.safe_text import clamped_json
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.contracts import CallProgress
from holdfast.core.wire.execution_events import AgentExecutionCompleted

TEXT = "".join(f"{number:04} " for number in range(4_000))


def progress(text: str, attempt: int = 1) -> CallProgress:
    """As an activity tells it that has had so much of its answer."""
    return CallProgress(attempt=attempt, chars=len(text), tail=text[-PROGRESS_CHARS_MAX:])


def seen() -> AnswerSeen:
    return AnswerSeen("run", 3)


def told(*looks: CallProgress | None, answer: str) -> list[TextDelta | AttemptFailed]:
    """What a watcher says that looks so often, then learns the answer; a look's attempt is the one under way."""
    call = seen()
    found = [each for look in looks for each in call.looked(look.attempt if look else 1, "503", look)]
    rest = (each for each in call.answered(answer) if not isinstance(each, RateLimitAwaited))
    return [*found, *rest]


def text_of(found: list[TextDelta | AttemptFailed]) -> str:
    """The text since the last retry mark."""
    text = ""
    for each in found:
        text = "" if isinstance(each, AttemptFailed) else text + each.text
    return text


def test_looks_give_each_character_once_and_the_answer_gives_the_rest() -> None:
    found = told(progress(TEXT[:10]), progress(TEXT[:10]), progress(TEXT[:2_500]), None, answer=TEXT)
    assert found == [
        TextDelta("run", 3, 1, TEXT[:10]),
        TextDelta("run", 3, 1, TEXT[10:2_500]),
        TextDelta("run", 3, 1, TEXT[2_500:]),
    ]


def test_an_answer_that_nobody_looked_at_is_one_delta_and_an_empty_one_none() -> None:
    assert told(answer=TEXT) == [TextDelta("run", 3, 1, TEXT)]
    assert told(None, progress(""), answer="") == []


def test_an_answer_that_is_cut_to_what_is_kept_of_one_is_no_failed_attempt() -> None:
    whole = "x" * (RESPONSE_BYTES_MAX + 1_000)
    (delta,) = told(progress(whole), answer=clamped_json(whole, RESPONSE_BYTES_MAX))
    assert isinstance(delta, TextDelta)
    assert delta.skipped + len(delta.text) == len(whole)


def test_what_the_tail_no_longer_holds_is_counted() -> None:
    early, late = told(progress(TEXT[:100]), progress(TEXT[:9_000]), answer=TEXT[:9_000])
    assert (early, late) == (
        TextDelta("run", 3, 1, TEXT[:100]),
        TextDelta("run", 3, 1, TEXT[9_000 - PROGRESS_CHARS_MAX : 9_000], skipped=9_000 - PROGRESS_CHARS_MAX - 100),
    )


def test_a_new_attempt_begins_the_text_again() -> None:
    first, mark, again, rest = told(progress("The ans"), progress("A", 3), answer="Another answer")
    assert (first, mark) == (TextDelta("run", 3, 1, "The ans"), AttemptFailed("run", 3, 2, "503"))
    assert (again, rest) == (TextDelta("run", 3, 3, "A"), TextDelta("run", 3, 3, "nother answer"))


def test_details_that_an_earlier_attempt_left_behind_tell_nothing() -> None:
    call = seen()
    assert list(call.looked(1, "", progress("The ans"))) == [TextDelta("run", 3, 1, "The ans")]
    assert list(call.looked(2, "503", progress("The ans", 1))) == [AttemptFailed("run", 3, 1, "503")]
    assert list(call.looked(2, "503", progress("The answer", 1))) == []
    assert list(call.answered("Yes")) == [TextDelta("run", 3, 2, "Yes")]


@pytest.mark.parametrize("answer", ["Another answer", "The", "", "The Answer"])
def test_an_answer_that_does_not_go_on_from_what_was_told_is_of_an_attempt_not_looked_at(answer: str) -> None:
    found = told(progress("The ans"), answer=answer)
    assert found[:2] == [TextDelta("run", 3, 1, "The ans"), AttemptFailed("run", 3, 1, "")]
    assert text_of(found) == answer


def test_an_answer_behind_a_gap_is_compared_with_what_was_told_after_it() -> None:
    [late, rest] = told(progress(TEXT[:9_000]), answer=TEXT)
    assert isinstance(late, TextDelta)
    assert (late.skipped, rest) == (9_000 - PROGRESS_CHARS_MAX, TextDelta("run", 3, 1, TEXT[9_000:]))
    _, mark, whole = told(progress(TEXT[:9_000]), answer=TEXT[::-1])
    assert (mark, whole) == (AttemptFailed("run", 3, 1, ""), TextDelta("run", 3, 2, TEXT[::-1]))


@pytest.mark.parametrize("seed", range(50))
def test_however_it_is_looked_at_the_text_is_whole(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # the seed is the test's name
    looks: list[CallProgress] = []
    attempts = chance.randint(1, 3)
    answer = TEXT if attempts % 2 else TEXT[::-1]
    for attempt in range(1, attempts + 1):
        places = sorted(chance.choices(range(len(TEXT)), k=chance.randint(0, 5)))
        text = TEXT if attempt % 2 else TEXT[::-1]
        looks += [progress(text[:place], attempt) for place in places]
    found = told(*looks, answer=answer)
    place = 0
    for each in found:
        if isinstance(each, AttemptFailed):
            place = 0
            continue
        place += each.skipped
        if each.attempt == attempts:
            assert answer.startswith(each.text, place)
        place += len(each.text)
    assert place == len(answer)


@pytest.mark.parametrize(
    "watched",
    [
        TextDelta("run", 1, 1, "\u2028 a\0b 🧑‍🚀", 7),
        AttemptFailed("run", 1, 2, "503"),
        ToolProgressed("run", 1, "c1", "look", 1, "page 2", 0.4),
        RateLimitAwaited("run", 1, "the rate limit of the route 'large'"),
        AgentExecutionCompleted(
            *("agent", "run", None, datetime(2026, 11, 20, tzinfo=UTC), 2),
            answer="42",
            status=ExecutionStatus.COMPLETED,
            reason=StopReason.COMPLETED,
            message="",
        ),
    ],
    ids=lambda watched: type(watched).__name__,
)
def test_what_is_told_survives_json(watched: Watched) -> None:
    data = to_dict(watched)
    assert data["kind"] == type(watched).__name__
    assert from_dict(data) == watched


def test_a_wait_is_told_once_until_it_is_over() -> None:
    seen = AnswerSeen("run", 1)
    told = [each for reason in ("", "a", "a", "b", "", "") for each in seen.waits(reason)]
    assert [(each.reason, each.over) for each in told] == [("a", False), ("a", True), ("b", False), ("b", True)]
    assert [each.line for each in told[:2]] == ["waits for a", "has waited long enough"]
    assert list(seen.waits("c"))
    assert [each for each in seen.answered("") if isinstance(each, RateLimitAwaited)] == [
        RateLimitAwaited("run", 1, "c", over=True)
    ]
