"""Storage that hangs: a worker that imports this reads no session's state while the file it names is there.

A folder on the network can do that, and no file of a local one: a named pipe is refused as no regular file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final
from unittest.mock import patch

from holdfast.storage.object_folder import ObjectFolder

HUNG: Final = "HOLDFAST_TEST_HUNG"
"""The environment variable with the path of the file that keeps the storage hanging."""

_read = ObjectFolder.read


def _read_later(folder: ObjectFolder, name: str, start: int = 0, end: int | None = None) -> tuple[bytes, int]:
    while name.startswith("sessions/") and Path(os.environ[HUNG]).exists():
        time.sleep(0.05)
    return _read(folder, name, start, end)


if HUNG in os.environ:  # in the worker, not in the tests that import the name
    patch.object(ObjectFolder, "read", _read_later).start()
