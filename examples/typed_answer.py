"""An answer as a pydantic model: the form is asked for, checked, and asked for again when it is wrong.

Run it: `python -m examples.typed_answer`
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, Field

from holdfast import Agent, RunResult
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, say


class Delivery(BaseModel):
    """Where an order is."""

    order: int
    city: str
    days_left: int = Field(ge=0)


AGENT = Agent(name="courier", prompt="You say where orders are.", answers=Delivery, strict=True, reasks_max=2)
SCRIPT = [
    say('{"order": 17, "city": "Lyon", "days_left": -1}'),
    say('{"order": 17, "city": "Lyon", "days_left": 1}'),
]


async def main() -> RunResult[Delivery]:
    """Run the agent."""
    model = ScriptedModel(SCRIPT)  # leave it out for the environment's endpoint
    result = await LocalDriver(AGENT, model=model).run("Where is order 17?")
    for message in result.messages:
        print(f"{message.role}: {message.text}")
    steps, delivery = result.state.step_count, result.output
    print(result.status, "after", steps, "steps:", delivery.city, "in", delivery.days_left, "day")
    return result


if __name__ == "__main__":
    asyncio.run(main())
