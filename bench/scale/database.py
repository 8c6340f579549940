"""What PostgreSQL holds and has done: rows and bytes by table, commits, bytes of its log."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from tests.cluster.postgres import DATABASES, Postgres

TABLES: Final = (
    "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname"
)


TRANSIENT: Final = (
    "history_immediate_tasks",
    "history_scheduled_tasks",
    "tasks",
    "tasks_v2",
    "timer_tasks",
    "transfer_tasks",
    "visibility_tasks",
)
"""Tables of what is to be done: their rows go by themselves, those of timers when they are due."""

UNDONE: Final = (
    "SELECT (SELECT count(*) FROM transfer_tasks) + (SELECT count(*) FROM visibility_tasks) + "
    "(SELECT count(*) FROM timer_tasks WHERE visibility_timestamp < now() AT TIME ZONE 'utc')"
)
SETTLED_SECONDS_MAX: Final = 90.0
"""The server removes what is done every 30 s to 60 s."""

LOOK_SECONDS: Final = 1.0


VISIBILITY: Final = "visibility: "
"""What the names of visibility's tables begin with here."""


class Held(NamedTuple):
    """A table's rows, and its bytes with indexes and what is kept apart (TOAST)."""

    rows: int
    bytes: int


class Done(NamedTuple):
    """What the database server has done since it was started."""

    commits: int
    log_bytes: int
    """Of the write-ahead log."""


def held(postgres: Postgres, *, compact: bool = False) -> dict[str, Held]:
    """Return what each table holds after a VACUUM; `compact` rewrites them all: then nothing is left of dead rows."""
    tables: dict[str, Held] = {}
    for database in DATABASES:
        postgres.query("VACUUM FULL" if compact else "VACUUM", database)
        sizes = {name: int(size) for name, size in postgres.query(TABLES, database)}
        counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in sizes)  # noqa: S608  # the names come from the database
        rows = {name: int(count) for name, count in postgres.query(counts, database)}
        kind = VISIBILITY if database != DATABASES[0] else ""
        tables |= {f"{kind}{name}": Held(rows[name], size) for name, size in sizes.items()}
    return tables


def settle(postgres: Postgres) -> None:
    """Wait until the server has removed what is done, SETTLED_SECONDS_MAX at most."""
    until = time.monotonic() + SETTLED_SECONDS_MAX
    while postgres.query(UNDONE) != [["0"]] and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def timers_due(postgres: Postgres) -> dict[str, int]:
    """Return the rows of timers by when they are due."""
    due = "visibility_timestamp - now() AT TIME ZONE 'utc'"
    bounds = {
        "within an hour": ("-1 year", "1 hour"),
        "within a day": ("1 hour", "1 day"),
        "later": ("1 day", "99 years"),
    }
    counts = (
        postgres.query(f"SELECT count(*) FROM timer_tasks WHERE {due} > '{low}' AND {due} <= '{high}'")  # noqa: S608  # our own
        for low, high in bounds.values()
    )
    return {name: int(count) for name, [[count]] in zip(bounds, counts, strict=True)}


def events(postgres: Postgres) -> int:
    """Return how many events all workflows have that the server still has."""
    [[count]] = postgres.query("SELECT coalesce(sum(next_event_id - 1), 0) FROM executions")
    return int(count)


def done(postgres: Postgres) -> Done:
    """Return what it has done so far; commits are counted up to 10 s late, when their session reports them."""
    statement = (
        "SELECT sum(xact_commit)::bigint, (SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint) "
        "FROM pg_stat_database"
    )
    [[commits, log_bytes]] = postgres.query(statement)
    return Done(int(commits), int(log_bytes))


def grown(before: dict[str, Held], after: dict[str, Held]) -> dict[str, Held]:
    """Return the differences of the tables that have changed."""
    none = Held(0, 0)
    pairs = {name: (before.get(name, none), now) for name, now in after.items()}
    return {name: Held(now.rows - was.rows, now.bytes - was.bytes) for name, (was, now) in pairs.items() if was != now}
