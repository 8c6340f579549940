"""A worker's end waits for the commands of cancelled calls to be ended, in bounded time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.workspace_profile import WorkspaceProfile, WorkspaceUse
from holdfast.runtime.user_code import LOOPS
from holdfast.storage.records import Records
from holdfast.workspace import calls as workspace_calls
from holdfast.workspace.backend import Workspace
from holdfast.workspace.calls import WorkspaceCalls

CONTEXT = ToolContext("run", "key", 1, workspace=WorkspaceUse(id="a", profile=WorkspaceProfile(backend="folder")))
HEADER = {"op": "run", "shell": "sleep 1000", "timeout": 1000}


class Hanging:
    """A backend whose commands never end by themselves, and take `kill_seconds` to be ended."""

    def __init__(self, kill_seconds: float) -> None:
        self.begun = asyncio.Event()
        self.killed = False
        self._kill_seconds = kill_seconds
        self._loop = asyncio.get_running_loop()

    async def ensure(self, workspace: Workspace) -> bool:  # noqa: ARG002
        return False

    async def execute(self, workspace: Workspace, request: Iterable[bytes]) -> AsyncGenerator[bytes]:  # noqa: ARG002
        self._loop.call_soon_threadsafe(self.begun.set)
        await asyncio.Event().wait()
        yield b""

    async def kill(self, workspace: Workspace, request: Iterable[bytes]) -> None:  # noqa: ARG002
        await asyncio.sleep(self._kill_seconds)
        self.killed = True

    async def remove(self, workspace: Workspace) -> None: ...

    async def sweep(self) -> int:
        return 0

    async def close(self) -> None: ...


async def cancelled_at_the_end(backend: Hanging, path: Path) -> float:
    """Cancel a call on a loop of the tools, as a worker does, and leave at once; return how long that took."""
    async with WorkspaceCalls({"folder": backend}, Records.in_folder(path / "objects")) as calls:
        call = asyncio.run_coroutine_threadsafe(calls.call(CONTEXT, HEADER), LOOPS.current())
        await backend.begun.wait()
        call.cancel()
        began = time.monotonic()
    return time.monotonic() - began


async def test_a_command_is_ended_before_its_worker_exits(tmp_path: Path) -> None:
    backend = Hanging(kill_seconds=0.5)
    await cancelled_at_the_end(backend, tmp_path)
    assert backend.killed


async def test_an_end_that_takes_too_long_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_calls, "SETTLE_SECONDS_MAX", 0.5)
    backend = Hanging(kill_seconds=60)
    assert 0.4 < await cancelled_at_the_end(backend, tmp_path) < 30
    assert not backend.killed


async def test_calls_that_ended_hold_up_no_end(tmp_path: Path) -> None:
    backend = Hanging(kill_seconds=0)
    async with WorkspaceCalls({"folder": backend}, Records.in_folder(tmp_path / "objects")) as calls:
        call = asyncio.create_task(calls.call(CONTEXT, HEADER))
        await backend.begun.wait()
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        while not backend.killed:  # noqa: ASYNC110  # nobody tells of it
            await asyncio.sleep(0.01)
        began = time.monotonic()
    assert time.monotonic() - began < workspace_calls.SETTLE_SECONDS_MAX / 2
