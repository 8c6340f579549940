"""What executions without an end leave behind, and what taking them up again takes. `python -m bench.long`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from aiohttp import ClientSession
from temporalio.client import WorkflowFailureError
from temporalio.worker import Replayer

from bench.report import Goal, hand_over, show_goals, show_table
from bench.runs import Run, histories, largest, measured
from bench.stage import QUICK, READER, Stage, WrongAnswer, fresh_id, perform, set_stage
from bench.task import Task
from holdfast import AgentDefinition
from holdfast.core.base.bounds import CONTINUE_EVENTS
from holdfast.core.wire.contracts import AGENT_EXECUTION, ExecutionInput
from holdfast.core.wire.result_contracts import ExecutionResult
from holdfast.runtime.process_exit import leave
from workflows.workflow_runner import WORKFLOWS, AgentWorkflowRunner

LARGE: Final = Task(steps=1_000, page_bytes=20_000)
USUAL_BYTES: Final = 2_048
ENDLESS: Final = Task(steps=10_000, page_bytes=USUAL_BYTES)
COMPARED: Final = Task(steps=40, page_bytes=20_000)
GLANCING: Final = AgentDefinition.model_validate(
    {"name": "glancing", "tools": "all", "system_prompt": READER.system_prompt, "context": {"compiler": "latest"}}
)
"""An agent whose model sees the end of the conversation alone: else the requests of the endless run took 100 GB."""

EVENTS_MAX: Final = 10_240
BYTES_MAX: Final = 10 * 1024 * 1024
"""Where Temporal warns."""
REPLAY_MS_MAX: Final = 2.0
BARE_STEPS_MAX: Final = 80
SECONDS_MAX: Final = 900.0

EPILOG: Final = """\
The first table: runs of 1,000 steps with results of 20 KB each, all of which the model sees again with every call, and
where the bare loop ends with the same. "runs" are those that an execution was continued in; "largest" is the one with
the most events (bytes). "store KB" is what large data took on disk.

Replaying is what a worker does that takes up an execution it does not know: here all runs of the first table's
execution, and of one with 2 KB per result, one after the other, after one that is not counted (a
process's first pays for imports). The CPU time is that of this process.

"continued after every step" runs the same task twice, once with a new run after each step, and compares the SHA-256 of
each request's body at the endpoint.

The last table is one execution of 10,000 steps with 2 KB each, whose model sees 21 messages per call.

JSON: {machine, large: [...], replay: {bytes: {...}}, continued: {...}, endless: {...},
goals: [{wanted, measured, met}]}.
"""


@dataclass(frozen=True, slots=True)
class Lived:
    """One execution from its start to its end. `store_bytes` is what it added to the store of large data."""

    loop: str
    steps_asked: int
    outcome: str
    seconds: float
    store_bytes: int
    runs: tuple[Run, ...]

    @property
    def steps(self) -> int:
        """How many tool calls were begun."""
        return sum(run.steps for run in self.runs)

    @property
    def history_bytes(self) -> int:
        """The histories of all runs."""
        return sum(run.bytes for run in self.runs)

    def row(self) -> tuple[str, ...]:
        """Return the line of the table."""
        events, size = largest(self.runs)
        kb = (size, self.history_bytes, self.store_bytes)
        per_step = (self.history_bytes + self.store_bytes) / max(1, self.steps)
        figures = (*(f"{each / 1_000:,.0f}" for each in kb), f"{per_step / 1_000:.1f}")
        pace = f"{1_000 * self.seconds / max(1, self.steps):.1f}"
        return (self.loop, f"{self.steps:,}", f"{len(self.runs):,}", f"{events:,}", *figures, pace, self.outcome)

    def figures(self) -> dict[str, Any]:
        """Return the execution for the JSON report."""
        events, size = largest(self.runs)
        return asdict(self) | {"steps": self.steps, "events_largest": events, "bytes_largest": size}


COLUMNS: Final = (
    "loop",
    "steps",
    "runs",
    "largest: events",
    "largest: KB",
    "history KB",
    "store KB",
    "KB per step",
    "ms per step",
    "outcome",
)


async def lived(
    stage: Stage, task: Task, agent: AgentDefinition, *, continue_events: int = CONTINUE_EVENTS
) -> tuple[str, Lived]:
    """Run Holdfast to the end; return the execution's id and what it left."""
    execution_id, stored, began = fresh_id(), _bytes_in(stage.objects), time.perf_counter()
    client = stage.client.temporal
    start = ExecutionInput(
        agent_id=fresh_id(),
        definition=agent,
        question=task.question,
        budget=agent.budget,
        continue_events=continue_events,
    )
    result: ExecutionResult = await client.execute_workflow(
        AGENT_EXECUTION,
        start,
        id=execution_id,
        task_queue=stage.client.settings.task_queue,
        result_type=ExecutionResult,
    )
    seconds = time.perf_counter() - began
    if result.final_response != task.answer or result.step_count != task.steps + 1:
        raise WrongAnswer(f"{result.step_count} steps, {result.final_response!r} ({result.why})")
    runs = tuple([measured(history) async for history in histories(client, execution_id)])
    lived_run = Lived("holdfast", task.steps, "completed", seconds, _bytes_in(stage.objects) - stored, runs)
    return execution_id, lived_run


async def bare_life(stage: Stage, task: Task) -> Lived:
    """Run the bare loop until it ends, or the server ends it."""
    execution_id, outcome, began = fresh_id(), "completed", time.perf_counter()
    try:
        await stage.bare.run(task, execution_id)
    except WorkflowFailureError as error:
        outcome = f"{type(error.cause).__name__}: {error.cause}"
    seconds = time.perf_counter() - began
    runs = tuple([measured(history) async for history in histories(stage.client.temporal, execution_id)])
    return Lived("bare", task.steps, outcome, seconds, 0, runs)


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True, slots=True)
class Replayed:
    """What replaying all runs of an execution took."""

    steps: int
    runs: int
    seconds: float
    cpu_seconds: float
    slowest_run_seconds: float


async def replayed(stage: Stage, execution_id: str) -> Replayed:
    """Replay every run of an execution as a worker that has never seen it."""
    client = stage.client.temporal
    histories_of_runs = [history async for history in histories(client, execution_id)]
    replayer = Replayer(
        workflows=WORKFLOWS, workflow_runner=AgentWorkflowRunner(), data_converter=client.data_converter
    )
    await replayer.replay_workflow(histories_of_runs[-1])  # the first replay of a process pays for its imports
    took: list[float] = []
    cpu = time.process_time()
    for history in histories_of_runs:
        began = time.perf_counter()
        await replayer.replay_workflow(history)
        took.append(time.perf_counter() - began)
    steps = sum(measured(history).steps for history in histories_of_runs)
    return Replayed(steps, len(histories_of_runs), sum(took), time.process_time() - cpu, max(took))


@dataclass(frozen=True, slots=True)
class Compared:
    """The requests of two executions of one task: how many each sent, and how many are equal byte by byte."""

    runs: int
    requests: int
    requests_continued: int
    equal: int
    request_bytes: int


async def compared(stage: Stage, task: Task) -> Compared:
    """Run the task as usual and with a new run after every step."""
    _, usual = await lived(stage, task, READER)
    one = await _seen(stage, task.steps + 1)
    _, continued = await lived(stage, task, READER, continue_events=1)
    other = await _seen(stage, task.steps + 1)
    if usual.runs == continued.runs:
        raise WrongAnswer("nothing was continued")
    equal = sum(mine == theirs for mine, theirs in zip(one["digests"], other["digests"], strict=True))
    return Compared(
        len(continued.runs), len(one["digests"]), len(other["digests"]), equal, sum(int(size) for size in one["sizes"])
    )


async def _seen(stage: Stage, latest: int) -> dict[str, list[str]]:
    """Return digests and sizes of the endpoint's latest requests."""
    async with ClientSession() as session, session.get(stage.endpoint.removesuffix("/v1") + "/seen") as answer:
        seen: dict[str, list[str]] = await answer.json()
    return {name: values[-latest:] for name, values in seen.items()}


def show_large(lives: Sequence[Lived], replays: Mapping[int, Replayed]) -> None:
    """Print what long executions left behind, and what replaying took, by the size of the results."""
    title = f"{lives[0].steps_asked:,} steps, {LARGE.page_bytes:,} bytes per result; the last: {USUAL_BYTES:,} bytes"
    show_table(title, COLUMNS, [each.row() for each in lives])
    rows = [
        (
            f"{size:,}",
            f"{replay.steps:,}",
            str(replay.runs),
            f"{1_000 * replay.seconds / replay.steps:.2f}",
            f"{1_000 * replay.cpu_seconds / replay.steps:.2f}",
            f"{replay.slowest_run_seconds:.2f}",
        )
        for size, replay in replays.items()
    ]
    columns = ("bytes per result", "steps", "runs", "ms per step", "CPU ms per step", "s, slowest run")
    show_table("Cold replay", columns, rows)


def show_compared(compared: Compared) -> None:
    """Print how the requests compare."""
    columns = ("runs", "requests, usual", "requests, continued", "equal byte by byte", "MB of requests")
    row = (*(str(each) for each in (compared.runs, compared.requests, compared.requests_continued, compared.equal)),)
    show_table("Continued after every step", columns, [(*row, f"{compared.request_bytes / 1e6:.1f}")])


def show_endless(life: Lived) -> None:
    """Print what the endless execution left, and whether its runs are alike."""
    show_table(f"{life.steps_asked:,} steps with results of {ENDLESS.page_bytes:,} bytes", COLUMNS, [life.row()])
    whole = life.runs[:-1] or life.runs
    figures: dict[str, list[float]] = {
        "events": [run.events for run in whole],
        "KB": [run.bytes / 1_000 for run in whole],
        "steps": [run.steps for run in whole],
        "ms per step": [1_000 * run.seconds / max(1, run.steps) for run in whole],
    }
    rows = [
        (name, *(f"{each:,.1f}" for each in (min(values), median(values), max(values), values[0], values[-1])))
        for name, values in figures.items()
    ]
    show_table(f"Its {len(whole)} runs but the last", ("per run", "min", "median", "max", "first", "latest"), rows)


def life_goals(life: Lived) -> list[Goal]:
    """Judge one execution of ours."""
    events, size = largest(life.runs)
    return [
        Goal(f"{life.steps_asked:,} steps finish", f"{life.steps:,}, {life.outcome}", life.outcome == "completed"),
        Goal(f"largest run <= {EVENTS_MAX:,} events", f"{events:,}", events <= EVENTS_MAX),
        Goal(f"largest run <= {BYTES_MAX / 1e6:.1f} MB", f"{size / 1e6:.2f} MB", size <= BYTES_MAX),
    ]


def large_goals(lives: Sequence[Lived], replay: Replayed) -> list[Goal]:
    """Judge the long executions."""
    judged = [goal for each in lives if each.loop == "holdfast" for goal in life_goals(each)]
    for each in lives:
        if each.loop == "bare":
            text = f"(the bare loop is dead before step {BARE_STEPS_MAX})"
            judged.append(Goal(text, f"at step {each.steps}", each.steps < BARE_STEPS_MAX))
    ms, text = 1_000 * replay.seconds / replay.steps, f"cold replay, {USUAL_BYTES:,} bytes per result"
    judged.append(Goal(f"{text}: <= {REPLAY_MS_MAX:g} ms per step", f"{ms:.2f}", ms <= REPLAY_MS_MAX))
    return judged


def _arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.long", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("large", "continued", "endless"), nargs="+", default=[])
    parser.add_argument("--steps", type=int, default=LARGE.steps, help=f"of the large one (default: {LARGE.steps})")
    parser.add_argument("--endless-steps", type=int, default=ENDLESS.steps, help=f"(default: {ENDLESS.steps})")
    parser.add_argument("--seconds-max", type=float, default=SECONDS_MAX, help=f"give up (default: {SECONDS_MAX:g})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    return parser.parse_args(arguments)


async def measure(options: argparse.Namespace) -> tuple[dict[str, Any], list[Goal]]:
    """Run everything that is asked for; tables are printed as they come."""
    chosen = options.only or ("large", "continued", "endless")
    figures: dict[str, Any] = {}
    judged: list[Goal] = []
    async with set_stage(QUICK) as stage:
        if "continued" in chosen:
            both = await compared(stage, COMPARED)
            show_compared(both)
            figures["continued"] = asdict(both)
            text = f"{both.equal} of {both.requests}"
            same = both.equal == both.requests == both.requests_continued
            judged.append(Goal("requests are byte-identical when continued after every step", text, same))
        if "large" in chosen:
            task = Task(options.steps, LARGE.page_bytes)
            large_id, ours = await lived(stage, task, READER)
            bare = await bare_life(stage, task)
            usual_id, usual = await lived(stage, Task(options.steps, USUAL_BYTES), READER)
            replays = {
                LARGE.page_bytes: await replayed(stage, large_id),
                USUAL_BYTES: await replayed(stage, usual_id),
            }
            show_large([ours, bare, usual], replays)
            figures["large"] = [each.figures() for each in (ours, bare, usual)]
            figures["replay"] = {f"{size} bytes": asdict(replay) for size, replay in replays.items()}
            judged += large_goals([ours, bare], replays[USUAL_BYTES])
        if "endless" in chosen:
            _, endless = await lived(stage, Task(options.endless_steps, ENDLESS.page_bytes), GLANCING)
            show_endless(endless)
            figures["endless"] = endless.figures()
            judged += life_goals(endless)
    return figures, judged


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    options = _arguments(arguments)
    figures, judged = perform(measure(options), options.seconds_max)
    show_goals(judged)
    hand_over(figures, judged, options.json)
    return 0


if __name__ == "__main__":
    leave(main())
