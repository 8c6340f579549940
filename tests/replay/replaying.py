"""The gate itself: recorded runs led through the workflow's code as it is now. `python -m tests.replay.replaying`.

As a program it replays the runs of those names (all of them without any) through the code it finds on its path, prints
which go another way now, and fails when there is one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.worker import Replayer

from holdfast.runtime.process_exit import leave
from holdfast.storage.data_converter import converter
from tests.replay.archive import Recorded, files, read
from tests.replay.outside import put_back
from workflows.workflow_runner import WORKFLOWS, AgentWorkflowRunner

TOLD_CHARS_MAX = 300
DEADLOCK = "TMPRL1101"
"""How the SDK's report of a workflow begins that did not yield for 2 s."""

REMEDY = """\
The workflow's code would now do something else than it did in {count} recorded runs. Runs of people that are under way
would break in the same way, with the new worker. Undo that, or keep the old way for old runs (`workflow.patched`).
Until the first release there are no such runs: when the change is meant, record anew with `make histories`."""


@cache
def quiet() -> Runtime:
    """Return a runtime that says nothing of runs that do not replay: we tell."""
    errors = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=errors)))


def replayer(data_converter: DataConverter) -> Replayer:
    """Return what replays as the worker would: the same workflows and runner, and its data converter."""
    return Replayer(
        workflows=WORKFLOWS,
        workflow_runner=AgentWorkflowRunner(),
        data_converter=data_converter,
        runtime=quiet(),
    )


async def deviations(runs: Sequence[Recorded], tries: int = 3) -> dict[str, str]:
    """Return, by their names, the runs that would now go another way, with what the SDK says of each.

    One that the SDK takes for stuck, since a busy machine left it no processor for 2 s, is tried again.
    """
    found = await _replayed(runs)
    stuck = [run for run in runs if DEADLOCK in found.get(run.name, "")]
    if stuck and tries > 1:
        others = {name: cause for name, cause in found.items() if DEADLOCK not in cause}
        return others | await deviations(stuck, tries - 1)
    return found


async def _replayed(runs: Sequence[Recorded]) -> dict[str, str]:

    async def histories() -> AsyncIterator[WorkflowHistory]:
        for run in runs:
            yield run.replayable

    found: dict[str, str] = {}
    names = iter(runs)
    with TemporaryDirectory(prefix="holdfast-objects-") as folder:
        place = Path(folder).as_uri()
        await put_back(chain.from_iterable(run.objects for run in runs), place)
        async with replayer(converter(place, None)).workflow_replay_iterator(histories()) as results:
            async for result in results:
                run = next(names)  # one result per history, in their order
                if result.replay_failure is not None:
                    found[run.name] = _cause(result.replay_failure)
    return found


def _cause(failure: Exception) -> str:
    """Return the one sentence within the SDK's report that says where the ways part."""
    told = str(failure)
    _, _, cause = told.partition('message: "')
    return (cause or told).partition('", source')[0][:TOLD_CHARS_MAX]


def report(found: dict[str, str]) -> str:
    """Return what to tell of runs that deviate, and what to do."""
    lines = [f"  {name}: {cause}" for name, cause in sorted(found.items())]
    return "\n".join([REMEDY.format(count=len(found)), *lines])


def main(names: Sequence[str]) -> int:
    """Replay, tell, return the exit code."""
    runs = [run for run in chain.from_iterable(map(read, files())) if not names or run.name in names]
    if missing := set(names) - {run.name for run in runs}:
        sys.stderr.write(f"no run is recorded by the name {', '.join(sorted(missing))}\n")
        return 2
    found = asyncio.run(deviations(runs))
    sys.stdout.write(f"{len(runs)} runs, {len(found)} of them go another way now\n")
    if found:
        sys.stdout.write(f"{report(found)}\n")
    return 1 if found else 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
