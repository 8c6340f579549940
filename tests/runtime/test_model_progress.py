"""How far a model call has come: bounded, and counted once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart, BackgroundAnswer, ModelRequest
from holdfast.core.agent.usage_estimates import CUT_TOKENS_MAX, HEARTBEAT_TOKENS_MAX, HIDDEN_TOKENS_MAX
from holdfast.core.base.bounds import PAYLOAD_BYTES_MAX, PROGRESS_CHARS_MAX, REASONING_BYTES_MAX, RESPONSE_BYTES_MAX
from holdfast.core.base.usage import Usage
from holdfast.core.loop.commands import CallModel
from holdfast.core.wire.contracts import CallProgress
from holdfast.runtime.model_progress import Progress

USED = Usage(input_tokens=7, output_tokens=3)
ASKED = ModelRequest(LLM(), "", (), tools=(), max_output_tokens=None, input_max=100)
UNLIMITED = CallModel(1, None, None, 1.0, None)


def estimated(input_tokens: int, output_tokens: int) -> Usage:
    total = input_tokens + output_tokens
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens, estimated_tokens=total)


def sending(request: ModelRequest = ASKED, attempt: int = 1) -> Progress:
    progress = Progress(attempt=attempt)
    progress.begin(request)
    return progress


def test_the_parts_of_an_answer_add_up() -> None:
    progress = Progress()
    assert (progress.partial(), progress.details()) == (None, CallProgress(attempt=0))
    for part in (AnswerPart("a", "hm", model="m"), AnswerPart("b", usage=USED), AnswerPart(response_id="7")):
        progress.add(part)
    assert progress.details() == CallProgress(attempt=0, chars=2, tail="ab", usage=USED, if_lost=USED)
    partial = progress.partial()
    assert partial is not None
    assert (partial.text, partial.reasoning, partial.usage) == ("ab", "hm", USED)
    assert (partial.model, partial.response_id, partial.finish_reason) == ("m", "7", "cancelled")


@pytest.mark.parametrize("part", [AnswerPart("a"), AnswerPart("", "a"), AnswerPart(usage=USED), AnswerPart(model="m")])
def test_whatever_is_known_is_something(part: AnswerPart) -> None:
    progress = Progress()
    progress.add(part)
    assert progress.partial() is not None


def test_usage_is_counted_once_however_an_attempt_ends() -> None:
    first = Progress()
    first.add(AnswerPart("a", usage=USED))
    killed = Progress.after([first.details()])
    assert killed.failed_usage == USED
    assert first.fail(USED) == USED
    second = Progress.after([first.details().model_dump(mode="json")])
    second.add(AnswerPart("b", usage=USED))
    assert second.fail() == USED + USED
    assert Progress.after([second.details()]).failed_usage == USED + USED


def test_an_attempt_that_failed_leaves_its_usage_and_none_of_its_text() -> None:
    progress = Progress()
    progress.add(AnswerPart("a", "hm", usage=USED, model="m", response_id="7"))
    progress.fail()
    progress.begin_again()
    assert (progress.failed_usage, progress.partial()) == (USED, None)
    progress.add(AnswerPart("b"))
    assert progress.details() == CallProgress(attempt=1, chars=1, tail="b", failed_usage=USED, failures=1)


@pytest.mark.parametrize("filling", ["x", "ü", "😀", "\x00"])
def test_the_longest_answer_fits_what_carries_it(filling: str) -> None:
    progress = Progress()
    for _ in range(100):
        progress.add(AnswerPart(filling * 10_000, filling * 10_000))
    details, partial = progress.details(), progress.partial()
    assert (details.chars, len(details.tail)) == (1_000_000, PROGRESS_CHARS_MAX)
    assert partial is not None
    assert len(partial.model_dump_json().encode()) <= RESPONSE_BYTES_MAX + REASONING_BYTES_MAX + 1_000
    assert len(details.model_dump_json().encode()) <= PAYLOAD_BYTES_MAX


def test_a_cut_answer_counts_what_was_sent_and_the_bytes_that_came() -> None:
    progress = sending()
    progress.add(AnswerPart("éa", "hm", call_bytes=10))
    assert progress.fail() == estimated(100, 5 + 10 + CUT_TOKENS_MAX)


def test_what_the_endpoint_reported_is_not_replaced_and_what_came_after_it_is_added() -> None:
    progress = sending()
    progress.add(AnswerPart("words", usage=USED))
    assert progress.partial() is not None
    progress.add(AnswerPart("abc"))
    more = 3 + CUT_TOKENS_MAX
    assert progress.fail() == Usage(input_tokens=7, output_tokens=3 + more, estimated_tokens=more)


def test_an_attempt_counts_no_more_output_than_it_was_allowed() -> None:
    progress = sending(replace(ASKED, max_output_tokens=20))
    progress.add(AnswerPart("x" * 1_000))
    assert progress.fail() == estimated(100, 20)


def test_an_answer_that_comes_all_at_once_may_have_been_made_to_its_end() -> None:
    progress = sending()
    progress.add(AnswerPart(unseen=True))
    assert progress.fail() == estimated(100, HIDDEN_TOKENS_MAX)
    limited = sending(replace(ASKED, max_output_tokens=50_000))
    limited.add(AnswerPart(unseen=True))
    assert limited.fail() == estimated(100, 50_000)


@pytest.mark.parametrize("free", [True, False])
def test_nothing_counts_of_an_attempt_that_was_refused_or_did_not_reach_the_endpoint(*, free: bool) -> None:
    progress = sending()
    progress.add(AnswerPart(sent=free))
    assert progress.fail(free=free) == Usage()
    unsent = sending()
    unsent.add(AnswerPart(sent=False))
    assert unsent.partial() is None


def test_a_lost_worker_s_attempt_counts_what_its_last_heartbeat_knew_and_what_can_have_come_since() -> None:
    lost = sending()
    lost.add(AnswerPart("four"))
    assert Progress.after([lost.details()], 2).failed_usage == estimated(100, 4 + HEARTBEAT_TOKENS_MAX)


def test_an_attempt_that_was_lost_after_it_said_that_nothing_was_sent_yet_counts() -> None:
    lost = sending()
    lost.add(AnswerPart(sent=False))
    assert Progress.after([lost.details()], 2).failed_usage == estimated(100, HEARTBEAT_TOKENS_MAX)


def test_an_attempt_that_was_lost_before_its_request_was_made_may_have_made_it() -> None:
    second = Progress.after([Progress().details()], 2)
    second.count_unreported(UNLIMITED, ASKED)
    assert second.failed_usage == estimated(100, HEARTBEAT_TOKENS_MAX)


def test_lost_attempts_count_no_more_than_the_budget_had_left_for_them() -> None:
    fifth = Progress.after([], 5)
    fifth.count_unreported(CallModel(1, 200, 750, 1.0, None), ASKED)  # the third had 150 left, the fourth nothing
    assert fifth.failed_usage == estimated(3 * 100, 200 + 200 + 150)


@pytest.mark.parametrize(("room", "counted"), [(500, 0), (600, 100 + 100), (2_000, 100 + 400)])
def test_an_answer_that_goes_on_takes_its_part_of_what_lost_attempts_may_have_used(room: int, counted: int) -> None:
    begun = sending(replace(ASKED, max_output_tokens=400))
    begun.add(AnswerPart(response_id="resp_1", lives_on=True))
    assert begun.details().if_lost == estimated(100, 400)
    third = Progress.after([begun.details()], 3)
    third.count_unreported(CallModel(1, 400, room, 1.0, None), ASKED)
    assert third.failed_usage.total_tokens == counted


def test_lost_attempts_may_have_asked_anew_where_the_answer_that_went_on_turns_out_to_have_ended() -> None:
    limits = CallModel(1, 400, 500, 1.0, None)
    begun = sending(replace(ASKED, max_output_tokens=400))
    begun.add(AnswerPart(response_id="resp_1", lives_on=True))
    third = Progress.after([begun.details()], 3)
    third.count_unreported(limits, ASKED)
    assert third.failed_usage == Usage(), "the answer may take all that is left"
    fourth = Progress.after([third.details()], 4)
    fourth.count_unreported(limits, ASKED)
    fourth.begin(replace(ASKED, resume=fourth.background))
    fourth.add(AnswerPart(lives_on=False, usage=Usage(input_tokens=100, output_tokens=10)))
    fourth.lose()
    ended, asked_anew = Usage(input_tokens=100, output_tokens=10), estimated(100, 390)
    assert fourth.failed_usage == ended + asked_anew
    assert Progress.after([fourth.details()], 5).failed_usage == fourth.failed_usage


def test_an_attempt_that_went_no_further_before_anything_was_sent_counts_nothing() -> None:
    put_aside = sending()
    put_aside.add(AnswerPart(sent=False))
    put_aside.end()
    second = Progress.after([put_aside.details()], 2)
    second.count_unreported(UNLIMITED, ASKED)
    assert second.failed_usage == Usage()


def test_an_answer_that_is_resumed_was_sent_before_and_counts_however_early_it_is_given_up() -> None:
    resumed = sending(replace(ASKED, resume=BackgroundAnswer(response_id="resp_1")), 2)
    resumed.add(AnswerPart(response_id="resp_1", lives_on=True))
    resumed.add(AnswerPart(sent=False, route="large"))
    resumed.give_up(None, ended=True)
    partial = resumed.partial()
    assert partial is not None
    assert partial.usage == estimated(100, HIDDEN_TOKENS_MAX)


def test_attempts_that_were_lost_before_their_first_heartbeat_count_once_their_size_is_known() -> None:
    third = Progress.after([], 3)
    fourth = Progress.after([third.details()], 4)  # the third was lost, too, before it knew
    fourth.count_unreported(UNLIMITED, ASKED)
    assert fourth.failed_usage == estimated(3 * 100, 3 * HEARTBEAT_TOKENS_MAX)
    fourth.begin(ASKED)
    fourth.fail(free=True)
    fifth = Progress.after([fourth.details()], 5)
    fifth.count_unreported(UNLIMITED, ASKED)
    assert fifth.failed_usage == fourth.failed_usage
