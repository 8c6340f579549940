"""An agent with two tools that a worker in TypeScript serves.

In three terminals, the second in this folder:

1. `holdfast dev --import examples.typescript.words`
2. `npm install && npm start`
3. `python -m examples.typescript.words "How many words has this?"`
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

from pydantic import JsonValue

from holdfast import Agent, remote_tool
from holdfast.client import Holdfast

TEXT: Mapping[str, JsonValue] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
QUEUE = os.environ.get("TASK_QUEUE", "words")

word_count = remote_tool(
    name="word_count",
    description="Count the words of a text.",
    parameters=TEXT,
    task_queue=QUEUE,
    idempotent=True,
    timeout_seconds=10,
    queue_seconds_max=30,
)
last_word = remote_tool(
    name="last_word",
    description="Say the last word of a text, and end the run.",
    parameters=TEXT,
    task_queue=QUEUE,
    timeout_seconds=10,
    heartbeats=True,
)

agent = Agent(name="words", prompt="You count words.", tools=[word_count, last_word])


async def main(question: str) -> None:
    """Ask the agent."""
    client = await Holdfast.connect()
    print((await client.run(agent, question)).output)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:])))
