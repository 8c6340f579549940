"""What the endpoint says in the benchmark's task, and Holdfast's tool for it. Knows nothing of servers or processes."""

from __future__ import annotations

from typing import Any

from bench.task import TOOL_SUMMARY, Task, page_text
from holdfast.core.tools import tool
from holdfast.testing.script import Turn, call, say, turn_number


def script(request: dict[str, Any]) -> Turn:
    """Return the turn that answers `request`: the next page, or the last answer."""
    asked = next(message["content"] for message in request["messages"] if message["role"] == "user")
    task = Task.parse(asked)
    turn = turn_number(request)
    return call("read_page", page=turn, size=task.page_bytes) if turn < task.steps else say(task.answer)


async def read_page(page: int, size: int) -> str:
    """Return the text of a page."""
    return page_text(page, size)


if read_page.__doc__ != TOOL_SUMMARY:
    raise AssertionError("both agents must offer the model the same tool")
read_page_tool = tool(read_page)
