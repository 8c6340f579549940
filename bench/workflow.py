"""What the workflow's own code takes per workflow task, without the SDK's sandbox. `python -m bench.workflow`."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from bench.report import Goal, hand_over, quantile, show_goals, show_table
from bench.script import read_page, script
from bench.stage import READER, fresh_id, perform
from bench.task import Task
from holdfast.client import Holdfast, Settings
from holdfast.connection.temporal_client import connect
from holdfast.core.agent.toolset import Toolset
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.runtime.process_exit import leave
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing.openai_server import FakeOpenAI
from workers import make_worker

STEPS: Final = 50
PAGE_BYTES: Final = 2_048
RUNS: Final = 6
TASK_MS_MAX: Final = 2.0
BENCH_SECONDS_MAX: Final = 300.0

EPILOG: Final = """\
A workflow task is what the worker does when something has happened in a run: here a model's answer or a tool's result
has come, the core decides, and the next call is told to the server. Its time is the CPU time of the thread that runs
the workflow's code; payloads are read and written in it. The first task of a run is shown apart.

JSON: {machine, steps, runs, first_ms: [...], task_ms: [...], goals: [{wanted, measured, met}]}.
"""


@contextmanager
def clocked() -> Generator[dict[str, list[float]]]:
    """Put a clock around the workflow's code; gives, per run, the CPU seconds of each of its activations."""
    seconds_by_run: dict[str, list[float]] = {}
    create = UnsandboxedWorkflowRunner.create_instance

    def created(runner: UnsandboxedWorkflowRunner, det: WorkflowInstanceDetails) -> WorkflowInstance:
        began = time.thread_time()
        instance = create(runner, det)
        making = time.thread_time() - began
        activate = instance.activate
        seconds = seconds_by_run.setdefault(det.info.run_id, [])

        def timed(act: WorkflowActivation) -> WorkflowActivationCompletion:
            began = time.thread_time()
            completion = activate(act)
            # making the instance counts to the first task
            seconds.append(time.thread_time() - began + (0.0 if seconds else making))
            return completion

        setattr(instance, "activate", timed)  # noqa: B010  # a method to type checkers
        return instance

    with patch.object(UnsandboxedWorkflowRunner, "create_instance", created):
        yield seconds_by_run


async def run(runs: int, steps: int) -> list[list[float]]:
    """Return the CPU seconds of the activations of each run."""
    with (
        TemporaryDirectory(prefix="holdfast-bench-") as folder,
        EmbeddedServer.start(Path(folder) / "data", port=0, ui_port=0) as server,
    ):
        settings = Settings(address=server.address.address, task_queue=fresh_id(), data_dir=Path(folder) / "data")
        async with FakeOpenAI(script) as endpoint:
            client = await Holdfast.connect(settings)
            model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="bench", model="scripted"))
            worker = make_worker(await connect(settings), settings, Toolset(tools=(read_page,)), model)
            task = Task(steps, PAGE_BYTES)
            with clocked() as seconds_by_run:
                async with worker:
                    states = await asyncio.gather(*(client.run(READER, task.question) for _ in range(runs)))
            await model.close()
    if any(state.output != task.answer for state in states):
        raise AssertionError("a run has not done its task")
    if len(seconds_by_run) != runs:
        raise AssertionError(f"{len(seconds_by_run)} of {runs} runs were seen")
    return list(seconds_by_run.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="bench.workflow", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"at once (default {RUNS})")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of each (default {STEPS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    options = parser.parse_args(arguments)
    results = perform(run(options.runs, options.steps), BENCH_SECONDS_MAX)
    first = [1_000 * each[0] for each in results]
    later = [1_000 * seconds for each in results for seconds in each[1:]]
    rows = [
        (name, str(len(ms)), *(f"{each:.2f}" for each in (median(ms), mean(ms), quantile(ms, 0.99), max(ms))))
        for name, ms in (("first of a run", first), ("later", later))
    ]
    columns = ("task", "number", "p50 ms", "mean ms", "p99 ms", "max ms")
    show_table(
        f"CPU time of the workflow's code, {options.steps} steps, {PAGE_BYTES:,} bytes per result", columns, rows
    )
    taken = mean(later)
    judged = [Goal(f"mean <= {TASK_MS_MAX:g} ms per workflow task", f"{taken:.2f} ms", taken <= TASK_MS_MAX)]
    show_goals(judged)
    figures = {"steps": options.steps, "runs": options.runs, "first_ms": first, "task_ms": later}
    hand_over(figures, judged, options.json)
    return 0


if __name__ == "__main__":
    leave(main())
