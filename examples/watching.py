"""Listeners: one for a kind of event, and a wiretap that prints everything as a tree, subagents included.

Run it: `python -m examples.watching`
"""

from __future__ import annotations

import asyncio

from holdfast import Agent, AgentState, Changes, HookContext, hook, tool
from holdfast.events import AgentExecutionStarted, Observed, TokenUsageReported
from holdfast.local import LocalDriver
from holdfast.testing import Call, ScriptedModel, calls, say


@tool
def find_order(number: int) -> str:
    """Say where an order is."""
    return f"order {number} left this morning"


@hook("before_tool", tools=["find_order"])
def noted(context: HookContext) -> Changes:
    """Keep which order was last looked up."""
    return Changes(metadata={"last_order": context.call.arguments["number"] if context.call else None})


class Tree:
    """Prints each event, indented by how deep its agent is."""

    def __init__(self) -> None:
        self.depths: dict[str, int] = {}
        self.lines: list[str] = []

    def __call__(self, event: Observed) -> None:
        """Print one line."""
        if isinstance(event, AgentExecutionStarted):
            self.depths[event.agent_id] = self.depths.get(event.parent_agent_id or "", -1) + 1
        self.lines.append("    " * self.depths[event.agent_id] + f"{event.step_number} {type(event).__name__}")
        print(self.lines[-1])


HELPER = Agent(name="helper", hooks=[noted], description="Looks things up.", model="small")
AGENT = Agent(name="clerk", hooks=[noted], model="large", tools=[find_order], subagents=[HELPER])
SCRIPTS = {
    "large": [
        calls(Call("find_order", {"number": 17}), Call("spawn", {"agent": "helper", "task": "What is today?"})),
        say("It left this morning."),
    ],
    "small": [say("Friday.")],
}


async def main(tree: Tree) -> AgentState:
    """Run the agents, watched."""
    model = ScriptedModel(SCRIPTS)  # leave it out for the environment's endpoint
    driver = LocalDriver(AGENT, model=model)
    driver.wiretap(tree)
    driver.on(TokenUsageReported, lambda event: print(f"    so far {event.total.total_tokens} tokens"))
    return await driver.execute("Where is order 17?")


if __name__ == "__main__":
    asyncio.run(main(Tree()))
