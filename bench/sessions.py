"""What agents that live cost: turns, idle sessions, many senders, races, forks. `python -m bench.sessions`."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from aiohttp import ClientSession

from bench.report import Goal, hand_over, quantile, show_goals, show_table
from bench.runs import largest
from bench.stage import QUICK, Stage, WrongAnswer, perform, set_stage
from bench.talks import Talk, accepted, all_runs, bytes_in, resident_bytes, words
from holdfast.core.session.session_state import MESSAGE_ID
from holdfast.core.wire.session_contracts import Branch, WhileRunning
from holdfast.runtime.process_exit import leave

TURNS: Final = 2_000
TURN_BYTES: Final = 2_048
IDLE: Final = 1_000
SAMPLES: Final = 60
CACHED_FEW: Final = 10
SENDERS: Final = 20
ROUNDS: Final = 50
FORKED_BYTES: Final = 1_000_000
PIECE_BYTES: Final = 50_000
AT_ONCE: Final = 10
PARTS: Final = ("turns", "idle", "senders", "race", "fork")
LOOK_SECONDS: Final = 0.005
SEED: Final = 1

LINEAR_MAX: Final = 2.2
INPUT_BYTES_MAX: Final = 8_192
EVENTS_MAX: Final = 10_240
BYTES_MAX: Final = 10 * 1024 * 1024
"""Where Temporal warns."""
RESIDENT_BYTES_MAX: Final = 400 * 1024 * 1024
CACHED_SECONDS_MAX: Final = 1.0
EVICTED_SECONDS_MAX: Final = 2.0
FORK_BYTES_MAX: Final = 10_000
FORK_SECONDS_MAX: Final = 0.3
SECONDS_MAX: Final = 3_600.0

EPILOG: Final = """\
turns: one session, one message after another, half of each turn's bytes asked and half answered. "written" is all that
it left: the histories of its own runs and of its executions, and what was added to the store. Its model is shown the
last 20 messages.

idle: so many sessions that have answered one message each; then one at a time is sent another, and the time taken until
its first request reaches the endpoint. "evicted": a worker that keeps 10 runs in memory.

senders: messages of concurrent senders to one session, in the order of their acknowledgement and of the conversation.
race: two messages, the second at a random moment around the end of the first's execution; all must be said once.
fork: a conversation that another agent goes on from; the history it begins with, and the time until it is there.

JSON: {machine, turns: {...}, idle: {...}, senders: {...}, race: {...}, fork: {...}, goals: [{wanted, measured, met}]}.
"""


@dataclass(frozen=True, slots=True)
class Turns:
    """What a session had written when it had taken so many turns."""

    turns: int
    history_bytes: int
    store_bytes: int
    inputs: tuple[int, ...]
    """The bytes of the arguments of its first execution, of the one half-way, of the last."""
    events_largest: int
    bytes_largest: int
    seconds: float

    @property
    def written(self) -> int:
        """All of it."""
        return self.history_bytes + self.store_bytes


async def taken(stage: Stage, turns: int) -> tuple[Turns, Turns]:
    """Take turns; return what was written half-way and in the end."""
    talk, stored, began = Talk(stage), bytes_in(stage.objects), time.perf_counter()
    halves: list[Turns] = []
    for number in range(1, turns + 1):
        await talk.ask(words(TURN_BYTES // 2, number))
        if number in (turns // 2, turns):
            seconds = time.perf_counter() - began
            own, executions = await all_runs(stage.client.temporal, talk.agent_id)
            runs, inputs = [*own, *(run for run, _ in executions)], [size for _, size in executions]
            if len(executions) != number:
                raise WrongAnswer(f"{len(executions)} executions after {number} turns")
            events, size = largest(runs)
            history = sum(run.bytes for run in runs)
            chosen = (inputs[0], inputs[len(inputs) // 2], inputs[-1])
            stored_bytes = bytes_in(stage.objects) - stored
            halves.append(Turns(number, history, stored_bytes, chosen, events, size, seconds))
    return halves[0], halves[1]


@dataclass(frozen=True, slots=True)
class Woken:
    """The seconds from messages to the first requests that came of them, and what the worker took then."""

    sessions: int
    resident_bytes: int
    seconds: tuple[float, ...]


async def woken(stage: Stage, sessions: int, samples: int, starts_at_once: int) -> Woken:
    """Make sessions idle, then wake some of them, one at a time.

    A run that is put aside in its first task, for want of room in memory, waits 10 s until the task is given out again:
    no more of them are begun at once than the worker keeps.
    """
    talks = [Talk(stage) for _ in range(sessions)]
    at_once = asyncio.Semaphore(starts_at_once)

    async def begin(talk: Talk) -> None:
        async with at_once:
            await talk.ask(words(100, 0))

    await asyncio.gather(*(begin(talk) for talk in talks))
    resident = resident_bytes(stage.holdfast.worker_pid)
    rng = random.Random(SEED)  # noqa: S311  # no secret hangs on it
    took: list[float] = []
    async with ClientSession() as http:
        for talk in rng.sample(talks, min(samples, len(talks))):
            before = len(await _times(http, stage))
            sent_at = time.monotonic()
            receipt = await talk.send(words(100, 1))
            while len(times := await _times(http, stage)) == before:  # noqa: ASYNC110  # in another process
                await asyncio.sleep(LOOK_SECONDS)
            took.append(times[before] - sent_at)
            await talk.answered(receipt)
    return Woken(sessions, resident, tuple(took))


async def _times(http: ClientSession, stage: Stage) -> list[float]:
    async with http.get(stage.endpoint.removesuffix("/v1") + "/seen") as answer:
        seen: dict[str, list[float]] = await answer.json()
    return seen["times"]


async def _message_ids(stage: Stage, execution_id: str) -> list[str]:
    """Return the ids of the messages in the conversation as an execution has left it."""
    state = await stage.client.result(execution_id)
    return [str(each.metadata[MESSAGE_ID]) for each in state.messages if MESSAGE_ID in each.metadata]


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of messages of concurrent senders, and the seconds that acknowledging took."""

    senders: int
    acknowledged: int
    said: int
    in_order: bool
    seconds: tuple[float, ...]


async def sent(stage: Stage, senders: int) -> Sent:
    """Have senders say one thing each to one session, all at once."""
    talk = Talk(stage)
    took: list[float] = []

    async def send(number: int) -> str:
        began = time.perf_counter()
        receipt = await talk.send(words(100, number))
        took.append(time.perf_counter() - began)
        await talk.answered(receipt)
        return receipt.message_id

    ids = await asyncio.gather(*(send(number) for number in range(senders)))
    last = (await talk.view()).last_id
    message_ids = await _message_ids(stage, last) if last else []
    lost = set(ids) - set(message_ids)
    return Sent(
        senders,
        len(ids),
        senders - len(lost),
        message_ids == await accepted(stage.client.temporal, talk.agent_id),
        tuple(took),
    )


@dataclass(frozen=True, slots=True)
class Raced:
    """Rounds of two messages, of which the second raced the end of the first's execution."""

    rounds: int
    messages: int
    said_once: int
    found_it_ended: int
    """How many second messages came when the first's execution had ended."""


async def raced(stage: Stage, rounds: int) -> Raced:
    """Let messages race ends, one round after another."""
    rng = random.Random(SEED)  # noqa: S311  # no secret hangs on it
    once = ended = 0
    for number in range(rounds):
        talk, policies = Talk(stage), ("queue", "inject", "interrupt")
        policy: WhileRunning = policies[number % 3]  # type: ignore[assignment]  # one of them
        first = await talk.send(words(100, number))
        await asyncio.sleep(rng.uniform(0, 0.3))
        second = await talk.send(words(100, number), policy)
        ended += second.running_id is None
        executions = [await talk.answered(each) for each in (first, second)]
        conversations = [await _message_ids(stage, each) for each in executions]
        whole = max(conversations, key=len)
        once += sum(whole.count(each.message_id) == 1 for each in (first, second))
    return Raced(rounds, 2 * rounds, once, ended)


@dataclass(frozen=True, slots=True)
class Forked:
    """What forking a conversation wrote, and how long it took until the other agent was there."""

    conversation_bytes: int
    history_bytes: tuple[int, ...]
    seconds: tuple[float, ...]


async def forked(stage: Stage, size: int, forks: int = 5) -> Forked:
    """Fork an agent some times."""
    talk, execution_id = Talk(stage), ""
    for number in range(max(1, size // (2 * PIECE_BYTES))):
        execution_id = await talk.ask(words(PIECE_BYTES, number))
    state = await stage.client.result(execution_id)
    held = sum(len(message.text) for message in state.messages)
    written: list[int] = []
    took: list[float] = []
    for _ in range(forks):
        other = Talk(stage, forked_from=Branch(agent_id=talk.agent_id, execution_id=execution_id))
        began = time.perf_counter()
        view = await other.open()
        took.append(time.perf_counter() - began)
        if view.snapshot is None:
            raise WrongAnswer("the fork has no conversation")
        history = await other.handle.fetch_history()
        written.append(sum(event.ByteSize() for event in history.events))
        goes_on = await stage.client.result(await other.ask(words(100, 0)))
        if len(goes_on.messages) != len(state.messages) + 2:
            raise WrongAnswer(f"the fork has {len(goes_on.messages)} messages")
    return Forked(held, tuple(written), tuple(took))


def _milliseconds(seconds: Sequence[float]) -> tuple[str, ...]:
    return tuple(f"{1_000 * each:,.0f}" for each in (median(seconds), quantile(seconds, 0.95), max(seconds)))


def show_turns(turns: Sequence[Turns]) -> list[Goal]:
    """Print and judge what turns have written."""
    rows = [
        (
            f"{each.turns:,}",
            *(f"{size / 1e6:,.2f}" for size in (each.history_bytes, each.store_bytes, each.written)),
            ", ".join(f"{size:,}" for size in each.inputs),
            f"{each.events_largest:,}",
            f"{each.bytes_largest / 1e6:.2f}",
            f"{1_000 * each.seconds / each.turns:,.0f}",
        )
        for each in turns
    ]
    columns = ("turns", "history MB", "store MB", "written MB", "inputs", "largest: events", "MB", "ms per turn")
    show_table(f"{TURN_BYTES:,} bytes per turn", columns, rows)
    half, whole = turns
    ratio, longest = whole.written / half.written, max(whole.inputs)
    return [
        Goal(f"written: {whole.turns:,} / {half.turns:,} turns <= {LINEAR_MAX}", f"{ratio:.3f}", ratio <= LINEAR_MAX),
        Goal(f"an execution's input <= {INPUT_BYTES_MAX:,} bytes", f"{longest:,}", longest <= INPUT_BYTES_MAX),
        Goal(f"largest run <= {EVENTS_MAX:,} events", f"{whole.events_largest:,}", whole.events_largest <= EVENTS_MAX),
        Goal("largest run <= 10 MB", f"{whole.bytes_largest / 1e6:.2f}", whole.bytes_largest <= BYTES_MAX),
    ]


def show_idle(results: dict[str, Woken]) -> list[Goal]:
    """Print and judge how idle sessions wake."""
    rows = [
        (name, f"{each.sessions:,}", f"{each.resident_bytes / 2**20:,.0f}", *_milliseconds(each.seconds))
        for name, each in results.items()
    ]
    show_table("From a message to the first request (ms)", ("", "sessions", "worker MB", "p50", "p95", "max"), rows)
    judged: list[Goal] = []
    for name, seconds_max in (("cached", CACHED_SECONDS_MAX), ("evicted", EVICTED_SECONDS_MAX)):
        p95 = quantile(results[name].seconds, 0.95)
        judged.append(Goal(f"{name}: p95 <= {seconds_max:g} s", f"{p95:.3f}", p95 <= seconds_max))
    resident = results["cached"].resident_bytes
    megabytes = f"{resident / 2**20:,.0f}"
    return [*judged, Goal("worker with them all in memory <= 400 MB", megabytes, resident <= RESIDENT_BYTES_MAX)]


def show_sent(result: Sent) -> list[Goal]:
    """Print and judge concurrent senders."""
    columns = ("senders", "acknowledged", "said", "in order", "ack ms p50", "p95", "max")
    row = (result.senders, result.acknowledged, result.said, result.in_order)
    show_table("Senders at once", columns, [(*(str(each) for each in row), *_milliseconds(result.seconds))])
    whole = result.acknowledged == result.said == result.senders
    return [
        Goal("all acknowledged, none lost, in order", f"{result.said}, {result.in_order}", whole and result.in_order)
    ]


def show_raced(result: Raced) -> list[Goal]:
    """Print and judge the rounds."""
    row = (result.rounds, result.messages, result.said_once, result.found_it_ended)
    show_table("Messages that race ends", ("rounds", "messages", "said once", "came after"), [[str(e) for e in row]])
    return [Goal("each is said once", f"{result.said_once} of {result.messages}", result.said_once == result.messages)]


def show_forked(result: Forked) -> list[Goal]:
    """Print and judge forks."""
    columns = ("conversation MB", "history bytes", "ms p50", "p95", "max")
    row = (f"{result.conversation_bytes / 1e6:.2f}", f"{max(result.history_bytes):,}", *_milliseconds(result.seconds))
    show_table(f"{len(result.seconds)} forks", columns, [row])
    size, seconds = max(result.history_bytes), median(result.seconds)
    return [
        Goal(f"new history < {FORK_BYTES_MAX:,} bytes", f"{size:,}", size < FORK_BYTES_MAX),
        Goal(f"a fork takes < {FORK_SECONDS_MAX:g} s", f"{seconds:.3f}", seconds < FORK_SECONDS_MAX),
    ]


async def measure(options: argparse.Namespace) -> tuple[dict[str, Any], list[Goal]]:
    """Run everything that is asked for; tables are printed as they come."""
    chosen = options.only or PARTS
    figures: dict[str, Any] = {}
    judged: list[Goal] = []
    async with set_stage(QUICK) as stage:
        if "senders" in chosen:
            senders = await sent(stage, options.senders)
            figures["senders"], judged = asdict(senders), judged + show_sent(senders)
        if "race" in chosen:
            race = await raced(stage, options.rounds)
            figures["race"], judged = asdict(race), judged + show_raced(race)
        if "fork" in chosen:
            forks = await forked(stage, FORKED_BYTES)
            figures["fork"], judged = asdict(forks), judged + show_forked(forks)
        if "turns" in chosen:
            turns = await taken(stage, options.turns)
            figures["turns"], judged = [asdict(each) for each in turns], judged + show_turns(turns)
    if "idle" in chosen:
        results: dict[str, Woken] = {}
        for name, runs in (("cached", 2 * options.idle), ("evicted", CACHED_FEW)):
            async with set_stage(QUICK, environment={"HOLDFAST_CACHED_RUNS": str(runs)}) as stage:
                results[name] = await woken(stage, options.idle, options.samples, min(AT_ONCE, runs // 3))
        figures["idle"], judged = {name: asdict(each) for name, each in results.items()}, judged + show_idle(results)
    return figures, judged


def _arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.sessions", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS, nargs="+", default=[])
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of the one session (default: {TURNS:,})")
    parser.add_argument("--idle", type=int, default=IDLE, help=f"idle sessions (default: {IDLE:,})")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"of them that are woken (default: {SAMPLES})")
    parser.add_argument("--senders", type=int, default=SENDERS, help=f"at once (default: {SENDERS})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of messages racing ends (default: {ROUNDS})")
    parser.add_argument("--seconds-max", type=float, default=SECONDS_MAX, help=f"give up (default: {SECONDS_MAX:g})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    options = _arguments(arguments)
    figures, judged = perform(measure(options), options.seconds_max)
    show_goals(judged)
    hand_over(figures, judged, options.json)
    return 0


if __name__ == "__main__":
    leave(main())
