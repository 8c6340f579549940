"""Where a driver in this process has its times and ids from, unless a test gives it others."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4


def now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


def new_id() -> str:
    """Return a new id."""
    return str(uuid4())
