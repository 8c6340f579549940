"""`DockerBackend`: workspaces in containers, as the tools use them."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Final

from holdfast.core.base.safe_text import printable
from holdfast.workspace.backend import KILL_SECONDS_MAX, Workspace, WorkspaceLost, WorkspaceUnavailable
from holdfast.workspace.docker.containers import Containers
from holdfast.workspace.docker.engine import DockerEngine, EngineRefused
from holdfast.workspace.docker.exec_stream import STDOUT, ExecStream
from holdfast.workspace.inside.frames import RESULT

LOGGER: Final = logging.getLogger("holdfast.worker")

ANSWER_SECONDS_MAX: Final = 2.0
"""How long the program may take to end a call. Then the whole container is ended."""

COMPLAINT_BYTES_MAX: Final = 2_000
"""How much of the end of the program's standard error is kept for a message."""

SENT_BYTES: Final = 64 * 1024

SWEEP_SECONDS_MAX: Final = 30.0
"""How long one sweep may take; a worker's start waits for the first."""

FRAME_HEADER: Final = struct.Struct(">cI")
"""What `inside.frames` puts before each frame: its kind and its size."""


class AnswerScanner:
    """Looks through an answer for its last frame: an answer without a result is a loss."""

    def __init__(self) -> None:
        self.complete = False
        self._header = b""
        self._left = 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            missing = FRAME_HEADER.size - len(self._header)
            self._header += data[at : at + missing]
            at += missing
            if len(self._header) == FRAME_HEADER.size:
                kind, self._left = FRAME_HEADER.unpack(self._header)
                self.complete = kind == RESULT
                self._header = b""


class DockerBackend:
    """The workspaces of a Temporal namespace in containers of the Docker daemon at `host` (as in DOCKER_HOST)."""

    def __init__(self, namespace: str, host: str | None = None) -> None:
        self._engine = DockerEngine(host)
        self._containers = Containers(self._engine, namespace)

    async def ensure(self, workspace: Workspace) -> bool:
        """Have the container run, with a fresh lease; return whether it is new. Raises WorkspaceUnavailable."""
        return await self._containers.ensure(workspace)

    async def execute(self, workspace: Workspace, request: Iterable[bytes]) -> AsyncGenerator[bytes]:
        """Run the program with `request` as its input and yield its output; the lease is renewed meanwhile.

        Raises WorkspaceUnavailable where it was not started, WorkspaceLost where it ended without an answer.
        """
        async with self._containers.program(workspace) as stream:
            sending = asyncio.create_task(_send(stream, request))
            complaint, answer = b"", AnswerScanner()
            try:
                async for source, data in stream.pieces():
                    if source == STDOUT:
                        answer.add(data)
                        yield data
                    else:
                        complaint = (complaint + data)[-COMPLAINT_BYTES_MAX:]
                broken = ""
            except OSError as error:
                broken = printable(str(error))
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            if not answer.complete:
                raise await self._containers.loss(workspace, broken or printable(complaint.decode("utf-8", "replace")))

    async def kill(self, workspace: Workspace, request: Iterable[bytes]) -> None:
        """End a call through the program, or the whole container where that does not answer; in bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS_MAX):
                try:
                    async with (
                        asyncio.timeout(ANSWER_SECONDS_MAX),
                        aclosing(self.execute(workspace, request)) as pieces,
                    ):
                        async for _ in pieces:
                            pass
                except (TimeoutError, WorkspaceUnavailable, WorkspaceLost):
                    await self._containers.end(workspace)

    async def remove(self, workspace: Workspace) -> None:
        """End the container. One that Docker does not confirm to be gone ends by its lease."""
        await self._containers.end(workspace)

    async def sweep(self) -> int:
        """Remove what is left of containers that have never run or do not run any more; return how many."""
        try:
            async with asyncio.timeout(SWEEP_SECONDS_MAX):
                return await self._containers.sweep()
        except (EngineRefused, WorkspaceUnavailable, TimeoutError) as error:  # nothing but tidiness depends on this
            why = printable(str(error)) or "it is too slow"
            LOGGER.warning("Docker: no workspace can be had in a container for now: %s", why)
            return 0

    async def close(self) -> None:
        """Let go of the connection and its threads; the containers stay."""
        self._engine.close()


async def _send(stream: ExecStream, request: Iterable[bytes]) -> None:
    """Write the request; a program that has ended says more by its end than a broken pipe does."""
    with suppress(OSError):
        for part in request:
            for start in range(0, len(part), SENT_BYTES):
                await stream.write(part[start : start + SENT_BYTES])
