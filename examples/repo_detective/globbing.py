"""Patterns like `src/**/*.py`, matched name by name in time linear in the path. Touches no files."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from holdfast.errors import InvalidInput

PATTERN_CHARS_MAX: Final = 200
PATTERN_NAMES_MAX: Final = 16
ANY_DEPTH: Final = "**"

Places = frozenset[int]
"""How far a path has come in the pattern: every place at which the rest may go on matching; empty when none is left."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A checked pattern. `*`, `?` and `[...]` stay within one name, `**` stands for any number of folders."""

    names: tuple[str, ...]

    @classmethod
    def parse(cls, pattern: str) -> Glob:
        """Read a pattern; without a slash it names files at any depth, with a slash at its end everything below."""
        if len(pattern) > PATTERN_CHARS_MAX:
            raise InvalidInput(f"the pattern has {len(pattern):,} characters, at most {PATTERN_CHARS_MAX} are allowed")
        names = [name for name in pattern.strip().split("/") if name not in ("", ".")]
        if pattern.startswith("/") or ".." in names or "\0" in pattern:
            raise InvalidInput(f"the pattern {pattern!r} must stay inside the folder: no leading `/`, no `..`, no NUL")
        if len(names) > PATTERN_NAMES_MAX:
            raise InvalidInput(f"the pattern has {len(names)} parts, at most {PATTERN_NAMES_MAX} are allowed")
        if not names or pattern.endswith("/"):
            names.append(ANY_DEPTH)
        elif "/" not in pattern:
            names.insert(0, ANY_DEPTH)
        return cls(tuple(names))

    @property
    def start(self) -> Places:
        """Where a path begins."""
        return self._with_skipped({0})

    def after(self, places: Places, name: str) -> Places:
        """Return how far a path has come after one name more."""
        reached: set[int] = set()
        for place in places:
            if place == len(self.names):
                continue
            if self.names[place] == ANY_DEPTH:
                reached.add(place)
            elif fnmatchcase(name, self.names[place]):
                reached.add(place + 1)
        return self._with_skipped(reached)

    def ended(self, places: Places) -> bool:
        """Whether a path that has come so far matches as it is."""
        return len(self.names) in places

    def _with_skipped(self, places: set[int]) -> Places:
        """Add the places behind each `**`, which may also stand for nothing."""
        found = set(places)
        for place in sorted(places):
            behind = place
            while behind < len(self.names) and self.names[behind] == ANY_DEPTH:
                behind += 1
                found.add(behind)
        return frozenset(found)
