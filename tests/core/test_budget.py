"""Budget arithmetic (docs/spec.md, section 5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.core.agent.budget import LIMITS, BudgetUse, ExecutionBudget, Limit
from holdfast.core.base.bounds import SECONDS_MAX
from tests.core.building import START, moment
from tests.core.strategies import budgets, moments

EMPTY = ExecutionBudget()


def test_the_example_of_the_specification() -> None:
    budget = ExecutionBudget(max_steps=20, max_tokens=10_000, max_seconds=60)
    left = budget.remaining(steps_used=5, tokens_used=3_000, seconds_used=0)
    assert left == ExecutionBudget(max_steps=15, max_tokens=7_000, max_seconds=60)
    assert left.capped_by(ExecutionBudget(max_steps=10)).max_steps == 10


def test_no_limits_are_empty_and_never_exhausted() -> None:
    assert EMPTY.is_empty
    assert not EMPTY.is_exhausted(START)
    assert not ExecutionBudget(max_steps=0).is_empty
    assert not ExecutionBudget(deadline=START).is_empty


@pytest.mark.parametrize(
    ("budget", "exhausted"),
    [
        (ExecutionBudget(max_steps=0), True),
        (ExecutionBudget(max_tokens=0), True),
        (ExecutionBudget(max_seconds=0), True),
        (ExecutionBudget(max_cost=0), True),
        (ExecutionBudget(max_steps=1, max_tokens=1, max_seconds=0.001), False),
        (ExecutionBudget(max_steps=5, max_tokens=0), True),
        (ExecutionBudget(deadline=moment(0)), True),
        (ExecutionBudget(deadline=moment(-1)), True),
        (ExecutionBudget(deadline=moment(0.001)), False),
    ],
)
def test_a_zero_limit_or_a_passed_deadline_is_exhausted(budget: ExecutionBudget, *, exhausted: bool) -> None:
    assert budget.is_exhausted(START) is exhausted


@pytest.mark.parametrize("field", ["max_steps", "max_tokens", "max_seconds"])
@pytest.mark.parametrize("value", [-1, "many", float("nan"), float("inf")])
def test_a_limit_that_is_no_number_from_zero_up_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        ExecutionBudget.model_validate({field: value})


def test_a_time_limit_that_no_calendar_holds_is_refused() -> None:
    assert ExecutionBudget(max_seconds=SECONDS_MAX).ends_at(START) is not None
    with pytest.raises(ValidationError, match="max_seconds"):
        ExecutionBudget(max_seconds=SECONDS_MAX * 1.01)


def test_a_deadline_needs_a_time_zone_and_unknown_limits_are_refused() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        ExecutionBudget.model_validate({"deadline": "2025-01-01T00:00:00"})
    with pytest.raises(ValidationError, match="max_step\n"):
        ExecutionBudget.model_validate({"max_step": 3})


@given(budgets, st.integers(0, 10**13), st.integers(0, 10**13), st.floats(0, 1e10))
def test_what_is_left_is_never_negative_and_never_more(
    budget: ExecutionBudget, steps: int, tokens: int, seconds: float
) -> None:
    left = budget.remaining(steps_used=steps, tokens_used=tokens, seconds_used=seconds)
    assert ExecutionBudget.model_validate(left.model_dump()) == left, "a limit below zero"
    assert left.capped_by(budget) == left
    assert left.deadline == budget.deadline
    unset = {name for name, value in budget if value is None}
    assert {name for name, value in left if value is None} == unset


@given(budgets, budgets)
def test_a_cap_takes_the_tighter_limit_of_both_in_any_order(one: ExecutionBudget, other: ExecutionBudget) -> None:
    both = one.capped_by(other)
    assert both == other.capped_by(one)
    assert both.capped_by(one) == both
    for name in ExecutionBudget.model_fields:
        mine, theirs = getattr(one, name), getattr(other, name)
        expected = min((limit for limit in (mine, theirs) if limit is not None), default=None)
        assert getattr(both, name) == expected


@given(budgets)
def test_an_empty_cap_changes_nothing(budget: ExecutionBudget) -> None:
    assert budget.capped_by(EMPTY) == budget
    assert budget.overridden_by(EMPTY) == budget


@given(budgets, budgets)
def test_an_override_takes_every_limit_that_it_sets(own: ExecutionBudget, given_: ExecutionBudget) -> None:
    result = own.overridden_by(given_)
    for name in ExecutionBudget.model_fields:
        chosen = getattr(given_, name)
        assert getattr(result, name) == (getattr(own, name) if chosen is None else chosen)


def test_an_override_can_set_a_limit_to_zero_and_widen_it() -> None:
    own = ExecutionBudget(max_steps=5, max_tokens=100)
    assert own.overridden_by(ExecutionBudget(max_steps=0)) == ExecutionBudget(max_steps=0, max_tokens=100)
    assert own.overridden_by(ExecutionBudget(max_steps=9)).max_steps == 9


def test_time_ends_at_the_earlier_of_seconds_and_deadline() -> None:
    assert EMPTY.ends_at(START) is None
    assert ExecutionBudget(max_seconds=60).ends_at(START) == moment(60)
    assert ExecutionBudget(max_seconds=60, deadline=moment(30)).ends_at(START) == moment(30)
    assert ExecutionBudget(max_seconds=60, deadline=moment(90)).ends_at(START) == moment(60)


@given(st.floats(0, SECONDS_MAX), moments.filter(lambda at: at.year < 9000))
def test_the_end_is_never_before_the_start(seconds: float, start: object) -> None:
    assert isinstance(start, type(START))
    ends = ExecutionBudget(max_seconds=seconds).ends_at(start)
    assert ends is not None
    assert timedelta(0) <= ends - start


@given(budgets)
def test_a_budget_survives_json(budget: ExecutionBudget) -> None:
    assert ExecutionBudget.model_validate_json(budget.model_dump_json()) == budget


def test_unlimited_is_no_limit_at_all() -> None:
    assert ExecutionBudget.unlimited() == EMPTY
    assert all(limit is None for _, limit in ExecutionBudget.unlimited())
    assert ExecutionBudget.unlimited().remaining(steps_used=9, tokens_used=9, seconds_used=9, cost_used=9) == EMPTY


def test_every_limit_counts_down_to_zero_and_no_further() -> None:
    budget = ExecutionBudget(max_steps=20, max_tokens=10_000, max_seconds=60, max_cost=1, deadline=moment(9))
    left = budget.remaining(steps_used=5, tokens_used=3_000, seconds_used=15, cost_used=0.25)
    assert left == ExecutionBudget(max_steps=15, max_tokens=7_000, max_seconds=45, max_cost=0.75, deadline=moment(9))
    spent = budget.remaining(steps_used=21, tokens_used=10_001, seconds_used=61, cost_used=1.5)
    assert spent == ExecutionBudget(max_steps=0, max_tokens=0, max_seconds=0, max_cost=0, deadline=moment(9))
    assert spent.is_exhausted(START)


def test_every_field_of_a_budget_but_three_is_a_limit_of_the_table() -> None:
    others = {"deadline", "unpriced", "server_tools"}
    assert {limit.field for limit in LIMITS} | others == set(ExecutionBudget.model_fields)
    assert [limit.name for limit in LIMITS] == [name for name in BudgetUse._fields if name != "unpriced"]


def test_every_limit_has_a_reason_of_its_own_and_says_what_counts() -> None:
    assert len({limit.reason for limit in LIMITS}) == len(LIMITS)
    for limit in LIMITS:
        assert limit.reason.forced
        assert limit.unit
        assert limit.counts


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_a_limit_reads_its_own_field_and_its_own_use(limit: Limit) -> None:
    budget, use = ExecutionBudget.model_validate({limit.field: 7}), _use_of(limit, 3)
    assert [each for each in LIMITS if each.of(budget) is not None] == [limit]
    assert [each for each in LIMITS if each.used(use)] == [limit]
    assert budget.after(use) == ExecutionBudget.model_validate({limit.field: 4})
    assert budget.after(_use_of(limit, 8)).is_exhausted()
    assert isinstance(limit.of(budget), limit.number)


def _use_of(limit: Limit, amount: int) -> BudgetUse:
    amounts: dict[str, Any] = {limit.name: amount}
    return BudgetUse(**amounts)


def test_subagents_share_equally_all_but_the_time() -> None:
    budget = ExecutionBudget(max_steps=7, max_tokens=100, max_seconds=60, max_cost=1, deadline=moment(9))
    shared = ExecutionBudget(max_steps=3, max_tokens=50, max_seconds=60, max_cost=0.5, deadline=moment(9))
    assert budget.shared_by(2) == shared
    assert EMPTY.shared_by(2) == EMPTY


def test_a_time_limit_beyond_all_calendars_never_strikes() -> None:
    late = datetime(9999, 12, 31, tzinfo=UTC)
    assert ExecutionBudget(max_seconds=1e8).ends_at(late) is None
    assert ExecutionBudget(max_seconds=1e8, deadline=late).ends_at(late) == late
