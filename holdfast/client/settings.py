"""Where things are: read once at the edge from flags and environment into one frozen value. Connects to nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.core.contracts import DEFAULT_TASK_QUEUE
from holdfast.core.errors import InvalidInput

DEFAULT_ADDRESS: Final = "127.0.0.1:7233"
DEFAULT_NAMESPACE: Final = "default"
DEFAULT_DATA_DIR: Final = Path(".holdfast")
DEFAULT_AGENTS_DIR: Final = Path("agents")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client or worker needs to know.

    `address` none: TEMPORAL_ADDRESS or a Temporal profile decides; else the embedded server of `data_dir` when one
    runs there; else Temporal's usual port on this machine.
    """

    address: str | None = None
    namespace: str | None = None
    task_queue: str = DEFAULT_TASK_QUEUE
    data_dir: Path = DEFAULT_DATA_DIR
    agents_dir: Path = DEFAULT_AGENTS_DIR

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] = os.environ,
        *,
        address: str | None = None,
        namespace: str | None = None,
        task_queue: str | None = None,
        data_dir: Path | None = None,
        agents_dir: Path | None = None,
    ) -> Settings:
        """Return the settings: an argument wins over HOLDFAST_TASK_QUEUE, HOLDFAST_DATA_DIR and HOLDFAST_AGENTS_DIR.

        Raises InvalidInput for a name that is no text.
        """
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
        )
