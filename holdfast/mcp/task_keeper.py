"""`TaskKeeper`: where the task of a call is kept while it runs at an MCP server."""

from __future__ import annotations

from typing import Final, Protocol


class TaskKeeper(Protocol):
    """Keeps a task for whoever goes on with the call if this process is lost."""

    async def keep(self, task_id: str) -> None:
        """Keep the id of the task that the call has become."""
        ...

    async def is_final(self) -> bool:
        """Return whether cancelling the call ends it: then the task is cancelled too. Else somebody goes on with it."""
        ...


class _NoKeeper:
    """For calls that end with this process."""

    async def keep(self, task_id: str) -> None:
        """Keep nothing."""

    async def is_final(self) -> bool:
        """Return True: nobody goes on with the call."""
        return True


NO_KEEPER: Final[TaskKeeper] = _NoKeeper()
