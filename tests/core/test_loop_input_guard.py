"""The input guard in the loop: beside the first model call, whose answer does not count before the guard has passed."""

from __future__ import annotations

import pytest

from holdfast.core.agent.hooks import Changes
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel, CallTool, CancelInFlight, RunHooks
from tests.core.building import BOOM, COMPLETED, FAILED, Run, call, hook_at, stopped

GUARD = hook_at("input_guard", "guard")
STOP = Changes(stop="not here")


def guarded(**rules: object) -> Run:
    return Run(hooks=[GUARD], **rules).begin()  # type: ignore[arg-type]


def test_it_starts_together_with_the_first_model_call_alone() -> None:
    run = guarded()
    assert run.wanted(CallModel)
    assert [each.name for each in run.wanted(RunHooks)[0].hooks] == ["guard"]
    assert run.hook_context.messages[-1].text == "Do it."
    run.hooked().answer("", call("a")).returns("a")
    assert (run.model_call.step_number, run.wanted(RunHooks)) == (2, ())


def test_an_answer_waits_for_the_guard() -> None:
    run = guarded().answer("", call("a"))
    assert run.commands == ()
    assert run.hooked().wanted(CallTool)
    assert run.returns("a").answer("done").ended == COMPLETED
    first = guarded().answer("done")
    assert not first.state.status.is_terminal
    assert first.hooked().ended == COMPLETED


def test_its_stop_cancels_the_model_call_in_flight() -> None:
    run = guarded()
    run.hooked(STOP)
    assert CancelInFlight() in run.commands
    assert run.ended == stopped(StopReason.STOP_REQUESTED)
    assert (run.state.step_count, run.state.final_response) == (0, "")
    assert run.state.stop_signal is not None
    assert run.state.stop_signal.message == "not here"


@pytest.mark.parametrize("end", ["guard", "person", "driver"])
def test_an_answer_that_it_did_not_let_pass_does_not_count_and_its_calls_do_not_run(end: str) -> None:
    run = guarded().answer("the answer", call("a"))
    if end == "guard":
        run.hooked(STOP)
    elif end == "person":
        run.stop()
    else:
        run.driver_fails()
    assert run.wanted(CallTool) == ()
    assert (run.state.status.is_terminal, run.state.step_count, run.state.final_response) == (True, 0, "")
    step = run.state.current_step_or_last
    assert step is not None
    assert (step.inference_response, step.partial_response and step.partial_response.text) == (None, "the answer")
    assert run.state.usage.total_tokens == 120, "what it used counts"
    assert [each.role for each in run.state.messages] == ["user"]


def test_a_guard_that_raises_fails_the_run() -> None:
    run = guarded()
    run.hooked(BOOM)
    assert run.ended == FAILED


def test_what_it_changes_is_kept_and_its_messages_wait_for_the_next_call() -> None:
    run = guarded().hooked(Changes(metadata={"seen": 1}, messages=(user_message("careful"),)))
    assert run.state.metadata["seen"] == 1
    run.answer("", call("a")).returns("a")
    assert run.said[-1] == "careful"


def test_a_model_call_that_fails_ends_the_guard_too() -> None:
    run = guarded().model_fails()
    assert CancelInFlight() in run.commands
    assert run.ended == FAILED
    assert run.state.running.guarding is False


def test_a_stop_that_is_overridable_and_overridden_lets_the_answer_count() -> None:
    run = guarded(overridable=(StopReason.STOP_REQUESTED,))
    run.hooked(Changes(stop="not here", go_on=True)).answer("done")
    assert run.state.final_response == "done"


def test_a_run_that_is_taken_up_runs_it_again_unless_it_has_passed() -> None:
    again = guarded().resume()
    assert again.wanted(CallModel)
    assert again.wanted(RunHooks)
    held = guarded().answer("done").resume()
    assert held.wanted(CallModel) == ()
    assert held.hooked().ended == COMPLETED
    passed = guarded().hooked().resume()
    assert passed.wanted(CallModel)
    assert passed.wanted(RunHooks) == ()


def test_a_changed_agent_has_its_own_guard_or_none() -> None:
    other = guarded().becomes(hooks=[hook_at("input_guard", "other")])
    assert [each.name for each in other.wanted(RunHooks)[0].hooks] == ["other"]
    none = guarded().becomes(hooks=[])
    assert none.wanted(RunHooks) == ()
    assert none.answer("done").ended == COMPLETED


def test_each_execution_has_a_first_model_call() -> None:
    run = guarded().hooked().answer("done")
    assert run.begin().wanted(RunHooks)


def test_a_stop_after_the_step_lets_the_step_and_its_tools_finish() -> None:
    run = guarded().stop(mode="after_step").answer("", call("a")).hooked()
    assert run.wanted(CallTool)
    assert run.returns("a").ended == stopped(StopReason.USER_REQUESTED)
    assert run.state.step_count == 1
    own = guarded().stop(mode="after_step").answer("", call("a")).hooked(STOP)
    assert (own.wanted(CallTool), own.state.step_count) == ((), 0)
