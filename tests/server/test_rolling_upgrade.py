"""Workers are upgraded under load, build by build: no run changes its build, none is lost, and each step goes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import VersioningBehavior
from temporalio.client import WorkflowHistory

from holdfast.client import AgentHandle, Holdfast, Settings
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.openai_server import FakeOpenAI
from tests.replay.replaying import replayer
from tests.server.builds import AGENT, Deploy, answering, worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(600)]

PATIENCE_SECONDS = 180
UNDER_WAY = 6
SESSIONS = 16
"""In a ramp at 50 %, chance puts all of so many on one build once in 30,000 times."""
RAMPED_MAX = 60
"""So many runs at most until both builds of a ramp at 50 % have had one: by chance alone, never so many."""


async def answer(client: Holdfast) -> str:
    return str((await client.run(AGENT, "build")).output)


async def said(client: Holdfast, execution_id: str) -> str:
    return (await client.result(execution_id)).final_response


async def once(client: Holdfast, build: str) -> None:
    """Wait until new runs begin on a build: the parts of a server may learn of it one after another."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (here := await answer(client)) != build:
        assert time.monotonic() < deadline, here


async def on(agent: AgentHandle[str], build: str) -> None:
    """Wait until a session answers on a build."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (here := (await agent.ask("build")).output) != build:
        assert time.monotonic() < deadline, here


@asynccontextmanager
async def load(client: Holdfast) -> AsyncGenerator[dict[str, str]]:
    """Ask all the time, two at once, and give each run's answer by its id: none is missing at the end."""
    answers, ending = dict[str, str](), asyncio.Event()

    async def asking() -> None:
        while not ending.is_set():
            id_ = await client.start(AGENT, "build build")
            answers[id_] = ""
            answers[id_] = await said(client, id_)

    tasks = [asyncio.create_task(asking()) for _ in range(2)]
    try:
        yield answers
    finally:
        ending.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*tasks)


async def first_history(client: Holdfast, agent: AgentHandle[str]) -> WorkflowHistory:
    """Return the history of a session's first Temporal run."""
    handle = client.temporal.get_workflow_handle(session_workflow_id(agent.agent_id))
    first = (await handle.describe()).raw_description.workflow_execution_info.first_run_id
    return await client.temporal.get_workflow_handle(handle.id, run_id=first).fetch_history()


@pytest.mark.slow
async def test_builds_are_promoted_ramped_rolled_back_and_drained_under_load(
    settings: Settings, tmp_path: Path
) -> None:
    deploy, gate = Deploy(settings, tmp_path), tmp_path / "open"
    async with FakeOpenAI(answering()) as endpoint, worker(settings, endpoint, "v1") as first:
        client = await Holdfast.connect(settings)
        waiting = await client.start(AGENT, "build")  # no build is current yet
        assert await deploy.done("promote", "v1") == {
            "deployment": settings.task_queue,
            "current": "v1",
            "before": None,
        }
        assert await said(client, waiting) == "v1"
        old = [await client.start(AGENT, f"gate:{gate} build") for _ in range(UNDER_WAY)]
        talking: AgentHandle[str] = client.agent(definition=AGENT)
        resting: AgentHandle[str] = client.agent(definition=AGENT)
        assert [(await each.ask("build")).output for each in (talking, resting)] == ["v1", "v1"]
        async with worker(settings, endpoint, "v2"), load(client) as answers:
            busy = await talking.send(f"gate:{gate} build")
            status = await deploy.builds()
            assert [status[build]["status"] for build in ("v1", "v2")] == ["current", "inactive"]
            assert [status[build]["workers"] for build in ("v1", "v2")] == [1, 1]
            async with asyncio.timeout(PATIENCE_SECONDS):  # the server lists what has changed a moment later
                while status["v1"]["runs"] < UNDER_WAY or status["v1"]["sessions"] != 2:
                    status = await deploy.builds()
            assert (await deploy.done("promote", "v2"))["before"] == "v1"
            await once(client, "v2")
            gate.touch()
            assert [await said(client, each) for each in old] == ["v1 v1"] * UNDER_WAY, "each on its own build"
            assert (await talking.answer(busy)).final_response == "v1 v1"
            await on(talking, "v2")
            await deploy.done("promote", "v1")  # the rollback
            await once(client, "v1")
            await on(talking, "v1")
            await deploy.done("ramp", "v2", "50")
            assert (await deploy.builds())["v2"]["percent"] == 50
            both = set[str]()
            for _ in range(RAMPED_MAX):
                both.add(await answer(client))
                if len(both) == 2:
                    break
            assert both == {"v1", "v2"}
            await deploy.done("promote", "v2")
            drained = await deploy.done("drain", "v1", "--timeout", str(PATIENCE_SECONDS))
            assert (drained["status"], drained["runs"], drained["sessions"]) == ("drained", 0, 0)
            await asyncio.to_thread(first.stop)
            assert [(await each.ask("build")).output for each in (talking, resting)] == ["v2", "v2"]
        assert len(answers) > UNDER_WAY
        assert set(answers.values()) <= {"v1 v1", "v2 v2"}, "none is lost, none changed its build"
        history = await first_history(client, resting)
    assert history.events[-1].HasField("workflow_execution_continued_as_new_event_attributes")
    await replayer(client.temporal.data_converter).replay_workflow(history)
    ends = [each for each in history.events if each.HasField("workflow_task_completed_event_attributes")]
    done = [each.workflow_task_completed_event_attributes for each in ends]
    assert {each.deployment_version.build_id for each in done} == {"v1"}
    assert {each.versioning_behavior for each in done} == {VersioningBehavior.VERSIONING_BEHAVIOR_PINNED}


@pytest.mark.slow
async def test_sessions_of_a_ramp_are_on_either_build_and_come_back_with_its_end(
    settings: Settings, tmp_path: Path
) -> None:
    deploy = Deploy(settings, tmp_path)

    async def builds(agents: list[AgentHandle[str]]) -> list[str]:
        return [str(result.output) for result in await asyncio.gather(*(each.ask("build") for each in agents))]

    async with FakeOpenAI(answering()) as endpoint, worker(settings, endpoint, "v1"):
        client = await Holdfast.connect(settings)
        await deploy.done("promote", "v1", "--allow-no-pollers")
        agents: list[AgentHandle[str]] = [client.agent(definition=AGENT) for _ in range(SESSIONS)]
        assert await builds(agents) == ["v1"] * SESSIONS
        async with worker(settings, endpoint, "v2"):
            await deploy.done("ramp", "v2", "50")
            seen: list[str] = []
            async with asyncio.timeout(PATIENCE_SECONDS):  # until both have some, and each stays where it is
                while len(set(seen)) < 2 or [await builds(agents), await builds(agents)] != [seen, seen]:
                    seen = await builds(agents)
            await deploy.done("ramp", "v2", "0")
            await asyncio.gather(*(on(each, "v1") for each in agents))
