"""What a streamed answer costs in history, and how soon its watchers see it. `python -m bench.stream`."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from temporalio.api.history.v1 import HistoryEvent

from bench.endpoint import TICK, TICK_SECONDS, Endpoint
from bench.report import Goal, hand_over, quantile, show_goals, show_table
from bench.stage import fresh_id, perform
from holdfast import AgentDefinition, ExecutionStatus
from holdfast.client import Holdfast, Settings
from holdfast.client.watch_events import TextDelta
from holdfast.connection.temporal_client import connect
from holdfast.core.agent.toolset import Toolset
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.runtime.process_exit import leave
from holdfast.server.embedded import EmbeddedServer
from workers import make_worker

SECONDS: Final = 10.0
WATCHERS: Final = (0, 1, 10, 50)
EVENTS_MAX: Final = 12
BYTES_MAX: Final = 6_000
BENCH_SECONDS_MAX: Final = 300.0
SPEAKER: Final = AgentDefinition(name="speaker", system_prompt="Speak.")

EPILOG: Final = f"""\
A run's one model call streams an answer for 10 s, a piece every {1_000 * TICK_SECONDS:.0f} ms.
Each piece says when it was sent. Watchers (`Holdfast.watch`) see the pieces; the delay is that from the sending of a
piece to the watcher who gets it. Endpoint, worker and watchers share one process, so that 50 watchers also pay for
each other.

"call" are the events of the model call itself, up to the workflow task that takes its answer; "run" all of the run that
makes this one call: its start and its result hold the agent and, once more, the answer.

JSON: {{machine, seconds, streams: [{{watchers, events, bytes, call_events, call_bytes, answer_chars, deltas,
p50_seconds, p99_seconds, max_seconds}}], goals: [{{wanted, measured, met}}]}}.
"""


@dataclass(frozen=True, slots=True)
class Streamed:
    """One streamed call: its run's history, and the delays of the pieces, each at each watcher."""

    watchers: int
    events: int
    bytes: int
    call_events: int
    call_bytes: int
    answer_chars: int
    deltas: int
    p50_seconds: float
    p99_seconds: float
    max_seconds: float


async def streamed(client: Holdfast, seconds: float, watchers: int) -> Streamed:
    """Run one streamed call under so many watchers; checks that every watcher saw the whole answer."""
    execution_id = await client.start(SPEAKER, f"tick for {seconds} s")
    seen = await asyncio.gather(*(_watched(client, execution_id) for _ in range(watchers)))
    state = await client.result(execution_id)
    if state.status is not ExecutionStatus.COMPLETED or any(text != state.final_response for text, _, _ in seen):
        raise AssertionError(f"the run ended {state.status}, or a watcher saw something else than the answer")
    history = await client.temporal.get_workflow_handle(execution_id).fetch_history()
    call = _call(history.events)
    delays = [delay for _, several, _ in seen for delay in several] or [0.0]
    return Streamed(
        watchers=watchers,
        events=len(history.events),
        bytes=sum(event.ByteSize() for event in history.events),
        call_events=len(call),
        call_bytes=sum(event.ByteSize() for event in call),
        answer_chars=len(state.final_response),
        deltas=sum(number for _, _, number in seen),
        p50_seconds=quantile(delays, 0.5),
        p99_seconds=quantile(delays, 0.99),
        max_seconds=max(delays),
    )


def _call(events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
    """Return what is there from the beginning of the model call to the workflow task that has taken its answer."""
    first = next(n for n, each in enumerate(events) if each.HasField("activity_task_scheduled_event_attributes"))
    last = max(n for n, each in enumerate(events) if each.HasField("workflow_task_completed_event_attributes"))
    return events[first : last + 1]


async def _watched(client: Holdfast, execution_id: str) -> tuple[str, list[float], int]:
    """Return the text a watcher put together, the delay of each of its pieces, and the number of deltas."""
    text, delays, deltas = "", list[float](), 0
    async for event in client.watch(execution_id):
        if isinstance(event, TextDelta):
            now = time.monotonic()
            deltas += 1
            text += event.text
            delays += [now - float(sent) for sent in TICK.findall(text[len(text) - len(event.text) :])]
    return text, delays, deltas


async def run(seconds: float, watchers: Sequence[int]) -> list[Streamed]:
    """Measure every number of watchers, one after the other."""
    with (
        TemporaryDirectory(prefix="holdfast-bench-") as folder,
        EmbeddedServer.start(Path(folder) / "data", port=0, ui_port=0) as server,
    ):
        settings = Settings(address=server.address.address, task_queue=fresh_id(), data_dir=Path(folder) / "data")
        async with Endpoint() as endpoint:
            client = await Holdfast.connect(settings)
            model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="bench", model="scripted"))
            async with make_worker(await connect(settings), settings, Toolset(), model):
                results = [await streamed(client, seconds, number) for number in watchers]
            await model.close()
    return results


def show(results: Sequence[Streamed], seconds: float) -> None:
    """Print what each stream cost."""
    rows = [
        (
            str(each.watchers),
            f"{each.call_events} / {each.events}",
            f"{each.call_bytes:,} / {each.bytes:,}",
            f"{each.answer_chars:,}",
            f"{each.deltas:,}",
            *(f"{1_000 * each_s:.0f}" if each.watchers else "" for each_s in _delays(each)),
        )
        for each in results
    ]
    columns = (
        "watchers",
        "events: call / run",
        "bytes: call / run",
        "answer chars",
        "deltas",
        "p50 ms",
        "p99 ms",
        "max ms",
    )
    show_table(f"An answer streamed for {seconds:g} s", columns, rows)


def _delays(each: Streamed) -> tuple[float, float, float]:
    return each.p50_seconds, each.p99_seconds, each.max_seconds


def goals(results: Sequence[Streamed]) -> list[Goal]:
    """Judge the largest history."""
    events, size = max(each.call_events for each in results), max(each.call_bytes for each in results)
    alike = len({each.events for each in results}) == 1
    return [
        Goal(f"the call: <= {EVENTS_MAX} events, whatever the watchers", str(events), events <= EVENTS_MAX),
        Goal(f"the call: <= {BYTES_MAX:,} bytes", f"{size:,}", size <= BYTES_MAX),
        Goal("as many events with watchers as without", "yes" if alike else "no", alike),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="bench.stream", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of the answer (default {SECONDS:g})")
    parser.add_argument("--watchers", type=int, nargs="+", default=list(WATCHERS), metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    options = parser.parse_args(arguments)
    results = perform(run(options.seconds, options.watchers), BENCH_SECONDS_MAX)
    show(results, options.seconds)
    judged = goals(results)
    show_goals(judged)
    hand_over({"seconds": options.seconds, "streams": [asdict(each) for each in results]}, judged, options.json)
    return 0


if __name__ == "__main__":
    leave(main())
