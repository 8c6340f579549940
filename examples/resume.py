"""A run that is left in the middle, saved as JSON, read back and gone on with: nothing that has ended runs again.

Run it: `python -m examples.resume`
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from holdfast import Agent, AgentState, tool
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say

RUNS: list[int] = []


@tool
def find_order(number: int) -> str:
    """Say where an order is."""
    RUNS.append(number)
    return f"order {number} left this morning"


AGENT = Agent(name="clerk", tools=[find_order])
SCRIPT = [call("find_order", number=17), call("find_order", number=18), say("Both left this morning.")]


def driver() -> LocalDriver:
    """Return a new driver, as another process would."""
    model = ScriptedModel(SCRIPT)  # leave it out for the environment's endpoint
    return LocalDriver(AGENT, model=model)


async def until_first_step() -> AgentState:
    """Return the state after the first step, and leave the rest undone."""
    async with aclosing(driver().iterate("Where are orders 17 and 18?")) as states:
        return await anext(states)


async def main() -> AgentState:
    """Leave the run, save it, go on with it, and ask one question more in the same conversation."""
    saved = (await until_first_step()).to_json()
    print("saved:", f"{len(saved):,} bytes,", "tool calls so far:", RUNS)
    restored = AgentState.from_json(saved)
    print("read back:", restored.status, "after", restored.step_count, "step")
    state = await driver().execute(restored)
    print("gone on with:", state.status, "after", state.step_count, "steps, tool calls:", RUNS)

    session = AgentState.from_json(state.to_json(session_only=True))  # the conversation without the execution
    later = LocalDriver(AGENT, model=ScriptedModel(lambda _: say("Nothing is late.")))
    state = await later.execute("Is anything late?", state=session)
    print("execution", state.execution_count, state.status, state.current_response)
    return state


if __name__ == "__main__":
    asyncio.run(main())
