"""`WorkspaceBackend`: how a workspace is made, used and ended, whatever it lives in. Knows nothing of the operations.

A backend starts one program in the workspace for each request, `inside.program.PROGRAM`, as

    python3 -I -S -c PROGRAM ROOT RUNTIME

ROOT is the folder that the agent sees as its files, RUNTIME one of the workspace's own beside it: it holds the pids of
running commands, the lock and the index of the last snapshot, and dies with the workspace. The program reads the
request from standard input, which stays open: when it ends early, the caller is gone and the program ends what it
has started.
It writes frames (`inside.frames`) to standard output, the result last. Standard error is for a program that could not
start at all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.base.errors import HoldfastError
from holdfast.core.tools.workspace_profile import WorkspaceProfile


class WorkspaceUnavailable(HoldfastError):
    """The workspace cannot be used now: nothing was begun. The message is for the model, in one line."""

    exit_code = 6


class WorkspaceLost(HoldfastError):
    """The workspace went away, or its program ended without a result, while a request was under way."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Which workspace: an id that is unique in the namespace, on whose account it works, and its profile."""

    id: str
    tenant: str
    profile: WorkspaceProfile


class WorkspaceBackend(Protocol):
    """Makes and ends workspaces, and runs the program in them. Safe to use from any event loop and several at once."""

    async def ensure(self, workspace: Workspace) -> bool:
        """Have the workspace there, and renew its lease; return whether it was made just now, and so is empty.

        Raises WorkspaceUnavailable, saying what is missing (an image, the daemon, room) and what to do.
        """
        ...

    def execute(self, workspace: Workspace, request: Iterable[bytes]) -> AsyncGenerator[bytes]:
        """Run the program with `request` on its standard input; yield its standard output as it comes.

        The lease is renewed while it runs. Closing the generator early (`aclosing`) closes standard input, which ends
        the call, and does not wait for it. Raises WorkspaceUnavailable where the program could not be started,
        WorkspaceLost where it ended by itself: killed, out of memory, its workspace gone.
        """
        ...

    async def kill(self, workspace: Workspace, request: Iterable[bytes]) -> None:
        """End a call that goes on: run the program with this `kill` request; unless it answers in time, end everything.

        Never raises, and ends within KILL_SECONDS_MAX: what cannot be reached ends by its lease.
        """
        ...

    async def remove(self, workspace: Workspace) -> None:
        """End the workspace and all that runs in it, and forget its files. Never raises for one that is gone."""
        ...

    async def sweep(self) -> int:
        """Remove what is left of workspaces that have ended; return how many. Never raises: it is tidiness alone."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads; workspaces stay."""
        ...


KILL_SECONDS_MAX = 5.0
"""How long ending a call may take, with the container's own end where the program does not answer in 2 s."""
