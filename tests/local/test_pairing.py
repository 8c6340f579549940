"""Every requested call gets one tool message, whatever became of it (docs/spec.md, section 3)."""

from __future__ import annotations

import asyncio

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.hooks import Changes, HookContext, hook
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.conversation.messages import ToolCall, pairing_problem
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.tools.tools import tool
from holdfast.core.wire.execution_events import ToolCallCompleted
from holdfast.local import LocalDriver
from holdfast.testing.script import Call, calls
from holdfast.testing.scripted_model import ScriptedModel

AGENT = AgentDefinition(name="local", tools="all", hooks="all", approvals=(ApprovalRule(tools=("pay",)),))
ASKED = calls(
    *(Call("fine"), Call("failing"), Call("guarded"), Call("pay"), Call("waiting")),
    *(Call("nowhere"), Call("fine", "{no JSON"), Call("fine", {"surprise": 1})),
)


@tool
def fine() -> str:
    """Do well."""
    return "well"


@tool
def failing() -> str:
    """Fail."""
    raise RuntimeError("no")


@tool
async def waiting() -> str:
    """Wait without end."""
    await asyncio.Event().wait()
    return "never"


@tool
def guarded() -> str:
    """Never get here."""
    return "got here"


@tool
def pay() -> str:
    """Never get here either."""
    return "paid"


@hook("before_tool", tools=["guarded"])
def guard(_: HookContext) -> Changes:
    """Block the call."""
    return Changes(block="closed")


async def ann(_: ToolCall) -> Verdict:
    return Verdict(decision="deny", by="Ann", reason="too dear")


async def test_a_call_of_every_kind_gets_one_tool_message_and_one_record() -> None:
    ended: list[str] = []
    driver = LocalDriver(
        AGENT,
        model=ScriptedModel([ASKED]),
        tools=[fine, failing, guarded, pay, waiting],
        hooks=[guard],
        approver=ann,
    )

    def stop_when_all_but_one_have_ended(event: ToolCallCompleted) -> None:
        ended.append(event.tool_execution.call.id)
        if len(ended) == 5:  # those that are blocked or denied are told as such
            driver.stop("enough")

    driver.on(ToolCallCompleted, stop_when_all_but_one_have_ended)
    state = await asyncio.wait_for(driver.execute("Do it."), 90)
    step = state.steps[0]
    assert [execution.outcome.value for execution in step.tool_executions] == [
        *("succeeded", "failed", "blocked", "denied", "cancelled", "failed", "failed", "failed"),
    ]
    answers = [message for message in state.messages if message.role == "tool"]
    assert [message.tool_call_id for message in answers] == [call.id for call in step.requested_tool_calls]
    assert pairing_problem(state.messages) is None
    assert [message.text.partition(":")[0] for message in answers] == [
        "well",
        "Error (RuntimeError)",
        "Error (ToolExecutionBlocked)",
        "Error (ToolExecutionBlocked)",
        "Error (Cancelled)",
        "Error (UnknownTool)",
        "Error (InvalidArguments)",
        "Error (InvalidArguments)",
    ]
    denied = step.tool_executions[3]
    assert denied.error is not None
    assert (denied.was_blocked, denied.error.source) == (True, "Ann")
    assert "Ann: too dear" in denied.error.message
    assert all(execution.completed_at >= execution.started_at for execution in step.tool_executions)
