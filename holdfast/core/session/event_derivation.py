"""Derives the events of a session from its state before and after a transition. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import DETAILS_WORDS_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.display_text import on_a_line
from holdfast.core.session.session_state import SessionState
from holdfast.core.wire.session_contracts import SessionMessage
from holdfast.core.wire.session_events import (
    AnySessionEvent,
    MessageAccepted,
    SessionChanged,
    SessionClosed,
    SessionCreated,
    SessionForked,
    SessionPart,
    SessionResumed,
    SessionSuspended,
)


def session_events(before: SessionState | None, after: SessionState, run_id: str) -> Iterator[AnySessionEvent]:
    """Yield the events of one transition in the Temporal run `run_id`; a new session has no `before`."""
    facts = (after.agent_id, run_id, after.definition.name, after.settings.tenant, after.updated_at)
    if before is None:
        yield SessionCreated(*facts)
        if after.place is not None and after.place.agent_id != after.agent_id:
            yield SessionForked(*facts, origin=after.place)
        return
    earlier_ids = {each.message_id for each in _unsaved(before)}
    for message in _unsaved(after):
        if message.message_id not in earlier_ids:
            yield _accepted(partial(MessageAccepted, *facts), message, after)
    if changed := tuple(_changed(before, after)):
        place = None if after.clearing else after.place
        yield SessionChanged(*facts, changed=changed, place=place)
    if after.suspended and not before.suspended:
        yield SessionSuspended(*facts, running_id=after.turn.execution_id if after.turn else None)
    if before.suspended and not after.suspended and not after.closing:
        yield SessionResumed(*facts, waiting=len(after.queue))
    if after.closing and not before.closing:
        yield SessionClosed(*facts, at_once=after.at_once, waiting=len(after.queue))


def _accepted(make: Callable[..., MessageAccepted], message: SessionMessage, state: SessionState) -> MessageAccepted:
    return make(
        message_id=message.message_id,
        while_running=message.while_running or state.settings.while_running,
        chars=len(message.text),
        excerpt=on_a_line(message.text, DETAILS_WORDS_CHARS_MAX),
    )


def _unsaved(state: SessionState) -> Iterator[SessionMessage]:
    """Yield every message that no snapshot holds; accepting a message is the only way in."""
    yield from state.queue
    yield from state.unanswered
    if state.turn is not None:
        yield from state.turn.said
        yield from state.turn.injected


def _changed(before: SessionState, after: SessionState) -> Iterator[SessionPart]:
    old, new = before.definition, after.definition
    if _but_parts(old) != _but_parts(new):
        yield "definition"
    if old.system_prompt != new.system_prompt:
        yield "system_prompt"
    if old.llm != new.llm:
        yield "llm"
    if old.budget != new.budget:
        yield "budget"
    if before.subagents != after.subagents:
        yield "subagents"
    if before.settings.while_running != after.settings.while_running:
        yield "while_running"
    if _conversation_changed(before, after):
        yield "conversation"


def _but_parts(definition: AgentDefinition) -> AgentDefinition:
    """Return the definition without the parts that have changes of their own."""
    blank = AgentDefinition(name=definition.name)
    return replace(definition, system_prompt=blank.system_prompt, llm=blank.llm, budget=blank.budget)


def _conversation_changed(before: SessionState, after: SessionState) -> bool:
    """Return whether the session was cleared, or went to another place; an execution's end is neither."""
    if before.turn is not None:
        return after.clearing and not before.clearing
    return (before.place, before.snapshot) != (after.place, after.snapshot)
