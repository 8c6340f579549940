"""A tool whose results are too long for a history, for workers of the cluster."""

from __future__ import annotations

import random
import string
from typing import Final

from holdfast import tool

LOG_CHARS: Final = 80_000
"""More than a result may have in a history."""


@tool
def read_log(name: str) -> str:
    """Read a log.

    Args:
        name: the log
    """
    repeatable = random.Random(name)  # noqa: S311  # a secret for nobody
    return "".join(repeatable.choices(string.ascii_letters, k=LOG_CHARS))
