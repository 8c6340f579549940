"""How soon a stop reaches the provider, with and without pushed cancels. `python -m bench.stop`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from temporalio.runtime import Runtime, TelemetryConfig

from activities.provider import OpenAIModel, ProviderSettings
from bench.report import Goal, hand_over, show_goals, show_table
from bench.stage import fresh_id, perform
from holdfast import AgentDefinition, ExecutionStatus, StopReason
from holdfast.client import Client, Settings
from holdfast.client.connection import connect
from holdfast.client.embedded import EmbeddedServer
from holdfast.client.leaving import leave
from holdfast.core.offer import Offer
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import say
from worker import make_worker

CALL_SECONDS: Final = 60.0
"""How long the model call would take if nobody stopped it."""

CLOSED_SECONDS_MAX: Final = 0.6
TRIALS: Final = 20
BENCH_SECONDS_MAX: Final = 300.0
WAITER: Final = AgentDefinition(name="waiter")

EPILOG: Final = """\
A trial starts a run whose model call takes 60 s, waits until the endpoint has the request, asks for the stop and takes
the time until the endpoint sees the connection close. "push off" is a worker that the server cannot push cancels to
(as on servers without worker commands): there a heartbeat's answer brings them.

JSON: {machine, trials: {"push on": [seconds], "push off": [seconds]}, goals: [{wanted, measured, met}]}.
"""


async def measure(address: str, *, push: bool, trials: int) -> list[float]:
    """Return the seconds from each stop to the closed connection; checks that the run says why it ended."""
    settings = Settings(address=address, task_queue=f"stop-{fresh_id()}")
    # without worker heartbeats the server has no way to push anything to the worker
    runtime = None if push else Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=None)
    async with FakeOpenAI([say("too late", delay_seconds=CALL_SECONDS)]) as endpoint:
        client = await Client.connect(settings)
        model = OpenAIModel(ProviderSettings(base_url=endpoint.base_url, api_key="bench", model="scripted"))
        async with make_worker(await connect(settings, runtime=runtime), settings, Offer(), model):
            seconds = [await _trial(client, endpoint, number) for number in range(trials)]
        await model.close()
    return seconds


async def _trial(client: Client, endpoint: FakeOpenAI, number: int) -> float:
    execution_id = await client.start(WAITER, f"wait {number}")
    await endpoint.until(lambda requests: len(requests) > number)
    asked_at = time.monotonic()
    await client.stop(execution_id, "bench")
    await endpoint.until(lambda requests: requests[number].disconnected_at is not None)
    state = await client.result(execution_id)
    if (state.status, state.stop_reason) != (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED):
        raise AssertionError(f"the run ended {state.status} ({state.stop_reason})")
    return (endpoint.requests[number].disconnected_at or 0.0) - asked_at


async def run(trials: int) -> dict[str, list[float]]:
    """Measure both ways on one server."""
    with (
        TemporaryDirectory(prefix="holdfast-bench-") as folder,
        EmbeddedServer.start(Path(folder) / "data", port=0, ui_port=0) as server,
    ):
        address = server.address.address
        return {
            "push on": await measure(address, push=True, trials=trials),
            "push off": await measure(address, push=False, trials=trials),
        }


def show(measured: dict[str, list[float]]) -> None:
    """Print minimum, median and maximum in milliseconds."""
    rows = [
        (name, str(len(seconds)), *(f"{1_000 * each(seconds):.0f}" for each in (min, median, max)))
        for name, seconds in measured.items()
    ]
    show_table("From stop to closed connection", ("", "trials", "min ms", "median ms", "max ms"), rows)


def goals(measured: dict[str, list[float]]) -> list[Goal]:
    """Judge the slowest trial of each way."""
    worst = {name: max(seconds) for name, seconds in measured.items()}
    return [
        Goal(f"{name}: every trial within {CLOSED_SECONDS_MAX:g} s", f"{slowest:.3f} s", slowest <= CLOSED_SECONDS_MAX)
        for name, slowest in worst.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="bench.stop", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"how many of each (default {TRIALS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    given = parser.parse_args(arguments)
    measured = perform(run(given.trials), BENCH_SECONDS_MAX)
    judged = goals(measured)
    show(measured)
    show_goals(judged)
    figures: dict[str, Any] = {"trials": measured}
    hand_over(figures, judged, given.json)
    return 0


if __name__ == "__main__":
    leave(main())
