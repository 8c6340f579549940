"""An MCP answer as the reply of a tool: its text, its value, its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.base.bounds import TOOL_RESULT_BYTES_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import json_size
from holdfast.core.conversation.attachments import ATTACHMENTS_MAX
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_results import ToolReply, bounded_result, reply_of
from holdfast.runtime.files.attachments import AttachedFiles

if TYPE_CHECKING:  # an extra
    from holdfast.mcp.answers import McpAnswer


def reply_to(answer: McpAnswer, text: str) -> ToolReply:
    """Return the reply for an answer of which the model sees `text`."""
    reply = replace(reply_of(bounded_result(text)), mcp_process=answer.process)
    if reply.text == answer.text and answer.is_value:
        return replace(reply, result_type="json")
    structured = answer.beyond_text
    if structured is None or json_size(structured) > TOOL_RESULT_BYTES_MAX:
        return reply
    return replace(reply, structured=structured)


def files_of(answer: McpAnswer) -> AttachedFiles:
    """Return the files that belong to an answer; those beyond what one call may attach are left out."""
    files = AttachedFiles()
    for part in answer.media:
        try:
            files.add(part.data, part.name, part.media_type)
        except InvalidInput as problem:
            files.note(problem.message)
    return files


def attached(answer: McpAnswer, context: ToolContext) -> ToolReply:
    """Return the reply for a whole answer, and have `context` attach its files; the text says which it does not."""
    notes: list[str] = []
    for part in answer.media[: ATTACHMENTS_MAX + 1]:
        try:
            context.attach(part.data, name=part.name, media_type=part.media_type)
        except InvalidInput as problem:
            notes.append(f"[not kept: {problem.message}]")
    return replace(reply_to(answer, answer.text), text="\n".join((answer.text, *notes)))
