"""A worker or a server that dies while a session is looked up for its first message costs nothing but time."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.service import RPCError

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.client.agent_handle import AgentHandle
from holdfast.core.base.errors import AgentNotFound, ServerUnavailable
from holdfast.core.wire.session_contracts import FIND_SESSION_ACTIVITY
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, say
from tests.chaos.hung_storage import HUNG
from tests.chaos.processes import worker
from tests.chaos.sessions import PAUSE_SECONDS
from tests.chaos.test_server_lost import OwnServer
from tests.serving import Serve

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(150)]

FRIEND = AgentDefinition(name="friend", tools=())
SECONDS_MAX = 100


@pytest.fixture
def own(tmp_path: Path) -> Generator[OwnServer]:
    own = OwnServer(tmp_path / "server")
    yield own
    own.server.stop()


def echo(request: dict[str, Any]) -> Reply:
    return say(f"re {request['messages'][-1]['content']}")


async def until_looked_up(client: Holdfast, agent_id: str) -> None:
    """Return once a worker looks the session up."""
    handle = client.temporal.get_workflow_handle(session_workflow_id(agent_id))
    async with asyncio.timeout(90):
        while True:
            described = (await handle.describe()).raw_description
            if any(
                each.activity_type.name == FIND_SESSION_ACTIVITY
                and each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
                for each in described.pending_activities
            ):
                return
            await asyncio.sleep(PAUSE_SECONDS)  # nobody tells of an activity that begins


async def sent_again(agent: AgentHandle) -> str:
    """Send the message until it is acknowledged, and return what it is answered with."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                receipt = await agent.send("hello", message_id="first")
            except ServerUnavailable:
                continue
            return (await agent.answer(receipt)).final_response


@pytest.mark.slow
@pytest.mark.parametrize("dies", ["worker", "server"])
async def test_who_dies_while_a_session_is_looked_up_costs_its_first_message_nothing(
    settings: Settings, own: OwnServer, tmp_path: Path, dies: str
) -> None:
    here, ledger, agent_id = replace(settings, address=own.address), tmp_path / "ledger.jsonl", str(uuid4())
    async with FakeOpenAI(echo) as endpoint:
        client = await Holdfast.connect(here)
        agent = client.agent(agent_id, FRIEND)
        hung = tmp_path / "hung"
        hung.touch()
        modules = ["tests.chaos.tools", "tests.chaos.hung_storage"]
        async with worker(here, endpoint, ledger, {HUNG: str(hung)}, modules) as first:
            sending = asyncio.create_task(agent.send("hello", message_id="first"))
            await asyncio.sleep(0)
            await until_begun(client, agent_id)
            await until_looked_up(client, agent_id)
            first.kill()
            if dies == "server":
                await asyncio.to_thread(own.kill)
                await asyncio.to_thread(own.start_again)
        async with worker(here, endpoint, ledger):
            answer = await sent_again(client.agent(agent_id, FRIEND))
            await asyncio.gather(sending, return_exceptions=True)
            state = await client.agent(agent_id).state()
        assert len(endpoint.requests) == 1
    assert answer == "re hello"
    assert [each.text for each in state.messages] == ["hello", "re hello"]


async def until_begun(client: Holdfast, agent_id: str) -> None:
    """Return once the session is on the server."""
    async with asyncio.timeout(90):
        while True:
            with suppress(RPCError):
                await client.temporal.get_workflow_handle(session_workflow_id(agent_id)).describe()
                return
            await asyncio.sleep(PAUSE_SECONDS)  # nobody tells of it


async def test_a_refusal_does_not_outlive_its_cause(serve: Serve) -> None:
    async with serve(echo) as at_work:
        agent_id = str(uuid4())
        holdfast = at_work.client
        for _ in range(2):
            with pytest.raises(AgentNotFound):
                await holdfast.agent(agent_id).send("hello", message_id="first")
        for _ in range(2):
            assert await sent_again(holdfast.agent(agent_id, FRIEND)) == "re hello"
        assert len(at_work.endpoint.requests) == 1


async def until_it_failed(client: Holdfast, agent_id: str) -> None:
    """Return once an attempt to look the session up has failed."""
    handle = client.temporal.get_workflow_handle(session_workflow_id(agent_id))
    async with asyncio.timeout(90):
        while True:
            calls = (await handle.describe()).raw_description.pending_activities
            if any(each.HasField("last_failure") for each in calls):
                return
            await asyncio.sleep(PAUSE_SECONDS)  # nobody tells of it


@contextmanager
def unreadable(settings: Settings, agent_id: str) -> Generator[None]:
    """Have the store fail whoever looks that agent's session up, for the length of the block."""
    place = Path(settings.storage_place.removeprefix("file://")) / "sessions" / agent_id
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(place)  # a loop
    try:
        yield
    finally:
        place.unlink()


async def test_a_session_whose_store_is_away_is_there_once_the_store_is(serve: Serve, settings: Settings) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        with unreadable(settings, agent.agent_id):
            sending = asyncio.create_task(agent.send("hello", message_id="first"))
            await until_begun(at_work.client, agent.agent_id)
            await until_it_failed(at_work.client, agent.agent_id)
        answer = await sent_again(agent)
        await sending
        assert len(at_work.endpoint.requests) == 1
    assert answer == "re hello"
