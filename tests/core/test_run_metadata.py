"""What stands on a run from its start: in few words, and nothing that anybody said in the memo."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast import AgentDefinition, ExecutionBudget
from holdfast.core.base.bounds import SUMMARY_LINE_CHARS_MAX
from holdfast.core.wire import run_metadata
from holdfast.core.wire.run_metadata import DESCRIPTION_LINE_CHARS_MAX
from tests.rendering import HOSTILE, assert_tame, rows, words_in

CLERK = AgentDefinition.model_validate({"name": "clerk", "description": f"Keeps {HOSTILE}", "llm": {"model": "gpt-x"}})
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_a_run_is_introduced_by_its_agent_and_question() -> None:
    budget = ExecutionBudget(max_steps=20, max_tokens=5_000, max_seconds=600, max_cost=0.5, deadline=NOON)
    made = run_metadata.of_run(CLERK, "Why?", budget, "1.0")
    assert made.summary == "clerk: Why?"
    assert "Model: `gpt-x`\n\nAsked:\n\n```text\nWhy?\n```\n\n" in made.details
    assert rows(made.details) == [[2] * 6]
    for told in ("20", "5,000", "10 min", "0.5", "2026-11-21 12:00:00Z"):
        assert told in words_in(made.details)


def test_the_memo_names_the_agent_the_version_and_the_definition_and_nothing_else() -> None:
    memo = run_metadata.of_run(CLERK, "a secret", ExecutionBudget(), "1.0").memo
    assert memo == run_metadata.of_subagent(CLERK, "another", ExecutionBudget(), "1.0").memo
    assert {**memo, "definition": len(memo["definition"])} == {"agent": "clerk", "holdfast": "1.0", "definition": 64}
    other = AgentDefinition.model_validate({**CLERK.model_dump(), "system_prompt": "Be brief."})
    assert run_metadata.memo_of(other, "1.0")["definition"] != memo["definition"]


def test_hostile_words_are_words_and_long_ones_are_cut() -> None:
    for text in (HOSTILE, "x" * 100_000, "\U0001f600" * 100_000):
        made = run_metadata.of_run(CLERK, text, ExecutionBudget(), "1.0")
        child = run_metadata.of_execution(CLERK, 3, text, "1.0")
        assert_tame(made.details)
        assert len(made.details) < 2_500
        assert len(made.summary) <= DESCRIPTION_LINE_CHARS_MAX
        assert len(child.summary) <= SUMMARY_LINE_CHARS_MAX
        assert child.summary.startswith("execution 3: ")


def test_a_session_whose_agent_was_kept_is_introduced_without_it() -> None:
    assert run_metadata.of_session(None, "1.0") == run_metadata.WorkflowDescription("session", "", {"holdfast": "1.0"})
    assert run_metadata.of_session(CLERK, "1.0").summary == "session of clerk"
