"""Noting in a file outside Temporal that a tool really ran, and pausing in the middle of it: for the demo's proof.

HOLDFAST_LEDGER               a file to which each call appends `started`, then `finished` or `failed`
HOLDFAST_TOOL_PAUSE_SECONDS   how long each call pauses between the two, so that a kill can land inside it; the demo
                              sets it, nothing else should
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final

from holdfast import ToolContext
from holdfast.errors import InvalidInput
from holdfast.testing import Ledger

LEDGER: Final = "HOLDFAST_LEDGER"
PAUSE: Final = "HOLDFAST_TOOL_PAUSE_SECONDS"
PAUSE_SECONDS_MAX: Final = 15.0


@contextmanager
def recorded(name: str, context: ToolContext) -> Generator[None]:
    """Note the beginning and the end of one call; without HOLDFAST_LEDGER nothing is noted."""
    seconds = _pause_seconds()
    where = os.environ.get(LEDGER)
    ledger = Ledger(Path(where)) if where else None
    if ledger:
        ledger.append("tool", name, "started", key=context.idempotency_key)
    phase = "failed"
    try:
        if seconds:
            Event().wait(seconds)
        yield
        phase = "finished"
    finally:
        if ledger:
            ledger.append("tool", name, phase, key=context.idempotency_key)


def _pause_seconds() -> float:
    given = os.environ.get(PAUSE) or "0"
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= PAUSE_SECONDS_MAX:
        raise InvalidInput(f"{PAUSE} is {given[:80]!r}; it is a number of seconds from 0 to {PAUSE_SECONDS_MAX:g}")
    return seconds
