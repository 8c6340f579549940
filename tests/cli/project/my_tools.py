"""What a user brings: two tools."""

import time
from pathlib import Path

from holdfast import tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: the one
        b: the other
    """
    return a * b


@tool
def nap(seconds: float) -> str:
    """Do nothing for a while.

    Args:
        seconds: how long
    """
    Path("napping").touch()
    time.sleep(seconds)
    return "awake"
