"""Renders a run as Markdown for "Current details" in Temporal's Web UI. Reads, never decides.

It follows from the state alone, and is made when the Web UI asks for it (`workflows.details_query`). Texts of people,
models and tools are escaped (`core.conversation.markdown_escaping`), and every list has its bound, so the whole is
bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from holdfast.core.agent.budget import COST, LIMITS, SECONDS, STEPS, TOKENS, ExecutionBudget, Limit
from holdfast.core.agent.execution_state import ExecutionState, call_name, named_id
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.base import bounds
from holdfast.core.base.call_digest import short_digest
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.amounts import (
    ESTIMATED,
    WORKERS_MODEL,
    cached_note,
    dollars,
    duration,
    in_full,
    moment,
    server_calls_note,
    short_dollars,
    token_count,
)
from holdfast.core.conversation.decision_text import DONE
from holdfast.core.conversation.display_text import call_line
from holdfast.core.conversation.handoffs import Handoff
from holdfast.core.conversation.markdown_escaping import bar, block, code, table
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import (
    AgentStep,
    CallStage,
    Fallback,
    OpenCall,
    Outcome,
    StepExecution,
    ToolExecution,
)
from holdfast.core.conversation.todos import progress
from holdfast.core.conversation.verdicts import Approval
from holdfast.core.wire.contracts import ModelWait
from workflows.summaries import ending, model_of

WIDTHS: Final = (60, 30, 12)
"""How many characters of a call are shown, and twice as many of other texts; the next width if these do not fit."""

UNDER_WAY: Final = {
    CallStage.WAITING: "waits for the calls before it",
    CallStage.BEFORE_TOOL: "hooks before it",
    CallStage.APPROVAL: "waits for approval",
    CallStage.INPUT: "waits for an answer",
    CallStage.RUNNING: "running",
    CallStage.AFTER_TOOL: "hooks after it",
}

MARKS: Final = {
    Outcome.SUCCEEDED: "✓",
    Outcome.FAILED: "✗",
    Outcome.BLOCKED: "⊘ blocked",
    Outcome.DENIED: "⊘ denied",
    Outcome.CANCELLED: "⊘ cancelled",
}

ItemT = TypeVar("ItemT")


Row = tuple[str, ...]
Child = tuple[ToolCall, str, str]
"""A subagent: the call that began it, how it stands, the id of its run."""


def execution_details(state: AgentState, agent: str, wait: ModelWait | None = None) -> str:
    """Return the current details, at most DETAILS_BYTES_MAX bytes; `wait` is the model call's wait, if any."""
    execution = state.execution
    if execution is None:
        return f"**{state.status}** · agent `{agent}`"
    text = ""
    for width in WIDTHS:
        text = "\n\n".join(filter(None, _parts(state, execution, agent, width, wait)))
        if len(text.encode()) <= bounds.DETAILS_BYTES_MAX:
            break
    return bounded(text)


def bounded(text: str) -> str:
    """Return `text`, or the lines of it that fit."""
    data = text.encode()
    if len(data) <= bounds.DETAILS_BYTES_MAX:
        return text
    note = "\n\n(There is more: `holdfast show` has all of it.)"
    start = data[: bounds.DETAILS_BYTES_MAX - len(note)]
    return start[: start.rindex(b"\n")].decode() + note


def listed(heading: str, items: Sequence[ItemT], line_of: Callable[[ItemT], str]) -> str:
    """Return the last of `items` as a list under `heading`, with a count of earlier ones; nothing without items."""
    if not items:
        return ""
    shown = items[-bounds.DETAILS_LISTED_MAX :]
    before = len(items) - len(shown)
    lines = [f"({before:,} more before these)"] if before else []
    return "\n".join((f"**{heading}**", "", *(f"- {each}" for each in (*lines, *map(line_of, shown)))))


def _parts(
    state: AgentState,
    execution: ExecutionState,
    agent: str,
    width: int,
    wait: ModelWait | None,
) -> Iterator[str]:
    done = execution.step_executions[-bounds.DETAILS_STEPS_MAX :]
    chars = min(2 * width, bounds.DETAILS_WORDS_CHARS_MAX)
    yield _status(state, execution, agent)
    yield _budget(state, execution)
    yield _model_wait(execution, wait, chars)
    yield _under_way(execution, width)
    yield _approvals(state, execution, chars)
    yield _questions(state, execution, chars)
    yield _todos(state, chars)
    yield _stops(execution, chars)
    yield _waiting_messages(execution, chars)
    yield _handoffs(execution, chars)
    yield listed("Went back", execution.steps_back, lambda each: code(each.line, chars))
    yield _subagents(execution, done, width)
    yield _problems(state, execution, done, chars)
    yield _answer(state)
    yield _steps(state, execution, done, width)  # last: the longest is what is cut first


def _status(state: AgentState, execution: ExecutionState, agent: str) -> str:
    model, since = model_of(state), execution.started_at
    facts = [f"agent `{agent}`", f"model {code(model, bounds.WORD_CHARS_MAX)}" if model else "the worker's model"]
    if execution.completed_at is not None:
        took = (execution.completed_at - since).total_seconds()
        facts.append(f"{moment(since)} to {moment(execution.completed_at, since)}, {duration(took)}")
    else:
        facts.append(f"since {moment(since)}; this is of {moment(state.updated_at, since)}")
    signal = state.stop_signal
    why = f"\n\nWhy: {code(signal.message, bounds.DETAILS_WORDS_CHARS_MAX)}" if signal and signal.message else ""
    return " · ".join((f"**{ending(state.status, state.stop_reason)}**", *facts)) + why


def _budget(state: AgentState, execution: ExecutionState) -> str:
    budget, use = state.budget, state.budget_use
    names = {SECONDS: "time"} | ({STEPS: "steps, subagents' too"} if execution.subagent_steps else {})
    texts = {
        TOKENS: token_count(state.usage) + cached_note(state.usage),
        COST: in_dollars(use.cost, use.unpriced, unit=""),
        SECONDS: duration(use.seconds),
    }
    rows = [
        _limited(each, names.get(each, each.unit), texts.get(each) or f"{each.used(use):,}", each.used(use), budget)
        for each in LIMITS
    ]
    if budget.deadline is not None:
        rows.append(("deadline", "", moment(budget.deadline), ""))
    return table(("", ">used", ">limit", ""), rows)


def in_dollars(cost: float, unpriced: Sequence[str], *, unit: str = " USD") -> str:
    """Return a cost as Markdown, with the names of models escaped."""
    return dollars(cost, unpriced, unit=unit, written=lambda model: code(model, bounds.NAME_CHARS_MAX))


def _limited(
    limit: Limit, name: str, used_text: str, used: float, budget: ExecutionBudget
) -> tuple[str, str, str, str]:
    allowed = limit.of(budget)
    if allowed is None:
        return name, used_text, "none", ""
    return name, used_text, duration(allowed) if limit is SECONDS else in_full(allowed), bar(used, allowed)


def _model_wait(execution: ExecutionState, wait: ModelWait | None, chars: int) -> str:
    if wait is None:
        return ""
    since = execution.started_at
    why = code(wait.message, 2 * chars)
    times = f"attempt {wait.attempt}, next at {moment(wait.next_at, since)}; since {moment(wait.since, since)}"
    return f"**Waiting for the model endpoint**\n\n{why}, {times}. How it stands now: `holdfast show`."


def _under_way(execution: ExecutionState, width: int) -> str:
    """Return what the run waits for; approvals have a part of their own."""
    if execution.status.is_terminal:
        return ""
    step, since = execution.current_step, execution.started_at
    number = step.number if step else len(execution.step_executions) + 1
    if execution.cancelling:
        return "**Under way**\n\n- what was cancelled is to tell its end"
    if execution.hooks_under_way is not None:
        return f"**Under way**\n\n- hooks at `{execution.hooks_under_way}`"
    if execution.summary_under_way:
        return f"**Under way**\n\n- a summary of older messages, before step {number}"
    if step is not None and step.inference_response is None:
        begun = execution.current_step_started_at
        at = f", since {moment(begun, since)}" if begun else ""
        return f"**Under way**\n\n- the model call of step {number}{at}"

    def line(each: OpenCall) -> str:
        at = f" since {moment(each.started_at, since)}" if each.started_at else ""
        return f"{code(call_line(each.call, width), width)}: {UNDER_WAY[each.stage]}{at}"

    calls = [each for each in execution.open_calls if each.stage not in (CallStage.APPROVAL, CallStage.INPUT)]
    return listed(f"Under way in step {number}", calls, line)


def _approvals(state: AgentState, execution: ExecutionState, chars: int) -> str:
    waiting = state.waiting_calls
    if not waiting:
        return ""
    since = execution.started_at
    rows = [
        (
            code(call_line(each.call, chars), chars),
            code(each.call.id, bounds.CALL_ID_KEPT_CHARS_MAX),
            f"`{short_digest(each.digest or each.call.digest)}`",
            moment(each.expires_at, since) if each.expires_at else "never",
        )
        for each in waiting[: bounds.DETAILS_LISTED_MAX]
    ]
    more = f"\n\n({len(waiting) - len(rows):,} more wait.)" if len(waiting) > len(rows) else ""
    which = "" if len(waiting) == 1 else " CALL"
    decide = f"`holdfast approve {execution.execution_id}{which}` lets it run; `holdfast deny` does not."
    calls = table(("call", "its id", "digest", "expires"), rows)
    return f"**Waiting for approval**\n\n{calls}{more}\n\n{decide}"


def _questions(state: AgentState, execution: ExecutionState, chars: int) -> str:
    """Return what the servers of calls ask a person for; never the state that they want back."""
    waiting = [(each, each.input_request) for each in state.input_calls[: bounds.DETAILS_LISTED_MAX]]
    if not waiting:
        return ""
    since = execution.started_at
    rows = [
        (
            code(call_line(each.call, chars), chars),
            code(each.call.id, bounds.CALL_ID_KEPT_CHARS_MAX),
            code(request.message, chars) if request else "",
            code(request.url, bounds.DETAILS_WORDS_CHARS_MAX) if request and request.url else "",
            moment(each.expires_at, since) if each.expires_at else "never",
        )
        for each, request in waiting
    ]
    which = "" if len(state.input_calls) == 1 else " CALL"
    calls = table(("call", "its id", "asks", "at", "expires"), rows)
    return f"**Waiting for an answer**\n\n{calls}\n\n`holdfast answer {execution.execution_id}{which}` gives it."


def _todos(state: AgentState, chars: int) -> str:
    """Return the agent's own list: all that is open before what is done, as far as it fits."""
    if not state.todos:
        return ""
    first = sorted(state.todos, key=lambda each: each.status == "done")[: bounds.DETAILS_LISTED_MAX]
    shown = [f"- {code(each.line, chars)}" for each in state.todos if each in first]
    more = len(state.todos) - len(shown)
    lines = [*shown, *([f"- ({more:,} more)"] if more > 0 else [])]
    return "\n".join((f"**Todo** ({progress(state.todos)})", "", *lines))


def _stops(execution: ExecutionState, chars: int) -> str:
    since = execution.started_at
    return listed(
        "Stop signals",
        execution.continuation.stop_signals,
        lambda each: (
            f"{each.reason}"
            + (f" by {code(each.source, chars)}" if each.source else "")
            + f" at {moment(each.at, since)}"
            + (f": {code(each.message, chars)}" if each.message else "")
        ),
    )


def _waiting_messages(execution: ExecutionState, chars: int) -> str:
    return listed(
        "Messages for the next model call", execution.waiting_messages, lambda each: code(each.shown_text, chars)
    )


def _steps(state: AgentState, execution: ExecutionState, done: Sequence[StepExecution], width: int) -> str:
    rows = [_row(each.step, width, duration(each.duration.total_seconds())) for each in done]
    if len(execution.step_executions) > len(done):
        rows.insert(0, _older_row(state, execution, done))
    now = execution.current_step
    if now is not None and now.inference_response is not None:
        rows.append(_row(now, width, "…"))
    return table((">step", "what it did", ">took", ">tokens in / out", ">US dollars"), rows) if rows else ""


def _row(step: AgentStep, width: int, took: str) -> Row:
    usage = step.usage
    tokens = f"{ESTIMATED if usage.estimated_tokens else ''}{usage.input_tokens:,} / {usage.output_tokens:,}"
    notes = f" ({code(step.model_call_changes.line, width)})" if step.model_call_changes is not None else ""
    if step.fallbacks:
        notes += f" ({_fallback(step.fallbacks, width)})"
    if step.server_tool_calls:
        notes += f" (the provider ran {code(server_calls_note(step.server_tool_calls), width)})"
    return str(step.number), f"{_deeds(step, width)}{notes}", took, tokens, short_dollars(step.cost, step.unpriced)


def _fallback(fallbacks: Sequence[Fallback], width: int) -> str:
    """Return which model answered in place of which."""
    return f"{code(fallbacks[-1].to, width)} instead of {code(fallbacks[0].route or WORKERS_MODEL, width)}"


def _older_row(state: AgentState, execution: ExecutionState, shown: Sequence[StepExecution]) -> Row:
    """Return one row for the steps before those that are shown: the totals less what the shown ones used."""
    steps = [each.step for each in shown] + ([execution.current_step] if execution.current_step else [])
    used, cost = [each.usage for each in steps], sum(each.cost for each in steps)
    tokens_in = state.usage.input_tokens - sum(each.input_tokens for each in used)
    tokens_out = state.usage.output_tokens - sum(each.output_tokens for each in used)
    took = duration((shown[0].started_at - execution.started_at).total_seconds())
    numbers = f"1 to {len(execution.step_executions) - len(shown):,}"
    estimated = state.usage.estimated_tokens - sum(each.estimated_tokens for each in used)
    tokens = f"{ESTIMATED if estimated > 0 else ''}{max(0, tokens_in):,} / {max(0, tokens_out):,}"
    # which unpriced models they used is not recorded: any may be theirs, and naming more is safe
    return numbers, "(earlier steps)", took, tokens, short_dollars(max(0.0, state.cost - cost), execution.unpriced)


def _deeds(step: AgentStep, width: int) -> str:
    """Return a step's calls with their outcomes, or that it answered."""
    calls = step.requested_tool_calls
    if not calls:
        response = step.response or step.partial_response
        if step.errors:
            return f"✗ {code(step.errors[-1].type, width)}"
        return f"says {code(response.text, width)}" if response else "no answer"
    ended = {each.call.id: each for each in step.tool_executions}
    most = bounds.DETAILS_LISTED_MAX
    deeds = [_deed(call, ended.get(call.id), width) for call in calls[:most]]
    if len(calls) > most:
        outcomes = Counter(ended[call.id].outcome if call.id in ended else "open" for call in calls[most:])
        deeds.append(f"{len(calls) - most} more: " + ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items()))
    return "; ".join(deeds)


def _deed(call: ToolCall, end: ToolExecution | None, width: int) -> str:
    if end is None:
        return f"{code(call_line(call, width), width)} …"
    ran = code(call_line(end.call, width), width)  # as a hook or a person changed it
    if end.outcome is Outcome.DENIED and end.approval and end.approval.decision == "expired":
        return f"{ran} ⊘ expired"
    decided = f" {_decision(end.approval, end.call, width)}" if end.approval else ""
    why = f" {code(end.error.type, width)}" if end.outcome is Outcome.FAILED and end.error else ""
    return f"{ran} {MARKS[end.outcome]}{why}{decided}"


def _decision(approval: Approval, call: ToolCall, width: int) -> str:
    """Return who decided about a call; for an edit also the original call, secrets hidden."""
    by = f"by {code(approval.by or 'somebody', width)}"
    if approval.decision in ("deny", "expired"):  # the outcome says so
        return by if approval.decision == "deny" else ""
    done = f"{DONE[approval.decision]} {by}"
    if approval.asked is None:
        return f"({done})"
    return f"({done}, asked {code(call_line(replace(call, arguments=approval.asked), width), width)})"


def _ended_subagents(step: AgentStep) -> tuple[Child, ...]:
    ended = (each for each in step.tool_executions if each.call.name == SPAWN_TOOL and each.ran)
    return tuple((each.call, each.outcome.value, each.id) for each in ended)


def _handoffs(execution: ExecutionState, chars: int) -> str:
    """Return the latest handoffs, each with the step that it ended."""
    return listed("Handoffs", execution.handoffs, lambda each: _handoff(each, chars))


def _handoff(handoff: Handoff, chars: int) -> str:
    reason = f": {code(handoff.reason, chars)}" if handoff.reason else ""
    return f"step {handoff.step_number}: `{handoff.from_agent}` to `{handoff.to_agent}`{reason}"


def _subagents(execution: ExecutionState, done: Sequence[StepExecution], width: int) -> str:
    """Return the latest subagents, each with the id of its run."""
    children, now = [child for each in done for child in _ended_subagents(each.step)], execution.current_step
    if now is not None:
        children += _ended_subagents(now)
        for each in execution.open_calls:
            if each.call.name == SPAWN_TOOL:
                id_ = named_id(execution.execution_id, call_name(now.number, each.index))
                children.append((each.call, UNDER_WAY[each.stage], id_))

    def line(child: Child) -> str:
        arguments = child[0].arguments
        agent, task = (str(arguments.get(name, "")) for name in ("agent", "task"))
        return f"{code(agent, bounds.NAME_CHARS_MAX)} {code(task, width)}: {child[1]}, `{child[2]}`"

    return listed("Subagents", children, line)


def _problems(state: AgentState, execution: ExecutionState, done: Sequence[StepExecution], chars: int) -> str:
    """Return the latest errors and warnings."""
    errors = [error for each in done for error in each.step.all_errors]
    if execution.error is not None and execution.error not in errors:
        errors.append(execution.error)
    error_list = listed("Errors", errors, lambda each: f"{code(each.type, chars)}: {code(each.message, chars)}")
    warning_list = listed("Warnings", state.warnings, lambda each: code(each, chars))
    return "\n\n".join(filter(None, (error_list, warning_list)))


def _answer(state: AgentState) -> str:
    if not state.final_response:
        return ""
    return f"**Answer**\n\n{block(state.final_response, bounds.DETAILS_ANSWER_CHARS_MAX)}"
