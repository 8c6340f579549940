"""A tool's reply as an event of the loop, and what is kept of its structure. Decides nothing."""

from __future__ import annotations

from datetime import datetime

from holdfast.core.base.safe_text import json_size
from holdfast.core.loop.events import ToolReturned
from holdfast.core.tools.tool_results import ToolReply, is_json


def tool_returned(call_id: str, reply: ToolReply, started_at: datetime, at: datetime) -> ToolReturned:
    """Return the event of a call that ended with `reply`."""
    return ToolReturned(
        call_id=call_id,
        result=reply.text,
        started_at=started_at,
        at=at,
        stop=reply.stop,
        stop_context=reply.stop_context,
        result_type=reply.result_type,
        metadata=reply.metadata,
        structured=reply.structured,
        attachments=reply.attachments,
        mcp_process=reply.mcp_process,
    )


def bounded_structure(event: ToolReturned, bytes_max: int) -> str | None:
    """Return the JSON beside the result's text, if it is JSON and both take no more than `bytes_max` bytes."""
    structured = event.structured
    if structured is None or event.result_type == "json":
        return None
    if json_size(event.result) + json_size(structured) > bytes_max or not is_json(structured):
        return None
    return structured
