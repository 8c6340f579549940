"""Every stop reason by its natural cause, and every pair of signals in one run (docs/spec.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes
from holdfast.core.agent.policies import JsonObjectFormat
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.stop_reasons import StopReason
from tests.core.building import Run, call, hook_at

TABLE = {
    "error": (0, ExecutionStatus.FAILED),
    "stop_requested": (1, ExecutionStatus.STOPPED),
    "steps_limit": (2, ExecutionStatus.STOPPED),
    "token_limit": (3, ExecutionStatus.STOPPED),
    "cost_limit": (3, ExecutionStatus.STOPPED),
    "time_limit": (4, ExecutionStatus.STOPPED),
    "retry_limit": (5, ExecutionStatus.STOPPED),
    "finish_reason": (6, ExecutionStatus.COMPLETED),
    "user_requested": (7, ExecutionStatus.STOPPED),
    "completed": (8, ExecutionStatus.COMPLETED),
    "unknown": (9, ExecutionStatus.STOPPED),
}
"""The table of stop reasons (docs/spec.md, section 4) a second time: rank, and the status where it is the highest."""


def _odd_word() -> Run:
    return Run(hooks=[hook_at("after_step")]).begin().answer("x").hooked(Changes(stop="so", stop_reason="because"))


CAUSES: dict[str, Callable[[], Run]] = {
    "error": lambda: Run().begin().model_fails(),
    "stop_requested": lambda: Run().begin().answer("", call("a")).returns("a", stop="that is all"),
    "steps_limit": lambda: Run(ExecutionBudget(max_steps=1)).begin().answer("", call("a")).returns("a"),
    "token_limit": lambda: Run(ExecutionBudget(max_tokens=120)).begin().answer("", call("a")),
    "cost_limit": lambda: (
        Run(ExecutionBudget(max_cost=0.0001), llm=LLM(prices=Prices(input_usd=1, output_usd=1)))
        .begin()
        .answer("", call("a"))
    ),
    "time_limit": lambda: Run(ExecutionBudget(max_seconds=5)).begin().timer(5),
    "retry_limit": lambda: Run(response_format=JsonObjectFormat(), reasks_max=0).begin().answer("x", problem="no"),
    "finish_reason": lambda: Run().begin().answer("I was about to s", finish_reason="content_filter"),
    "user_requested": lambda: Run().begin().stop(),
    "completed": lambda: Run().begin().answer("done"),
    "unknown": _odd_word,
}


@pytest.mark.parametrize("reason", StopReason)
def test_every_reason_is_reached_by_its_natural_cause(reason: StopReason) -> None:
    run = CAUSES[reason.value]()
    assert run.ended == (TABLE[reason.value][1], reason)


@pytest.mark.parametrize(("one", "other"), list(product(StopReason, StopReason)))
def test_of_two_signals_in_one_run_the_table_says_which_decides(one: StopReason, other: StopReason) -> None:
    run = Run().begin().answer("", call("a")).signals_after_step(one, other).returns("a")
    assert run.signals == [one.value, other.value], "both are kept and shown"
    wins = other if TABLE[other.value][0] < TABLE[one.value][0] else one
    assert run.ended == (TABLE[wins.value][1], wins)
    assert run.state.stop_signal is run.state.running.continuation.stop_signals[0 if wins is one else 1]


@pytest.mark.parametrize(("one", "other"), list(product(StopReason, StopReason)))
def test_two_hooks_that_stop_for_two_reasons_are_weighed_by_the_same_table(one: StopReason, other: StopReason) -> None:
    run = Run(hooks=[hook_at("after_step", "first"), hook_at("after_step", "second")]).begin().answer("done")
    run.hooked(Changes(stop="one", stop_reason=one.value), Changes(stop="other", stop_reason=other.value))
    wins = other if TABLE[other.value][0] < TABLE[one.value][0] else one
    assert run.ended == (TABLE[wins.value][1], wins)


def test_limits_that_are_reached_together_all_leave_their_signals() -> None:
    budget = ExecutionBudget(max_steps=0, max_tokens=0, max_cost=0, max_seconds=0)
    run = Run(budget).begin()
    assert run.signals == ["steps_limit", "token_limit", "cost_limit", "time_limit"]
    assert run.ended == (ExecutionStatus.STOPPED, StopReason.STEPS_LIMIT)


def test_the_tokens_are_gone_in_the_step_that_somebody_wants_to_be_the_last() -> None:
    run = Run(ExecutionBudget(max_tokens=120)).begin().stop(mode="after_step").answer("", call("a"))
    assert run.signals == ["user_requested", "token_limit"]
    assert run.ended == (ExecutionStatus.STOPPED, StopReason.TOKEN_LIMIT)
    assert run.outcomes == [("a", "cancelled")]


def test_a_tool_and_a_person_and_the_clock_stop_one_run() -> None:
    run = Run(ExecutionBudget(max_seconds=50)).begin().answer("", call("a"), call("b")).returns("a", stop="done")
    run.stop(mode="after_step").timer(50)
    assert run.signals == ["stop_requested", "user_requested", "time_limit"]
    assert run.ended == (ExecutionStatus.STOPPED, StopReason.STOP_REQUESTED)


def test_an_error_behind_any_other_signal_still_fails_the_run() -> None:
    for reason in StopReason:
        run = Run().begin().signals_after_step(reason).model_fails()
        assert run.ended == (ExecutionStatus.FAILED, StopReason.ERROR)
