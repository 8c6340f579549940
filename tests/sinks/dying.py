"""A file sink whose process is killed in the middle of a delivery, once half-way and once after it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

from holdfast.core.wire.event_envelope import to_line
from holdfast.sinks import Batch, JsonLines

FOLDER = "HOLDFAST_TEST_SINK"


class Dying(JsonLines):
    """Writes `events.jsonl` in the folder; the files `half` and `whole` say that it has died there and there."""

    def __init__(self, name: str) -> None:
        self._folder = Path(os.environ[FOLDER])
        super().__init__(self._folder / "events.jsonl", name=name)

    async def deliver(self, batch: Batch) -> None:
        """Take the batch, or die of it."""
        if len(batch.events) > 1 and not (self._folder / "half").exists():
            lines = b"".join(map(to_line, batch.events))
            torn = len(lines) - len(to_line(batch.events[-1])) // 2 if len(batch.events) < 4 else len(lines) // 2
            with self.path.open("ab") as file:
                file.write(lines[:torn])
            self._die("half", batch)
        await super().deliver(batch)
        if batch.again and not (self._folder / "whole").exists():
            self._die("whole", batch)

    def _die(self, mark: str, batch: Batch) -> NoReturn:
        (self._folder / mark).write_text(f"{os.getpid()} {len(batch.events)} {self.path.stat().st_size}")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL does not come back")
