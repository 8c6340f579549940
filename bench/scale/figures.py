"""What is measured, as it is kept in `measured.json`. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from bench.scale.database import TRANSIENT, VISIBILITY, Held
from bench.scale.step_times import Spread

KINDS: Final = ("PUT", "HEAD", "GET", "LIST")
"""The kinds of requests to the store."""

FILE: Final = Path(__file__).with_name("measured.json")


class Figures(BaseModel):
    """A part of what is kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Circumstances(Figures):
    """When, by which command and on what something was measured. `load` is the machine's before and after."""

    date: str
    command: str
    machine: str
    minutes: float
    load: tuple[float, float]


class Cell(Figures):
    """Runs at once on so many shards and workers.

    CPU, commits and bytes are per step, less what the cluster does without any.
    """

    shards: int
    workers: int
    runs: int
    steps: int
    seconds: float
    step_ms: Spread
    cpu_ms: dict[str, float]
    commits: float
    log_bytes: float

    @property
    def steps_per_second(self) -> float:
        """All steps by the time from the first start until the last end."""
        return self.steps / self.seconds

    def cores(self, role: str) -> float:
        """Return how many processors a role kept busy."""
        return self.cpu_ms.get(role, 0.0) * self.steps_per_second / 1_000


class Left(Figures):
    """What so many runs, sessions or messages have left: rows and bytes by table, objects and requests of the store."""

    name: str
    count: int
    steps: int
    """Of each; 0 where that says nothing."""
    result_bytes: int
    tables: dict[str, Held]
    """After the tables were rewritten: nothing is left of dead rows."""
    objects: dict[str, tuple[int, int]]
    """Objects and bytes, by folder."""
    requests: dict[str, int]
    """By kind."""

    @property
    def kept(self) -> dict[str, Held]:
        """The tables whose rows stay until retention is over."""
        return {name: held for name, held in self.tables.items() if name not in TRANSIENT}

    def bytes_each(self) -> float:
        """Return the bytes in PostgreSQL, without visibility and what goes by itself."""
        return sum(held.bytes for name, held in self.kept.items() if not name.startswith(VISIBILITY)) / self.count

    def visibility_row_bytes(self) -> float:
        """Return the bytes of a row of visibility; it has dozens of indexes, so a few rows say nothing."""
        held = [held for name, held in self.kept.items() if name.startswith(VISIBILITY)]
        return sum(each.bytes for each in held) / max(1, sum(each.rows for each in held))

    def rows_each(self) -> float:
        """Return the rows in PostgreSQL, without what goes by itself."""
        return sum(held.rows for held in self.kept.values()) / self.count

    def visibility_rows_each(self) -> float:
        """Return those of them that lists and counts read."""
        return sum(held.rows for name, held in self.kept.items() if name.startswith(VISIBILITY)) / self.count

    def stored_each(self) -> tuple[float, float]:
        """Return the objects in the store, and their bytes."""
        counts, sizes = zip(*self.objects.values(), strict=True) if self.objects else ((), ())
        return sum(counts) / self.count, sum(sizes) / self.count

    def requests_each(self, kind: str) -> float:
        """Return the requests of a kind."""
        return self.requests.get(kind, 0) / self.count


class Footprint(Figures):
    """What runs and sessions leave."""

    measured: Circumstances
    left: tuple[Left, ...]

    def named(self, name: str) -> Left:
        """Return what is called so."""
        return next(each for each in self.left if each.name == name)


class Memory(Figures):
    """A worker's bytes of memory when so many sessions had been served by all workers."""

    sessions: int
    workers: tuple[int, ...]


class Settling(Figures):
    """How the commits of a cluster that has just started became steady, or did not."""

    window_seconds: float
    commits_per_second: tuple[float, ...]
    """In each window, one after the other."""
    settled: bool
    """Whether the last two were alike."""

    @property
    def seconds(self) -> float:
        """How long it was watched."""
        return self.window_seconds * len(self.commits_per_second)


class Window(Figures):
    """What a cluster does in some seconds in which nobody asks it for anything."""

    seconds: float
    cores: dict[str, float]
    commits_per_second: float
    log_bytes_per_second: float
    settling: Settling | None = None
    """What came before; None where it was not watched."""


class Throughput(Figures):
    """Every cell, and what each cluster did before its first worker came."""

    measured: Circumstances
    cells: tuple[Cell, ...]
    idle: dict[int, Window]
    """By shards."""


class Cost(Figures):
    """What one run or message costs: the mean of `count` with one model call each, less what an idle cluster uses."""

    name: str
    count: int
    cpu_ms: dict[str, float]
    commits: float
    log_bytes: float
    requests: dict[str, float]
    """Of the store, by kind."""


class Messages(Figures):
    """Messages of sessions and runs without tools."""

    measured: Circumstances
    workers: int
    costs: tuple[Cost, ...]
    alone: Window

    def named(self, name: str) -> Cost:
        """Return the cost of that name. Raises StopIteration where there is none."""
        return next(each for each in self.costs if each.name == name)


class Idle(Figures):
    """Sessions that have answered one message each and wait."""

    measured: Circumstances
    left: Left
    found_bytes: float
    """In PostgreSQL per session, dead rows and free room included: as the tables are found after a VACUUM."""
    seconds: float
    cached_runs: int
    memory: tuple[Memory, ...]
    fresh_bytes: int
    """A worker's memory before its first session."""
    timers: dict[str, int]
    """Rows of timers when the sessions waited, by what they do."""
    alone: Window
    """Before the first session."""
    waiting: Window
    """While all sessions wait."""
    events_before: int
    events_after: int
    """The events of all sessions before and after that."""
    woken: int
    wake_ms: Spread
    """From a message to the first request at the model, by workers that have no session in memory."""


class Crowd(Figures):
    """Runs that all start at once."""

    measured: Circumstances
    runs: int
    steps: int
    workers: int
    start_seconds: float
    seconds: float
    in_flight: int
    """The most runs that were open at one moment."""
    ended: dict[str, int]
    """Runs by how they ended."""
    workflow_task_ms: Spread
    activity_task_ms: Spread
    step_ms: Spread
    cpu_ms: dict[str, float]
    refusals: dict[str, int]
    memory_before: tuple[int, ...]
    memory_after: tuple[int, ...]


class Measured(Figures):
    """Everything, as far as it has been measured."""

    throughput: Throughput | None = None
    messages: Messages | None = None
    idle: Idle | None = None
    crowd: Crowd | None = None
    footprint: Footprint | None = None

    @classmethod
    def read(cls, file: Path = FILE) -> Measured:
        """Return what is kept; nothing where there is no file."""
        return cls.model_validate_json(file.read_text(encoding="utf-8")) if file.exists() else cls()

    def write(self, file: Path = FILE) -> None:
        """Keep it."""
        file.write_text(self.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")
