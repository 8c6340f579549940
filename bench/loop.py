"""How long a step takes: Holdfast beside the bare loop, alternating. `python -m bench.loop --help`."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.report import Goal, hand_over, show_goals, show_table
from bench.stage import Loop, Stage, cpu_seconds, fresh_id, perform, set_stage
from bench.task import Task

PAGE_BYTES: Final = 100
MS_RATIO_MAX: Final = 1.15
RATE_RATIO_MIN: Final = 0.9
WARM_UP: Final = Task(steps=3, page_bytes=PAGE_BYTES)

EPILOG: Final = """\
A round is one measurement of Holdfast and one of the bare loop, right after each other; who goes first alternates.
The ratio is the median of the rounds' own ratios, so that a machine that slows down for a while does not decide it.
The time of a run is the caller's: from before its start to its answer. CPU is that of the server, and of the worker.

JSON: {machine, page_bytes, sequential: {steps, rounds: [{holdfast, bare}]}, concurrent: {steps, runs, rounds:
[{holdfast, bare}]}, goals: [{wanted, measured, met}]}; each loop of a round has {steps, seconds, server_cpu_seconds,
worker_cpu_seconds}.
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """What `steps` steps took, in wall-clock seconds and in processor seconds of server and worker."""

    steps: int
    seconds: float
    server_cpu_seconds: float
    worker_cpu_seconds: float

    @property
    def ms_per_step(self) -> float:
        """Wall-clock milliseconds per step."""
        return 1_000 * self.seconds / self.steps

    @property
    def steps_per_second(self) -> float:
        """Steps per wall-clock second."""
        return self.steps / self.seconds

    @property
    def cpu_ms(self) -> tuple[float, float]:
        """Processor milliseconds per step: server, worker."""
        return 1_000 * self.server_cpu_seconds / self.steps, 1_000 * self.worker_cpu_seconds / self.steps


@dataclass(frozen=True, slots=True)
class Round:
    """Both loops, measured right after each other."""

    holdfast: Spent
    bare: Spent


@dataclass(frozen=True, slots=True)
class Load:
    """What one round asks of each loop: `runs` runs at once of `steps` steps each."""

    runs: int
    steps: int


async def measure(stage: Stage, load: Load, rounds: int) -> list[Round]:
    """Measure so many rounds, each loop first in every other one."""
    measured: list[Round] = []
    for number in range(rounds):
        if number % 2:
            bare = await _spent(stage, stage.bare, load)
            measured.append(Round(await _spent(stage, stage.holdfast, load), bare))
        else:
            ours = await _spent(stage, stage.holdfast, load)
            measured.append(Round(ours, await _spent(stage, stage.bare, load)))
    return measured


async def _spent(stage: Stage, loop: Loop, load: Load) -> Spent:
    task = Task(load.steps, PAGE_BYTES)
    server, worker = cpu_seconds(stage.server_pid), cpu_seconds(loop.worker_pid)
    began = time.perf_counter()
    await asyncio.gather(*(loop.run(task, fresh_id()) for _ in range(load.runs)))
    return Spent(
        steps=load.runs * load.steps,
        seconds=time.perf_counter() - began,
        server_cpu_seconds=cpu_seconds(stage.server_pid) - server,
        worker_cpu_seconds=cpu_seconds(loop.worker_pid) - worker,
    )


def ms_ratio(rounds: Sequence[Round]) -> float:
    """Return how much longer a step of Holdfast takes."""
    return median(each.holdfast.ms_per_step / each.bare.ms_per_step for each in rounds)


def rate_ratio(rounds: Sequence[Round]) -> float:
    """Return how many steps Holdfast makes while the bare loop makes one."""
    return median(each.holdfast.steps_per_second / each.bare.steps_per_second for each in rounds)


def show(sequential: Sequence[Round], concurrent: Sequence[Round]) -> None:
    """Print the medians of both loops and their ratios."""
    rows: list[tuple[str, ...]] = []
    for name, rounds in (("one run at a time", sequential), ("many runs at once", concurrent)):
        for loop, spent in (("holdfast", [r.holdfast for r in rounds]), ("bare", [r.bare for r in rounds])):
            ms, rate = median(each.ms_per_step for each in spent), median(each.steps_per_second for each in spent)
            server, worker = (median(each.cpu_ms[part] for each in spent) for part in (0, 1))
            rows.append((f"{name}: {loop}", f"{ms:.2f}", f"{rate:.1f}", f"{server:.2f}", f"{worker:.2f}"))
        rows.append((f"{name}: ratio", f"{ms_ratio(rounds):.3f}", f"{rate_ratio(rounds):.3f}", "", ""))
    columns = ("", "ms per step", "steps/s", "server CPU ms per step", "worker CPU ms per step")
    show_table(f"Loop, {PAGE_BYTES} bytes per tool result, medians", columns, rows)


def goals(sequential: Sequence[Round], concurrent: Sequence[Round]) -> list[Goal]:
    """Judge the ratios."""
    slower, rate = ms_ratio(sequential), rate_ratio(concurrent)
    return [
        Goal(f"ms per step at most {MS_RATIO_MAX} times the bare loop's", f"{slower:.3f}", slower <= MS_RATIO_MAX),
        Goal(f"steps/s at least {RATE_RATIO_MIN} times the bare loop's", f"{rate:.3f}", rate >= RATE_RATIO_MIN),
    ]


def _figures(load: Load, rounds: Sequence[Round]) -> dict[str, Any]:
    return {**asdict(load), "rounds": [asdict(each) for each in rounds]}


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="bench.loop", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20, help="of a run that is alone (default: 20)")
    parser.add_argument("--rounds", type=int, default=9, help="of runs that are alone (default: 9)")
    parser.add_argument("--concurrent", type=int, default=20, metavar="RUNS", help="runs at once (default: 20)")
    parser.add_argument("--concurrent-steps", type=int, default=10, metavar="STEPS", help="of each (default: 10)")
    parser.add_argument("--concurrent-rounds", type=int, default=6, metavar="ROUNDS", help="(default: 6)")
    parser.add_argument("--seconds-max", type=float, default=600, help="give up after so long (default: 600)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    given = parser.parse_args()
    alone, crowd = Load(1, given.steps), Load(given.concurrent, given.concurrent_steps)

    async def benchmark() -> tuple[list[Round], list[Round]]:
        async with set_stage() as stage:
            for loop in (stage.holdfast, stage.bare):
                await loop.run(WARM_UP, fresh_id())
            return await measure(stage, alone, given.rounds), await measure(stage, crowd, given.concurrent_rounds)

    sequential, concurrent = perform(benchmark(), given.seconds_max)
    show(sequential, concurrent)
    judged = goals(sequential, concurrent)
    show_goals(judged)
    figures = {
        "page_bytes": PAGE_BYTES,
        "sequential": _figures(alone, sequential),
        "concurrent": _figures(crowd, concurrent),
    }
    hand_over(figures, judged, given.json)


if __name__ == "__main__":
    main()
