"""What tools share on a worker: opened once before it serves, hidden from models, closed at its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import worker
from holdfast import AgentDefinition, Changes, HookContext, hook, resource, tool
from holdfast.client import Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput
from holdfast.local import LocalDriver
from holdfast.runtime.open_resources import ResourceFailed
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, calls, say
from holdfast.testing.scripted_model import ScriptedModel
from tests.chaos.processes import worker as worker_process
from tests.serving import Serve

ROOT = Path(__file__).resolve().parents[2]


class Pool:
    """Bound to the loop that made it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.asked = 0


def pooled(notes: list[str]) -> Toolset:
    @resource
    async def database() -> AsyncIterator[Pool]:
        notes.append("opened")
        pool = Pool()
        yield pool
        notes.append(f"closed after {pool.asked}")

    @tool
    async def find_order(order: str, db: Pool) -> str:
        """Find an order."""
        async with db.lock:
            db.asked += 1
            await asyncio.sleep(0)
        return f"order {order}"

    @tool(local=True, idempotent=True)
    async def count(db: Pool) -> str:
        """Count what was asked."""
        return "none" if not db.asked else "some"

    return Toolset(tools=(find_order, count), resources=(database,))


@pytest.mark.temporal
async def test_a_worker_opens_a_resource_once_for_all_its_tools_and_closes_it_at_its_end(serve: Serve) -> None:
    notes: list[str] = []
    asks = [calls(*(Call("find_order", {"order": str(number)}) for number in range(5))), calls(Call("count", {}))]
    async with serve([*asks, say("done")], offer=pooled(notes)) as served:
        agent = AgentDefinition(name="clerk", tools="all")
        state = await served.client.result(await served.client.start(agent, "where?"))
        assert notes == ["opened"]
        offered = {each["function"]["name"]: each["function"] for each in served.endpoint.requests[0].body["tools"]}
    assert [each.text for each in state.messages if each.role == "tool"] == [*(f"order {n}" for n in range(5)), "some"]
    assert list(offered["find_order"]["parameters"]["properties"]) == ["order"]
    assert "db" not in json.dumps(offered)
    assert notes == ["opened", "closed after 5"]


@pytest.mark.temporal
async def test_hooks_get_the_same_resource_as_tools_on_its_own_loop(serve: Serve) -> None:
    notes: list[str] = []
    shared = pooled(notes)

    @hook("before_inference")
    async def count_question(context: HookContext, db: Pool) -> Changes:
        async with db.lock:
            db.asked += 1
        return Changes(metadata={f"asked_{context.step_number}": db.asked})

    @hook("after_step")
    def look(_: HookContext, *, db: Pool) -> Changes:
        return Changes(metadata={"sync": db.asked > 0})

    offer = Toolset(shared.tools, (count_question, look), resources=shared.resources)
    script = [calls(Call("find_order", {"order": "7"})), say("done")]
    agent = AgentDefinition(name="clerk", tools="all", hooks="all")
    async with serve(script, offer=offer) as served:
        there = (await served.client.run(agent, "where?")).state
    assert notes == ["opened", "closed after 3"], "two questions of the hook and one of the tool"
    driver = LocalDriver(
        agent, model=ScriptedModel(script), tools=offer.tools, hooks=offer.hooks, resources=offer.resources
    )
    here = await driver.execute("where?")
    assert {**there.metadata} == {**here.metadata}
    assert [there.metadata[name] for name in ("asked_1", "asked_2", "sync")] == [1, 3, True]


@pytest.mark.temporal
async def test_a_hook_whose_resource_is_not_offered_keeps_a_worker_from_being_made(serve: Serve) -> None:
    @hook("before_step")
    def look(_: HookContext, db: Pool) -> None:
        del db

    with pytest.raises(InvalidInput, match=r"hook 'look': the parameter 'db' has the type Pool, .* no @resource"):
        async with serve([say("no")], offer=Toolset(hooks=(look,))):
            pass


@pytest.mark.temporal
async def test_a_worker_whose_resource_does_not_open_does_not_serve(serve: Serve) -> None:
    @resource
    async def database() -> AsyncIterator[Pool]:
        raise ConnectionError("no route to the database")
        yield Pool()

    @tool
    async def find_order(db: Pool) -> str:
        """Find an order."""
        return str(db)

    with pytest.raises(ResourceFailed, match="the resource 'database' could not be opened: ConnectionError: no route"):
        async with serve([say("done")], offer=Toolset(tools=(find_order,), resources=(database,))):
            raise AssertionError("it serves")


MODULE = """
from collections.abc import AsyncIterator
from holdfast import resource, tool

class Pool: ...
class Other: ...

{resource}
@tool
async def find_order(order: str, db: Pool) -> str:
    "Find an order."
    return order
"""

FAILING = """
@resource
async def database() -> AsyncIterator[Pool]:
    raise ConnectionError("no route to the database")
    yield Pool()
"""


@pytest.mark.slow
@pytest.mark.temporal
async def test_the_worker_program_ends_with_the_name_of_what_does_not_open(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_tools.py").write_text(MODULE.format(resource=FAILING))
    monkeypatch.chdir(tmp_path)
    mine = replace(settings, modules=("failing_tools",))
    with pytest.raises(ResourceFailed, match="'database' could not be opened"):
        await worker.serve(mine, WorkerSettings(), worker.ServeOptions())


CLOSING = """
import asyncio
from pathlib import Path

@resource
async def database() -> AsyncIterator[Pool]:
    Path({opened!r}).touch()
    yield Pool()
    await asyncio.sleep(3)
    Path({closed!r}).touch()
"""


@pytest.mark.slow
@pytest.mark.temporal
async def test_a_worker_that_is_told_to_end_lets_its_resources_close(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than calls may that refuse to end."""
    opened, closed = tmp_path / "opened", tmp_path / "closed"
    source = CLOSING.format(opened=str(opened), closed=str(closed))
    (tmp_path / "closing_tools.py").write_text(MODULE.format(resource=source))
    monkeypatch.chdir(tmp_path)
    async with FakeOpenAI([say("done")]) as endpoint:
        environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "HOLDFAST_GRACE_SECONDS": "0.1"}
        modules = ("closing_tools",)
        async with worker_process(settings, endpoint, tmp_path / "ledger", environment, modules) as process:
            assert opened.exists()
            os.kill(process.pid, signal.SIGTERM)
            assert await asyncio.to_thread(process.ended_within, 60) == 0
    assert closed.exists()


def test_a_tool_without_its_resource_is_named_as_the_worker_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking_tools.py").write_text(MODULE.format(resource=""))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="tool 'find_order': the parameter 'db' has the type Pool"):
        worker.load_toolset(["lacking_tools"])
