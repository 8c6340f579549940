"""How far a model call has come: bounded, and counted once."""

from __future__ import annotations

import pytest

from holdfast.core.contracts import CallProgress
from holdfast.core.inference import AnswerPart
from holdfast.core.limits import PAYLOAD_BYTES_MAX, PROGRESS_CHARS_MAX, REASONING_BYTES_MAX, RESPONSE_BYTES_MAX
from holdfast.core.usage import Usage
from holdfast.local.progress import Progress

USED = Usage(input_tokens=7, output_tokens=3)


def test_the_parts_of_an_answer_add_up() -> None:
    progress = Progress()
    assert (progress.partial(), progress.details()) == (None, CallProgress())
    for part in (AnswerPart("a", "hm", model="m"), AnswerPart("b", usage=USED), AnswerPart(response_id="7")):
        progress.hear(part)
    assert progress.details() == CallProgress(chars=2, tail="ab", usage=USED)
    partial = progress.partial()
    assert partial is not None
    assert (partial.text, partial.reasoning, partial.usage) == ("ab", "hm", USED)
    assert (partial.model, partial.response_id, partial.finish_reason) == ("m", "7", "cancelled")


@pytest.mark.parametrize("part", [AnswerPart("a"), AnswerPart("", "a"), AnswerPart(usage=USED), AnswerPart(model="m")])
def test_whatever_is_known_is_something(part: AnswerPart) -> None:
    progress = Progress()
    progress.hear(part)
    assert progress.partial() is not None


def test_usage_is_counted_once_however_an_attempt_ends() -> None:
    first = Progress()
    first.hear(AnswerPart("a", usage=USED))
    killed = Progress.after([first.details()])
    assert killed.failed_usage == USED
    assert first.fail(USED) == USED
    second = Progress.after([first.details().model_dump(mode="json")])
    second.hear(AnswerPart("b", usage=USED))
    assert second.fail() == USED + USED
    assert Progress.after([second.details()]).failed_usage == USED + USED


def test_an_attempt_that_failed_leaves_its_usage_and_none_of_its_text() -> None:
    progress = Progress()
    progress.hear(AnswerPart("a", "hm", usage=USED, model="m", response_id="7"))
    progress.fail()
    progress.begin_again()
    assert (progress.failed_usage, progress.partial()) == (USED, None)
    progress.hear(AnswerPart("b"))
    assert progress.details() == CallProgress(attempt=2, chars=1, tail="b", failed_usage=USED)


@pytest.mark.parametrize("filling", ["x", "ü", "😀", "\x00"])
def test_the_longest_answer_fits_what_carries_it(filling: str) -> None:
    progress = Progress()
    for _ in range(100):
        progress.hear(AnswerPart(filling * 10_000, filling * 10_000))
    details, partial = progress.details(), progress.partial()
    assert (details.chars, len(details.tail)) == (1_000_000, PROGRESS_CHARS_MAX)
    assert partial is not None
    assert len(partial.model_dump_json().encode()) <= RESPONSE_BYTES_MAX + REASONING_BYTES_MAX + 1_000
    assert len(details.model_dump_json().encode()) <= PAYLOAD_BYTES_MAX
