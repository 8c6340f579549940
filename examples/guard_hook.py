"""Two hooks: one keeps a dangerous call from running, the other asks to go on until the work is really done.

Run it: `python -m examples.guard_hook`
"""

from __future__ import annotations

import asyncio

from holdfast import Agent, AgentState, Changes, HookContext, Message, hook, tool
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say


@tool
def run_sql(statement: str) -> str:
    """Run a statement against the orders' database."""
    return f"3 rows came of {statement}"


@hook("before_tool", tools=["run_sql"], priority=10)
def only_reading(context: HookContext) -> Changes | None:
    """Block what does not begin as a question; the model is told why. A real database also gets a read-only account."""
    statement = str(context.call.arguments["statement"]) if context.call else ""
    if statement.lstrip().upper().startswith("SELECT"):
        return None
    return Changes(block="only SELECT is allowed here", metadata={"blocked": statement})


@hook("after_step")
async def with_a_source(context: HookContext) -> Changes | None:
    """Ask to go on when the answer names no source; the loop would end after an answer without tool calls."""
    response = context.response
    if response is None or response.tool_calls or "source:" in response.text:
        return None
    return Changes(go_on=True, messages=(Message(role="user", content="Name your source."),))


AGENT = Agent(
    name="analyst",
    prompt="You answer questions about orders.",
    tools=[run_sql],
    hooks=[only_reading, with_a_source],
)
SCRIPT = [
    call("run_sql", statement="DELETE FROM orders WHERE late"),
    call("run_sql", statement="SELECT * FROM orders WHERE late"),
    say("Three orders are late."),
    say("Three orders are late. source: the table `orders`"),
]


async def main() -> AgentState:
    """Run the agent."""
    model = ScriptedModel(SCRIPT)  # leave it out for the environment's endpoint
    driver = LocalDriver(AGENT, model=model)
    state = await driver.execute("Clean up the late orders.")
    for step in state.steps:
        for execution in step.tool_executions:
            print(step.number, execution.outcome, execution.answer.text)
    print(state.status, "after", state.step_count, "steps:", state.final_response)
    return state


if __name__ == "__main__":
    asyncio.run(main())
