"""A driver that cannot go on: what a model call under way then counts as."""

from __future__ import annotations

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.usage import NOTHING_USED
from holdfast.core.loop.events import DriverFailed
from holdfast.testing.builders import an_error
from tests.core.building import Run


def failed(*, lost: bool) -> Run:
    run = Run(ExecutionBudget(max_tokens=5_000)).begin()
    run.feed(DriverFailed(an_error("the engine stopped"), run.tick(), lost=lost))
    assert run.state.status is ExecutionStatus.FAILED
    return run


def test_a_call_that_may_have_begun_counts_as_what_it_was_allowed() -> None:
    assert failed(lost=True).state.usage.total_tokens > 0


def test_a_call_that_was_never_begun_costs_nothing() -> None:
    assert failed(lost=False).state.usage == NOTHING_USED
