"""Renders a session as Markdown for "Current details" in Temporal's Web UI. Reads, never decides."""

from __future__ import annotations

from holdfast.core.base import bounds
from holdfast.core.conversation.amounts import counted, duration, moment, tokens_used
from holdfast.core.conversation.markdown_escaping import code, table
from holdfast.core.session.session_state import SessionState
from holdfast.core.wire.run_metadata import limits_of
from workflows.execution.current_details import bounded, in_dollars, listed
from workflows.summaries import ending

_CHARS = bounds.DETAILS_WORDS_CHARS_MAX


def session_details(state: SessionState) -> str:
    """Return the session's current details, at most DETAILS_BYTES_MAX bytes."""
    parts = (_status(state), _under_way(state), _queue(state), _unanswered(state), _executions(state), _settings(state))
    return bounded("\n\n".join(filter(None, parts)))


def _status(state: SessionState) -> str:
    facts = (
        f"**{state.status}**" + (" (closing)" if state.closing and state.status != "closed" else ""),
        f"agent `{state.definition.name}`",
        counted(state.executions, "execution"),
        tokens_used(state.usage),
        in_dollars(state.cost, state.unpriced),
        f"this is of {moment(state.updated_at)}",
    )
    return " · ".join(facts)


def _under_way(state: SessionState) -> str:
    turn = state.turn
    if turn is None:
        return ""
    lines = [f"**Under way**: execution {state.executions:,}, `{turn.execution_id}`"]
    if turn.stop is not None:
        lines.append(f"(stop requested: {'at once' if turn.stop == 'now' else 'after its step'})")
    if state.clearing:
        lines.append("(the conversation is forgotten at its end)")
    messages = listed("Said to it", (*turn.said, *turn.injected), lambda each: code(each.text, _CHARS))
    return " ".join(lines) + f"\n\n{messages}"


def _queue(state: SessionState) -> str:
    """Return the next messages in the queue, and a count of the rest."""
    if not state.queue:
        return ""
    shown = state.queue[: bounds.DETAILS_LISTED_MAX]
    more = len(state.queue) - len(shown)
    lines = [f"{place}. {code(each.text, _CHARS)}" for place, each in enumerate(shown, 1)]
    if more:
        lines.append(f"\n({more:,} more after these)")
    return "\n".join((f"**Waiting**: {len(state.queue):,}", "", *lines))


def _unanswered(state: SessionState) -> str:
    text = listed("Said to executions that left nothing", state.unanswered, lambda each: code(each.text, _CHARS))
    return f"{text}\n\nThey are said again with the next message, or by `holdfast session resume`." if text else ""


def _executions(state: SessionState) -> str:
    """Return the latest executions, the newest first."""
    messages: dict[str, int] = {}
    for each in reversed(state.known):
        if each.execution_id not in messages and len(messages) == bounds.DETAILS_LISTED_MAX:
            break
        messages[each.execution_id] = messages.get(each.execution_id, 0) + 1
    rows = [(f"`{id_}`", str(count), _standing(state, id_)) for id_, count in messages.items()]
    return table(("execution", ">messages", "status"), rows) if rows else ""


def _standing(state: SessionState, execution_id: str) -> str:
    if state.turn is not None and state.turn.execution_id == execution_id:
        return "running"
    if execution_id == state.last_id and state.last_status is not None:
        return ending(state.last_status, state.last_stop_reason)
    return "ended"


def _settings(state: SessionState) -> str:
    settings, model = state.settings, state.definition.llm.model
    idle = "never" if settings.idle_seconds is None else f"after {duration(settings.idle_seconds)} without a message"
    rows = [
        ("model", code(model, bounds.WORD_CHARS_MAX) if model else "the worker's"),
        ("a message while it runs", settings.while_running),
        ("leaves the server", idle),
    ]
    if settings.tenant:
        rows.append(("tenant", code(settings.tenant, bounds.TENANT_CHARS_MAX)))
    if state.place is not None:
        after = "" if state.place.steps is None else f", after {state.place.steps:,} steps"
        rows.append(("the conversation stands at", f"execution `{state.place.execution_id}`{after}"))
    rows += [(f"limit of an execution: {name}", limit) for name, limit in limits_of(state.definition.budget)]
    return table(("setting", "is"), rows)
