"""The run in a few lines of Markdown, as the stock Web UI shows it under "current details". Reads, never decides."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from holdfast.core.state import AgentState
    from holdfast.core.steps import CallStage
    from holdfast.core.texts import clamped

ANSWER_CHARS_MAX = 600


TOLD = {
    CallStage.WAITING: "waits for other calls",
    CallStage.BEFORE_TOOL: "hooks",
    CallStage.APPROVAL: "waits for approval",
    CallStage.RUNNING: "running",
    CallStage.AFTER_TOOL: "hooks",
}


def current_details(state: AgentState) -> str:
    """Return status, use against budget, and the latest words."""
    budget, usage = state.budget, state.usage
    step = state.current_step_or_last
    lines = [
        f"**{state.status}**" + (f" ({state.stop_reason})" if state.stop_reason else ""),
        "",
        "| | used | limit |",
        "|---|---|---|",
        f"| steps | {state.steps_used} | {_limit(budget.max_steps)} |",
        f"| tokens | {usage.total_tokens:,} | {_limit(budget.max_tokens)} |",
        f"| US dollars | {state.cost:.4f} | {'none' if budget.max_cost is None else f'{budget.max_cost:g}'} |",
    ]
    if state.waiting_calls:
        told = (f"- `{each.call.name}` ({each.call.id})" for each in state.waiting_calls)
        lines += ["", "Waiting for approval:", "", *told]
    if step is not None and step.requested_tool_calls:
        ended = {execution.call.id: execution.outcome.value for execution in step.tool_executions}
        ended |= {each.call.id: TOLD[each.stage] for each in state.running.open_calls}
        lines += ["", f"Step {step.number} asks for:", ""]
        lines += [f"- `{call.name}`: {ended.get(call.id, 'waiting')}" for call in step.requested_tool_calls]
    if state.final_response:
        lines += ["", "---", "", clamped(state.final_response, ANSWER_CHARS_MAX)]
    return "\n".join(lines)


def _limit(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
