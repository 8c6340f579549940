"""What a user brings: one tool."""

from holdfast.core.tools.tools import tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: the one
        b: the other
    """
    return a * b
