"""What a run leaves in Temporal's history: Holdfast beside the bare loop. `python -m bench.history --help`."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError, WorkflowHistory

from bench.report import Goal, hand_over, show_goals, show_table
from bench.runs import histories, steps_run
from bench.stage import Loop, Stage, fresh_id, perform, set_stage
from bench.task import TOOL, Task

COMPLETED: Final = "completed"
KB: Final = 1_000

EVENTS_PER_STEP: Final = 12
"""The least Temporal takes for two activities in a row: six events each."""
STEP_BYTES_MAX: Final = 6_500
STEP_BYTES_AT: Final = 100
STEP_BYTES_SPREAD_MAX: Final = 0.05
"""How far the bytes per step of runs of 50 steps and more may lie apart."""
SPREAD_FROM: Final = 50
SURVIVED_STEPS: Final = 300
DEATH_STEPS_MAX: Final = 1_000

EPILOG: Final = """\
Bytes are the encoded sizes of the history's events, all of them: the start and the result too. `events per step` is
the difference to the row before divided by the difference in steps, so that what a run needs once does not count.

JSON: {machine, page_bytes, runs: [{loop, steps_asked, steps, runs, outcome, events, bytes, bytes_per_step, by_kind:
{kind of event: {events, bytes}}}], goals: [{wanted, measured, met}]}; `outcome` is "completed" or the server's reason.
"""


@dataclass(frozen=True, slots=True)
class Share:
    """What the events of one kind add up to."""

    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one execution left behind. `steps` are those that really ran their tool; it was continued in `runs` runs."""

    loop: str
    steps_asked: int
    steps: int
    runs: int
    outcome: str
    by_kind: dict[str, Share]

    @property
    def events(self) -> int:
        """All events."""
        return sum(share.events for share in self.by_kind.values())

    @property
    def bytes(self) -> int:
        """All bytes."""
        return sum(share.bytes for share in self.by_kind.values())

    @property
    def bytes_per_step(self) -> float:
        """All bytes, spread over the steps."""
        return self.bytes / max(1, self.steps)

    def figures(self) -> dict[str, Any]:
        """Return the run for the JSON report."""
        sums = {"events": self.events, "bytes": self.bytes, "bytes_per_step": round(self.bytes_per_step, 1)}
        return asdict(self) | sums


async def measure(stage: Stage, steps: Sequence[int], page_bytes: int, *, until_death: bool) -> list[Recorded]:
    """Run both loops for every number of steps."""
    records = [
        await _recorded(stage, loop, Task(each, page_bytes)) for loop in (stage.holdfast, stage.bare) for each in steps
    ]
    if until_death:
        records.append(await _recorded(stage, stage.bare, Task(DEATH_STEPS_MAX, page_bytes)))
        records.append(await _recorded(stage, stage.holdfast, Task(max(SURVIVED_STEPS, records[-1].steps), page_bytes)))
    return records


async def _recorded(stage: Stage, loop: Loop, task: Task) -> Recorded:
    workflow_id, outcome = fresh_id(), COMPLETED
    try:
        await loop.run(task, workflow_id)
    except WorkflowFailureError as error:
        outcome = f"{type(error.cause).__name__}: {error.cause}"
    runs = [history async for history in histories(stage.client.temporal, workflow_id)]
    return Recorded(loop.name, task.steps, sum(map(steps_run, runs)), len(runs), outcome, _by_kind(runs))


def _by_kind(runs: Sequence[WorkflowHistory]) -> dict[str, Share]:
    """Add up the events by type; those of activities also by whether they belong to a model call or a tool call."""
    called: dict[int, str] = {}
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for event in chain.from_iterable(history.events for history in runs):
        kind = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower()
        if event.HasField("activity_task_scheduled_event_attributes"):
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            called[event.event_id] = "tool" if name == TOOL else "model"
            kind += f" ({called[event.event_id]})"
        elif event.HasField("activity_task_completed_event_attributes"):
            kind += f" ({called[event.activity_task_completed_event_attributes.scheduled_event_id]})"
        sizes[kind].append(event.ByteSize())
    return {kind: Share(len(each), sum(each)) for kind, each in sizes.items()}


def goals(runs: Sequence[Recorded]) -> list[Goal]:
    """Judge Holdfast's runs by the goals their steps allow."""
    ours = sorted((run for run in runs if run.loop == "holdfast"), key=lambda run: run.steps)
    judged: list[Goal] = []
    alone = [run for run in ours if run.runs == 1]  # a new run has some events of its own
    if slopes := [_slope(one, other) for one, other in pairwise(alone) if one.steps != other.steps]:
        measured = ", ".join(f"{slope:g}" for slope in sorted(set(slopes)))
        judged.append(Goal(f"{EVENTS_PER_STEP} events per step", measured, set(slopes) == {EVENTS_PER_STEP}))
    for run in ours:
        if run.steps == STEP_BYTES_AT:
            text = f"at most {STEP_BYTES_MAX:,} bytes per step at {run.steps} steps"
            judged.append(Goal(text, f"{run.bytes_per_step:,.0f}", run.bytes_per_step <= STEP_BYTES_MAX))
    long = [run.bytes_per_step for run in ours if run.steps >= SPREAD_FROM]
    if len(long) > 1:
        spread = max(long) / min(long) - 1
        text = f"bytes per step equal within {STEP_BYTES_SPREAD_MAX:.0%} from {SPREAD_FROM} steps on"
        judged.append(Goal(text, f"{spread:.1%}", spread <= STEP_BYTES_SPREAD_MAX))
    for run in runs:
        if run.outcome != COMPLETED and run.loop == "bare":
            text = f"(the bare loop is dead before step {SURVIVED_STEPS})"
            judged.append(Goal(text, f"at step {run.steps}", run.steps < SURVIVED_STEPS))
        elif run.steps >= SURVIVED_STEPS and run.loop == "holdfast":
            judged.append(Goal(f"Holdfast survives {run.steps} steps", run.outcome, run.outcome == COMPLETED))
    return judged


def _slope(one: Recorded, other: Recorded) -> float:
    return (other.events - one.events) / (other.steps - one.steps)


def show(runs: Sequence[Recorded], page_bytes: int) -> None:
    """Print the figures of every run, and where the bytes are."""
    rows: list[tuple[str, ...]] = []
    before: Recorded | None = None
    for run in runs:
        whole = run.outcome == COMPLETED and before is not None and before.loop == run.loop
        slope = f"{_slope(before, run):.2f}" if before is not None and whole else ""
        sizes = (f"{run.bytes / KB:,.0f}", f"{run.bytes_per_step / KB:,.2f}")
        rows.append((run.loop, f"{run.steps:,}", str(run.runs), f"{run.events:,}", slope, *sizes, run.outcome))
        before = run
    columns = ("loop", "steps", "runs", "events", "events per step", "KB", "KB per step", "outcome")
    show_table(f"History, {page_bytes:,} bytes per tool result", columns, rows)
    _show_kinds(runs)


def _show_kinds(runs: Sequence[Recorded]) -> None:
    """Print where the bytes of the longest run are that both loops have completed."""
    done = [run for run in runs if run.outcome == COMPLETED]
    by_loop = [{run.steps for run in done if run.loop == name} for name in ("holdfast", "bare")]
    if not (both := by_loop[0] & by_loop[1]):
        return
    steps = max(both)
    ours, bare = (next(run for run in done if run.loop == name and run.steps == steps) for name in ("holdfast", "bare"))
    none = Share(0, 0)
    kinds = sorted({**ours.by_kind, **bare.by_kind}, key=lambda kind: -ours.by_kind.get(kind, none).bytes)
    rows = [(kind, *(f"{run.by_kind.get(kind, none).bytes / steps:,.0f}" for run in (ours, bare))) for kind in kinds]
    show_table(f"Bytes per step at {steps:,} steps", ("events", ours.loop, bare.loop), rows)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="bench.history", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 50, 100, 200], metavar="N")
    parser.add_argument("--bytes", type=int, default=2_048, metavar="N", help="the size of a tool result")
    parser.add_argument("--until-death", action="store_true", help="also run the bare loop until the server ends it")
    parser.add_argument("--seconds-max", type=float, default=900, help="give up after so long (default: 900)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    options = parser.parse_args()

    async def benchmark() -> list[Recorded]:
        async with set_stage() as stage:
            return await measure(stage, sorted(set(options.steps)), options.bytes, until_death=options.until_death)

    runs = perform(benchmark(), options.seconds_max)
    show(runs, options.bytes)
    judged = goals(runs)
    show_goals(judged)
    hand_over({"page_bytes": options.bytes, "runs": [run.figures() for run in runs]}, judged, options.json)


if __name__ == "__main__":
    main()
