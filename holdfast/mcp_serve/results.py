"""What the server's tools answer: a run's end, a handle on a run under way, an error. Calls no server."""

from __future__ import annotations

from typing import Any, Final

from mcp_types import CallToolResult, TextContent
from pydantic import JsonValue

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import TextFormat
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.json_parsing import read_json
from holdfast.core.base.safe_text import encodable
from holdfast.mcp_serve.open_runs import OpenRun
from holdfast.mcp_serve.run_progress import approve_command
from holdfast.mcp_serve.tool_listing import GET_RUN

RUN_META: Final = "holdfast.dev/run-id"
"""The key of the run's id in a result's `_meta`."""


def result_of(run: OpenRun) -> CallToolResult:
    """Return the answer of a run that is over, and a handle on one that is not."""
    if run.error is not None:
        return error_result(run.error, run.run_id)
    return handle(run) if run.state is None else _ended(run.state, run.run_id)


def handle(run: OpenRun, note: str = "") -> CallToolResult:
    """Return what a caller needs to ask for the run later, and what the run waits for."""
    waiting = [
        {
            "run_id": each.run_id,
            "call_id": each.call_id,
            "tool": each.tool,
            "expires_at": each.expires_at.isoformat() if each.expires_at else None,
        }
        for each in run.progress.waiting.values()
    ]
    status = "waiting" if waiting else "running"
    structured: dict[str, Any] = {"run_id": run.run_id, "status": status, "step": run.progress.step}
    structured["waiting"] = waiting
    lines = [note or f"run {run.run_id} is under way (step {run.progress.step}); {GET_RUN} waits for its answer"]
    lines += [
        f"{each.tool} waits for a person's approval: {approve_command(each.run_id, each.call_id)}"
        for each in run.progress.waiting.values()
    ]
    return _result("\n".join(lines), run.run_id, structured)


def error_result(error: HoldfastError, run_id: str | None = None) -> CallToolResult:
    """Return an error as a tool's result, which the caller's model can read."""
    return _result(error.message, run_id, is_error=True)


def _ended(state: AgentState, run_id: str) -> CallToolResult:
    if state.status is not ExecutionStatus.COMPLETED:
        reason = state.stop_reason or "stop"
        answer = f"; its answer so far:\n{state.final_response}" if state.final_response else ""
        return _result(f"run {run_id} was stopped before it had answered ({reason}){answer}", run_id, is_error=True)
    return _result(state.final_response, run_id, _structured(state))


def _structured(state: AgentState) -> JsonValue:
    """Return the answer as JSON where the agent has a form; only objects can travel to older clients."""
    if isinstance(state.context.response_format, TextFormat):
        return None
    try:
        value = read_json(state.final_response)
    except ValueError:  # the provider cut it short
        return None
    return value if isinstance(value, dict) else None


def _result(text: str, run_id: str | None, structured: JsonValue = None, *, is_error: bool = False) -> CallToolResult:
    """Return a result; a `structured` of null counts as none."""
    fields: dict[str, Any] = {} if structured is None else {"structured_content": structured}
    if run_id is not None:
        fields["_meta"] = {RUN_META: run_id}
    return CallToolResult(content=[TextContent(text=encodable(text))], is_error=is_error, **fields)
