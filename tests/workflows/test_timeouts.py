"""How long calls may take with all their attempts: a lost attempt leaves room for others, and no count ends a call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from workflows import timeouts
from workflows.timeouts import LOSSES_MIN, TABLE, CallTimes

FOLDER = Path(timeouts.__file__).parent
STARTS = {f"workflow.{verb}_{kind}" for verb in ("start", "execute") for kind in ("activity", "local_activity")}
LIMITS = ("start_to_close_timeout", "schedule_to_close_timeout")

THE_RUNS = {"_until_late(time_left)", "time_left", "_until_late(time_left) if traits.heartbeats else time_left"}
"""The whole time of a call that its run's time limit bounds: there the limit ends it, not a lost attempt."""

ONCE = {"RetryPolicy(maximum_attempts=1)"}
"""Hooks: one attempt, whose failure is the run's."""


def calls() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield where each call of an activity stands in the workflows, and the source of its keywords."""
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS:
                given = {each.arg: ast.unparse(each.value) for each in node.keywords if each.arg}
                yield f"{path.name}:{node.lineno}", given


CALLS = list(calls())


@pytest.mark.parametrize(("where", "given"), CALLS, ids=[where for where, _ in CALLS])
def test_every_call_has_bounds_from_the_table_or_from_its_run(where: str, given: dict[str, str]) -> None:
    assert "retry_policy" in given, "the server's default is for ever"
    attempt, total = (given.get(name) for name in LIMITS)
    if total is None:
        assert attempt is not None, f"{where} has no bound for an attempt"
    elif total in THE_RUNS or given["retry_policy"] in ONCE:
        assert "maximum_attempts" not in given["retry_policy"] or given["retry_policy"] in ONCE
    else:
        times = total.removesuffix(".total")
        assert (attempt, given["retry_policy"]) == (f"{times}.attempt", f"{times}.retry"), where


def test_the_walk_finds_the_calls_there_are() -> None:
    assert len(CALLS) >= 11


@pytest.mark.parametrize("times", TABLE)
def test_lost_attempts_leave_room_for_another(times: CallTimes) -> None:
    assert times.total >= LOSSES_MIN * (times.attempt + times.wait) + times.attempt
    assert times.retry.maximum_attempts == 0, "workers that die would burn them"


def test_every_line_of_the_table_is_in_it() -> None:
    assert {id(each) for each in vars(timeouts).values() if isinstance(each, CallTimes)} == {id(each) for each in TABLE}


def test_a_call_that_its_first_lost_attempt_would_end_cannot_be_written_down() -> None:
    twenty = timedelta(seconds=20)
    with pytest.raises(ValueError, match="2 lost attempts need"):
        CallTimes(attempt=twenty, total=twenty, wait=timedelta(seconds=1))
