"""What the endpoint says in the benchmark's task, and Holdfast's tool for it. Knows nothing of servers or processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from bench.task import TOOL, Task, page_text
from holdfast import tool
from holdfast.core.agent.context_view import CompilerContext, compiler
from holdfast.core.conversation.messages import Message
from holdfast.testing.script import Reply, call, say, turn_number

SHOWN_MESSAGES: Final = 20
"""An even number: a call and its answer stay together."""


def script(request: dict[str, Any]) -> Reply:
    """Return the turn that answers `request`: the next page, or the last answer."""
    asked = next(message["content"] for message in request["messages"] if message["role"] == "user")
    task = Task.parse(asked)
    turn = turn_number(request)
    return call(TOOL, page=turn, size=task.page_bytes) if turn < task.steps else say(task.answer)


@tool(name=TOOL)
async def read_page(page: int, size: int) -> str:
    """Return the text of a page."""
    return page_text(page, size)


@tool(timeout_seconds=3600)
async def stand() -> str:
    """Stand until cancelled."""
    await asyncio.sleep(3600)
    return "nobody came"


@compiler
def latest(context: CompilerContext) -> Sequence[Message]:
    """Show the model the question and the end of the conversation, whatever lies between."""
    messages = context.messages
    return [*messages[:1], *messages[1:][-SHOWN_MESSAGES:]]
