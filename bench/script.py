"""What the endpoint says in the benchmark's task, and Holdfast's tool for it. Knows nothing of servers or processes."""

from __future__ import annotations

from typing import Any

from bench.task import TOOL, Task, page_text
from holdfast import tool
from holdfast.testing.script import Turn, call, say, turn_number


def script(request: dict[str, Any]) -> Turn:
    """Return the turn that answers `request`: the next page, or the last answer."""
    asked = next(message["content"] for message in request["messages"] if message["role"] == "user")
    task = Task.parse(asked)
    turn = turn_number(request)
    return call(TOOL, page=turn, size=task.page_bytes) if turn < task.steps else say(task.answer)


@tool(name=TOOL)
async def read_page(page: int, size: int) -> str:
    """Return the text of a page."""
    return page_text(page, size)
