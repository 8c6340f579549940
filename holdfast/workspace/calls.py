"""`WorkspaceCalls`: one operation in a run's workspace, on the files that the run is to have, and its snapshot."""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from holdfast.core.base.errors import HoldfastError, InvalidInput, StorageFailed
from holdfast.core.conversation.amounts import counted
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.workspace_profile import missing_backend
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.workspace.backend import (
    KILL_SECONDS_MAX,
    Workspace,
    WorkspaceBackend,
    WorkspaceLost,
    WorkspaceUnavailable,
)
from holdfast.workspace.background_tasks import BackgroundTasks
from holdfast.workspace.inside.frames import CONTENT, FRAME_BYTES_MAX, OUTPUT, RESULT, request_bytes, request_head
from holdfast.workspace.inside.snapshots import EMPTY
from holdfast.workspace.snapshot_store import SnapshotStore

ROUNDS_MAX: Final = 4
"""How often one call may find that its workspace has just gone, or has other files, before it gives up."""

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""The most that one answer may hold: a whole snapshot, and the output of a command."""

SETTLE_SECONDS_MAX: Final = KILL_SECONDS_MAX + 1.0
"""How long a worker that ends waits for cancelled calls and for what ends their commands."""

RESTORED: Final = (
    "[the workspace was not there any more: its files are as the last call left them, and no program runs]"
)

UNSAVED: Final = "[no snapshot was made of the files ({}): they are lost if the workspace is]"

CLOSED: Final = "[the snapshot lacks what is in {}: the mode of {} keeps it from being read]"

OutputListener = Callable[[bytes], None]


class CallRefused(HoldfastError):
    """The operation was not carried out; the message says why, for the model."""


@dataclass
class Answer:
    """What an operation brought: its result, a command's output, contents; the snapshot, or why there is none."""

    result: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: bytes = b""
    pieces: deque[bytes] = field(default_factory=deque[bytes])
    """The contents as they came; those of a snapshot are taken out as it is stored."""
    snapshot: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def contents(self) -> bytes:
        """The contents in one: what a file that is read holds."""
        return b"".join(self.pieces)


class WorkspaceCalls:
    """Operations in workspaces, by the backends that a worker has. Safe to use from any event loop.

    As a context manager it ends when the commands of cancelled calls have, after SETTLE_SECONDS_MAX at the latest.
    """

    def __init__(self, backends: Mapping[str, WorkspaceBackend], store: AttachmentStore) -> None:
        self.backends = backends
        self._snapshots = SnapshotStore(store)
        self._under_way = BackgroundTasks()

    @property
    def closing_seconds(self) -> float:
        """How long the end may take."""
        return SETTLE_SECONDS_MAX if self.backends else 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._under_way.settle(self.closing_seconds)

    async def call(
        self,
        context: ToolContext,
        header: Mapping[str, Any],
        body: bytes = b"",
        on_output: OutputListener = lambda _: None,
    ) -> Answer:
        """Carry out one operation and store the snapshot that it leaves; `on_output` is given a command's output.

        The workspace is made, or made anew from the run's last snapshot, where need be. Raises CallRefused,
        WorkspaceUnavailable, WorkspaceLost, and StorageFailed where a snapshot to restore cannot be read.
        """
        use = context.workspace
        if use is None:
            raise InvalidInput("this call belongs to no workspace; run the tool by a driver or a worker")
        backend = self.backends.get(use.profile.backend)
        if backend is None:
            raise WorkspaceUnavailable(missing_backend(use.profile.backend, self.backends))
        workspace = Workspace(use.id, context.tenant, use.profile)
        files = use.files or EMPTY
        common = {
            "execution": context.execution_id,
            "files": files,
            "left_by": use.left_by,
            "call": context.idempotency_key,
            "snapshot": True,
        }
        notes: tuple[str, ...] = ()
        for _ in range(ROUNDS_MAX):
            await backend.ensure(workspace)
            try:
                answer = await self._exchange(backend, workspace, {**header, **common}, (body,), on_output)
                if answer.result["status"] == "stale":
                    await self._restore(backend, workspace, common, files)
                    notes = () if files in (EMPTY, use.profile.files) else (RESTORED,)  # what it begins with is no loss
                    continue
            except WorkspaceUnavailable:  # it went between the two: nothing has begun
                continue
            if answer.result["status"] == "refused":
                raise CallRefused("\n".join((*notes, str(answer.result["message"]))))
            answer.notes = notes
            await self._keep_snapshot(answer, files)
            return answer
        raise WorkspaceUnavailable("the workspace ended each time it was to be used; try again later")

    async def _exchange(
        self,
        backend: WorkspaceBackend,
        workspace: Workspace,
        header: Mapping[str, Any],
        body: Sequence[bytes],
        on_output: OutputListener = lambda _: None,
    ) -> Answer:
        request = (request_head(dict(header), sum(map(len, body))), *body)  # not joined: a snapshot is large
        answer, output, result = Answer(), list[bytes](), list[bytes]()
        with self._under_way.counted():
            try:
                async with aclosing(backend.execute(workspace, request)) as received:
                    async for kind, data in frames(received):
                        if kind == OUTPUT:
                            output.append(data)
                            on_output(data)
                        elif kind == CONTENT:
                            answer.pieces.append(data)
                        elif kind == RESULT:
                            result.append(data)
            except asyncio.CancelledError:
                self._end(backend, workspace, str(header["call"]))
                raise
        try:
            answer.result = json.loads(b"".join(result))
        except ValueError:
            text = "the workspace's program ended without a result; what it had begun is ended"
            raise WorkspaceLost(text) from None
        answer.output = b"".join(output)
        return answer

    def _end(self, backend: WorkspaceBackend, workspace: Workspace, call: str) -> None:
        """Have a cancelled call's command end, besides by its closed input; only the worker's end waits for it."""
        request = request_bytes({"op": "kill", "call": call})
        self._under_way.start(backend.kill(workspace, (request,)))

    async def _restore(
        self, backend: WorkspaceBackend, workspace: Workspace, common: Mapping[str, Any], files: str
    ) -> None:
        packed = await self._snapshots.packed(files)
        restored = await self._exchange(backend, workspace, {**common, "op": "restore"}, packed)
        if restored.result["status"] != "done":
            raise WorkspaceUnavailable(f"the files could not be restored: {restored.result.get('message')}")

    async def _keep_snapshot(self, answer: Answer, before: str) -> None:
        """Store the snapshot of an answer; where that fails, the model is told that these files may be lost."""
        made: dict[str, Any] | None = answer.result.get("snapshot")
        if made is None:
            return
        if "left_out" in made:
            answer.notes = (*answer.notes, UNSAVED.format(f"{made['left_out']}; remove what need not be kept"))
            return
        if "closed" in made:
            answer.notes = (*answer.notes, _closed_note(made["closed"]))
        try:
            digest = str(made["digest"])
            if digest != before:
                await self._snapshots.write(digest, unpacked(answer.pieces), before)
            answer.snapshot = digest
        except StorageFailed as error:
            answer.notes = (*answer.notes, UNSAVED.format(error.message))


def _closed_note(closed: Mapping[str, Any]) -> str:
    names = [str(each) for each in closed["folders"]]
    more = int(closed["count"]) - len(names)
    listed = ", ".join(names) + (f" and {counted(more, 'more folder')}" if more > 0 else "")
    return CLOSED.format(listed, "this folder" if closed["count"] == 1 else "these folders")


def unpacked(pieces: deque[bytes]) -> list[bytes]:
    """Return the contents that stand in `pieces`, each behind its length; take out what is read: they are large.

    Raises StorageFailed where they end in the middle of one, or there is none.
    """
    contents, buffer = list[bytes](), bytearray()
    while pieces:
        buffer += pieces.popleft()
        while len(buffer) >= _LENGTH.size and len(buffer) >= (end := _LENGTH.size + _LENGTH.unpack_from(buffer)[0]):
            contents.append(bytes(buffer[_LENGTH.size : end]))
            del buffer[:end]
    if buffer or not contents:
        raise StorageFailed("the workspace's program sent no whole snapshot")
    return contents


async def frames(received: AsyncGenerator[bytes]) -> AsyncGenerator[tuple[bytes, bytes]]:
    """Yield the frames of an answer. Raises WorkspaceLost for what is none, and for more than ANSWER_BYTES_MAX."""
    buffer, total = bytearray(), 0
    async for piece in received:
        buffer += piece
        total += len(piece)
        if total > ANSWER_BYTES_MAX:
            raise WorkspaceLost(f"the workspace's answer has more than {ANSWER_BYTES_MAX:,} bytes")
        while len(buffer) >= _HEAD:
            size = int.from_bytes(buffer[1:_HEAD], "big")
            if size > FRAME_BYTES_MAX:
                raise WorkspaceLost("the workspace's program answered with what is no frame")
            if len(buffer) < _HEAD + size:
                break
            yield bytes(buffer[:1]), bytes(buffer[_HEAD : _HEAD + size])
            del buffer[: _HEAD + size]


_LENGTH: Final = struct.Struct(">I")

_HEAD: Final = 5
