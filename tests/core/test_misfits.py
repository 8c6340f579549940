"""Saved executions whose parts contradict one another are refused with the place; every real one is read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.hooks import ENDING, Trigger
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy, SummaryPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import StateInvalid
from tests.core.building import Run, call, hook_at
from tests.core.test_loop_resume import Shell, rich_run

Execution = dict[str, Any]


def calling() -> Run:
    """Three calls, of which the second is answered."""
    return Run().begin().answer("", call("a"), call("b"), call("c")).returns("b")


def asking() -> Run:
    """The model is asked in a second step."""
    return Run().begin().answer("", call("a")).returns("a")


def between() -> Run:
    """The hooks before the first step run."""
    return Run(hooks=[hook_at(Trigger.BEFORE_STEP)]).begin()


def judging() -> Run:
    """The hooks after a step run."""
    return Run(hooks=[hook_at(Trigger.AFTER_STEP)]).begin().answer("", call("a")).returns("a")


def answering() -> Run:
    """The model has given its last answer, which no call follows; the hooks look at it."""
    return Run(hooks=[hook_at(Trigger.AFTER_INFERENCE)]).begin().answer("done")


def summarising() -> Run:
    """The second step waits for a summary."""
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=50, keep_messages=0))
    return Run(context=policy).begin().answer("", call("a")).returns("a")


def paused() -> Run:
    """A person is waited for, and time stands still."""
    asks = (ApprovalRule(tools=("*",)),)
    return Run(ExecutionBudget(max_seconds=5), approvals=asks, pause_while_waiting=True).begin().answer("", call("a"))


def spoilt(run: Run, **changes: Any) -> str:  # noqa: ANN401  # any JSON
    data = json.loads(run.state.to_json())
    data["execution"].update(changes)
    return json.dumps(data)


def refusal(saved: str) -> str:
    with pytest.raises(StateInvalid) as caught:
        AgentState.from_json(saved)
    return str(caught.value)


MOMENTS = (calling, asking, between, judging, answering, summarising, paused)


@pytest.mark.parametrize("moment", MOMENTS)
def test_every_one_of_these_moments_is_read_as_it_was(moment: Callable[[], Run]) -> None:
    state = moment().state
    assert AgentState.from_json(state.to_json()) == state


@pytest.mark.parametrize(
    ("moment", "changes", "place"),
    [
        (calling, {"open_calls": []}, "execution.open_calls"),
        (calling, {"current_step": None}, "execution.open_calls"),
        *((calling, {"hooks_under_way": each.value}, "execution.hooks_under_way") for each in Trigger),
        *((paused, {"hooks_under_way": each.value}, "execution.hooks_under_way") for each in Trigger),
        *(
            (asking, {"hooks_under_way": each}, "execution.hooks_under_way")
            for each in (
                "before_tool",
                "after_tool",
                "after_inference",
                "after_step",
                "before_step",
                "before_execution",
            )
        ),
        *(
            (between, {"hooks_under_way": each}, "execution.hooks_under_way")
            for each in ("before_tool", "after_tool", "before_inference", "after_inference", "after_step")
        ),
        *(
            (judging, {"hooks_under_way": each}, "execution")
            for each in ("before_tool", "after_tool", "before_inference", "after_inference", "before_step", "on_stop")
        ),
        *((answering, {"hooks_under_way": each.value}, "execution.hooks_under_way") for each in ENDING),
        (summarising, {"hooks_under_way": "before_inference"}, "execution.summary_under_way"),
        (calling, {"summary_under_way": True}, "execution.summary_under_way"),
        (between, {"summary_under_way": True}, "execution.summary_under_way"),
        (judging, {"summary_under_way": True}, "execution.summary_under_way"),
        (paused, {"paused_seconds": 1e300}, "execution.paused_seconds"),
        (paused, {"paused_seconds": -1}, "execution.paused_seconds"),
    ],
)
def test_what_cannot_be_at_that_moment_is_refused_with_its_place(
    moment: Callable[[], Run], changes: Execution, place: str
) -> None:
    assert place in refusal(spoilt(moment(), **changes))


def _without_answers(execution: Execution) -> None:
    execution["current_step"]["tool_executions"] = []


def _answered_twice(execution: Execution) -> None:
    execution["current_step"]["tool_executions"] *= 2


def _open_and_answered(execution: Execution) -> None:
    execution["open_calls"].append(
        {**execution["open_calls"][0], "index": 1, "call": execution["current_step"]["tool_executions"][0]["call"]}
    )


def _open_twice(execution: Execution) -> None:
    execution["open_calls"][1] = execution["open_calls"][0]


def _foreign(execution: Execution) -> None:
    execution["open_calls"][0]["call"]["id"] = "zzz"


def _two_of_one_id(execution: Execution) -> None:
    execution["current_step"]["inference_response"]["tool_calls"][1]["id"] = "a"


def _index_moved(execution: Execution) -> None:
    execution["open_calls"][0]["index"] = 2


def _index_far(execution: Execution) -> None:
    execution["open_calls"][0]["index"] = 10**9


def _never_asked(execution: Execution) -> None:
    execution["current_step"]["inference_response"] = None


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (_without_answers, "execution.open_calls"),
        (_answered_twice, "execution.open_calls"),
        (_open_and_answered, "execution.open_calls"),
        (_open_twice, "execution.open_calls"),
        (_foreign, "execution.open_calls"),
        (_two_of_one_id, "execution.current_step.inference_response.tool_calls"),
        (_index_moved, "execution.open_calls"),
        (_index_far, "execution.open_calls"),
        (_never_asked, "execution.open_calls"),
    ],
)
def test_calls_that_do_not_fit_their_step_are_refused_with_their_place(
    spoil: Callable[[Execution], None], place: str
) -> None:
    data = json.loads(calling().state.to_json())
    spoil(data["execution"])
    assert place in refusal(json.dumps(data))


def test_every_state_of_a_rich_run_is_read_as_it_was() -> None:
    shell = Shell(rich_run().begin("Do it all."))
    while not shell.run.state.status.is_terminal:
        assert AgentState.from_json(shell.run.state.to_json()) == shell.run.state
        shell.carry_out()
    assert AgentState.from_json(shell.run.state.to_json()) == shell.run.state


@pytest.mark.parametrize("ended", ["stop", "timer", "driver_fails"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_states_on_the_way_to_an_early_end_are_read_too(moment: Callable[[], Run], ended: str) -> None:
    run = moment()
    last = (hook_at(Trigger.ON_STOP), hook_at(Trigger.ON_ERROR), hook_at(Trigger.AFTER_EXECUTION))
    run.loop = dataclasses.replace(run.loop, hooks=last)
    getattr(run, ended)()
    while not run.state.status.is_terminal and run.hooks_asked:
        assert AgentState.from_json(run.state.to_json()) == run.state
        run.hooked()
    assert AgentState.from_json(run.state.to_json()) == run.state
