"""`WorkspaceBackends`: the backends that one worker process has for workspaces, by name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.core.base.errors import MissingPart
from holdfast.core.base.extras import install_command
from holdfast.workspace.backend import WorkspaceBackend
from holdfast.workspace.folder import FolderBackend

NO_BOUNDARY: Final = (
    "workspaces in folders are no boundary: agents' commands run as this worker's user and can read and change what "
    "that user can; give `--workspace docker` for agents that you do not trust"
)


SWEEP_EVERY_SECONDS: Final = 300.0
"""How often a worker sweeps: a container that was made and never started ends by no lease."""


class WorkspaceBackends:
    """Those of these names: folders below `data_dir`, containers of the daemon at DOCKER_HOST for `namespace`.

    Raises MissingPart where the package of one is not installed. As a context manager it sweeps at its beginning and
    from then on, and closes them at its end; workspaces stay.
    """

    def __init__(self, names: Sequence[str], data_dir: Path, namespace: str) -> None:
        self.by_name: Final[dict[str, WorkspaceBackend]] = {}
        self._namespace = namespace
        self._sweeping: asyncio.Task[None] | None = None
        if "folder" in names:
            self.by_name["folder"] = FolderBackend(data_dir.absolute() / "workspaces")
        if "docker" in names:
            self.by_name["docker"] = self._docker()

    @property
    def warning(self) -> str | None:
        """What whoever starts the worker should know."""
        return NO_BOUNDARY if "folder" in self.by_name else None

    def _docker(self) -> WorkspaceBackend:
        if find_spec("docker") is None:
            problem = "workspaces in containers need the package `docker`, which is not installed"
            raise MissingPart(f"{problem}: {install_command('docker')}")
        from holdfast.workspace.docker.docker_backend import DockerBackend  # noqa: PLC0415  # an extra

        return DockerBackend(self._namespace, os.environ.get("DOCKER_HOST"))

    async def __aenter__(self) -> Self:
        await self._sweep()
        self._sweeping = asyncio.create_task(self._sweep_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self.by_name.values()), return_exceptions=True)

    async def _sweep_on(self) -> None:
        while self.by_name:
            await asyncio.sleep(SWEEP_EVERY_SECONDS)
            await self._sweep()

    async def _sweep(self) -> None:
        await asyncio.gather(*(each.sweep() for each in self.by_name.values()))
