"""The rows of limits and stop reasons in the documents are those of the core's tables; so are what alerts name."""

from __future__ import annotations

import re

import pytest

from docs.tables.write import HERE, ROWS, Rows, written
from holdfast import StopReason
from holdfast.core.agent.budget import LIMITS
from tests.telemetry.watching import alerts

SELECTED = re.compile(r'stop_reason(=~|!=|!~|=)"([^"]*)"')
"""A condition of a metric's selector: how, and what."""


@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: f"{rows.page}-{rows.made.__name__}")
def test_writing_the_rows_anew_changes_nothing(rows: Rows) -> None:
    page = (HERE / rows.page).read_text(encoding="utf-8")
    assert written(page, rows) == page, "run `make tables`"


def test_rows_that_differ_are_written_anew_and_others_stay() -> None:
    page = "| limit |\n|---|\n| `max_steps` | a lie | `unknown` |\n| `deadline` | a moment | `time_limit` |\n"
    counted = next(rows for rows in ROWS if rows.page == "budgets-and-stopping.md")
    made = written(page, counted)
    assert made.splitlines() == ["| limit |", "|---|", *counted.made(), "| `deadline` | a moment | `time_limit` |"]


def test_a_page_without_the_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cli.md has 0 groups of rows"):
        written("# Commands\n", ROWS[-1])


def test_an_alert_about_budgets_counts_what_any_limit_stopped_and_nothing_else() -> None:
    (rule,) = (rule for rule in alerts() if rule["alert"] == "HoldfastBudgetsStopRuns")
    assert {reason for reason in StopReason if _selects(rule["expr"], reason)} == {limit.reason for limit in LIMITS}


def test_alerts_name_only_reasons_that_there_are() -> None:
    named = [value for rule in alerts() for how, value in SELECTED.findall(rule["expr"]) if how in ("=", "!=")]
    assert set(named) <= set(StopReason)


def _selects(expression: str, reason: StopReason) -> bool:
    """Return whether the conditions on the reason, in their one selector, let `reason` through."""
    conditions = SELECTED.findall(expression)
    assert conditions
    return all(
        bool(re.fullmatch(value if "~" in how else re.escape(value), reason)) is not how.startswith("!")
        for how, value in conditions
    )
