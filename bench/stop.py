"""How soon a stop or a time limit arrives, with and without pushed cancels. `python -m bench.stop`."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from temporalio.runtime import Runtime, TelemetryConfig

from bench.mcp_stand import moment, servers
from bench.report import Goal, hand_over, quantile, show_goals, show_table
from bench.stage import fresh_id, perform
from holdfast import AgentDefinition, ExecutionStatus, StopReason, tool
from holdfast.client import Holdfast, Settings
from holdfast.connection.temporal_client import connect
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.runtime.process_exit import leave
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, call, say
from workers import make_worker

CALL_SECONDS: Final = 60.0
"""How long what is under way would take if nobody stopped it."""

BACKOFF_SECONDS: Final = 2
"""After so long the endpoint that refused would be asked again."""

LIMIT_SECONDS: Final = 0.7
"""The time limit of a run that nobody stops: late enough for its call to be under way."""

MCP_START_SECONDS_MAX: Final = 60.0
"""How long a call may take to begin at an MCP server that is started for it."""

PIECE_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 0.01

CLOSED_P99_SECONDS_MAX: Final = {"push on": 0.15, "push off": 0.6}
TRIALS: Final = 200
BENCH_SECONDS_MAX: Final = 600.0
PROMPT: Final = "You are stopped."

EPILOG: Final = f"""\
A trial starts a run, waits until it stands where it is to be stopped, stops it and takes the time until it arrives:
  silent call, streaming call   the endpoint sees the connection close
  tool                          the tool sees its cancellation
  MCP call, HTTP or stdio       the server's handler sees its cancellation
  backoff                       the run has ended (the endpoint would be asked again after {BACKOFF_SECONDS} s)
  approval                      the run has ended
  limit, call; limit, tool      the same as above, from the moment at which a time limit of {LIMIT_SECONDS:g} s strikes
Afterwards no endpoint may have been asked once more. "push off" is a worker that the server cannot push cancels to (as
on servers without worker commands): there a heartbeat's answer brings them. The trials are shared out evenly.

JSON: {{machine, trials: {{"push on": {{what: [seconds]}}, "push off": ...}}, goals: [{{wanted, measured, met}}]}}.
"""


class Stood:
    """The tool's calls, by the question of their run: when each began to stand and when it was cancelled."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.cancelled: dict[str, float] = {}

    @property
    def toolset(self) -> Toolset:
        """Return the tool."""

        @tool(name="stand")
        async def stand(name: str) -> str:
            """Stand until cancelled."""
            self.began[name] = time.monotonic()
            try:
                await asyncio.sleep(CALL_SECONDS)
            except asyncio.CancelledError:
                self.cancelled[name] = time.monotonic()
                raise
            return "nobody came"

        @tool(name="pay")
        async def pay(name: str) -> str:
            """Pay."""
            return name

        return Toolset(tools=(stand, pay))


@dataclass(frozen=True, slots=True)
class Place:
    """A worker with an endpoint, and what tells the trials on them apart."""

    client: Holdfast
    endpoint: FakeOpenAI
    stood: Stood
    ledger: Path
    """What the MCP servers write down."""
    numbers: count[int] = field(default_factory=count)

    def name(self, what: str) -> str:
        """Return a question that no other trial asks, and that is part of none of theirs."""
        return f"{what} {next(self.numbers)}."

    def closed_at(self, name: str) -> float | None:
        """Return when the connection of the trial's request was closed, none while it is open."""
        mark = name.encode()
        return next((each.disconnected_at for each in self.endpoint.requests if mark in each.raw), None)

    def request_count(self, name: str) -> int:
        """Return how many requests of the trial the endpoint has seen."""
        return sum(name.encode() in each.raw for each in self.endpoint.requests)


def plays(request: dict[str, Any]) -> Reply:
    """Return the turn that brings a run to where it is to be stopped: the first word of its question says where."""
    question = next(each["content"] for each in request["messages"] if each["role"] == "user")
    match question.split()[0]:
        case "silent":
            return say("too late", delay_seconds=CALL_SECONDS)
        case "streaming":
            return say("word " * 5_000, piece_seconds=PIECE_SECONDS)
        case "backoff":
            return Reply(status=429, text="busy", headers={"retry-after": str(BACKOFF_SECONDS)})
        case "tool":
            return call("stand", name=question)
        case "http" | "stdio" as transport:
            return call(f"{transport}_stand", name=question)
        case _:
            return call("pay", name=question)


Trial = Callable[[Place], Awaitable[float]]
"""Returns the seconds from the stop until it has arrived."""


async def _until(there: Callable[[], object], seconds_max: float = 10.0) -> None:
    async with asyncio.timeout(seconds_max):
        while not there():  # noqa: ASYNC110  # what is looked at tells nobody
            await asyncio.sleep(LOOK_SECONDS)


def _agent(max_seconds: float | None = None, mcp: tuple[str, ...] = ()) -> AgentDefinition:
    return AgentDefinition.model_validate(
        {
            "name": "stopped",
            "tools": () if mcp else "all",
            "mcp": mcp,
            "system_prompt": PROMPT,
            "budget": {"max_seconds": max_seconds},
            "approvals": [{"tools": ["pay"]}],
        }
    )


async def _ended(place: Place, execution_id: str, reason: StopReason) -> AgentState:
    state = await place.client.result(execution_id)
    if (state.status, state.stop_reason) != (ExecutionStatus.STOPPED, reason):
        raise AssertionError(f"the run ended {state.status} ({state.stop_reason}): {state.debug()}")
    return state


async def _stopped_call(place: Place, what: str) -> float:
    name = place.name(what)
    execution_id = await place.client.start(_agent(), name)
    await _until(lambda: place.request_count(name))
    if what == "streaming":
        await asyncio.sleep(2 * PIECE_SECONDS)  # until the answer is on its way
    stopped_at = time.monotonic()
    await place.client.stop(execution_id, "bench")
    await _until(lambda: place.closed_at(name) is not None)
    await _ended(place, execution_id, StopReason.USER_REQUESTED)
    return (place.closed_at(name) or 0.0) - stopped_at


async def silent_call(place: Place) -> float:
    """Stop a model call that says nothing."""
    return await _stopped_call(place, "silent")


async def streaming_call(place: Place) -> float:
    """Stop a model call whose answer is coming."""
    return await _stopped_call(place, "streaming")


async def tool_call(place: Place) -> float:
    """Stop a tool."""
    name = place.name("tool")
    execution_id = await place.client.start(_agent(), name)
    await _until(lambda: name in place.stood.began)
    stopped_at = time.monotonic()
    await place.client.stop(execution_id, "bench")
    await _until(lambda: name in place.stood.cancelled)
    await _ended(place, execution_id, StopReason.USER_REQUESTED)
    return place.stood.cancelled[name] - stopped_at


async def _stopped_mcp_call(place: Place, server: str) -> float:
    name = place.name(server)
    execution_id = await place.client.start(_agent(mcp=(server,)), name)
    await _until(lambda: moment(place.ledger, "began", name), MCP_START_SECONDS_MAX)
    stopped_at = time.monotonic()
    await place.client.stop(execution_id, "bench")
    await _until(lambda: moment(place.ledger, "cancelled", name))
    await _ended(place, execution_id, StopReason.USER_REQUESTED)
    return (moment(place.ledger, "cancelled", name) or 0.0) - stopped_at


async def mcp_http_call(place: Place) -> float:
    """Stop a call of an MCP server over HTTP."""
    return await _stopped_mcp_call(place, "http")


async def mcp_stdio_call(place: Place) -> float:
    """Stop a call of an MCP server over stdio."""
    return await _stopped_mcp_call(place, "stdio")


async def backoff(place: Place) -> float:
    """Stop a run whose endpoint has refused and will be asked again."""
    name = place.name("backoff")
    execution_id = await place.client.start(_agent(), name)
    await _until(lambda: place.request_count(name))
    await asyncio.sleep(10 * LOOK_SECONDS)  # until the refusal has reached the server
    stopped_at = time.monotonic()
    await place.client.stop(execution_id, "bench")
    await _ended(place, execution_id, StopReason.USER_REQUESTED)
    return time.monotonic() - stopped_at


async def approval(place: Place) -> float:
    """Stop a run that waits for a person."""
    execution_id = await place.client.start(_agent(), place.name("approval"))
    while not (await place.client.state(execution_id)).waiting_calls:  # noqa: ASYNC110  # a client is not called back
        await asyncio.sleep(LOOK_SECONDS)
    stopped_at = time.monotonic()
    await place.client.stop(execution_id, "bench")
    await _ended(place, execution_id, StopReason.USER_REQUESTED)
    return time.monotonic() - stopped_at


async def _struck_at(place: Place, execution_id: str) -> float:
    """Return the moment of the time limit, in this process's monotonic time."""
    described = await place.client.temporal.get_workflow_handle(execution_id).describe()
    return described.start_time.timestamp() + LIMIT_SECONDS - time.time() + time.monotonic()


async def limited_call(place: Place) -> float:
    """Let the time limit strike during a model call."""
    name = place.name("silent")
    execution_id = await place.client.start(_agent(LIMIT_SECONDS), name)
    await _until(lambda: place.closed_at(name) is not None)
    await _ended(place, execution_id, StopReason.TIME_LIMIT)
    return (place.closed_at(name) or 0.0) - await _struck_at(place, execution_id)


async def limited_tool(place: Place) -> float:
    """Let the time limit strike during a tool."""
    name = place.name("tool")
    execution_id = await place.client.start(_agent(LIMIT_SECONDS), name)
    await _until(lambda: name in place.stood.cancelled)
    await _ended(place, execution_id, StopReason.TIME_LIMIT)
    return place.stood.cancelled[name] - await _struck_at(place, execution_id)


TRIED: Final[dict[str, Trial]] = {
    "silent call": silent_call,
    "streaming call": streaming_call,
    "tool": tool_call,
    "MCP call, HTTP": mcp_http_call,
    "MCP call, stdio": mcp_stdio_call,
    "backoff": backoff,
    "approval": approval,
    "limit, call": limited_call,
    "limit, tool": limited_tool,
}

Seconds = dict[str, list[float]]
"""What each kind of trial took."""


@asynccontextmanager
async def set_place(address: str, folder: Path, *, push: bool) -> AsyncGenerator[Place]:
    """Start a worker and an endpoint in this process."""
    settings = Settings(address=address, task_queue=f"stop-{fresh_id()}", data_dir=folder)
    # without worker heartbeats the server has no way to push anything to the worker
    runtime = None if push else Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=None)
    ledger = folder / f"mcp-{fresh_id()}"
    async with FakeOpenAI(plays) as endpoint, servers(ledger) as mcp:
        stood = Stood()
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="bench", model="scripted"))
        async with make_worker(await connect(settings, runtime=runtime), settings, stood.toolset, model, mcp=mcp):
            yield Place(await Holdfast.connect(settings), endpoint, stood, ledger)
        await model.close()


async def measure(place: Place, trials: int) -> Seconds:
    """Make the trials, those of all kinds in turn."""
    results: Seconds = {what: [] for what in TRIED}
    kinds = list(TRIED.items())
    for number in range(trials):
        what, trial = kinds[number % len(kinds)]
        results[what].append(await trial(place))
    await asyncio.sleep(BACKOFF_SECONDS + 1)
    requests = sum(each.raw.find(b"backoff") >= 0 for each in place.endpoint.requests)
    if requests != len(results["backoff"]):
        raise AssertionError(f"{len(results['backoff'])} runs were stopped in their backoff, {requests} requests came")
    return results


async def run(trials: int) -> dict[str, Seconds]:
    """Measure both ways on one server."""
    results: dict[str, Seconds] = {}
    with (
        TemporaryDirectory(prefix="holdfast-bench-") as folder,
        EmbeddedServer.start(Path(folder) / "data", port=0, ui_port=0) as server,
    ):
        for name, push in (("push on", True), ("push off", False)):
            async with set_place(server.address.address, Path(folder) / "data", push=push) as place:
                with suppress(AssertionError):
                    await silent_call(place)  # the first run of a worker pays for its imports
                results[name] = await measure(place, trials)
    return results


def show(measured: dict[str, Seconds]) -> None:
    """Print the figures in milliseconds."""
    columns = ("", "trials", "min ms", "p50 ms", "p95 ms", "p99 ms", "max ms")
    for name, by_kind in measured.items():
        every = [each for seconds in by_kind.values() for each in seconds]
        rows = [(what, *_figures(seconds)) for what, seconds in {**by_kind, "all": every}.items() if seconds]
        show_table(f"From the stop to its arrival, {name}", columns, rows)


def _figures(seconds: Sequence[float]) -> tuple[str, ...]:
    values = (min(seconds), median(seconds), quantile(seconds, 0.95), quantile(seconds, 0.99), max(seconds))
    return (str(len(seconds)), *(f"{1_000 * each:.0f}" for each in values))


def goals(measured: dict[str, Seconds]) -> list[Goal]:
    """Judge all trials of each way together."""
    judged: list[Goal] = []
    for name, seconds_max in CLOSED_P99_SECONDS_MAX.items():
        every = [each for seconds in measured[name].values() for each in seconds]
        slow = quantile(every, 0.99)
        judged.append(
            Goal(f"{name}: p99 of {len(every)} trials <= {seconds_max:g} s", f"{slow:.3f} s", slow <= seconds_max)
        )
    return judged


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="bench.stop", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"with push on, and with it off (default {TRIALS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    options = parser.parse_args(arguments)
    measured = perform(run(options.trials), BENCH_SECONDS_MAX)
    judged = goals(measured)
    show(measured)
    show_goals(judged)
    hand_over({"trials": measured}, judged, options.json)
    return 0


if __name__ == "__main__":
    leave(main())
