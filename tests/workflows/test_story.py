"""What the Web UI shows of a run, from its state alone."""

from __future__ import annotations

from holdfast.core.policies import ApprovalRule
from tests.core.building import Run, call
from workflows.story import Story

ASK = (ApprovalRule(tools=("add",)),)


def lines(run: Run) -> list[str]:
    return Story().told(run.state, "tester").splitlines()


def test_a_call_that_waits_for_a_person_is_told_with_its_id_until_it_is_decided_about() -> None:
    run = Run(approvals=ASK).begin().answer("", call("a"), call("b", "echo"))
    told = lines(run)
    (waiting,) = (line for line in told if line.startswith("| `add(1)` | `a` |"))
    assert waiting.endswith("| never |")
    assert f"`holdfast approve {run.state.running.execution_id}` lets it run; `holdfast deny` does not." in told
    assert any(line.startswith("- `echo(1)`: running") for line in told)
    told = lines(run.decide("a"))
    assert "**Waiting for approval**" not in told
    assert any(line.startswith("- `add(1)`: running") for line in told)
    assert lines(run.returns("a").returns("b").answer("done"))[-3:] == ["```text", "done", "```"]
