"""Whether processes that tests have started still run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

GONE_SECONDS_MAX = 90.0


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody has asked about yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


async def until_gone(pids: Iterable[int]) -> None:
    """Wait until none of them runs any more."""
    waiting = tuple(pids)
    assert waiting
    async with asyncio.timeout(GONE_SECONDS_MAX):
        while any(alive(pid) for pid in waiting):  # noqa: ASYNC110  # nobody tells of other people's children
            await asyncio.sleep(0.02)
