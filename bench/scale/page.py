"""The tables of docs/scale.md, written between marks from what has been measured. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bench.scale.figures import (
    KINDS,
    Circumstances,
    Crowd,
    Footprint,
    Idle,
    Left,
    Measured,
    Messages,
    Throughput,
    Window,
)
from bench.scale.sizing import (
    EXAMPLE,
    EXAMPLE_PRICES,
    SERVER,
    Coefficients,
    Load,
    Size,
    coefficients,
    session_bytes,
    size,
)
from bench.scale.step_times import Spread

PAGE: Final = Path(__file__).parents[2] / "docs" / "scale.md"
COMMAND: Final = "python -m bench.scale"
CPU: Final = ("workers", "frontend", "history", "matching", "internal worker", "PostgreSQL")
MIB: Final = 2**20


def sections(measured: Measured) -> dict[str, str]:
    """Return what stands between each pair of marks, as far as it has been measured."""
    texts: dict[str, str] = {}
    if measured.throughput is not None:
        texts["throughput"] = of_throughput(measured.throughput)
    if measured.messages is not None:
        texts["messages"] = of_messages(measured.messages)
    if measured.footprint is not None:
        texts["footprint"] = of_footprint(measured.footprint)
    if measured.idle is not None:
        texts["idle"] = of_idle(measured.idle)
    if measured.crowd is not None:
        texts["crowd"] = of_crowd(measured.crowd)
    if measured.throughput and measured.messages and measured.idle and measured.footprint:
        found = coefficients(measured.throughput, measured.messages, measured.idle, measured.footprint)
        texts["coefficients"] = of_coefficients(found)
        texts["example"] = of_load(EXAMPLE, size(EXAMPLE, EXAMPLE_PRICES, found))
    return texts


def written(page: str, texts: dict[str, str]) -> str:
    """Return the page with the texts between their marks. Raises ValueError where a pair of marks is missing."""
    for name, text in texts.items():
        begin, end = marks(name)
        if begin not in page or end not in page.partition(begin)[2]:
            raise ValueError(f"the page has no place for {name!r}: a line {begin!r}, and below it a line {end!r}")
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"
    return page


def marks(name: str) -> tuple[str, str]:
    """Return the lines around a section."""
    return f"<!-- {name}: written by `{COMMAND}` -->", f"<!-- end of {name} -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the first column is text, the others are figures."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" if line[0] != "---" else f"|{'|'.join(line)}|" for line in lines)


def of_throughput(measured: Throughput) -> str:
    """Return a row for each cell, and what a cluster does without work."""
    head = ("shards", "workers", "steps/s", "step p50, p95 ms", *(f"{role} ms" for role in CPU), "commits", "WAL KB")
    rows = [
        (
            str(cell.shards),
            str(cell.workers),
            f"{cell.steps_per_second:.1f}",
            f"{cell.step_ms.p50:,.0f}, {cell.step_ms.p95:,.0f}",
            *(f"{cell.cpu_ms.get(role, 0):.1f}" for role in CPU),
            f"{cell.commits:.1f}",
            f"{cell.log_bytes / 1e3:.1f}",
        )
        for cell in measured.cells
    ]
    without = "; ".join(f"{shards} shards {_window(each)}" for shards, each in sorted(measured.idle.items()))
    most = max((cell.commits * cell.steps_per_second for cell in measured.cells), default=0.0)
    ends = [f"* commits for steps, at most: {most:,.0f} a second", f"* without any work: {without}"]
    return "\n".join([table(head, rows), "", *_told(measured.measured), *ends])


def of_messages(measured: Messages) -> str:
    """Return a row for each kind of message."""
    head = ("each of", *(f"{role} ms" for role in CPU), "commits", "WAL KB", *KINDS)
    rows = [
        (
            f"{cost.count} {cost.name}",
            *(f"{cost.cpu_ms.get(role, 0):.1f}" for role in CPU),
            f"{cost.commits:.1f}",
            f"{cost.log_bytes / 1e3:.1f}",
            *(f"{cost.requests[kind]:.1f}" for kind in KINDS),
        )
        for cost in measured.costs
    ]
    ends = [f"* workers: {measured.workers}", f"* without any work: {_window(measured.alone)}"]
    return "\n".join([table(head, rows), "", *_told(measured.measured), *ends])


def of_footprint(measured: Footprint) -> str:
    """Return a row for each kind of work."""
    head = ("each of", "rows", "of visibility", "KB", "store: objects", "KB", *KINDS)
    return "\n".join([table(head, [_left(each) for each in measured.left]), "", *_told(measured.measured)])


def _left(left: Left) -> tuple[str, ...]:
    objects, stored = left.stored_each()
    return (
        f"{left.count} {left.name}",
        f"{left.rows_each():.1f}",
        f"{left.visibility_rows_each():.1f}",
        f"{left.bytes_each() / 1e3:.1f}",
        f"{objects:.1f}",
        f"{stored / 1e3:.1f}",
        *(f"{left.requests_each(kind):.1f}" for kind in KINDS),
    )


def of_idle(measured: Idle) -> str:
    """Return what idle sessions take."""
    left = measured.left
    objects, stored = left.stored_each()
    largest = sorted(left.kept.items(), key=lambda each: -each[1].bytes)[:4]
    tables = ", ".join(f"{name} {held.bytes / left.count / 1e3:.1f}" for name, held in largest)
    first, last = measured.memory[0], measured.memory[-1]
    timers = ", ".join(f"{count:,} {when}" for when, count in measured.timers.items())
    grew = measured.events_after - measured.events_before
    rows = [
        ("sessions that wait", f"{left.count:,}, begun within {measured.seconds / 60:.0f} minutes"),
        (
            "PostgreSQL, bytes of live rows per session",
            f"{session_bytes(measured):,.0f} in {left.rows_each():.1f} rows",
        ),
        ("of that, KB by table", tables),
        ("bytes of a row of visibility", f"{left.visibility_row_bytes():,.0f}"),
        ("PostgreSQL, bytes as found after a VACUUM, per session", f"{measured.found_bytes:,.0f}"),
        ("store, per session", f"{objects:.1f} objects, {stored:,.0f} bytes"),
        ("requests of the store per session", _requests({kind: left.requests_each(kind) for kind in KINDS})),
        ("rows of timers, all sessions, by when they are due", timers),
        (f"new events in {measured.waiting.seconds:.0f} s of all that wait", f"{grew:,}"),
        ("the cluster before the first session", _window(measured.alone)),
        ("the cluster while all wait", _window(measured.waiting)),
        ("a worker's memory before its first session, MiB", f"{measured.fresh_bytes / MIB:.0f}"),
        (f"each worker's after {first.sessions:,} sessions, MiB", _mib(first.workers)),
        (f"each worker's after {last.sessions:,} sessions ({measured.cached_runs:,} cached), MiB", _mib(last.workers)),
        (
            f"{measured.woken} woken by fresh workers: message to model, p50, p95, longest, ms",
            _spread(measured.wake_ms),
        ),
    ]
    return "\n".join([table(("idle sessions", "measured"), rows), "", *_told(measured.measured)])


def of_crowd(measured: Crowd) -> str:
    """Return how a crowd of runs fared."""
    calls = measured.steps + 1
    rows = [
        (
            "runs, all started at once",
            f"{measured.runs:,} of {measured.steps} step and an answer ({calls} model calls)",
        ),
        ("workers", str(measured.workers)),
        ("starting them took", f"{measured.start_seconds:.0f} s"),
        ("from the first start until the last end", f"{measured.seconds:.0f} s"),
        ("open at one moment, at most", f"{measured.in_flight:,}"),
        ("ended", ", ".join(f"{count:,} {how}" for how, count in measured.ended.items())),
        ("model calls/s", f"{measured.runs * calls / measured.seconds:.1f}"),
        ("workflow tasks waited for a worker, p50, p95, longest, ms", _spread(measured.workflow_task_ms)),
        ("calls waited for a worker, p50, p95, longest, ms", _spread(measured.activity_task_ms)),
        ("CPU per run, ms", ", ".join(f"{role} {measured.cpu_ms[role] * measured.steps:.0f}" for role in CPU)),
        ("requests that the server refused, by cause", _counts(measured.refusals)),
        (
            "each worker's memory before and after, MiB",
            f"{_mib(measured.memory_before)}; {_mib(measured.memory_after)}",
        ),
    ]
    return "\n".join([table(("a crowd", "measured"), rows), "", *_told(measured.measured)])


def of_coefficients(found: Coefficients) -> str:
    """Return the coefficients by the letters that the formulas use."""
    rows = [
        *(
            (
                f"`cpu_{name}`, `message_{name}`",
                about,
                f"{step:.1f}, {found.message_ms[role]:.1f}",
                "throughput, messages",
            )
            for name, role, about, step in (
                ("worker", "workers", "CPU of workers per step and per message of a session, ms", found.worker_ms),
                ("frontend", "frontend", "of frontends", found.frontend_ms),
                ("history", "history", "of history processes", found.history_ms),
                ("matching", "matching", "of matching processes", found.matching_ms),
                ("postgres", "PostgreSQL", "of PostgreSQL", found.postgres_ms),
            )
        ),
        (
            "`commits`, `message_commits`",
            "commits of PostgreSQL per step and per message",
            f"{found.commits:.1f}, {found.message_commits:.1f}",
            "throughput, messages",
        ),
        (
            "`wal`, `message_wal`",
            "its write-ahead log per step and per message, KB",
            f"{found.log_bytes / 1e3:.1f}, {found.message_log_bytes / 1e3:.1f}",
            "throughput, messages",
        ),
        ("`shard_commits`", "commits a second that one shard has carried", f"{found.shard_commits:.1f}", "throughput"),
        (
            "`shard_idle`",
            "CPU of server and database per shard without work",
            f"{1e3 * found.shard_cores:.2f} ms/s",
            "throughput",
        ),
        ("`db_run`", "PostgreSQL per closed run, KB", f"{found.run_bytes / 1e3:.1f}", "footprint"),
        ("`db_step`", "and per step with 2 KB of result, KB", f"{found.step_bytes / 1e3:.1f}", "footprint"),
        (
            "`db_message`",
            "per message of a session and its answer, KB",
            f"{found.message_bytes / 1e3:.1f}",
            "footprint",
        ),
        ("`db_session`", "per open session with its first message, KB", f"{found.session_bytes / 1e3:.1f}", "idle"),
        ("`found`", "bytes on disk for each byte of live rows", f"{found.found:.2f}", "idle"),
        ("`worker`", "a worker without sessions, MiB", f"{found.worker_bytes / MIB:.0f}", "idle"),
        ("`cached`", "a worker's growth per session in its memory, KiB", f"{found.cached_bytes / 1024:.0f}", "idle"),
        ("`req_run`", "requests of the store per run", _requests(found.run_requests), "footprint"),
        ("`req_step`", "and per step", _requests(found.step_requests), "footprint"),
        ("`req_message`", "per message of a session", _requests(found.message_requests), "messages"),
        (
            "`store_run`, `store_step`",
            "the store per run and per step, KB",
            f"{found.run_stored / 1e3:.1f}, {found.step_stored / 1e3:.1f}",
            "footprint",
        ),
        (
            "`store_message`",
            "per message of a session (its 2nd to 5th), KB",
            f"{found.message_stored / 1e3:.1f}",
            "footprint",
        ),
    ]
    return table(("name", "is", "measured", "by `--parts`"), rows).replace("|---|---:|---:|---:|", "|---|---|---:|---|")


def of_load(load: Load, found: Size) -> str:
    """Return what a load takes."""
    prices = ", ".join(f"{kind} {price:g}" for kind, price in EXAMPLE_PRICES.per_1000.items())
    rows = [
        ("messages a second at the peak", f"{found.messages_per_second:,.0f}"),
        ("workers by CPU", f"{found.workers:,} processes ({found.worker_cores:,.0f} cores)"),
        (f"memory of each, {load.cached:,} cached", f"{found.worker_gib:.1f} GiB"),
        *((f"cores for {role}", f"{cores:,.1f}") for role, cores in found.cores.items()),
        ("history shards", f"{found.shards:,}"),
        (
            "PostgreSQL: commits a second, WAL MB a second",
            f"{found.commits_per_second:,.0f}, {found.log_megabytes_per_second:.1f}",
        ),
        ("PostgreSQL: open sessions, GB", f"{found.open_gb:,.0f}"),
        (f"PostgreSQL: closed runs of {load.retention_days:g} days, GB", f"{found.closed_gb:,.0f}"),
        (
            "requests of the store a day, millions",
            _requests({kind: each / 1e6 for kind, each in found.requests_per_day.items()}),
        ),
        (
            f"their price at example prices (US dollars per 1,000: {prices})",
            f"{found.dollars_per_day:,.0f} dollars a day",
        ),
        ("the store grows by, GB a day", f"{found.stored_gb_per_day:,.0f}"),
    ]
    return table((f"{load.sessions:,} sessions", "calculated"), rows)


def _told(measured: Circumstances) -> list[str]:
    before, after = measured.load
    return [
        f"* command: `{measured.command}`",
        f"* date: {measured.date}, {measured.minutes:.0f} minutes; {measured.machine}",
        f"* the machine's load average: {before:.1f} before, {after:.1f} after",
    ]


def _window(each: Window) -> str:
    server = sum(each.cores[role] for role in SERVER)
    cores = f"{server:.2f} cores of the server, {each.cores['PostgreSQL']:.2f} of PostgreSQL"
    text = f"{cores}, {each.commits_per_second:.0f} commits/s"
    if (settling := each.settling) is not None and not settling.settled:
        text += f" (not steady within {settling.seconds:.0f} s)"
    return text


def _requests(kinds: dict[str, float]) -> str:
    return ", ".join(f"{kind} {count:.2f}" for kind, count in kinds.items() if round(count, 2)) or "none"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def _spread(times: Spread) -> str:
    return ", ".join(f"{each:,.0f}" for each in times)


def _mib(sizes: Sequence[int]) -> str:
    return ", ".join(f"{each / MIB:.0f}" for each in sizes)
