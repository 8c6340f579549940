"""The input guard: hooks that run beside the first model call of an execution, and hold its answer until they pass."""

from __future__ import annotations

from holdfast.core.agent.hooks import Trigger
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop import step_start
from holdfast.core.loop.commands import CancelInFlight
from holdfast.core.loop.events import HooksReturned
from holdfast.core.loop.pending_messages import apply_changes
from holdfast.core.loop.transition import Transition


def begin(transition: Transition) -> None:
    """Run the guards beside the model call that was just issued, if it is the first and there are any."""
    if transition.step.number == 1 and transition.rules.hooks_for(Trigger.INPUT_GUARD):
        transition.change(guarding=True)
        step_start.run_hooks(transition, Trigger.INPUT_GUARD)


def begin_again(transition: Transition) -> bool:
    """Run them again where they were under way; return whether they are. Other rules may have none."""
    if transition.execution.guarding:
        transition.change(guarding=False)
        begin(transition)
    return transition.execution.guarding


def take_in(transition: Transition, event: HooksReturned) -> bool:
    """Apply what the guards changed; return whether the run may go on. One that raised fails the execution."""
    problem = apply_changes(transition, event)
    if problem is not None:
        transition.fail(problem)
        return False
    stopped = any(run.changes is not None and run.changes.stop is not None for run in event.runs)
    standing = transition.execution.continuation.standing
    if not stopped and all(signal.reason is StopReason.USER_REQUESTED for signal in standing):
        return True  # not `now`, or we would not be here: that one lets the step finish
    return not transition.must_stop


def passed(transition: Transition) -> bool:
    """Let the answer count from here on; return whether it is there already."""
    transition.note_override()
    transition.change(guarding=False)
    return transition.step.inference_response is not None


def withdraw(transition: Transition) -> None:
    """End the guard of a run that ends: an answer that it has not let pass is a partial one."""
    if not transition.execution.guarding:
        return
    transition.change(guarding=False)
    response = transition.step.inference_response
    if response is not None:
        partial = replace(response, tool_calls=(), items=())
        transition.change_step(inference_response=None, partial_response=partial)


def abandon(transition: Transition) -> None:
    """Cancel the guard of a model call that has failed."""
    if transition.execution.guarding:
        transition.do(CancelInFlight())
        transition.change(guarding=False)
