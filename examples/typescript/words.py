"""Two tools that worker.ts serves, and an agent that has them: `holdfast run words "..."` with a worker of both sides.

holdfast dev --import examples.typescript.words        # in one terminal
npm install && npm start                               # in another, in this folder
"""

from __future__ import annotations

import os

from holdfast import Agent, remote_tool

TEXT = {
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

agent = Agent.named("words").prompt("You count words.").tools(word_count, last_word).build()
