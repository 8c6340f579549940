"""A tool's reply as an event of the loop, and what is kept of its structure and shown of its files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from holdfast.core.base.call_digest import DIGEST_PATTERN
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import json_size
from holdfast.core.conversation.attachments import KIND_BYTES_MAX, Attachment, FileKind
from holdfast.core.conversation.steps import ToolExecution
from holdfast.core.loop.events import ToolReturned
from holdfast.core.loop.transition import Transition
from holdfast.core.tools.tool_results import ToolReply, is_json

_DIGEST: Final = re.compile(DIGEST_PATTERN)

PICTURES: Final[tuple[FileKind, ...]] = ("images",)
OTHER_FILES: Final[tuple[FileKind, ...]] = ("pdf", "audio", "text")

FILES_STEP_MAX: Final = 8
"""The most pictures, and the most other files, of one step: each can be as long as a chapter for the model."""


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
        workspace=reply.workspace,
    )


def bounded_structure(event: ToolReturned, bytes_max: int) -> str | None:
    """Return the JSON beside the result's text, if it is JSON and both take no more than `bytes_max` bytes."""
    structured = event.structured
    if structured is None or event.result_type == "json":
        return None
    if json_size(event.result) + json_size(structured) > bytes_max or not is_json(structured):
        return None
    return structured


def with_workspace_files(transition: Transition, execution: ToolExecution, event: ToolReturned) -> ToolExecution:
    """Return a call's record with the snapshot of the files that it has left; the next calls begin with them.

    A snapshot that another tool than the workspace's names does not count.
    """
    traits = transition.rules.tools.get(execution.name)
    if traits is None or not traits.workspace:
        return execution
    if event.workspace is None or _DIGEST.match(event.workspace) is None:
        return execution
    transition.workspace = event.workspace
    return replace(execution, workspace=event.workspace)


def pictures_of(executions: Iterable[ToolExecution]) -> tuple[Attachment, ...]:
    """Return the pictures that the calls have attached, each once: the first ones that are not too large."""
    return _shown(executions, PICTURES)


def files_of(executions: Iterable[ToolExecution]) -> tuple[Attachment, ...]:
    """Return the PDFs, sounds and texts that the calls have attached, as `pictures_of` the pictures."""
    return _shown(executions, OTHER_FILES)


def _shown(executions: Iterable[ToolExecution], kinds: Collection[FileKind]) -> tuple[Attachment, ...]:
    files = (each for execution in executions for each in execution.attachments)
    fitting = (each for each in files if _fits(each, kinds))
    return tuple({each.digest: each for each in fitting}.values())[:FILES_STEP_MAX]


def _fits(file: Attachment, kinds: Collection[FileKind]) -> bool:
    kind = file.kind
    return kind is not None and kind in kinds and 0 < file.size <= KIND_BYTES_MAX[kind]
