"""Finding a run or a session by less than its id, on a real server; no worker is needed for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from uuid import uuid4

import pytest
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.client.id_lookup import CANDIDATES_MAX, FoundWorkflow, look_up
from holdfast.core.base.errors import ExecutionExists, ExecutionNotFound, InvalidInput
from holdfast.core.session.session_state import SessionInput
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION, SessionSettings
from holdfast.core.wire.workflow_ids import LAST, named_type, session_workflow_id

pytestmark = pytest.mark.temporal


@pytest.fixture
def clerk() -> AgentDefinition:
    """An agent of a name that no other test has."""
    return AgentDefinition(name=f"clerk_{uuid4().hex}", tools=())


@pytest.fixture
async def client(settings: Settings) -> AsyncGenerator[Holdfast]:
    """A client of a queue that nobody serves; what is put there is ended when the test is over."""
    client = await Holdfast.connect(settings)
    yield client
    ours = f"TaskQueue = '{client.settings.task_queue}' AND ExecutionStatus = 'Running'"
    async with asyncio.timeout(90):
        while left := [each.id async for each in client.temporal.list_workflows(ours)]:
            for each in left:
                with suppress(RPCError):  # the list can be late
                    await client.temporal.get_workflow_handle(each).terminate()


async def session_of(client: Holdfast, definition: AgentDefinition, agent_id: str) -> None:
    """Start a session that nobody serves."""
    await client.temporal.start_workflow(
        named_type(AGENT_SESSION, definition.name),
        SessionInput(definition=definition, settings=SessionSettings()),
        id=session_workflow_id(agent_id),
        task_queue=client.settings.task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )


async def test_the_beginning_of_an_id_is_enough_as_soon_as_the_run_has_started(
    client: Holdfast, clerk: AgentDefinition
) -> None:
    for length in (8, 12, 35):
        started = await client.start(clerk, "hi")
        assert await client.find_run(started[:length]) == started
        assert await client.find_run(started[:length].upper()) == started


async def test_every_method_takes_the_beginning_of_an_id(client: Holdfast, clerk: AgentDefinition) -> None:
    started = await client.start(clerk, "hi")
    assert await client.stop(started[:13])
    assert await client.find_run(started) == started, "a whole id is not looked for"


async def test_an_agents_name_means_its_latest_run(client: Holdfast, clerk: AgentDefinition) -> None:
    await client.start(clerk, "one")
    second = await client.start(clerk, "two")
    await client.temporal.get_workflow_handle(second).terminate()
    await until_it_means(client, clerk.name, second)
    third = await client.start(clerk, "three")
    await until_it_means(client, clerk.name, third)
    await until_it_means(client, LAST, third)


async def until_it_means(client: Holdfast, reference: str, execution_id: str) -> None:
    async with asyncio.timeout(60):
        while await client.find_run(reference) != execution_id:
            pass  # the list can be late


async def test_the_latest_run_is_the_one_that_began_last_whichever_ended_last(
    client: Holdfast, clerk: AgentDefinition
) -> None:
    first, second, third = [await client.start(clerk, text) for text in ("one", "two", "three")]
    for each in (third, first, second):
        await client.temporal.get_workflow_handle(each).terminate()
    await until_it_means(client, clerk.name, third)


async def test_what_can_mean_several_is_refused_with_what_it_can_mean(client: Holdfast, clerk: AgentDefinition) -> None:
    beginning = str(uuid4())[:30]
    ids = [f"{beginning}{number:06x}" for number in range(CANDIDATES_MAX + 2)]
    for each in ids:
        await client.start(clerk, "hi", execution_id=each)
    async with asyncio.timeout(90):
        while "and more" not in (text := await refusal_of(client, beginning)):
            pass  # the list can be late
    assert text.count(" is a run of agent ") == CANDIDATES_MAX
    assert f"is a run of agent '{clerk.name}'" in text
    assert await client.find_run(ids[0][:34] + ids[0][34:]) == ids[0]


async def refusal_of(client: Holdfast, reference: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        await client.find_run(reference)
    return caught.value.message


async def test_a_session_is_named_where_a_run_is_wanted_and_the_other_way_round(
    client: Holdfast, clerk: AgentDefinition
) -> None:
    agent_id, started = str(uuid4()), await client.start(clerk, "hi")
    await session_of(client, clerk, agent_id)
    holdfast = client
    assert await holdfast.find_session(agent_id[:9]) == agent_id
    assert await holdfast.find_session(f"session-{agent_id[:9]}") == agent_id
    assert await holdfast.find_session(clerk.name) == agent_id
    for given in (agent_id[:9], f"session-{agent_id}"):
        with pytest.raises(InvalidInput, match=r"is a session.*`holdfast session show"):
            await client.find_run(given)
    with pytest.raises(InvalidInput, match=f"{started} is a run of agent '{clerk.name}', not a session.*holdfast show"):
        await holdfast.find_session(started[:9])


async def test_a_whole_id_of_the_other_kind_is_named_where_it_is_looked_up(
    client: Holdfast, clerk: AgentDefinition
) -> None:
    agent_id, started = str(uuid4()), await client.start(clerk, "hi")
    await session_of(client, clerk, agent_id)
    temporal = client.temporal
    with pytest.raises(InvalidInput, match=f"{started} is a run of agent '{clerk.name}', not a session"):
        await look_up(temporal, started, "session")
    with pytest.raises(InvalidInput, match=f"{agent_id} is a session of agent '{clerk.name}', not a run"):
        await look_up(temporal, agent_id, "run")
    either = [await look_up(temporal, each, None) for each in (started, agent_id)]
    assert [each.kind for each in either if isinstance(each, FoundWorkflow)] == ["run", "session"]
    nobody = str(uuid4())
    assert await look_up(temporal, nobody, None) == nobody


async def test_what_is_there_of_neither_kind_is_not_found_in_our_words(client: Holdfast) -> None:
    with pytest.raises(ExecutionNotFound, match=r"no run has an id that begins with 'nobody_here'.*holdfast list"):
        await client.find_run("nobody_here")
    with pytest.raises(InvalidInput, match=r"'no body' is not an id of a run.*holdfast list"):
        await client.find_run("no body")


async def test_a_workflow_of_somebody_else_is_not_read(client: Holdfast) -> None:
    id_ = str(uuid4())
    await client.temporal.start_workflow("Order", id=id_, task_queue=client.settings.task_queue)
    with pytest.raises(InvalidInput, match="is a workflow of the type 'Order'"):
        await client.state(id_)
    with pytest.raises(InvalidInput, match="is a workflow of the type 'Order'"):
        await look_up(client.temporal, id_, None)


async def test_one_id_starts_one_run_whatever_the_agent_is_called(client: Holdfast, clerk: AgentDefinition) -> None:
    """A name in the id would make two of them: a webhook that comes again after its agent was renamed."""
    id_ = str(uuid4())
    renamed = AgentDefinition(name=f"{clerk.name}_2", tools=())

    async def started(definition: AgentDefinition) -> bool:
        try:
            return await client.start(definition, "hi", execution_id=id_) == id_
        except ExecutionExists:
            return False

    assert sum(await asyncio.gather(*(started(each) for each in (clerk, renamed) * 10))) == 1
    found = await client.temporal.get_workflow_handle(id_).describe()
    assert found.workflow_type in {named_type(AGENT_EXECUTION, each.name) for each in (clerk, renamed)}
