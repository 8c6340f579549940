"""Tools that show which build's worker ran them; `gate` keeps a call under way until a file is there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import tool

SECONDS_MAX = 240


@tool
def build() -> str:
    """Say which build this is."""
    return os.environ.get("HOLDFAST_BUILD_ID", "unversioned")


@tool
async def gate(path: str) -> str:
    """Wait until there is a file.

    Args:
        path: the file
    """
    async with asyncio.timeout(SECONDS_MAX):
        while not Path(path).exists():  # noqa: ASYNC110, ASYNC240  # another process makes it
            await asyncio.sleep(0.1)
    return build()
