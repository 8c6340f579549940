"""The formulas of docs/scale.md: what a load takes, from the measured coefficients. Measures nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean, median
from typing import Final

from bench.scale import footprint, messages
from bench.scale.figures import KINDS, Cell, Footprint, Idle, Messages, Throughput

DAY_SECONDS: Final = 86_400
SERVER: Final = ("frontend", "history", "matching", "internal worker")
PAGE_RESULT_BYTES: Final = footprint.RESULT_BYTES


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What was measured, as the formulas use it. Bytes are in PostgreSQL unless they are the store's."""

    worker_ms: float
    frontend_ms: float
    history_ms: float
    matching_ms: float
    postgres_ms: float
    commits: float
    log_bytes: float
    message_ms: dict[str, float]
    """By role: a message with one model call, of a session that no worker has in memory."""
    message_commits: float
    message_log_bytes: float
    shard_commits: float
    """The most commits a second for each shard that were measured: no bound, but shown."""
    shard_cores: float
    """What an idle shard takes of the server's and the database's processors."""
    run_bytes: float
    step_bytes: float
    session_bytes: float
    message_bytes: float
    found: float
    """Bytes as found on disk for each byte of live rows."""
    worker_bytes: float
    cached_bytes: float
    run_requests: dict[str, float]
    step_requests: dict[str, float]
    message_requests: dict[str, float]
    run_stored: float
    step_stored: float
    message_stored: float


def per_step(cells: tuple[Cell, ...], role: str) -> float:
    """Return the median of a role's milliseconds per step."""
    return median(cell.cpu_ms.get(role, 0.0) for cell in cells)


def coefficients(throughput: Throughput, spoken: Messages, idle: Idle, left: Footprint) -> Coefficients:
    """Return the coefficients. A step's bytes and requests are differences between runs of 10 and of 50 steps."""
    cells, message = throughput.cells, spoken.named(messages.WOKEN)
    short, long = left.named(footprint.SHORT_RUNS), left.named(footprint.LONG_RUNS)
    further = left.named(footprint.FURTHER)
    steps = long.steps - short.steps
    row_bytes = idle.left.visibility_row_bytes()
    step_bytes = (long.bytes_each() - short.bytes_each()) / steps
    step_requests = {kind: (long.requests_each(kind) - short.requests_each(kind)) / steps for kind in KINDS}
    step_stored = (long.stored_each()[1] - short.stored_each()[1]) / steps
    return Coefficients(
        worker_ms=per_step(cells, "workers"),
        frontend_ms=per_step(cells, "frontend"),
        history_ms=per_step(cells, "history"),
        matching_ms=per_step(cells, "matching"),
        postgres_ms=per_step(cells, "PostgreSQL"),
        commits=median(cell.commits for cell in cells),
        log_bytes=median(cell.log_bytes for cell in cells),
        message_ms=message.cpu_ms,
        message_commits=message.commits,
        message_log_bytes=message.log_bytes,
        shard_commits=max(cell.commits * cell.steps_per_second / cell.shards for cell in cells),
        shard_cores=_per_shard(throughput),
        run_bytes=short.bytes_each() - short.steps * step_bytes + short.visibility_rows_each() * row_bytes,
        step_bytes=step_bytes,
        session_bytes=session_bytes(idle),
        message_bytes=further.bytes_each() + further.visibility_rows_each() * row_bytes,
        found=idle.found_bytes / session_bytes(idle),
        worker_bytes=idle.fresh_bytes,
        cached_bytes=cached_bytes(idle),
        run_requests={kind: short.requests_each(kind) - short.steps * step_requests[kind] for kind in KINDS},
        step_requests=step_requests,
        message_requests=message.requests,
        run_stored=short.stored_each()[1] - short.steps * step_stored,
        step_stored=step_stored,
        message_stored=further.stored_each()[1],
    )


def session_bytes(idle: Idle) -> float:
    """Return the bytes in PostgreSQL of a session with its first message, visibility included."""
    return idle.left.bytes_each() + idle.left.visibility_rows_each() * idle.left.visibility_row_bytes()


def _per_shard(throughput: Throughput) -> float:
    """Return the slope between the fewest and the most shards."""
    roles = (*SERVER, "PostgreSQL")
    cores = {shards: sum(each.cores[role] for role in roles) for shards, each in throughput.idle.items()}
    fewest, most = min(cores), max(cores)
    return (cores[most] - cores[fewest]) / (most - fewest) if most > fewest else 0.0


def cached_bytes(idle: Idle) -> float:
    """Return by how much a worker grew for each session that it keeps in its memory.

    It still grows when its cache is full, so the last look counts. Each worker has its share of the sessions.
    """
    last = idle.memory[-1]
    kept = min(idle.cached_runs, last.sessions / len(last.workers))
    return (mean(last.workers) - idle.fresh_bytes) / kept


@dataclass(frozen=True, slots=True)
class Load:
    """What a cluster is to carry."""

    sessions: int
    messages_per_day: float
    """Of each session."""
    steps: float
    """Of the run that answers a message: model calls; the last one asks for no tool."""
    peak: float
    """The busiest second, for each of the average."""
    retention_days: float
    busy: float
    """How much of a processor is planned for."""
    cached: int
    """Runs and sessions that each worker keeps in memory."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for 1,000 requests, by kind: the reader's own, as examples here."""

    per_1000: dict[str, float]


EXAMPLE: Final = Load(sessions=1_000_000, messages_per_day=5, steps=3, peak=3, retention_days=7, busy=0.6, cached=2_000)
EXAMPLE_PRICES: Final = Prices({"PUT": 0.005, "LIST": 0.005, "GET": 0.0004, "HEAD": 0.0004})
"""Rounded, of the kind that public clouds ask; not an offer of anybody's."""

SHARDS_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class Size:
    """What the load takes."""

    messages_per_second: float
    """At the peak."""
    worker_cores: float
    workers: int
    worker_gib: float
    """Of each."""
    cores: dict[str, float]
    shards: int
    commits_per_second: float
    log_megabytes_per_second: float
    open_gb: float
    closed_gb: float
    requests_per_day: dict[str, float]
    dollars_per_day: float
    stored_gb_per_day: float


def size(load: Load, prices: Prices, measured: Coefficients) -> Size:
    """Apply the formulas."""
    per_day = load.sessions * load.messages_per_day
    peak = per_day / DAY_SECONDS * load.peak
    tools = load.steps - 1  # a message's own coefficients have one model call already

    def cores(role: str, step_ms: float) -> float:
        return peak * (measured.message_ms[role] + tools * step_ms) / 1_000 / load.busy

    worker_cores = cores("workers", measured.worker_ms)
    commits = peak * (measured.message_commits + tools * measured.commits)
    least = max(SHARDS_MIN, commits / measured.shard_commits)
    shards = 2 ** math.ceil(math.log2(least))
    milliseconds = {
        "frontend": measured.frontend_ms,
        "history": measured.history_ms,
        "matching": measured.matching_ms,
        "PostgreSQL": measured.postgres_ms,
    }
    requests = {
        kind: per_day * (measured.message_requests[kind] + tools * measured.step_requests[kind]) for kind in KINDS
    }
    message_bytes = measured.message_bytes + tools * measured.step_bytes
    return Size(
        messages_per_second=peak,
        worker_cores=worker_cores,
        workers=math.ceil(worker_cores),
        worker_gib=(measured.worker_bytes + load.cached * measured.cached_bytes) / 2**30,
        cores={role: cores(role, each) for role, each in milliseconds.items()},
        shards=shards,
        commits_per_second=commits,
        log_megabytes_per_second=peak * (measured.message_log_bytes + tools * measured.log_bytes) / 1e6,
        open_gb=load.sessions * measured.session_bytes * measured.found / 1e9,
        closed_gb=per_day * load.retention_days * message_bytes * measured.found / 1e9,
        requests_per_day=requests,
        dollars_per_day=sum(requests[kind] * prices.per_1000[kind] / 1_000 for kind in KINDS),
        stored_gb_per_day=per_day * (measured.message_stored + tools * measured.step_stored) / 1e9,
    )
