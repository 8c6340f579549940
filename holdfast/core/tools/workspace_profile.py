"""`WorkspaceProfile`: the room that an agent's files and commands have, and its bounds. A value; creates nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, Field

from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import is_none
from holdfast.core.base.json_form import SparseForm

WORKSPACE: Final = "workspace"
"""The capability that contains the tools."""

DEFAULT_IMAGE: Final = "python:3.13-slim"
"""The image of a container unless the definition names another: the tools need its `python3`, nothing else."""

WORKSPACE_ID_CHARS_MAX: Final = 1_000
"""The longest id of a workspace: that of a run or of a session."""

MEMORY_MB_MIN: Final = 64
"""The program and the compiled standard library take half of it."""
MEMORY_MB_MAX: Final = 64 * 1024
CPUS_MAX: Final = 64.0
PIDS_MAX: Final = 32_768
DISK_MB_MAX: Final = 64 * 1024
"""The most that a definition may give a workspace: a host of today has no more to share out."""

Reference = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$", max_length=WORD_CHARS_MAX)]
"""A name that Docker takes: of an image, a network, a runtime. It can never be read as an option."""


def _apart_from_the_host(network: str) -> str:
    """Refuse the network of the host, and that of another container: whoever may start runs chooses it."""
    if network == "host" or ":" in network or "/" in network:
        raise ValueError(f"{network!r} is no network of a workspace's own; name one of `docker network ls`, or none")
    return network


Network = Annotated[Reference, AfterValidator(_apart_from_the_host)]

Backend = Literal["docker", "folder"]

BACKENDS: Final[tuple[str, ...]] = get_args(Backend)


class WorkspaceProfile(SparseForm):
    """The workspace of an agent: one room for files and commands per run, or per session (`scope`).

    `backend` is where it lives: in a Docker container, or in a folder of the worker, which is no boundary. The rest is
    the container's: `image`, `network` (a Docker network by name), `memory_mb` (swap included), `cpus`, `pids_max`,
    `file_mb_max` (the largest file), `disk_mb` (all files), and `runtime`, such as `runsc` for gVisor. A folder has of
    these `file_mb_max` alone. `files` is the snapshot that it begins with (`holdfast workspace new put`).
    """

    backend: Backend = "docker"
    scope: Literal["execution", "session"] = "execution"
    image: Reference = DEFAULT_IMAGE
    network: Network = "none"
    memory_mb: int = Field(default=1024, ge=MEMORY_MB_MIN, le=MEMORY_MB_MAX)
    cpus: float = Field(default=1.0, ge=0.01, le=CPUS_MAX)
    pids_max: int = Field(default=256, ge=8, le=PIDS_MAX)
    file_mb_max: int = Field(default=256, ge=1, le=DISK_MB_MAX)
    disk_mb: int = Field(default=512, ge=1, le=DISK_MB_MAX)
    runtime: Reference | None = None
    files: Digest | None = None


class WorkspaceUse(SparseForm):
    """What a call of a workspace's tool knows of it: its id, its profile, and the digest of the files it is to have.

    Without a digest its files are those of a workspace in which nothing has happened yet: none. `left_by` is the id of
    the run's call that has left them; none for those that the run began with.
    """

    id: Annotated[str, Field(min_length=1, max_length=WORKSPACE_ID_CHARS_MAX)]
    profile: WorkspaceProfile = WorkspaceProfile()
    files: Digest | None = Field(default=None, exclude_if=is_none)
    left_by: str | None = Field(default=None, max_length=WORD_CHARS_MAX, exclude_if=is_none)


def missing_backend(name: str, available: Collection[str]) -> str:
    """Return the error of an agent whose workspace needs a backend that a worker does not have."""
    there = f"it has {', '.join(map(repr, sorted(available)))}" if available else "it has none"
    remedy = (
        f"start it with `--workspace {name}`, or with `--workspace-queue QUEUE` where other workers have that, or "
        "change `workspace: backend` of the agent"
    )
    return f"the workspace needs the backend {name!r}, which this worker was not given ({there}); {remedy}"
