"""A tool that lasts until a test lets it end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import tool

BEGUN, GOES_ON, ENDED = "begun", "goes-on", "ended"


@tool
async def hold() -> str:
    """Last until the test says so."""
    folder = Path(os.environ["HOLDFAST_TEST_FOLDER"])
    (folder / BEGUN).touch()
    while not (folder / GOES_ON).exists():  # noqa: ASYNC110  # the test is another process
        await asyncio.sleep(0.05)
    (folder / ENDED).touch()
    return "held"
