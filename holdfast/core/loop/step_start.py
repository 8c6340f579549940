"""How a step begins: the step itself, the hooks of its places, its summary, its model call. Decides nothing."""

from __future__ import annotations

from holdfast.core.agent.execution_state import step_id
from holdfast.core.agent.hooks import Trigger
from holdfast.core.base.bounds import HOOK_CHANGES_BYTES_MAX
from holdfast.core.base.frozen import trusted
from holdfast.core.conversation.steps import AgentStep
from holdfast.core.loop import headroom
from holdfast.core.loop.commands import RunHooks, SummariseBuffer
from holdfast.core.loop.pending_messages import deliver_pending
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import AgentStepStarted, InferenceRequestStarted


def open_step(transition: Transition) -> None:
    """Make the next step the one under way; the messages that waited for it are in the conversation then."""
    deliver_pending(transition)
    number = len(transition.execution.step_executions) + 1
    step = trusted(
        AgentStep,
        id=step_id(transition.execution.execution_id, number),
        number=number,
        input_length=len(transition.store.messages),
    )
    transition.change(current_step=step, current_step_started_at=transition.at)
    transition.emit(AgentStepStarted)


def run_hooks(transition: Transition, trigger: Trigger) -> None:
    """Issue the hooks at `trigger`, which is no place around a tool call."""
    name = f"step-{transition.step_number}-{trigger}"
    hooks, context = transition.rules.hooks_for(trigger), transition.context_for(trigger)
    transition.do(RunHooks(hooks=hooks, context=context, name=name, changes_bytes_max=HOOK_CHANGES_BYTES_MAX))


def summarise_again(transition: Transition) -> None:
    """Issue the summary that is under way once more, whatever the budget has left for it."""
    transition.do(headroom.summary_call(transition) or SummariseBuffer(transition.step.number, 1))


def ask_model(transition: Transition, *, emit: bool = True) -> None:
    """Issue the model call of the step under way; `emit` tells listeners."""
    transition.change_step(input_length=len(transition.store.messages), compactions=transition.execution.compactions)
    command = headroom.model_call(transition)
    transition.do(command)
    if emit:
        transition.emit(InferenceRequestStarted, max_output_tokens=command.max_output_tokens)
