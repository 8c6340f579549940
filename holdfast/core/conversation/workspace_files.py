"""`WorkspaceFiles`: the files of a run's workspace, by the digests of their snapshots. Holds no file."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_none
from holdfast.core.conversation.steps import AgentStep


class WorkspaceFiles(Frozen):
    """The snapshot that an execution began with, none for no files, and the latest that a call of it has left."""

    base: Digest | None = Field(default=None, exclude_if=is_none)
    latest: Digest | None = Field(default=None, exclude_if=is_none)


def files_at_start(before: WorkspaceFiles | None) -> WorkspaceFiles | None:
    """Return the files of an execution that begins behind one that ended with `before`."""
    return None if before is None else WorkspaceFiles(base=before.latest, latest=before.latest)


def files_after(files: WorkspaceFiles | None, steps: Iterable[AgentStep]) -> WorkspaceFiles | None:
    """Return the files of an execution as they were after its first `steps`."""
    if files is None:
        return None
    left = [call.workspace for step in steps for call in step.tool_executions if call.workspace is not None]
    return WorkspaceFiles(base=files.base, latest=left[-1] if left else files.base)
