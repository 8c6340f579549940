"""An agent that hands the conversation to another one, which answers from then on, the next question too.

Run it: `python -m examples.handoff`
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Agent, AgentState
from holdfast.events import AgentHandedOff
from holdfast.local import LocalDriver
from holdfast.testing import Call, Reply, ScriptedModel, calls, say


def find_invoice(order: int) -> str:
    """Find the invoice of an order.

    Args:
        order: the order's number.
    """
    return f"invoice 9{order}: 40 USD, paid on Monday"


BILLING = Agent(
    name="billing",
    description="Knows invoices and payments.",
    prompt="You settle questions about bills.",
    tools=[find_invoice],
    handoffs=["front_desk"],
)
FRONT_DESK = Agent(
    name="front_desk",
    prompt="You welcome people. Hand them over to whoever knows more.",
    handoffs=[BILLING],
)


def played(request: dict[str, Any]) -> Reply:
    """Return what the model of either agent says: the prompt tells them apart."""
    last = request["messages"][-1]
    if "You welcome people" in request["messages"][0]["content"]:
        return calls(Call("handoff", {"agent": "billing", "reason": "a question about a bill"}))
    if last["content"] == "handed over to billing":
        return calls(Call("find_invoice", {"order": 17}))
    return say("It was paid on Monday." if last["role"] == "tool" else "You are welcome.")


async def main() -> tuple[AgentState, AgentState]:
    """Ask two questions in one conversation."""
    driver = LocalDriver(FRONT_DESK, model=ScriptedModel(played))  # leave model= out for the environment's endpoint
    driver.on(AgentHandedOff, lambda event: print(f"{event.from_agent} -> {event.to_agent}: {event.reason}"))
    first = await driver.execute("Is order 17 paid?")
    print(first.active_agent, first.status, first.final_response)
    second = await driver.execute("Thank you!", state=first)
    print(second.active_agent, second.status, second.final_response)
    return first, second


if __name__ == "__main__":
    asyncio.run(main())
