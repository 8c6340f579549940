"""Records every scenario and every rich run on a real server: `make histories`, a minute. Replays nothing.

Ids, names and task queues follow from the runs' names, so that two recordings have the same runs. What differs are
times and the order in which things that happen at once came to the server.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import user_message
from holdfast.core.wire.contracts import MESSAGE_SIGNAL
from holdfast.core.wire.session_contracts import (
    CHANGE_UPDATE,
    CLOSE_UPDATE,
    RESUME_UPDATE,
    REWIND_UPDATE,
    SUSPEND_UPDATE,
    Branch,
    SessionChange,
    SessionSettings,
)
from holdfast.runtime.process_exit import leave
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing.script import Reply, Scripts, call, say
from tests.replay.archive import UNRELEASED, Recorded, write
from tests.replay.collecting import recorded
from tests.replay.replaying import deviations, report
from tests.scenarios.driving import on_temporal
from tests.scenarios.expected import disappointments
from tests.scenarios.hooks import HOOKS
from tests.scenarios.scenario import CASES, load
from tests.scenarios.tools import Gate, tools_at
from tests.serving import Served, served
from tests.workflows.chats import Chat
from tests.workflows.rich import PLACES, RICH, Stage, start

AT_ONCE = 3
"""How many runs are recorded at the same time: few, so that none of the time limits strikes too early."""

ATTEMPTS_MAX = 3
RUN_SECONDS_MAX = 90
LARGE_STEPS = 12
LONG_CHARS = 20_000
"""So much is said that it is sealed into a part of a snapshot."""

REPEATS_MAX = 10
"""How many runs are made once more: those that live on fractions of a second can miss them on a busy machine."""


@dataclasses.dataclass(frozen=True, slots=True)
class Take:
    """One recording of the run `name`: where it happens and by which id. `ledger` is a file that nobody has written."""

    name: str
    execution_id: str
    settings: Settings
    ledger: Path

    def serve(self, script: Scripts, offer: Toolset) -> AbstractAsyncContextManager[Served]:
        """Run a worker for it."""
        return served(self.settings, self.ledger, script, offer)

    async def result(self, client: Holdfast) -> list[Recorded]:
        """Return what is kept of the run once it and its subagents have ended; their worker must still be there."""
        return await recorded(client.temporal, self.settings.storage_place, self.name, self.execution_id)


Run = Callable[[Take], Awaitable[list[Recorded]]]
"""What makes a run and returns its histories."""


def id_of(name: str) -> str:
    """Return the execution id of the run of that name: the same in every recording."""
    return str(uuid5(NAMESPACE_URL, f"holdfast/histories/{name}"))


def scenario_run(path: Path) -> Run:
    """Return what runs the scenario of the file, and raises where it does not end as it must."""

    async def run(take: Take) -> list[Recorded]:
        scenario, gate = load(path), Gate()
        async with take.serve(scenario.plays, Toolset(tools=tuple(tools_at(gate)), hooks=HOOKS)) as at_work:
            state = await on_temporal(scenario, at_work, gate, id_of(f"agent of {path.stem}"), take.execution_id)
            if found := disappointments(scenario.expect, state, at_work.endpoint.requests):
                raise AssertionError("\n".join(found))
            return await take.result(at_work.client)

    return run


def rich_run(place: str = "") -> Run:
    """Return what runs the rich run to its end, or to a stop at `place`."""

    async def run(take: Take) -> list[Recorded]:
        stage = Stage(place)
        async with take.serve(stage.play, stage.offer) as at_work:
            await start(at_work.client, take.execution_id)
            await stage.drive(at_work, take.execution_id)
            if place:
                await at_work.client.stop(take.execution_id, "enough")
            stage.hook.release()
            return await take.result(at_work.client)

    return run


def early_run(*, stopped: bool) -> Run:
    """Return what sends a message, and perhaps a stop, before there is a worker: both are in the run's first task."""

    async def run(take: Take) -> list[Recorded]:
        client = await Holdfast.connect(take.settings)
        lonely = replace(RICH, subagents=())
        await client.start(lonely, "do it", execution_id=take.execution_id, agent_id=take.execution_id)
        handle: Any = client.temporal.get_workflow_handle(take.execution_id)
        await handle.signal(MESSAGE_SIGNAL, user_message("an early word"))  # nobody is there who could take it
        if stopped:
            await client.stop(take.execution_id, "too early")
        async with take.serve([say("{}")], Stage().offer):
            return await take.result(client)

    return run


async def cancelled_run(take: Take) -> list[Recorded]:
    """Cancel a model call from outside, as the Web UI's button does."""
    async with take.serve([say("too late", delay_seconds=600)], Stage().offer) as at_work:
        await start(at_work.client, take.execution_id)
        await at_work.endpoint.until(lambda requests: len(requests) == 1)
        await at_work.client.temporal.get_workflow_handle(take.execution_id).cancel()
        return await take.result(at_work.client)


def continued(run: Run) -> Run:
    """Return what makes the same run, going on in a new run of its own after every step."""

    async def again(take: Take) -> list[Recorded]:
        return await run(dataclasses.replace(take, settings=dataclasses.replace(take.settings, continue_events=1)))

    return again


async def large_run(take: Take) -> list[Recorded]:
    """Have more said than a history holds: what is handed on to the next run is kept outside of it."""
    script = [*[call("echo", text="large", times=5_000)] * LARGE_STEPS, say("read")]
    async with take.serve(script, Toolset(tools=tuple(tools_at(Gate())))) as at_work:
        reader = AgentDefinition(name="reader", tools=("echo",))
        await at_work.client.start(reader, "read", execution_id=take.execution_id, agent_id=take.execution_id)
        found = await take.result(at_work.client)
        if not any(run.objects for run in found):
            raise AssertionError("everything was small enough for the history")
        return found


def session_run(*, continue_events: int) -> Run:
    """Return what talks with one agent: two at once, one of them changed, one back to the first, one idle."""

    async def run(take: Take) -> list[Recorded]:
        async with take.serve(_echo, Toolset(tools=tuple(tools_at(Gate())))) as at_work:
            definition = AgentDefinition(name="friend", tools=("echo",))
            settings = SessionSettings(continue_events=continue_events)
            chat = Chat(at_work.client, definition, settings, agent_id=take.execution_id)
            first = await chat.ask("one")
            waiting = [await chat.send("two"), await chat.send("three", policy="interrupt")]
            await chat.update(CHANGE_UPDATE, SessionChange(system_prompt="Be brief."))
            for each in waiting:
                await chat.answer(each)
            place = Branch(agent_id=chat.agent_id, execution_id=first.running.execution_id)
            await chat.update(REWIND_UPDATE, place)
            await chat.update(SUSPEND_UPDATE)
            last = await chat.send("x" * LONG_CHARS)
            await chat.update(RESUME_UPDATE)
            await chat.answer(last)
            await chat.ask("and now?")
            await chat.update(CLOSE_UPDATE)
            return await recorded(at_work.client.temporal, take.settings.storage_place, take.name, chat.handle.id)

    return run


def _echo(request: dict[str, Any]) -> Reply:
    """Call the tool once for each question, then answer."""
    last = request["messages"][-1]
    return say("done") if last["role"] == "tool" else call("echo", text="again")


def runs() -> dict[str, Run]:
    """Return every run that is recorded, by its name."""
    scenarios = {path.stem: scenario_run(path) for path in sorted(CASES.glob("*.yaml"))}
    stops = {f"rich, stopped at {place}": rich_run(place) for place in PLACES if place != "start"}
    early = {"early message": early_run(stopped=False), "early stop": early_run(stopped=True)}
    chains = {
        "rich, continued": continued(rich_run()),
        "rich, continued, stopped at re-ask": continued(rich_run("re-ask")),
        "several_steps, continued": continued(scenario_run(CASES / "several_steps.yaml")),
        "large, continued": continued(large_run),
    }
    chains |= {"session": session_run(continue_events=2_000), "session, continued": session_run(continue_events=1)}
    return scenarios | {"rich": rich_run()} | stops | early | {"cancelled": cancelled_run} | chains


async def record(names: Sequence[str] = ()) -> list[Recorded]:
    """Return the recorded runs of those names, of all without any."""
    chosen = {name: run for name, run in runs().items() if not names or name in names}
    with (
        TemporaryDirectory(prefix="holdfast-histories-") as folder,
        EmbeddedServer.start(Path(folder) / "data", port=0, ui_port=0) as server,
    ):
        studio = Studio(server.address.address, Path(folder))
        takes = [asyncio.create_task(studio.recorded(name, run)) for name, run in chosen.items()]
        ends = await asyncio.gather(*takes, return_exceptions=True)
    if failed := [str(end) for end in ends if isinstance(end, BaseException)]:
        raise SystemExit("\n".join(["nothing is written, because not every run ends as it must:", *failed]))
    return [each for take in takes for each in take.result()]


class Studio:
    """A server on which runs are recorded, a few at once."""

    def __init__(self, address: str, folder: Path) -> None:
        self._address = address
        self._folder = folder
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._repeats_left = REPEATS_MAX

    async def recorded(self, name: str, run: Run, attempt: int = 1) -> list[Recorded]:
        """Record one run; another attempt is another execution, because an id can be used once."""
        execution_id = id_of(name if attempt == 1 else f"{name}, attempt {attempt}")
        settings = Settings(address=self._address, task_queue=f"{name}, {attempt}", data_dir=self._folder / "data")
        try:
            async with self._at_once, asyncio.timeout(RUN_SECONDS_MAX):
                return await run(Take(name, execution_id, settings, self._folder / f"{execution_id}.jsonl"))
        except (AssertionError, TimeoutError, ServerUnavailable) as error:
            if attempt == ATTEMPTS_MAX or not self._repeats_left:
                raise RuntimeError(f"{name}: {type(error).__name__}: {error}") from error
            self._repeats_left -= 1
            sys.stderr.write(f"{name}: once more ({type(error).__name__}: {error})\n")
        return await self.recorded(name, run, attempt + 1)


def main() -> int:
    """Record everything, replay it once, and write it down."""
    logging.disable()  # what fails in a scenario is meant to
    found = asyncio.run(record())
    if astray := asyncio.run(deviations(found)):
        sys.stderr.write(f"nothing is written: what was just recorded does not replay\n{report(astray)}\n")
        return 1
    write(UNRELEASED, found)
    size = UNRELEASED.stat().st_size
    sys.stdout.write(f"{UNRELEASED.name}: {len(found)} runs, {size / 1000:,.0f} KB\n")
    return 0


if __name__ == "__main__":
    leave(main())
