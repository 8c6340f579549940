"""How Holdfast scales on Temporal's production server: `python -m bench.scale`.

Builds the server's version that the tests use if it is not there, and needs PostgreSQL 15. With `--write` what was
measured goes to `bench/scale/measured.json` and into docs/scale.md, between its marks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

from bench.report import machine
from bench.scale import crowd, footprint, idle, messages, page, throughput
from bench.scale.figures import Cell, Circumstances, Cost, Figures, Footprint, Left, Measured, Throughput, Window
from bench.scale.ground import set_ground
from bench.scale.process_trees import load_average
from bench.stage import perform
from holdfast.runtime.process_exit import leave
from tests.cluster import postgres
from tests.cluster.binaries import VERSION

PARTS: Final = ("throughput", "messages", "footprint", "idle", "crowd")
SHARDS: Final = 16
"""Of all parts but the throughput."""

SECONDS_MAX: Final = 3 * 3_600.0
IDLE_MINUTES_MAX: Final = 40.0

EPILOG: Final = """\
throughput  runs side by side on each number of shards and workers: steps/s, the time of a step from the scheduling of
            its model call to that of the next one (the server's times), the processor time of each role per step
messages    messages of sessions, and runs without tools: processor time of each role, commits, log, store requests
footprint   what runs of 10 and 50 steps and sessions leave: rows and bytes in PostgreSQL once dead rows are gone,
            objects and bytes in the store, requests of the store by kind (a bucket in memory counts them)
idle        sessions that have answered one message each: memory, rows, bytes, timers, what they cost while they wait,
            and how soon some of them wake, one at a time, where no worker has them in memory
crowd       runs that all start at once

Model and tool take no time. Each part has a cluster of its own: PostgreSQL with its files in memory, two processes of
each role, all on this machine. Rows, bytes and requests hold on a busy machine, too. Steps/s and times do not, nor
does the CPU per step where tasks time out and are given again.
"""

FiguresT = TypeVar("FiguresT", bound=Figures)
Part = Callable[[argparse.Namespace, Circumstances], Awaitable[Figures]]


def say(line: str) -> None:
    """Tell what is going on."""
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", flush=True)


async def _throughput(options: argparse.Namespace, measured: Circumstances) -> Figures:
    cells: list[Cell] = []
    windows: dict[int, Window] = {}
    async for shards, each in throughput.clusters(options.shards, options.workers, options.runs, options.steps):
        if isinstance(each, Window):
            windows[shards] = each
            say(f"{shards} shards without work: {each.cores}")
            if (settling := each.settling) is not None:
                how = "steady" if settling.settled else "not steady"
                rates = ", ".join(f"{rate:.1f}" for rate in settling.commits_per_second)
                say(f"{how} after {settling.seconds:.0f} s, commits/s: {rates}; then {each.commits_per_second:.1f}")
        else:
            cells.append(each)
            pace = f"{each.steps_per_second:.1f} steps/s, p95 {each.step_ms.p95:.0f} ms"
            say(f"{shards} shards, {each.workers} workers: {pace}, ms per step {each.cpu_ms}")
    return Throughput(measured=measured, cells=tuple(cells), idle=windows)


async def _messages(_: argparse.Namespace, measured: Circumstances) -> Figures:
    def report(cost: Cost) -> None:
        log = f"{cost.log_bytes:,.0f} bytes of log"
        say(f"{cost.count} {cost.name}: ms {cost.cpu_ms}, {cost.commits:.1f} commits, {log}")

    async with set_ground(SHARDS) as ground:
        return await messages.messages(ground, measured, report)


async def _footprint(_: argparse.Namespace, measured: Circumstances) -> Figures:
    left: list[Left] = []
    async with set_ground(SHARDS) as ground:
        await ground.add_worker()
        async for each in footprint.footprints(ground):
            left.append(each)
            sizes = f"{each.rows_each():.1f} rows, {each.bytes_each():,.0f} bytes, store {each.stored_each()}"
            say(f"{each.count} {each.name}: {sizes}, requests {each.requests}")
    return Footprint(measured=measured, left=tuple(left))


async def _idle(options: argparse.Namespace, measured: Circumstances) -> Figures:
    async with set_ground(SHARDS) as ground:
        return await idle.waiting(ground, options.sessions, options.idle_minutes * 60, measured, say)


async def _crowd(options: argparse.Namespace, measured: Circumstances) -> Figures:
    async with set_ground(SHARDS) as ground:
        for _ in range(crowd.WORKERS):
            await ground.add_worker()
        return await crowd.crowded(ground, options.crowd, options.crowd_steps, measured)


MEASURING: Final[dict[str, Part]] = {
    "throughput": _throughput,
    "messages": _messages,
    "footprint": _footprint,
    "idle": _idle,
    "crowd": _crowd,
}


async def measure(options: argparse.Namespace, command: str) -> Measured:
    """Run the parts; each is kept as soon as it has ended, if that is asked for."""
    measured = Measured.read()
    for name in options.parts:
        say(f"{name}: load average {load_average():.1f}")
        began, load = time.monotonic(), load_average()
        unknown = Circumstances(date="", command="", machine="", minutes=0, load=(0, 0))
        figures = await MEASURING[name](options, unknown)
        here, server = machine(), f"Temporal {VERSION}, PostgreSQL {postgres.version()}"
        circumstances = Circumstances(
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            command=command,
            machine=f"{here['cores']} cores, {server}, temporalio {here['temporalio']}, Python {here['python']}",
            minutes=round((time.monotonic() - began) / 60, 1),
            load=(round(load, 1), round(load_average(), 1)),
        )
        whole = figures.model_copy(update={"measured": circumstances})
        measured = measured.model_copy(update={name: whole})
        if options.write:
            Measured.read().model_copy(update={name: whole}).write()
        say(f"{name}: {circumstances.minutes} minutes, load average {load_average():.1f}")
    return measured


def _numbers(text: str) -> list[int]:
    return sorted({int(each) for each in text.split(",")})


def _parts(text: str) -> list[str]:
    chosen = [each for each in text.split(",") if each]
    if unknown := [each for each in chosen if each not in PARTS]:
        raise argparse.ArgumentTypeError(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return chosen


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=page.COMMAND, description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shards, workers = (",".join(map(str, each)) for each in (throughput.SHARDS, throughput.WORKERS))
    parser.add_argument("--parts", type=_parts, default=[*PARTS], help=f"some of {','.join(PARTS)}; all by default")
    parser.add_argument("--shards", type=_numbers, default=[*throughput.SHARDS], help=f"of throughput ({shards})")
    parser.add_argument("--workers", type=_numbers, default=[*throughput.WORKERS], help=f"of throughput ({workers})")
    parser.add_argument("--runs", type=int, default=throughput.RUNS, help=f"at once ({throughput.RUNS})")
    parser.add_argument("--steps", type=int, default=throughput.STEPS, help=f"of each ({throughput.STEPS})")
    parser.add_argument("--sessions", type=int, default=idle.SESSIONS, help=f"that wait ({idle.SESSIONS:,})")
    minutes = f"begin no session later ({IDLE_MINUTES_MAX:g})"
    parser.add_argument("--idle-minutes", type=float, default=IDLE_MINUTES_MAX, help=minutes)
    parser.add_argument("--crowd", type=int, default=crowd.RUNS, help=f"runs that start at once ({crowd.RUNS:,})")
    parser.add_argument("--crowd-steps", type=int, default=crowd.STEPS, help=f"of each ({crowd.STEPS})")
    parser.add_argument("--write", action="store_true", help="keep what was measured, and write docs/scale.md")
    return parser.parse_args()


def main() -> int:
    """Measure and report."""
    options = _arguments()
    measured = perform(measure(options, " ".join([page.COMMAND, *sys.argv[1:]])), SECONDS_MAX)
    measured = Measured.read() if options.write else measured  # parts that another process has kept meanwhile
    texts = page.sections(measured)
    for name, text in texts.items():
        print(f"\n{name}\n\n{text}")
    if options.write:
        page.PAGE.write_text(page.written(page.PAGE.read_text(encoding="utf-8"), texts), encoding="utf-8")
        say(f"wrote {page.PAGE.name}")
    return 0


if __name__ == "__main__":
    leave(main())
