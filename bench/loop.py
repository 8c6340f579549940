"""How long a step takes: Holdfast, also with a `local` tool, beside the bare loop. `python -m bench.loop --help`."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.report import Goal, hand_over, show_goals, show_table
from bench.stage import Loop, Stage, cpu_seconds, fresh_id, perform, set_stage
from bench.task import Task

PAGE_BYTES: Final = 100
MS_RATIO_MAX: Final = 1.1
LOCAL_MS_RATIO_MAX: Final = 0.65
RATE_RATIO_MIN: Final = 0.9
WARM_UP: Final = Task(steps=3, page_bytes=PAGE_BYTES)

EPILOG: Final = """\
A round is one measurement of each: Holdfast, Holdfast with the tool run within the workflow task ("local"), the bare
loop, right after each other; who goes first changes from round to round. The ratio to the bare loop is the median of
the rounds' own ratios, so that a machine that slows down for a while does not decide it.

ms per step        the caller's time, from before the start of a run until its answer (and, for Holdfast, its whole
                   state) is there, divided by its steps: this is what the goals are about
ms a run is open   the server's time, from the start of a run until it closes: without the reading of the state
CPU ms             what the server and the loop's own worker process used, per step

JSON: {machine, page_bytes, sequential: {load: {runs, steps}, rounds: [{holdfast, local, bare}]}, concurrent: (the
same), goals: [{wanted, measured, met}]}; each loop of a round has {steps, seconds, run_open_seconds,
server_cpu_seconds, worker_cpu_seconds}.
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What one round asks of each loop: `runs` runs at once of `steps` steps each."""

    runs: int
    steps: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What `steps` steps took, in wall-clock seconds and in processor seconds of server and worker.

    `run_open_seconds` is how long the server saw a run open, the median where there were several.
    """

    steps: int
    seconds: float
    run_open_seconds: float
    server_cpu_seconds: float
    worker_cpu_seconds: float


def _ms_per_step(spent: Spent) -> float:
    return 1_000 * spent.seconds / spent.steps


def _steps_per_second(spent: Spent) -> float:
    return spent.steps / spent.seconds


FIGURES: Final[dict[str, Callable[[Spent], float]]] = {
    "ms per step": _ms_per_step,
    "steps/s": _steps_per_second,
    "ms a run is open": lambda spent: 1_000 * spent.run_open_seconds,
    "server CPU ms": lambda spent: 1_000 * spent.server_cpu_seconds / spent.steps,
    "worker CPU ms": lambda spent: 1_000 * spent.worker_cpu_seconds / spent.steps,
}
"""The table's columns."""


Round = dict[str, Spent]
"""All loops, by their names, measured right after each other."""

BARE: Final = "bare"


@dataclass(frozen=True, slots=True)
class Measured:
    """Every round of one load."""

    load: Load
    rounds: tuple[Round, ...]

    def ratio(self, loop: str, figure: Callable[[Spent], float]) -> float:
        """Return the loop's figure divided by the bare loop's."""
        return median(figure(each[loop]) / figure(each[BARE]) for each in self.rounds)


async def measure(stage: Stage, load: Load, rounds: int) -> Measured:
    """Measure so many rounds, each beginning with another loop."""
    measured: list[Round] = []
    loops = every_loop(stage)
    for number in range(rounds):
        first = number % len(loops)
        spent = {loop.name: await _spent(stage, loop, load) for loop in (*loops[first:], *loops[:first])}
        measured.append({loop.name: spent[loop.name] for loop in loops})
    return Measured(load, tuple(measured))


def every_loop(stage: Stage) -> tuple[Loop, ...]:
    """Return what is compared; the bare loop comes last."""
    return (stage.holdfast, *((stage.local,) if stage.local else ()), stage.bare)


async def _spent(stage: Stage, loop: Loop, load: Load) -> Spent:
    task, ids = Task(load.steps, PAGE_BYTES), [fresh_id() for _ in range(load.runs)]
    server, worker = cpu_seconds(stage.server_pid), cpu_seconds(loop.worker_pid)
    began = time.perf_counter()
    await asyncio.gather(*(loop.run(task, each) for each in ids))
    return Spent(
        steps=load.runs * load.steps,
        seconds=time.perf_counter() - began,
        server_cpu_seconds=cpu_seconds(stage.server_pid) - server,
        worker_cpu_seconds=cpu_seconds(loop.worker_pid) - worker,
        run_open_seconds=median([await stage.open_seconds(each) for each in ids]),
    )


def show(what: str, measured: Measured) -> None:
    """Print the medians of all loops and their ratios."""
    rows: list[tuple[str, ...]] = []
    names = list(measured.rounds[0])
    for name in names:
        spent = [each[name] for each in measured.rounds]
        rows.append((name, *(f"{median(figure(each) for each in spent):.2f}" for figure in FIGURES.values())))
    for name in names[:-1]:
        ratios = (f"{measured.ratio(name, figure):.3f}" for figure in FIGURES.values())
        rows.append((f"{name} / {BARE}", *ratios))
    load = measured.load
    title = f"{what}: {load.runs} at a time of {load.steps} steps, {PAGE_BYTES} bytes per tool result (medians)"
    show_table(title, ("", *FIGURES), rows)


def goals(sequential: Measured, concurrent: Measured) -> list[Goal]:
    """Judge the ratios."""
    slower, within = (sequential.ratio(name, _ms_per_step) for name in ("holdfast", "local"))
    rate = concurrent.ratio("holdfast", _steps_per_second)
    return [
        Goal(f"ms per step at most {MS_RATIO_MAX} times the bare loop's", f"{slower:.3f}", slower <= MS_RATIO_MAX),
        Goal(f"with a local tool at most {LOCAL_MS_RATIO_MAX} times", f"{within:.3f}", within <= LOCAL_MS_RATIO_MAX),
        Goal(f"steps/s at least {RATE_RATIO_MIN} times the bare loop's", f"{rate:.3f}", rate >= RATE_RATIO_MIN),
    ]


def _arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
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
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and report."""
    options = _arguments()

    async def benchmark() -> tuple[Measured, Measured]:
        async with set_stage(local=True) as stage:
            for loop in every_loop(stage):
                await loop.run(WARM_UP, fresh_id())
            alone = await measure(stage, Load(1, options.steps), options.rounds)
            crowd = Load(options.concurrent, options.concurrent_steps)
            return alone, await measure(stage, crowd, options.concurrent_rounds)

    sequential, concurrent = perform(benchmark(), options.seconds_max)
    show("Single runs", sequential)
    show("Many runs", concurrent)
    judged = goals(sequential, concurrent)
    show_goals(judged)
    figures = {"page_bytes": PAGE_BYTES, "sequential": asdict(sequential), "concurrent": asdict(concurrent)}
    hand_over(figures, judged, options.json)


if __name__ == "__main__":
    main()
