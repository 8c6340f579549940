"""What the server's tools answer: a run's end, a handle on a run under way, an error. Calls no server."""

from __future__ import annotations

from collections.abc import Collection
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
from holdfast.mcp_serve.run_progress import WaitingTool
from holdfast.mcp_serve.tool_listing import GET_RUN

RUN_META: Final = "holdfast.dev/run-id"
"""The key of the run's id in a result's `_meta`."""


def result_of(run: OpenRun) -> CallToolResult:
    """Return the answer of a run that is over, and a handle on one that is not."""
    if run.error is not None:
        return error_result(run.error, run.run_id)
    return handle(run) if run.state is None else _ended(run.state, run.run_id)


def handle(run: OpenRun) -> CallToolResult:
    """Return what a caller needs to ask for the run later, and what the run waits for."""
    waiting = run.progress.waiting.values()
    note = f"run {run.run_id} is under way (step {run.progress.step}); {GET_RUN} waits for its answer"
    return _handle(run, "\n".join([note, *(each.about for each in waiting)]), waiting)


def stopping(run: OpenRun) -> CallToolResult:
    """Return a handle on a run that was asked to stop: what it waited for does not matter any more."""
    return _handle(run, f"run {run.run_id} is asked to stop; {GET_RUN} tells how it ended")


def _handle(run: OpenRun, text: str, waiting: Collection[WaitingTool] = ()) -> CallToolResult:
    structured: dict[str, Any] = {"run_id": run.run_id, "status": "waiting" if waiting else "running"}
    structured |= {"step": run.progress.step, "waiting": [_waiting(each) for each in waiting]}
    return _result(text, run.run_id, structured)


def _waiting(call: WaitingTool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "run_id": call.run_id,
        "call_id": call.call_id,
        "tool": call.tool,
        "waits_for": "approval" if call.request is None else "answer",
        "expires_at": call.expires_at.isoformat() if call.expires_at else None,
    }
    if call.request is not None:
        entry |= call.request.model_dump(mode="json", exclude={"key"})
    return entry


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
