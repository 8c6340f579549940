"""What the pictures show: an agent's runs as an operator would find them, each at a moment worth looking at."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import AgentDefinition, ExecutionBudget, tool
from holdfast.client import Holdfast
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.usage import Prices
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from tests.serving import Served

PRICES = Prices(input_usd=2.0, output_usd=8.0)
CLERK = AgentDefinition.model_validate(
    {
        "name": "clerk",
        "tools": "all",
        "description": "Answers questions about orders.",
        "system_prompt": "You are the clerk.",
        "llm": LLM(model="scripted", prices=PRICES),
        "budget": ExecutionBudget(max_steps=20, max_tokens=200_000, max_cost=0.5, max_seconds=600),
        "subagents": ["researcher"],
        "approvals": [{"tools": ["refund"], "expires_seconds": 3_600}],
    }
)
RESEARCHER = AgentDefinition(
    name="researcher",
    system_prompt="You find things out.",
    llm=LLM(model="scripted", prices=PRICES),
    tools=("find_order",),
)
TASK = "What happened to order 1001?"
STORY = "a long answer about the history of order 1001, written word by word while you watch"


@tool
async def find_order(number: int) -> str:
    """Find an order by its number."""
    await asyncio.sleep(0.3)
    return f"order {number}: one lamp, paid 40.00 USD, arrived broken"


@tool
def refund(number: int, amount: float) -> str:
    """Pay money back."""
    return f"paid back {amount:.2f} USD for order {number}"


OFFER = Toolset(tools=(find_order, refund))


def play(request: dict[str, Any]) -> Reply:
    """What the model says: which run it is, its first message tells."""
    words, turn = str(request["messages"][1]["content"]), turn_number(request)
    if words == TASK:
        found = [calls(Call("find_order", {"number": 1001}), usage=(700, 40)), say("It was broken.", usage=(900, 30))]
        return found[turn]
    if "for ever" in words:
        return calls(Call("find_order", {"number": 1_000 + turn}), usage=(2_000 + 500 * turn, 200))
    if "history" in words:
        return say(STORY, piece_chars=2, piece_seconds=1.0)
    first = [
        calls(Call("find_order", {"number": 1001}), Call("find_order", {"number": 1002}), usage=(1_200, 60)),
        calls(Call("spawn", {"agent": "researcher", "task": TASK}), usage=(1_700, 50)),
        calls(Call("refund", {"number": 1001, "amount": 40.0}), usage=(2_100, 40)),
        say("Order 1001 arrived broken; 40.00 USD are paid back.", usage=(2_300, 80)),
    ]
    return first[turn]


async def begin(served: Served, question: str, budget: ExecutionBudget | None = None) -> str:
    """Begin a run of the clerk."""
    client: Holdfast = served.client
    return await client.start(CLERK, question, budget=budget, subagents=[RESEARCHER])
