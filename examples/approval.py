"""A person decides about a tool call before it runs, and corrects its arguments.

Run it: `python -m examples.approval`

Here a function plays the person. Without `approver` the run waits until `driver.decide` is told, from anywhere.
"""

from __future__ import annotations

import asyncio

from holdfast import Agent, AgentState, ApprovalRule, ToolCall, Verdict, tool
from holdfast.local import LocalDriver
from holdfast.testing import Call, ScriptedModel, calls, say


@tool(at_most_once=True)
def refund(order: int, cents: int) -> str:
    """Pay money back."""
    return f"{cents} cents of order {order} are paid back"


@tool
def find_order(number: int) -> str:
    """Say what an order is worth."""
    return f"order {number}: 2,000 cents"


async def cautious(wanted: ToolCall) -> Verdict:
    """Let half of what the model wants through; "deny" with a reason, or "approve", are the other two answers."""
    half = {**wanted.arguments, "cents": 1_000}
    return Verdict(decision="edit", by="Ada", arguments=half)


AGENT = Agent(
    name="clerk",
    prompt="You answer questions about orders.",
    tools=[refund, find_order],
    approvals=[ApprovalRule(tools=("refund",), expires_seconds=3_600)],
)
SCRIPT = [
    calls(Call("find_order", {"number": 17}), Call("refund", {"order": 17, "cents": 2_000})),
    say("10 euros are on their way to you."),
]


async def main() -> AgentState:
    """Run the agent."""
    model = ScriptedModel(SCRIPT)  # leave it out for the environment's endpoint
    driver = LocalDriver(AGENT, model=model, approver=cautious)
    state = await driver.execute("Give me my money back for order 17.")
    asked = {wanted.id: wanted for wanted in state.steps[0].requested_tool_calls}
    for execution in state.steps[0].tool_executions:
        print("asked:", asked[execution.call.id].arguments_text, "ran:", execution.call.arguments_text)
        print("  ", execution.outcome, execution.result)
    print(state.status, state.final_response)
    return state


if __name__ == "__main__":
    asyncio.run(main())
