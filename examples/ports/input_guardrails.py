"""A guard beside the first model call: an agent of its own looks at the input, and stops what is homework.

After `input_guardrails.py` of openai-agents. Run it: `python -m examples.ports.input_guardrails`
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from examples.ports import scripts
from holdfast import Agent, AgentState, Changes, HookContext, hook
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel


class MathHomework(BaseModel):
    """What the guard thinks of a message."""

    reasoning: str
    is_math_homework: bool


GUARD = Agent(
    name="guardrail_check",
    prompt="Check if the user is asking you to do their math homework.",
    answers=MathHomework,
)


@hook("input_guard")
async def math_guardrail(context: HookContext) -> Changes | None:
    """Stop the run if the guard sees homework; the model call that runs beside it is cancelled."""
    checking = LocalDriver(GUARD, model=ScriptedModel(scripts.guardrail_check))
    verdict = (await checking.run(context.messages[-1].text)).output
    if not verdict.is_math_homework:
        return None
    return Changes(stop="Sorry, I can't help you with your math homework.", stop_context={"why": verdict.reasoning})


AGENT = Agent(
    name="customer_support",
    prompt="You are a customer support agent. You help customers with their questions.",
    hooks=[math_guardrail],
)


async def main() -> None:
    """Ask two questions in one conversation."""
    driver = LocalDriver(AGENT, model=ScriptedModel(scripts.customer_support))  # no model=: the environment's endpoint
    state: AgentState | None = None
    for question in ("What's the capital of California?", "Can you help me solve for x: 2x + 5 = 11"):
        state = await driver.execute(question, state=state)
        print(state.stop_signal.message if state.stop_signal else state.final_response)


if __name__ == "__main__":
    asyncio.run(main())
