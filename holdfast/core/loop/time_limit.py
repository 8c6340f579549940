"""The execution's one timer, and the pause while nothing but people are waited for (docs/spec.md, section 5)."""

from __future__ import annotations

from holdfast.core.conversation.steps import CallStage
from holdfast.core.loop.commands import StartTimer
from holdfast.core.loop.transition import Transition


def start_timer(turn: Transition) -> None:
    """Ask for the timer of the time limit, if there is one; it takes the place of the one before it."""
    strikes_at = turn.execution.time_limit_at
    if strikes_at is not None and not turn.execution.status.is_terminal:
        turn.commands.insert(0, StartTimer(fires_at=strikes_at))  # first, so that it is there before what it limits


def keep_time(turn: Transition) -> None:
    """Hold `max_seconds` while nothing but people are waited for, where the definition says so."""
    execution = turn.execution
    pausing = turn.rules.definition.pause_while_waiting
    if not pausing and execution.paused_at is None:
        return
    stages = {each.stage for each in execution.open_calls}
    waiting = pausing and CallStage.APPROVAL in stages and stages <= {CallStage.APPROVAL, CallStage.WAITING}
    if waiting and execution.paused_at is None and not execution.status.is_terminal:
        turn.change(paused_at=turn.at)
        start_timer(turn)  # a deadline goes on, and the timer there is may stand before it
    elif execution.paused_at is not None and not waiting:
        seconds = max(0.0, (turn.at - execution.paused_at).total_seconds())
        turn.change(paused_at=None, paused_seconds=execution.paused_seconds + seconds)
        start_timer(turn)
