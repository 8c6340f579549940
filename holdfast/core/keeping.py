"""What hooks and people bring into an execution, kept until the loop gets to it: changes, messages. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.events import HooksReturned
from holdfast.core.frozen import replace
from holdfast.core.hooks import Changes, merged
from holdfast.core.limits import MESSAGES_WAITING_MAX
from holdfast.core.messages import Message
from holdfast.core.observed import HookExecuted, MessageInjected
from holdfast.core.steps import ErrorRecord
from holdfast.core.stopping import StopReason
from holdfast.core.turn import Turn


def keep_message(turn: Turn, message: Message) -> None:
    """Keep a message for the next model call; the loop does not end before the model has answered it."""
    if _let_wait(turn, (message,)):
        turn.change(answer_due=True)
        turn.tell(MessageInjected, message=message)


def _let_wait(turn: Turn, messages: Sequence[Message]) -> bool:
    """Let `messages` wait as far as there is room; return whether there was some for any."""
    waiting = turn.execution.waiting_messages
    kept = messages[: max(0, MESSAGES_WAITING_MAX - len(waiting))]
    if len(kept) < len(messages):
        turn.warn(f"more than {MESSAGES_WAITING_MAX} messages wait for one step; the rest was not taken")
    if kept:
        turn.change(waiting_messages=(*waiting, *kept))
    return bool(kept)


def say_waiting(turn: Turn) -> None:
    """Say what waited for the next model call."""
    if turn.execution.waiting_messages:
        turn.say(turn.execution.waiting_messages)
        turn.change(waiting_messages=(), answer_due=False)


def keep_changes(turn: Turn, event: HooksReturned) -> ErrorRecord | None:
    """Keep what the hooks changed, up to the one that raised; return its error."""
    for run in event.runs:
        turn.tell(HookExecuted, hook=run.name, trigger=event.trigger, error=run.error)
        if run.error is not None:
            return run.error
        if run.changes is not None:
            _change(turn, run.changes, run.name)
    return None


def _change(turn: Turn, changes: Changes, hook: str) -> None:
    turn.metadata = merged(turn.metadata, changes.metadata)
    _let_wait(turn, changes.messages)
    if changes.stop is not None:
        reason = StopReason.named(changes.stop_reason)
        given = {"given": changes.stop_reason} if reason is StopReason.UNKNOWN else {}
        turn.signal_now(reason, changes.stop, hook, **given)
    if changes.go_on:
        turn.change(continuation=replace(turn.execution.continuation, continuation_requested=True))
