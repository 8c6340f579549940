"""Whether the disk of a data directory is full: Temporal's own errors name only its shards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

ROOM_BYTES_MIN: Final = 4 * 1024 * 1024
"""With less than this the database cannot grow any more: one write-ahead log of SQLite's before it is taken over."""

SHARD_WORDS: Final = ("shard status unknown", "database or disk is full", "disk I/O error")
"""What a server says that cannot write its database."""


def full_disk(folder: Path) -> str | None:
    """Return in words that the disk of that folder is full; none where it is not, or cannot be asked."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= ROOM_BYTES_MIN:
        return None
    return f"the disk of {folder} is full ({free / 2**20:.1f} MB left); free some space"


def cannot_write(words: str) -> bool:
    """Return whether these words of a server mean that it cannot write its database."""
    return any(each in words.lower() for each in SHARD_WORDS)
