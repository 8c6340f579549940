"""Handoffs between two steps: what the loop asks of its driver, and what comes of it. Decides no other order."""

from __future__ import annotations

from holdfast.core.agent.handoffs import problem_with_handoff, reason_of
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.handoffs import Handoff, Handover
from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.commands import HandOver
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import AgentHandedOff


def hand_over(transition: Transition, call: ToolCall) -> tuple[str | None, ErrorRecord | None]:
    """Have the handoff that `call` asks for take place when the step is complete; return what the model is told."""
    handoffs = transition.rules.handoffs
    problem = problem_with_handoff(call, handoffs, len(transition.execution.handoffs))  # it may have been changed
    if problem is not None:
        return None, problem
    handoff = Handoff(
        step_number=transition.step.number,
        from_agent=transition.rules.definition.name,
        to_agent=str(call.arguments["agent"]),
        reason=reason_of(call),
        at=transition.at,
    )
    transition.change(handing_over=handoff)
    return f"handed over to {handoff.to_agent}", None


def ask(transition: Transition) -> bool:
    """Have the driver hand the conversation over, if the last step asked for it; return whether it did."""
    handoff = transition.execution.handing_over
    if handoff is not None:
        transition.do(HandOver(handoff.to_agent))
    return handoff is not None


def take_place(transition: Transition) -> None:
    """Record that the conversation is the other agent's, if a handoff is pending.

    Where the execution ends with it, that agent answers the next one.
    """
    handoff = transition.execution.handing_over
    if handoff is None:
        return
    handoff = replace(handoff, at=transition.at)
    before = transition.handover or Handover(
        agent=handoff.from_agent, origin=handoff.from_agent, origin_digest=transition.rules.origin
    )
    transition.handover = replace(before, agent=handoff.to_agent)
    transition.change(handing_over=None, handoffs=(*transition.execution.handoffs, handoff))
    transition.emit(AgentHandedOff, from_agent=handoff.from_agent, to_agent=handoff.to_agent, reason=handoff.reason)


def refused(transition: Transition, error: ErrorRecord) -> bool:
    """Have the agent go on itself, and its model know why; return whether there was a handoff to refuse."""
    handoff = transition.execution.handing_over
    if handoff is None:
        return False
    why = f"the conversation was not handed over to {handoff.to_agent!r}: {error.message}"
    transition.warn(why)
    note = Message(role="user", content=f"{why}\nGo on without that agent.", metadata={"is_trace": True})
    waiting = (*transition.execution.waiting_messages, note)
    transition.change(handing_over=None, waiting_messages=waiting)
    return True
