"""The small example programs: each runs as its README says, and shows what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples import approval, guard_hook, handoff, resume, subagents, typed_answer, watching
from holdfast import ExecutionStatus
from holdfast.core.wire import execution_events
from holdfast.testing import assert_completed, assert_every_call_answered

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
LINES_MAX = 80
SECONDS_MAX = 90


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_by_itself_without_complaint_and_is_short(name: str) -> None:
    path = FOLDER / f"{name}.py"
    assert len(path.read_text().splitlines()) <= LINES_MAX
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.{name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "completed" in done.stdout.lower()


def test_the_readme_lists_every_program() -> None:
    text = (FOLDER / "README.md").read_text()
    assert {name for name in PROGRAMS if f"`{name}.py`" not in text} == set()


async def test_the_guard_blocks_one_call_and_the_other_hook_gets_a_better_answer() -> None:
    state = await guard_hook.main()
    outcomes = [execution.outcome for step in state.steps for execution in step.tool_executions]
    assert outcomes == ["blocked", "succeeded"]
    assert state.metadata["blocked"] == "DELETE FROM orders WHERE late"
    assert_completed(state)
    assert state.final_response.endswith("source: the table `orders`")
    assert state.running.continuation.overrides == 1


async def test_the_person_changes_what_is_paid_back() -> None:
    state = await approval.main()
    _, refund = state.steps[0].tool_executions
    assert (refund.call.arguments["cents"], refund.result) == (1_000, "1000 cents of order 17 are paid back")
    assert_completed(state)


async def test_a_wrong_answer_is_asked_for_again() -> None:
    result = await typed_answer.main()
    assert [step.step_type for step in result.state.steps] == ["error", "final_response"]
    assert result.state.running.reasks == 1
    assert result.output.days_left == 1


async def test_the_parent_pays_for_its_subagents_and_hears_of_the_one_that_is_not_there() -> None:
    state = await subagents.main()
    assert [execution.outcome for execution in state.steps[0].tool_executions] == ["succeeded", "succeeded", "failed"]
    assert state.usage.total_tokens == 4 * 120
    assert_every_call_answered(state)


async def test_the_other_agent_answers_and_the_next_question_too() -> None:
    first, second = await handoff.main()
    assert [execution.call.name for step in first.steps for execution in step.tool_executions] == [
        "handoff",
        "find_invoice",
    ]
    assert (first.active_agent, first.final_response) == ("billing", "It was paid on Monday.")
    assert (second.active_agent, second.final_response, second.step_count) == ("billing", "You are welcome.", 1)
    assert_completed(second)


async def test_what_was_done_before_the_interruption_is_not_done_again() -> None:
    resume.RUNS.clear()
    state = await resume.main()
    assert resume.RUNS == [17, 18]
    assert (state.execution_count, state.status) == (2, ExecutionStatus.COMPLETED)


async def test_the_wiretap_sees_parent_and_child_as_a_tree() -> None:
    tree = watching.Tree()
    await watching.main(tree)
    assert (tree.lines[0], tree.lines[-1]) == ("0 AgentExecutionStarted", "2 AgentExecutionCompleted")
    assert "    0 AgentExecutionStarted" in tree.lines
    assert {line.split()[1] for line in tree.lines} <= set(vars(execution_events))
