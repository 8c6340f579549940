"""The outside ledger: a JSON lines file in which fakes record what they did; it must not judge.

It lives outside Temporal and outside the process under test, so that a fault test can ask afterwards what happened
how often (the invariants of a fault test are checked against it). Many processes may append to one file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.base.errors import InvalidInput

Kind: TypeAlias = Literal["model", "tool"]

FILE_MODE = 0o600  # prompts and tool arguments may end up in a detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event: `phase` of the model call or tool call `key`, seen by process `pid` at `at` (Unix seconds)."""

    at: float
    pid: int
    kind: Kind
    name: str
    phase: str
    key: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Ledger:
    """An append-only file of `Entry` lines.

    It holds no open descriptor: a ledger can be pickled, forked and forgotten. What was appended outlives a killed
    process (not a power cut: nothing is synced).
    """

    path: Path

    def append(
        self, kind: Kind, name: str, phase: str, *, key: str = "", detail: Mapping[str, Any] | None = None
    ) -> Entry:
        """Append one event, stamped with the time and the process, and return it.

        Usual phases are `started`, `finished`, `failed` and `disconnected`; `key` tells repetitions of one call from
        different calls.
        """
        entry = Entry(
            at=time.time(), pid=os.getpid(), kind=kind, name=name, phase=phase, key=key, detail=dict(detail or {})
        )
        line = (json.dumps(asdict(entry)) + "\n").encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            # One write on an O_APPEND descriptor is what keeps lines of different processes apart.
            size = os.write(descriptor, line)
        finally:
            os.close(descriptor)
        if size != len(line):
            raise OSError(f"Only {size} of {len(line)} bytes fit into {self.path}; free some space.")
        return entry

    def entries(
        self,
        *,
        kind: Kind | None = None,
        name: str | None = None,
        phase: str | None = None,
        key: str | None = None,
    ) -> tuple[Entry, ...]:
        """Return the matching events in the order of the file; a file nobody has written yet is empty.

        A torn last line (its writer was killed) is skipped. A broken line before it raises `InvalidInput`: a ledger
        that loses evidence silently proves nothing.
        """
        criteria = {"kind": kind, "name": name, "phase": phase, "key": key}
        filters = {key: value for key, value in criteria.items() if value is not None}
        return tuple(
            entry for entry in self._read() if all(getattr(entry, key) == value for key, value in filters.items())
        )

    def count(
        self,
        *,
        kind: Kind | None = None,
        name: str | None = None,
        phase: str | None = None,
        key: str | None = None,
    ) -> int:
        """Return how many events match."""
        return len(self.entries(kind=kind, name=name, phase=phase, key=key))

    def _read(self) -> tuple[Entry, ...]:
        if not self.path.exists():
            return ()
        whole, _, _torn = self.path.read_bytes().rpartition(b"\n")
        lines = whole.split(b"\n") if whole else []
        return tuple(self._parse(line, number) for number, line in enumerate(lines, start=1))

    def _parse(self, line: bytes, number: int) -> Entry:
        try:
            return Entry(**json.loads(line))
        except (ValueError, TypeError) as problem:
            raise InvalidInput(
                f"Line {number} of the ledger {self.path} is not an entry ({problem}); another program wrote there."
            ) from problem


def idempotency_key(execution_id: str, step: int, place: int) -> str:
    """Return the key that a tool is given for the call at `place` (from 0) of what step `step` (from 1) asked for."""
    return named_id(execution_id, call_name(step, place))
