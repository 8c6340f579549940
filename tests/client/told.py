"""A run to tell of: calls side by side, one that fails, one that waits for a person, a subagent, hostile words."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from holdfast import AgentDefinition, tool
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.verdicts import Verdict
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from tests.serving import Served
from tests.workflows.waiting import waiting_calls

HOSTILE: Final = "<script>alert('x')</script> ]]> </pre> \" ' & \x1b[31m\x00 `` ``` | # \u202e end"
"""What must never become markup, in any answer, argument, result or reason."""

QUESTION: Final = f"Which of our three stores sells best? {HOSTILE}"

LEAD: Final = AgentDefinition.model_validate(
    {
        "name": "lead",
        "tools": "all",
        "system_prompt": "lead",
        "subagents": ["scout"],
        "llm": LLM(model="scripted", prices=Prices(input_usd=1, output_usd=5)),
        "approvals": [{"tools": ["publish"]}],
        "budget": {"max_steps": 12, "max_tokens": 90_000, "max_seconds": 600, "max_cost": 0.5},
    }
)
SCOUT: Final = AgentDefinition(name="scout", system_prompt="scout", tools=("read_file",))


def play(request: dict[str, Any]) -> Reply:
    """Be the models of both agents."""
    turn = turn_number(request)
    if request["messages"][0]["content"] == "scout":
        first = calls(Call("read_file", {"path": "stores/north.csv"}), text="Let me look.")
        return first if turn == 0 else say("North sells best.", delay_seconds=0.2)
    return [
        calls(
            Call("read_file", {"path": "stores/south.csv", "why": HOSTILE}),
            Call("read_file", {"path": "missing.csv"}),
            Call("read_file", {"path": "stores/east.csv"}),
            text=f"I will read the files side by side. {HOSTILE}",
            piece_seconds=0.02,
        ),
        calls(Call("spawn", {"agent": "scout", "task": "look at the north"}), usage=(3_210, 87)),
        calls(Call("publish", {"text": HOSTILE}), usage=(4_100, 130)),
        say(f"North, with 42 sales a day. {HOSTILE}", usage=(4_400, 60), delay_seconds=0.3),
    ][turn]


def offer() -> Toolset:
    """Return the tools."""

    @tool
    async def read_file(path: str, why: str = "") -> str:
        """Read a file.

        Args:
            path: which
            why: what for
        """
        await asyncio.sleep(0.15 * len(path) / 12)
        if path == "missing.csv":
            raise FileNotFoundError(f"no {path} {HOSTILE}")
        return f"{path}{why}: " + "17, 23, 42\n" * 900

    @tool
    async def publish(text: str) -> str:
        """Publish a text.

        Args:
            text: which
        """
        await asyncio.sleep(0.1)
        return text

    return Toolset(tools=(read_file, publish))


async def waiting_run(served: Served) -> str:
    """Start the run and return its id once its call waits for a person."""
    execution_id = await served.client.start(LEAD, QUESTION, subagents=(SCOUT,))
    await waiting_calls(served.client, execution_id)
    return execution_id


async def let_through(served: Served, execution_id: str) -> None:
    """Approve the call that waits and wait for the run's end."""
    [call_id] = await waiting_calls(served.client, execution_id)
    verdict = Verdict(decision="approve", by="ann", reason=HOSTILE)
    assert await served.client.decide(execution_id, call_id, verdict)
    await served.client.result(execution_id)
