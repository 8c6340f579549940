"""An airline's customer service: a triage agent hands the conversation over, and whoever has it goes on with it.

After `customer_service` of openai-agents. Run it and type: `python -m examples.ports.customer_service`
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Iterable

from examples.ports import scripts
from holdfast import Agent, AgentState, Changes, HookContext, ToolContext, hook
from holdfast.events import AgentHandedOff, ToolCallCompleted
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel

FAQ = {
    ("bag", "luggage", "carry-on", "hand carry"): (
        "You are allowed to bring one bag on the plane. "
        "It must be under 50 pounds and 22 inches x 14 inches x 9 inches."
    ),
    ("seat", "plane"): (
        "There are 120 seats on the plane. There are 22 business class seats and 98 economy seats. "
        "Exit rows are rows 4 and 16. Rows 5-8 are Economy Plus, with extra legroom."
    ),
    ("wifi", "internet", "wireless", "connectivity", "network", "online"): (
        "We have free wifi on the plane, join Airline-Wifi"
    ),
}


def faq_lookup(question: str) -> str:
    """Look up frequently asked questions."""
    for words, answer in FAQ.items():
        if any(word in question.lower() for word in words):
            return answer
    return "I'm sorry, I don't know the answer to that question."


def update_seat(confirmation_number: str, new_seat: str, context: ToolContext) -> str:
    """Update the seat for a given confirmation number.

    Args:
        confirmation_number: The confirmation number for the flight.
        new_seat: The new seat to update to.
        context: the call.
    """
    context.set_metadata(confirmation_number=confirmation_number, seat_number=new_seat)
    flight = context.metadata["flight_number"]
    return f"Updated seat to {new_seat} on {flight} for confirmation number {confirmation_number}"


@hook("on_handoff")
def assign_flight(context: HookContext) -> Changes | None:
    """Choose a flight as the conversation goes to the agent that books seats."""
    if context.call is None or context.call.arguments.get("agent") != "seat_booking":
        return None
    return Changes(metadata={"flight_number": f"FLT-{secrets.randbelow(900) + 100}"})


FAQ_AGENT = Agent(
    name="faq",
    description="A helpful agent that can answer questions about the airline.",
    prompt="""You are an FAQ agent.
# Routine
1. Identify the last question asked by the customer.
2. Use the faq_lookup tool to answer the question. Do not rely on your own knowledge.
3. If you cannot answer the question, hand back to the triage agent.""",
    tools=[faq_lookup],
    handoffs=["triage"],
)
SEAT_BOOKING = Agent(
    name="seat_booking",
    description="A helpful agent that can update a seat on a flight.",
    prompt="""You are a seat booking agent.
# Routine
1. Ask for their confirmation number.
2. Ask the customer what their desired seat number is.
3. Use the update_seat tool to update the seat on the flight.
If the customer asks a question that is not related to the routine, hand back to the triage agent.""",
    tools=[update_seat],
    handoffs=["triage"],
)
TRIAGE = Agent(
    name="triage",
    description="A triage agent that can delegate a customer's request to the appropriate agent.",
    prompt="You are a helpful triaging agent. Hand the conversation over to the agent that knows more.",
    hooks=[assign_flight],
    handoffs=[FAQ_AGENT, SEAT_BOOKING],
)


async def main(messages: Iterable[str]) -> AgentState | None:
    """Answer one message after another."""
    driver = LocalDriver(TRIAGE, model=ScriptedModel(scripts.customer_service))  # no model=: the environment's endpoint
    driver.on(AgentHandedOff, lambda event: print(f"Handed off from {event.from_agent} to {event.to_agent}"))
    driver.on(ToolCallCompleted, lambda event: print(f"{event.tool_execution.name}: {event.tool_execution.result}"))
    state = None
    for message in messages:
        state = await driver.execute(message, state=state)
        print(f"{state.active_agent}: {state.final_response}")
    return state


if __name__ == "__main__":
    asyncio.run(main(map(str.strip, sys.stdin)))
