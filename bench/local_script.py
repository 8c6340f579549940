"""The tool of the benchmark's task as one that runs within the workflow task. Knows nothing of servers or processes."""

from __future__ import annotations

from bench.task import TOOL, page_text
from holdfast import tool


@tool(name=TOOL, idempotent=True, local=True)
async def read_page(page: int, size: int) -> str:
    """Return the text of a page."""
    return page_text(page, size)
