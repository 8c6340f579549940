"""An agent that lets others work: each within what its parent has left, their use added to the parent's.

Run it: `python -m examples.subagents`
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Agent, AgentState, ExecutionBudget
from holdfast.events import SubagentCompleted
from holdfast.local import LocalDriver
from holdfast.testing import Call, Reply, Script, ScriptedModel, calls, say

RESEARCHER = Agent(
    name="researcher",
    description="Finds out one thing.",
    model="small",
    budget=ExecutionBudget(max_steps=3, max_tokens=5_000),
)
EDITOR = Agent(
    name="editor",
    prompt="You write short reports. Let researchers find out what you need, side by side.",
    model="large",
    subagents=[RESEARCHER],
    budget=ExecutionBudget(max_tokens=20_000),
)


def researched(request: dict[str, Any]) -> Reply:
    """Return what the small model answers: a script can be a function of the request."""
    return say("330 m" if "Eiffel" in str(request["messages"]) else "102 m")


SCRIPTS: dict[str, Script] = {
    "large": [
        calls(
            Call("spawn", {"agent": "researcher", "task": "How tall is the Eiffel Tower?"}),
            Call("spawn", {"agent": "researcher", "task": "How tall is the Atomium?"}),
            Call("spawn", {"agent": "archivist", "task": "When were they built?"}),
        ),
        say("The Eiffel Tower is 330 m tall, the Atomium 102 m."),
    ],
    "small": researched,
}


async def main() -> AgentState:
    """Run the tree."""
    model = ScriptedModel(SCRIPTS)  # leave it out for the environment's endpoint
    driver = LocalDriver(EDITOR, model=model)
    driver.on(SubagentCompleted, lambda event: print(event.agent, event.status, event.usage.total_tokens, "tokens"))
    state = await driver.execute("Compare the two.", budget=ExecutionBudget(max_steps=5))
    for execution in state.steps[0].tool_executions:
        print(execution.outcome, execution.answer.text)
    print(state.status, state.usage.total_tokens, "tokens in the whole tree:", state.final_response)
    return state


if __name__ == "__main__":
    asyncio.run(main())
