"""An answer as a pydantic model: the form is asked for, checked, and asked for again when it is wrong.

Run it: `python -m examples.typed_answer`
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, Field

from holdfast import AgentDefinition, AgentState, format_of, typed
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, say


class Delivery(BaseModel):
    """Where an order is."""

    order: int
    city: str
    days_left: int = Field(ge=0)


AGENT = AgentDefinition(
    name="courier",
    system_prompt="You say where orders are.",
    tools=(),
    response_format=format_of(Delivery, strict=True),
    reasks_max=2,
)
SCRIPT = [
    say('{"order": 17, "city": "Lyon", "days_left": -1}'),
    say('{"order": 17, "city": "Lyon", "days_left": 1}'),
]


async def main() -> AgentState:
    """Run the agent."""
    model = ScriptedModel(SCRIPT)  # leave it out for the environment's endpoint
    state = await LocalDriver(AGENT, model=model).execute("Where is order 17?")
    for message in state.messages:
        print(f"{message.role}: {message.text}")
    delivery = typed(state.final_response, Delivery)
    print(state.status, "after", state.step_count, "steps:", delivery.city, "in", delivery.days_left, "day")
    return state


if __name__ == "__main__":
    asyncio.run(main())
