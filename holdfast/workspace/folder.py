"""`FolderBackend`: workspaces in folders, for development. No boundary: commands run as the worker's user.

    workspaces/DIGEST/files      what the agent sees as its files
    workspaces/DIGEST/runtime    the program's own

DIGEST is that of the workspace's id. A folder that was not used for FOLDER_LEASE_SECONDS is removed, as a container
ends by its lease; the next call restores its files from the last snapshot.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from holdfast.runtime.subprocesses import child_environment
from holdfast.workspace.backend import KILL_SECONDS_MAX, Workspace, WorkspaceLost, WorkspaceUnavailable
from holdfast.workspace.background_tasks import BackgroundTasks
from holdfast.workspace.program import program

FOLDER_LEASE_SECONDS: Final = 3600.0
"""How long an unused folder stays: as long as no call lasts, and a person may look at it."""

SWEEP_SECONDS: Final = 60.0
"""How often a worker looks for folders to remove, at the most."""

CHUNK_BYTES: Final = 64 * 1024

END_SECONDS: Final = 2.0
"""How long the program has to end its command once its input is closed."""

CLOSE_SECONDS_MAX: Final = END_SECONDS + 1.0
"""How long closing waits for programs to end."""

ERROR_BYTES_MAX: Final = 2_000
"""How much of what the program writes to standard error is shown."""


class FolderBackend:
    """Workspaces below one folder, which is created with the first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._swept_at = -SWEEP_SECONDS
        self._endings = BackgroundTasks()

    async def ensure(self, workspace: Workspace) -> bool:
        """Make the folders unless they are there. Raises WorkspaceUnavailable."""
        try:
            return await asyncio.to_thread(self._ensure, workspace)
        except OSError as error:
            problem = f"the workspace's folder in {self._path} cannot be made ({error.strerror})"
            raise WorkspaceUnavailable(
                f"{problem}; is there room on the disk, and may the worker write there?"
            ) from None

    async def execute(self, workspace: Workspace, request: Iterable[bytes]) -> AsyncGenerator[bytes]:
        """Run the program in the folder."""
        files, runtime = self._folders(workspace)
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", program(), str(files), str(runtime)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=child_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise WorkspaceUnavailable(f"the workspace's program could not be started ({error.strerror})") from None
        try:
            assert process.stdin is not None  # noqa: S101  # a pipe
            assert process.stdout is not None  # noqa: S101
            with suppress(ConnectionError):  # it has ended: its output says why, or its absence
                for piece in request:
                    for start in range(0, len(piece), CHUNK_BYTES):  # what is written is copied
                        process.stdin.write(piece[start : start + CHUNK_BYTES])
                        await process.stdin.drain()
            while piece := await process.stdout.read(CHUNK_BYTES):
                yield piece
            process.stdin.close()
            problem = await _error_of(process)
            if await process.wait():
                raise WorkspaceLost(problem)
        finally:
            self._end(process)

    async def kill(self, workspace: Workspace, request: Iterable[bytes]) -> None:
        """Run the program with a `kill` request."""
        with suppress(WorkspaceLost, WorkspaceUnavailable, TimeoutError):
            async with asyncio.timeout(KILL_SECONDS_MAX):
                async for _ in self.execute(workspace, request):
                    pass

    async def remove(self, workspace: Workspace) -> None:
        """Remove the folder."""
        await asyncio.to_thread(_remove, self._folders(workspace)[0].parent)

    async def sweep(self) -> int:
        """Remove the folders whose lease is over."""
        self._swept_at = time.monotonic()
        return await asyncio.to_thread(self._sweep)

    async def close(self) -> None:
        """Wait for the programs whose calls were cancelled."""
        await self._endings.settle(CLOSE_SECONDS_MAX)

    def _folders(self, workspace: Workspace) -> tuple[Path, Path]:
        folder = self._path / sha256(workspace.id.encode()).hexdigest()[:32]
        return folder / "files", folder / "runtime"

    def _ensure(self, workspace: Workspace) -> bool:
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            self._sweep()
        files, runtime = self._folders(workspace)
        made = not files.exists()
        for each in (self._path, files.parent, files, runtime):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(runtime)  # its lease
        return made

    def _sweep(self) -> int:
        """Remove the folders whose lease is over and in which nothing runs."""
        removed = 0
        with suppress(OSError):
            for folder in list(self._path.iterdir()):
                with suppress(OSError):
                    if time.time() - (folder / "runtime").stat().st_mtime > FOLDER_LEASE_SECONDS:
                        removed += _remove_unused(folder)
        return removed

    def _end(self, process: Process) -> None:
        """Close the program's input, and have it killed if it does not end; nobody waits for it."""
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is None:
            self._endings.start(_ended(process))


async def _ended(process: Process) -> None:
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _error_of(process: Process) -> str:
    text = (await process.stderr.read())[-ERROR_BYTES_MAX:].decode(errors="replace") if process.stderr else ""
    last = text.strip().rpartition("\n")[2]
    return f"the workspace's program ended without a result: {last or 'it was killed'}"


def _remove_unused(folder: Path) -> bool:
    with (folder / "runtime" / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        _remove(folder)
        return True


def _remove(folder: Path) -> None:
    for parent, folders, _ in os.walk(folder):  # a command may have closed them to us
        for each in (Path(parent, name) for name in folders):
            with suppress(OSError):
                if not each.is_symlink():  # where it leads is not ours
                    each.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
