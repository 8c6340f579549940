"""One trial: a scene is run, struck once its histories have so many events, and judged when it has ended."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.core.agent.state import AgentState
from holdfast.core.wire.execution_events import AnyObserved, Observed
from tests.chaos.certificate.baseline import Baseline
from tests.chaos.certificate.checks import Seen, delivered_ends, problems
from tests.chaos.certificate.live_run import LiveRun, persistently
from tests.chaos.certificate.scene import Scene
from tests.chaos.certificate.stage import STUCK_SECONDS, Fault, Guest, Stage

DELIVERED_SECONDS_MAX: Final = 90.0
LINES_SHOWN: Final = 12
FRAMES_SHOWN: Final = 12
LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial. `hits` are how many events its histories had when faults met it as it ran."""

    scene: str
    fault: Fault | None
    aims: tuple[int, ...]
    """At how many events it was to be struck."""
    hits: tuple[int, ...]
    late: int
    """Strikes that came before its first event, or after its end: they show nothing."""
    events: int
    """How many events its histories had in the end."""
    unknown: int
    """Calls of at-most-once tools whose outcome is unknown: the fault met them."""
    problems: tuple[str, ...]
    seconds: float


async def trial(
    stage: Stage, scene: Scene, baseline: Baseline, fault: Fault | None = None, aims: Sequence[int] = ()
) -> Outcome:
    """Run the scene, strike it whenever its histories have so many events as `aims` has, and judge it."""
    began = time.monotonic()
    place = stage.guest_folder(scene.name)
    run = LiveRun(scene, stage.client, place, proxied=fault == "partition")
    limit = asyncio.timeout(STUCK_SECONDS)
    guest = Guest(run, limit)
    wrong: list[str] = []
    seen: Seen | None = None
    closed_at = 0.0
    try:
        async with limit, run:
            stage.guests.append(guest)
            try:
                states = await _ended(stage, guest, fault, aims)
                closed_at = await _closed_at(run, states)
            finally:
                guest.over = True
            seen = await _seen(guest, baseline, states)
    except TimeoutError as error:
        events = run.histories.progress.events
        wrong.append(
            f"stuck: not over after {STUCK_SECONDS:g} s, at {events} events ({_place(error.__cause__ or error)})"
        )
    except Exception as error:  # noqa: BLE001  # whatever it is, the others go on
        wrong.append(f"{type(error).__name__}: {error} ({_place(error)})")
    finally:
        stage.leave(guest)
    wrong += problems(seen) if seen else []
    if wrong and stage.keep is not None:
        await asyncio.to_thread(run.histories.write, stage.keep, f"{fault}-{place.name}")
    if wrong:
        wrong += [f"  a worker said: {line}" for line in _telling(run.said)[-LINES_SHOWN:]]
    under_way = (each for each in guest.strikes if each.progress.events and (not closed_at or each.at < closed_at))
    hits = tuple(each.progress.events for each in under_way)
    return Outcome(
        scene=scene.name,
        fault=fault,
        aims=tuple(aims),
        hits=hits,
        late=len(guest.strikes) - len(hits),
        events=run.histories.progress.events,
        unknown=_unknown(seen),
        problems=tuple(wrong),
        seconds=time.monotonic() - began,
    )


async def _ended(stage: Stage, guest: Guest, fault: Fault | None, aims: Sequence[int]) -> tuple[AgentState, ...]:
    ending = guest.run.begin()
    ending.add_done_callback(lambda _: stage.leave(guest))
    striking = asyncio.create_task(_strikes(stage, guest, fault, aims))
    try:
        await asyncio.wait({ending, striking}, return_when=asyncio.FIRST_COMPLETED)
        if striking.done():
            striking.result()
        return await ending
    finally:
        for each in (ending, striking):
            each.cancel()
        await asyncio.gather(ending, striking, *guest.mending, return_exceptions=True)


async def _strikes(stage: Stage, guest: Guest, fault: Fault | None, aims: Sequence[int]) -> None:
    for aim in sorted(aims):
        await guest.run.histories.reach(aim)
        if guest.over:
            return
        if fault is not None and not stage.has_struck(guest.run.scene.name, fault, aim):
            await asyncio.shield(guest.mend(stage.strike(fault, guest)))


async def _closed_at(run: LiveRun, states: Sequence[AgentState]) -> float:
    """Return when the last execution was closed, by the server's clock, which is this machine's."""
    handle = run.client.temporal.get_workflow_handle(states[-1].running.execution_id)
    described = await persistently(handle.describe)
    assert described.close_time is not None
    return described.close_time.timestamp()


async def _seen(guest: Guest, baseline: Baseline, states: tuple[AgentState, ...]) -> Seen:
    """Collect what is seen of a run that has ended; all that it began has to end as well."""
    run = guest.run
    session_events: list[tuple[int, str]] = []
    if run.scene.session:
        agent = run.own_client.agent(run.agent_id)
        await persistently(agent.close)
        numbered = await persistently(agent.events)
        session_events = [(each.sequence, each.id.partition("/")[0]) for each in numbered]
    await run.watched_to_the_end()
    await run.histories.end()
    own = [state.running.execution_id for state in states]
    read_again = {each: await persistently(lambda each=each: _events(run, each)) for each in own}  # type: ignore[misc]
    if run.scene.sink:
        await _delivered(run, len(own))
    return Seen(
        scene=run.scene,
        baseline=baseline,
        states=states,
        strikes=tuple(guest.strikes),
        scheduled_calls=run.histories.scheduled_calls,
        stopped_early=run.histories.stopped_early,
        requests=run.endpoint.requests,
        clock_offset=time.time() - time.monotonic(),
        ledger=run.ledger,
        mcp_ledger=run.mcp_ledger,
        watched=run.events,
        read_again=read_again,
        session_events=session_events,
        sink_file=run.sink_file if run.scene.sink else None,
    )


async def _events(run: LiveRun, execution_id: str) -> list[AnyObserved]:
    watching = run.own_client.watch(execution_id, subagents=False)
    return [each async for each in watching if isinstance(each, Observed)]


async def _delivered(run: LiveRun, executions: int) -> None:
    """Wait until the sink has the ends of all executions."""
    async with asyncio.timeout(DELIVERED_SECONDS_MAX):
        while delivered_ends(run.sink_file) < executions:  # noqa: ASYNC110  # a file tells nobody that it has grown
            await asyncio.sleep(LOOK_SECONDS)


def _telling(lines: Sequence[str]) -> list[str]:
    """Return what workers said, but for what they always say, and for each retry while a server is away."""
    return [each for each in lines if "::retry:" not in each and not each.startswith(("worker ", "warning: "))]


def _unknown(seen: Seen | None) -> int:
    if seen is None:
        return 0
    every = (each for state in seen.states[-1:] for step in state.steps for each in step.tool_executions)
    return sum(each.error is not None and each.error.type == "OutcomeUnknown" for each in every)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_SHOWN:]
    return " > ".join(f"{each.filename.rpartition('/')[2]}:{each.lineno}" for each in frames)
