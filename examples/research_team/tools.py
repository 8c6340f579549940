"""The researchers' tools: `list_notes` and `read_note` over one folder of Markdown files; they write nothing.

    holdfast worker --import examples.research_team.tools

HOLDFAST_NOTES names another folder than the `notes` beside this file. All that is in it can reach the model.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast import tool
from holdfast.errors import InvalidInput

FOLDER: Final = "HOLDFAST_NOTES"
NOTES_MAX: Final = 200
"""The most notes that are listed."""

NOTE_CHARS_MAX: Final = 10_000
"""The most of one note that is read."""


@tool
def list_notes() -> str:
    """List the notes by name."""
    names = sorted(path.stem for path in _folder().glob("*.md"))
    more = f"\n[cut: the first {NOTES_MAX} of {len(names)}]" if len(names) > NOTES_MAX else ""
    return "\n".join(names[:NOTES_MAX]) + more


@tool
def read_note(name: str) -> str:
    """Read one note.

    Args:
        name: what `list_notes` calls it.
    """
    path = _folder() / f"{name}.md"
    if path.parent != _folder() or path.is_symlink() or not path.is_file():
        raise InvalidInput(f"there is no note {name[:80]!r}; `list_notes` names those there are")
    with path.open(encoding="utf-8", errors="replace") as note:
        return note.read(NOTE_CHARS_MAX)


def _folder() -> Path:
    return Path(os.environ.get(FOLDER) or Path(__file__).with_name("notes"))
