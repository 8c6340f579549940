"""Settings of clients and workers: read once from flags and environment into one frozen value. Connects to nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.core.base.bounds import CONTINUE_EVENTS, CONTINUE_EVENTS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.workspace_profile import BACKENDS
from holdfast.core.wire.contracts import DEFAULT_TASK_QUEUE
from holdfast.storage.storage_url import checked_place, default_place
from holdfast.telemetry.settings import NO_TELEMETRY, Telemetry

DEFAULT_ADDRESS: Final = "127.0.0.1:7233"
DEFAULT_NAMESPACE: Final = "default"
DEFAULT_DATA_DIR: Final = Path(".holdfast")
DEFAULT_AGENTS_DIR: Final = Path("agents")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client or worker needs to know.

    `address` none: TEMPORAL_ADDRESS or a Temporal profile decides; else the embedded server of `data_dir` when one
    runs there; else Temporal's usual port on this machine. `modules` are Python modules: the agents in them count like
    those in the folder `agents_dir`. `storage` is the URL of where large data is kept; none: the folder `objects` of
    `data_dir`. After `continue_events` events of its history an execution continues in a new Temporal run
    (continue-as-new, which nobody notices); 1: after every step, for tests. `encryption_key_file` holds the keys that
    encrypt what Temporal and the storage hold; none: nothing is encrypted by us. `telemetry` says whether traces are
    sent. `mcp_file` lists the MCP servers that agents may name; none: the file `mcp.yaml` here, if there is one.
    `mcp_inline` lets a definition describe MCP servers itself: whoever may start runs then runs commands on the worker.
    `models_file` lists the routes that agents may name; none: the file `models.yaml` here, if there is one.
    `workspaces` are the backends that agents' workspaces may have here. `workspace_queue` is the task queue whose
    workers serve the tools of workspaces; none: this worker's own.
    """

    address: str | None = None
    namespace: str | None = None
    task_queue: str = DEFAULT_TASK_QUEUE
    data_dir: Path = DEFAULT_DATA_DIR
    agents_dir: Path = DEFAULT_AGENTS_DIR
    modules: tuple[str, ...] = ()
    storage: str | None = None
    continue_events: int = CONTINUE_EVENTS
    encryption_key_file: Path | None = None
    telemetry: Telemetry = NO_TELEMETRY
    mcp_file: Path | None = None
    mcp_inline: bool = False
    workspaces: tuple[str, ...] = ()
    workspace_queue: str | None = None
    models_file: Path | None = None

    @property
    def storage_place(self) -> str:
        """The URL of where large data is kept."""
        return self.storage or default_place(self.data_dir)

    @classmethod
    def from_environment(  # noqa: PLR0913  # one argument per setting
        cls,
        environment: Mapping[str, str] = os.environ,
        *,
        address: str | None = None,
        namespace: str | None = None,
        task_queue: str | None = None,
        data_dir: Path | None = None,
        agents_dir: Path | None = None,
        modules: Sequence[str] | None = None,
        storage: str | None = None,
        encryption_key_file: Path | None = None,
        mcp_file: Path | None = None,
        mcp_inline: bool = False,
        workspaces: Sequence[str] | None = None,
        workspace_queue: str | None = None,
        models_file: Path | None = None,
    ) -> Settings:
        """Return the settings: an argument wins over its variable.

        The variables are HOLDFAST_TASK_QUEUE, HOLDFAST_DATA_DIR, HOLDFAST_AGENTS_DIR, HOLDFAST_IMPORT (names with
        commas between), HOLDFAST_STORAGE, HOLDFAST_ENCRYPTION_KEY_FILE, HOLDFAST_MCP, HOLDFAST_MCP_INLINE (1 or 0),
        HOLDFAST_WORKSPACES (with commas between), HOLDFAST_WORKSPACE_QUEUE and HOLDFAST_MODELS; and, which no argument
        has, HOLDFAST_CONTINUE_EVENTS and those of `Telemetry`.

        Raises InvalidInput for a name that is no text, a storage URL that cannot be used, and a number out of bounds.
        """
        key_file = environment.get("HOLDFAST_ENCRYPTION_KEY_FILE")
        place = storage or environment.get("HOLDFAST_STORAGE") or None
        queue = task_queue or environment.get("HOLDFAST_TASK_QUEUE") or DEFAULT_TASK_QUEUE
        for what, name in (("task queue", queue), ("namespace", namespace or "")):
            if any("\ud800" <= char <= "\udfff" for char in name):
                raise InvalidInput(f"the {what} {name[:80]!r} is not valid Unicode text; choose another name")
        return cls(
            address=address,
            namespace=namespace,
            task_queue=queue,
            data_dir=data_dir or Path(environment.get("HOLDFAST_DATA_DIR") or DEFAULT_DATA_DIR),
            agents_dir=agents_dir or Path(environment.get("HOLDFAST_AGENTS_DIR") or DEFAULT_AGENTS_DIR),
            modules=tuple(modules or _listed(environment.get("HOLDFAST_IMPORT", ""))),
            storage=None if place is None else checked_place(place),
            encryption_key_file=encryption_key_file or (Path(key_file) if key_file else None),
            continue_events=_events(environment.get("HOLDFAST_CONTINUE_EVENTS") or str(CONTINUE_EVENTS)),
            telemetry=Telemetry.from_environment(environment),
            mcp_file=mcp_file or _file(environment.get("HOLDFAST_MCP")),
            mcp_inline=mcp_inline or _is_on("HOLDFAST_MCP_INLINE", environment.get("HOLDFAST_MCP_INLINE") or "0"),
            workspaces=_backends(workspaces or _listed(environment.get("HOLDFAST_WORKSPACES", ""))),
            workspace_queue=workspace_queue or environment.get("HOLDFAST_WORKSPACE_QUEUE") or None,
            models_file=models_file or _file(environment.get("HOLDFAST_MODELS")),
        )


def _file(name: str | None) -> Path | None:
    return Path(name) if name else None


def _listed(text: str) -> list[str]:
    return [name for each in text.split(",") if (name := each.strip())]


def _backends(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in BACKENDS:
            raise InvalidInput(f"a workspace cannot have the backend {name[:80]!r}; choose {' or '.join(BACKENDS)}")
    return tuple(dict.fromkeys(names))


def _is_on(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise InvalidInput(f"{name} is {text[:80]!r}; set 1 or 0, or leave it unset")
    return text == "1"


def _events(text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= CONTINUE_EVENTS_MAX:
        problem = f"HOLDFAST_CONTINUE_EVENTS is {text[:80]!r}"
        raise InvalidInput(f"{problem}; set a whole number from 1 to {CONTINUE_EVENTS_MAX:,}, or leave it unset")
    return int(text)
