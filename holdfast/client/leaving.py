"""Ending a process that used the Temporal SDK."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End without interpreter finalization, which can crash under the SDK's threads (sdk-python #300: 134, 139)."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
