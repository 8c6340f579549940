"""Stop reasons, signals and the stop table (docs/spec.md, section 4)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from pydantic import ValidationError

from holdfast.core.base.bounds import REASON_CHARS_MAX
from holdfast.core.conversation.stop_reasons import Continuation, StopReason, StopSignal
from tests.core.building import START, moment, signal
from tests.core.strategies import continuations

TABLE = [
    (0, "error", True),
    (1, "stop_requested", True),
    (2, "steps_limit", True),
    (3, "token_limit", True),
    (3, "cost_limit", True),  # ours, of the token limit's rank (docs/spec.md, section 4)
    (4, "time_limit", True),
    (5, "retry_limit", True),
    (6, "finish_reason", False),
    (7, "user_requested", True),
    (8, "completed", False),
    (9, "unknown", True),
]


@pytest.mark.parametrize(("rank", "value", "forced"), TABLE)
def test_a_reason_has_the_rank_and_force_of_the_specification(rank: int, value: str, *, forced: bool) -> None:
    reason = StopReason(value)
    assert (reason.rank, reason.forced, str(reason)) == (rank, forced, value)


def test_the_specification_names_every_reason() -> None:
    assert [reason.value for reason in StopReason] == [value for _, value, _ in TABLE]


@pytest.mark.parametrize(("one", "other"), list(product(StopReason, StopReason)))
def test_of_two_signals_the_more_authoritative_decides_and_of_equals_the_earlier(
    one: StopReason, other: StopReason
) -> None:
    first, second = signal(one, "first", seconds=1), signal(other, "second", seconds=2)
    both = Continuation().with_signal(first).with_signal(second)
    assert both.highest is (second if other.rank < one.rank else first)
    assert both.stop_signals == (first, second)


def test_of_equal_signals_the_one_that_came_first_decides_whatever_its_clock_says() -> None:
    both = Continuation().with_signal(signal(StopReason.UNKNOWN, "came first", seconds=9))
    both = both.with_signal(signal(StopReason.UNKNOWN, "came later", seconds=1))
    assert both.highest is not None
    assert both.highest.message == "came first"


def test_without_signals_nothing_is_the_highest() -> None:
    assert Continuation().highest is None


@pytest.mark.parametrize(
    ("signals", "requested", "tools", "stops"),
    [
        (True, False, False, True),
        (True, False, True, True),
        (True, True, False, False),
        (True, True, True, False),
        (False, True, False, False),
        (False, True, True, False),
        (False, False, True, False),
        (False, False, False, True),
    ],
)
def test_the_stop_table(*, signals: bool, requested: bool, tools: bool, stops: bool) -> None:
    there = (signal(StopReason.STOP_REQUESTED),) if signals else ()
    continuation = Continuation(stop_signals=there, continuation_requested=requested)
    assert continuation.should_stop(more_to_do=tools) is stops


def test_a_signal_more_leaves_the_old_continuation_alone() -> None:
    old = Continuation()
    old.with_signal(signal(StopReason.UNKNOWN))
    assert old.stop_signals == ()


def test_a_continuation_is_told_in_one_line() -> None:
    none = Continuation()
    assert none.describe() == "no stop signal"
    assert Continuation(continuation_requested=True).describe() == "continuation requested"
    two = none.with_signal(signal(StopReason.STEPS_LIMIT, "max_steps 3 reached"))
    two = two.with_signal(signal(StopReason.USER_REQUESTED))
    assert two.describe() == "steps_limit: max_steps 3 reached; user_requested"
    overridden = two.model_copy(update={"continuation_requested": True})
    assert overridden.describe().endswith("(continuation requested)")


def test_a_signal_keeps_its_context_and_refuses_an_overlong_message() -> None:
    kept = StopSignal(reason=StopReason.UNKNOWN, at=START, context={"a": [1, None]})
    assert StopSignal.model_validate_json(kept.model_dump_json()) == kept
    with pytest.raises(ValidationError, match="message"):
        StopSignal(reason=StopReason.UNKNOWN, at=moment(0), message="x" * (REASON_CHARS_MAX + 1))


@given(continuations)
def test_a_continuation_survives_json(continuation: Continuation) -> None:
    assert Continuation.model_validate_json(continuation.model_dump_json()) == continuation


def test_a_signal_says_why_what_who_and_when() -> None:
    assert set(StopSignal.model_fields) == {"reason", "message", "context", "source", "at"}


def test_a_request_to_go_on_ends_with_its_step_and_the_signals_stay() -> None:
    there = (signal(StopReason.STEPS_LIMIT), signal(StopReason.UNKNOWN))
    after = Continuation(stop_signals=there, continuation_requested=True).after_step()
    assert (after.stop_signals, after.continuation_requested) == (there, False)
