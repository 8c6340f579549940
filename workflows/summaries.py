"""The summaries of activities, timers and children: the one line that Temporal's UI shows. Decides nothing.

Each depends on the state and the command alone, so that a replay writes the same; none holds an address or a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.agent.execution_state import ExecutionState, ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.amounts import ESTIMATED, amount, counted, duration, moment
from holdfast.core.conversation.display_text import call_line, on_a_line, summary_line
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallTool, RequestApproval, RequestInput, RunHooks
from holdfast.core.session.session_state import SessionState
from holdfast.core.wire.session_contracts import Branch

MODEL_CHARS_MAX = 30
LISTING_LIMIT = "time limit, while MCP servers are listed"
CALL_CHARS_MAX = 40
"""How much of a call is shown where the line holds more than the call."""


def model_of(state: AgentState) -> str:
    """Return the model's name: the one fallen back to, the agent's own, else the latest answer's; empty before it."""
    step = state.execution.current_step if state.execution else None
    if step is not None and step.fallbacks:
        return step.fallbacks[-1].to
    if step is not None and step.model_call_changes is not None and step.model_call_changes.model is not None:
        return step.model_call_changes.model
    response = state.last_step.inference_response if state.last_step else None
    return (state.llm.model if state.llm else None) or (response.model if response else "")


def ending(status: ExecutionStatus, reason: StopReason | None) -> str:
    """Return the status, with its reason where that says more: `stopped (steps_limit)`."""
    return f"{status}" if reason is None or reason.value == status.value else f"{status} ({reason})"


def of_model_call(state: AgentState, step_number: int, *, limited: bool = False) -> str:
    """Return `step 3 · gpt-x · after 2 calls · 1.2k tok so far`; behind it, whether the route has rate limits."""
    model = model_of(state)
    last = state.last_step
    calls = len(last.requested_tool_calls) if last and last.number == step_number - 1 else 0
    facts = (
        f"step {step_number}",
        on_a_line(model, MODEL_CHARS_MAX) if model else "",
        f"after {counted(calls, 'call')}" if calls else "",
        f"{ESTIMATED if state.usage.estimated_tokens else ''}{amount(state.usage.total_tokens)} tok so far"
        if state.usage.total_tokens
        else "",
        "rate-limited" if limited else "",
    )
    return summary_line(" · ".join(filter(None, facts)))


def of_summary(step_number: int) -> str:
    """Return the line of a summary call."""
    return f"step {step_number} · summary of older messages"


def of_cancelled_answer(call: str) -> str:
    """Return the line of an answer that is cancelled at its provider."""
    return f"{call} · cancel the answer under way at the provider"


def of_tool_call(command: CallTool) -> str:
    """Return `read_file(src/a.py)`."""
    return summary_line(call_line(command.call))


def of_mcp(servers: Sequence[str]) -> str:
    """Return `tools of the MCP servers github, files`."""
    return summary_line(f"tools of the MCP server{'s' if len(servers) > 1 else ''} {', '.join(servers)}")


def of_hooks(command: RunHooks) -> str:
    """Return `step 3 · before_tool pay: audit, limit_amount`."""
    names, context = ", ".join(traits.name for traits in command.hooks), command.context
    call = f" {on_a_line(context.call.name, CALL_CHARS_MAX)}" if context.call else ""
    return summary_line(f"step {context.step_number} · {context.trigger}{call}: {names}")


def of_time_limit(execution: ExecutionState, fires_at: datetime) -> str:
    """Return `budget: 10 min until 14:05:09Z`, or `deadline 14:05:09Z` where that comes first."""
    at, seconds = moment(fires_at, execution.started_at), execution.budget.max_seconds
    if seconds is None or fires_at == execution.budget.deadline:
        return f"deadline {at}"
    return f"budget: {duration(seconds)} until {at}"


def of_approval(command: RequestApproval, expires_at: datetime, since: datetime) -> str:
    """Return `approval of pay(5) until 14:05:09Z`."""
    return summary_line(f"approval of {call_line(command.call, CALL_CHARS_MAX)} until {moment(expires_at, since)}")


def of_input(command: RequestInput, since: datetime) -> str:
    """Return `answer for book(5) until 14:05:09Z`."""
    until = moment(command.expires_at, since)
    return summary_line(f"answer for {call_line(command.call, CALL_CHARS_MAX)} until {until}")


def of_grace(calls: int) -> str:
    """Return the line of the grace timer, within which cancelled calls report their ends."""
    return f"grace: what was cancelled tells its end ({counted(calls, 'subagent') if calls else 'model call'})"


def of_record(state: AgentState) -> str:
    """Return `record: stopped (steps_limit), 7 steps`."""
    return f"record: {ending(state.status, state.stop_reason)}, {counted(state.step_count, 'step')}"


def of_finding(agent_id: str) -> str:
    """Return the line of the look-up of a session's stored state."""
    return f"what is kept of agent {agent_id}"


def of_branch(branch: Branch) -> str:
    """Return the line of a rewind."""
    after = "" if branch.steps is None else f", after {counted(branch.steps, 'step')}"
    return f"back to execution {branch.execution_id}{after}"


def of_keeping(session: SessionState) -> str:
    """Return the line of storing a session that leaves the server."""
    waiting = f", {counted(len(session.queue), 'message')} waiting" if session.queue else ""
    return f"session kept: {counted(session.executions, 'execution')}{waiting}"


def of_idle(seconds: float) -> str:
    """Return the line of the idle timer, after which a session leaves the server."""
    return f"idle: leaves the server after {duration(seconds)} without a message"
