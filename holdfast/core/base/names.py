"""Names of agents, tools, hooks and sections, and lists of them without repeats."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field

from holdfast.core.base.bounds import NAME_CHARS_MAX

HashableT = TypeVar("HashableT", bound=Hashable)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=NAME_CHARS_MAX)]
"""The name of an agent, a tool, a hook, a section: letters, digits, `_` and `-` (what OpenAI accepts for functions)."""


def distinct(values: tuple[HashableT, ...]) -> tuple[HashableT, ...]:
    """Return `values`; raises ValueError for one that is there twice, because the second one would mean nothing."""
    seen: set[HashableT] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{str(value)!r} is given twice; keep one")
        seen.add(value)
    return values


Names = Annotated[tuple[Name, ...], AfterValidator(distinct)]
"""Names in an order that means something, none of them twice."""
