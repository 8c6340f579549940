"""How soon a stop of its root has reached a whole tree of subagents. `python -m bench.stop_tree`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.report import Goal, hand_over, quantile, show_goals
from bench.stage import fresh_id, perform
from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.connection.temporal_client import connect
from holdfast.core.agent.toolset import Toolset
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.runtime.process_exit import leave
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, calls, say
from workers import make_worker

CALL_SECONDS: Final = 60.0
BELOW: Final = {"top": ("middle", 2), "middle": ("leaf", 4)}
"""Whom each calls, and how often: eight leaves."""

LEAVES: Final = 8
CLOSED_P99_SECONDS_MAX: Final = 1.0
TRIALS: Final = 20
BENCH_SECONDS_MAX: Final = 600.0

EPILOG: Final = f"""\
A trial starts a tree of three levels, waits until all {LEAVES} leaves have asked their model, stops the root and takes
the time until the endpoint has seen the last connection close, and until the root's run has ended.

JSON: {{machine, closed: [seconds], ended: [seconds], goals: [{{wanted, measured, met}}]}}.
"""


def plays(request: dict[str, Any]) -> Reply:
    """Return what the agent of that prompt says: the leaves nothing, for a long time."""
    who, task = request["messages"][0]["content"], request["messages"][1]["content"]
    if who not in BELOW:
        return say("too late", delay_seconds=CALL_SECONDS)
    below, count = BELOW[who]
    return calls(*(Call("spawn", {"agent": below, "task": f"{task} {place}"}) for place in range(count)))


async def trial(client: Holdfast, endpoint: FakeOpenAI, name: str) -> tuple[float, float]:
    """Return the seconds from the stop to the last connection's close, and to the end of the root's run."""
    agents = {
        who: AgentDefinition(name=who, system_prompt=who, subagents=(BELOW[who][0],) if who in BELOW else ())
        for who in ("top", "middle", "leaf")
    }
    mark = f"{name} ".encode()

    def leaves() -> list[float | None]:
        return [each.disconnected_at for each in endpoint.requests if mark in each.raw and b'"leaf"' in each.raw[:300]]

    execution_id = await client.start(agents["top"], name, subagents=[agents["middle"], agents["leaf"]])
    await endpoint.until(lambda _: len(leaves()) == LEAVES, 30)
    stopped_at = time.monotonic()
    await client.stop(execution_id, "bench")
    await client.result(execution_id)
    ended_at = time.monotonic()
    await endpoint.until(lambda _: all(each is not None for each in leaves()), 30)
    return max(each or 0.0 for each in leaves()) - stopped_at, ended_at - stopped_at


async def run(trials: int) -> tuple[list[float], list[float]]:
    """Make the trials one after another."""
    with (
        TemporaryDirectory(prefix="holdfast-bench-") as folder,
        EmbeddedServer.start(Path(folder) / "data", port=0, ui_port=0) as server,
    ):
        settings = Settings(
            address=server.address.address, task_queue=f"tree-{fresh_id()}", data_dir=Path(folder) / "data"
        )
        async with FakeOpenAI(plays) as endpoint:
            model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="bench", model="scripted"))
            async with make_worker(await connect(settings), settings, Toolset(), model):
                client = await Holdfast.connect(settings)
                await trial(client, endpoint, "warm")  # the first run of a worker pays for its imports
                trials_seconds = [await trial(client, endpoint, f"tree{number}") for number in range(trials)]
            await model.close()
    return [closed for closed, _ in trials_seconds], [ended for _, ended in trials_seconds]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="bench.stop_tree", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"how many trees (default {TRIALS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    options = parser.parse_args(arguments)
    closed, ended = perform(run(options.trials), BENCH_SECONDS_MAX)
    slow = quantile(closed, 0.99)
    text = f"p99 of {len(closed)} trees with {LEAVES} leaves <= {CLOSED_P99_SECONDS_MAX:g} s"
    judged = [
        Goal(text, f"{slow:.3f} s; the root ended: {quantile(ended, 0.99):.3f} s", slow <= CLOSED_P99_SECONDS_MAX)
    ]
    show_goals(judged)
    hand_over({"closed": closed, "ended": ended}, judged, options.json)
    return 0


if __name__ == "__main__":
    leave(main())
