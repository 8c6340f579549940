"""A worker of a test's own that stands still after it has connected and written its storage, until the test says so."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.server.worker_health import StorageProbe

CONNECTED, GOES_ON = "connected", "goes-on"
FOLDER = "HOLDFAST_TEST_FOLDER"

_write = StorageProbe.write


async def _held(self: StorageProbe) -> None:
    await _write(self)
    folder = Path(os.environ[FOLDER])
    (folder / CONNECTED).touch()
    while not (folder / GOES_ON).exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.05)


if FOLDER in os.environ:  # in the worker alone: the test imports this for its names
    StorageProbe.write = _held  # type: ignore[method-assign]  # a server dies at this moment by chance alone
