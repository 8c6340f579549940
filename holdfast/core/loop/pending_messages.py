"""Messages and changes from hooks and people that wait for the next model call. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_json

from holdfast.core.agent.hooks import Changes, HookRun, merged
from holdfast.core.agent.user_metadata import checked_metadata
from holdfast.core.base.bounds import MESSAGES_WAITING_BYTES_MAX, MESSAGES_WAITING_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.model_call_changes import UNCHANGED
from holdfast.core.conversation.steps import ErrorRecord, RevisedAnswer
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop import headroom
from holdfast.core.loop.events import HooksReturned
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import HookExecuted, MessageInjected

METADATA_BYTES_MAX: Final = 256 * 1024
"""The most that an agent's metadata take, in bytes of JSON: every page of the state holds them."""

ROLES: Final = ("user", "system")
ROLES_RULE: Final = "only user and system messages are accepted"
"""The roles that a message from outside can have."""

ENDED: Final = "the run has ended; start another one"
"""The refusal of a message after the end."""


def problem_with_message(message: Message, waiting: Sequence[Message], *, ended: bool) -> str | None:
    """Return why `message` would be refused beside those `waiting` for the next model call, if so."""
    if ended:
        return ENDED
    if message.role not in ROLES:
        return f"a message of the role {message.role!r} is not accepted: {ROLES_RULE}"
    used = sum(len(canonical(each)) for each in (*waiting, message))
    if len(waiting) >= MESSAGES_WAITING_MAX or used > MESSAGES_WAITING_BYTES_MAX:
        text = f"{len(waiting)} messages ({used:,} bytes with this one) wait for the next step"
        return f"{text}, at most {MESSAGES_WAITING_MAX} and {MESSAGES_WAITING_BYTES_MAX:,} bytes can; send it later"
    return None


def queue_message(transition: Transition, message: Message) -> None:
    """Queue a message for the next model call; the loop does not end before the model has answered it.

    One that does not fit, or has the role of the model or a tool, is refused with a warning.
    """
    if message.role not in ROLES:
        transition.warn(f"a message of the role {message.role!r} was not accepted: {ROLES_RULE}")
    elif _queued(transition, (message,)):
        transition.change(answer_due=True)
        transition.emit(MessageInjected, message=message)


def deliver_pending(transition: Transition) -> None:
    """Add the waiting messages to the conversation."""
    if transition.execution.waiting_messages:
        transition.add_messages(transition.execution.waiting_messages)
        transition.change(waiting_messages=(), answer_due=False)


def merge_tool_metadata(transition: Transition, entries: Mapping[str, JsonValue], tool: str) -> None:
    """Add what a tool has set to the agent's metadata, as `merge_metadata`; what is not allowed costs a warning."""
    try:
        checked = checked_metadata(entries)
    except InvalidInput as error:
        transition.warn(f"what the tool {tool!r} set as metadata was not accepted: {error.message}")
        return
    merge_metadata(transition, checked, f"what the tool {tool!r} set as metadata was")


def merge_metadata(
    transition: Transition, entries: Mapping[str, JsonValue], what: str = "the metadata of this run were"
) -> None:
    """Add a run's metadata to the agent's; a value of none removes an entry. Too much is refused with a warning."""
    if not entries:
        return
    metadata = merged(transition.metadata, entries)
    if (size := len(to_json(metadata))) > METADATA_BYTES_MAX:
        allowed = f"the agent's would take {size:,} bytes, at most {METADATA_BYTES_MAX:,} are kept"
        transition.warn(f"{what} not accepted: {allowed}")
        return
    transition.metadata = metadata


def apply_changes(transition: Transition, event: HooksReturned) -> ErrorRecord | None:
    """Apply the changes of the hooks, up to the one that raised; return its error."""
    refused = any(run.changes is not None and run.changes.reask is not None for run in event.runs)
    for run in event.runs:
        answer = run.changes.answer if run.changes is not None else None
        transition.emit(HookExecuted, hook=run.name, trigger=event.trigger, error=run.error, answer=answer)
        if run.error is not None:
            return run.error
        if (problem := _change(transition, run, refused=refused)) is not None:
            return problem
    return None


def _change(transition: Transition, run: HookRun, *, refused: bool) -> ErrorRecord | None:
    """Apply what one hook changed; where the hooks have `refused` the answer, none can give another text."""
    changes, hook = run.changes or Changes(), run.name
    metadata = merged(transition.metadata, changes.metadata)
    if changes.metadata and (size := len(to_json(metadata))) > METADATA_BYTES_MAX:
        text = (
            f"the hook {hook!r} brought the agent's metadata to {size:,} bytes, at most {METADATA_BYTES_MAX:,} are kept"
        )
        return ErrorRecord(type="HookFailed", message=text, source=hook)
    transition.metadata = metadata
    if changes.messages:
        _queued(transition, changes.messages)
    if changes.stop is not None:
        reason = StopReason.named(changes.stop_reason)
        unknown = {"given": changes.stop_reason} if reason is StopReason.UNKNOWN else {}
        transition.signal_now(reason, changes.stop, hook, {**changes.stop_context, **unknown, "hook": hook})
    step = transition.execution.current_step
    if changes.answer is not None and not refused and step is not None and step.inference_response is not None:
        transition.change_step(revised=RevisedAnswer(text=changes.answer, hook=hook))
    if changes.reask is not None and step is not None and step.inference_response is not None:
        response = replace(step.inference_response, format_problem=changes.reask)
        transition.change_step(inference_response=response)
    if changes.model_call is not None and step is not None:
        transition.change_step(model_call_changes=(step.model_call_changes or UNCHANGED).then(changes.model_call, hook))
        headroom.count_for_route(transition)
    if changes.go_on:
        transition.change(continuation=replace(transition.execution.continuation, continuation_requested=True))
    return None


def _queued(transition: Transition, messages: Sequence[Message]) -> bool:
    """Queue `messages` for the next model call; return whether there was room for all of them, and warn if not."""
    waiting = [*transition.execution.waiting_messages]
    used = sum(len(canonical(message)) for message in waiting)
    for message in messages:
        used += len(canonical(message))
        if len(waiting) >= MESSAGES_WAITING_MAX:
            transition.warn(f"more than {MESSAGES_WAITING_MAX} messages wait for one step; the rest was not accepted")
            break
        if used > MESSAGES_WAITING_BYTES_MAX:
            most = f"{MESSAGES_WAITING_BYTES_MAX:,} bytes"
            transition.warn(f"more than {most} of messages wait for one step; the rest was not accepted")
            break
        waiting.append(message)
    added = len(waiting) - len(transition.execution.waiting_messages)
    if added:
        transition.change(waiting_messages=tuple(waiting))
    return added == len(messages)
