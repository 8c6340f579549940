"""What a user brings: some tools."""

import time
from pathlib import Path

from holdfast import ToolContext, tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: the one
        b: the other
    """
    return a * b


@tool
def draw(context: ToolContext) -> str:
    """Draw a chart."""
    context.attach(b"a chart", name="chart.svg")
    context.attach(b"three bars", name="notes.txt")
    return "drawn"


@tool
def nap(seconds: float) -> str:
    """Do nothing for a while.

    Args:
        seconds: how long
    """
    Path("napping").touch()
    time.sleep(seconds)
    return "awake"
