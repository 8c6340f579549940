"""What the Web UI shows of a run, from its state alone."""

from __future__ import annotations

from holdfast.core.policies import ApprovalRule
from tests.core.building import Run, call
from workflows.story import current_details

ASK = (ApprovalRule(tools=("add",)),)


def test_a_call_that_waits_for_a_person_is_told_with_its_id_until_it_is_decided_about() -> None:
    run = Run(approvals=ASK).begin().answer("", call("a"), call("b", "echo"))
    told = current_details(run.state).splitlines()
    assert told[told.index("Waiting for approval:") + 2] == "- `add` (a)"
    assert "- `add`: waits for approval" in told
    assert "- `echo`: running" in told
    told = current_details(run.decide("a").state).splitlines()
    assert "Waiting for approval:" not in told
    assert "- `add`: running" in told
    told = current_details(run.returns("a").returns("b").answer("done").state).splitlines()
    assert told[-1] == "done"
