"""The whole certificate: each scene undisturbed, then under each fault, many at once. Prints nothing itself."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from tests import forked
from tests.chaos.certificate.baseline import Baseline, baseline_of
from tests.chaos.certificate.report import Cell, Table
from tests.chaos.certificate.scene import Scene
from tests.chaos.certificate.stage import Fault, Stage
from tests.chaos.certificate.trial import Outcome, trial

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a folder of its own in it


OVERTIME_RUNS_MAX: Final = 4
"""How many runs a cell may have in all while no strike has met one, even after time is up: it would show nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done. `every` K: each K-th event is struck, `per_run` of them in one run; `at`: those events alone.

    `seconds`: the faults share so much time to begin runs in, but for the first few of a cell that no strike has met.
    `keep`: where the histories of runs that broke a rule go.
    """

    scenes: Sequence[Scene]
    faults: Sequence[Fault]
    seed: int
    every: int = 1
    per_run: int = 1
    jobs: int = 4
    seconds: float | None = None
    at: tuple[int, ...] = ()
    keep: Path | None = None


Report = Callable[[Outcome], None]


async def certify(plan: Plan, report: Report) -> Table:
    """Carry the plan out; `report` is called with each trial as it ends."""
    table = Table(plan.scenes, plan.faults)
    forked.begin()
    with tempfile.TemporaryDirectory(prefix="holdfast-certificate-", dir=MEMORY if MEMORY.is_dir() else None) as place:
        folder = Path(place)
        await asyncio.to_thread(forked.ready)
        baselines = {each.name: await baseline_of(each, folder / f"baseline-{each.name}") for each in plan.scenes}
        async with _stage(folder / "undisturbed", plan.seed, plan.keep) as stage:
            for outcome in await _undisturbed(stage, plan, baselines):
                table.events[outcome.scene] = outcome.events
                report(outcome)
                if outcome.problems:
                    return table  # what is wrong without a fault is no fault's doing
        began = time.monotonic()
        for number, fault in enumerate(plan.faults):
            now, left = time.monotonic(), len(plan.faults) - number
            until = None if plan.seconds is None else now + share(plan.seconds, now - began, len(plan.faults), left)
            async with _stage(folder / fault, plan.seed + number, plan.keep) as stage:
                await _under(stage, plan, fault, baselines, table, report, until)
    return table


@asynccontextmanager
async def _stage(folder: Path, seed: int, keep: Path | None) -> AsyncGenerator[Stage]:
    await asyncio.to_thread(folder.mkdir)
    async with Stage(folder, random.Random(seed), keep) as stage:  # noqa: S311  # repeatable
        yield stage


def share(seconds: float, used: float, faults: int, left: int) -> float:
    """Return how long the next of the `left` faults may begin runs: an equal share, and what others left of theirs."""
    return max(seconds / faults, (seconds - used) / left)


async def _undisturbed(stage: Stage, plan: Plan, baselines: dict[str, Baseline]) -> list[Outcome]:
    places = asyncio.Semaphore(plan.jobs)

    async def one(scene: Scene) -> Outcome:
        async with places:
            return await trial(stage, scene, baselines[scene.name])

    return await asyncio.gather(*(one(scene) for scene in plan.scenes))


async def _under(  # what all trials share
    stage: Stage,
    plan: Plan,
    fault: Fault,
    baselines: dict[str, Baseline],
    table: Table,
    report: Report,
    until: float | None,
) -> None:
    places = asyncio.Semaphore(plan.jobs)

    async def one(scene: Scene, aims: Sequence[int]) -> None:
        async with places:
            cell = table.cell(scene.name, fault)
            if not may_begin(cell, time.monotonic(), until):
                table.left_out += len(aims)
                return
            cell.begun += 1
            outcome = await trial(stage, scene, baselines[scene.name], fault, aims)
            cell.note(outcome)
            report(outcome)

    await asyncio.gather(*(one(scene, aims) for scene, aims in trials(plan, fault, table.events)))


def may_begin(cell: Cell, now: float, until: float | None) -> bool:
    """Return whether another run of a cell begins: in time, or later if no strike has met its first few."""
    return until is None or now <= until or (not cell.hits and cell.begun < OVERTIME_RUNS_MAX)


def trials(plan: Plan, fault: Fault, events: dict[str, int]) -> Iterator[tuple[Scene, Sequence[int]]]:
    """Yield the trials of a fault: scene by scene in turn, so that each has some when time is up."""
    chance = random.Random(f"{plan.seed} {fault}")  # noqa: S311  # repeatable
    columns: list[list[tuple[Scene, Sequence[int]]]] = []
    for scene in plan.scenes:
        aims = plan.at or range(1 + chance.randrange(plan.every), events[scene.name], plan.every)
        count = -(-len(aims) // plan.per_run)
        column: list[tuple[Scene, Sequence[int]]] = [(scene, aims[number::count]) for number in range(count)]
        chance.shuffle(column)
        columns.append(column)
    for row in zip_longest(*columns):
        yield from (each for each in row if each is not None)
