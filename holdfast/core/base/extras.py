"""How the extras of Holdfast are installed: what errors about missing packages say."""

from __future__ import annotations


def install_command(*extras: str) -> str:
    """Return the command that installs these extras, from the folder of a clone: no package index has Holdfast yet."""
    return f"pip install '/path/to/holdfast[{','.join(extras)}]'"
