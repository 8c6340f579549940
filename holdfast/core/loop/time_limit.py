"""The timer of the time limit, and its pause while only people are waited for (docs/spec.md, section 5)."""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.hooks import ENDING
from holdfast.core.conversation.steps import CallStage
from holdfast.core.loop.commands import StartTimer
from holdfast.core.loop.transition import Transition

FOR_PEOPLE: Final = frozenset({CallStage.APPROVAL, CallStage.INPUT})
"""The stages in which a call waits for a person."""


def start_timer(transition: Transition) -> None:
    """Start the timer of the time limit, if there is one; it replaces the previous timer."""
    strikes_at = transition.execution.time_limit_at
    if strikes_at is not None and not transition.execution.status.is_terminal:
        transition.commands.insert(
            0, StartTimer(fires_at=strikes_at)
        )  # first, so that it is there before what it limits


def has_struck(transition: Transition) -> bool:
    """Return whether the time limit has passed for an execution whose end is not under way yet."""
    strikes_at = transition.execution.time_limit_at
    return strikes_at is not None and transition.at >= strikes_at and transition.execution.hooks_under_way not in ENDING


def keep_time(transition: Transition) -> None:
    """Pause `max_seconds` while only people are waited for, where the definition says so."""
    execution = transition.execution
    pausing = transition.rules.definition.pause_while_waiting
    if not pausing and execution.paused_at is None:
        return
    stages = {each.stage for each in execution.open_calls}
    waiting = pausing and bool(stages & FOR_PEOPLE) and stages <= {*FOR_PEOPLE, CallStage.WAITING}
    if waiting and execution.paused_at is None and not execution.status.is_terminal:
        transition.change(paused_at=transition.at)
        start_timer(transition)  # a deadline goes on, and the present timer may fire before it
    elif execution.paused_at is not None and not waiting:
        seconds = max(0.0, (transition.at - execution.paused_at).total_seconds())
        transition.change(paused_at=None, paused_seconds=execution.paused_seconds + seconds)
        start_timer(transition)
