"""What Temporal's own list shows of runs and sessions, and workflows started by hand under ids of the other kind."""

from __future__ import annotations

from uuid import uuid4

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from holdfast import AgentDefinition
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.session.session_state import SessionInput
from holdfast.core.wire.contracts import ExecutionInput
from holdfast.core.wire.session_contracts import AGENT_SESSION, SessionSettings
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.script import call, say
from tests.serving import Serve
from tests.workflows.histories import replayed

pytestmark = pytest.mark.temporal

CLERK = AgentDefinition(name="clerk", tools=())
HELPER = AgentDefinition(name="helper", tools=())
LEAD = AgentDefinition(name="lead", tools=(), subagents=("helper",))


async def test_the_servers_list_names_the_agent_of_each_run_and_session(serve: Serve) -> None:
    async with serve([call("spawn", agent="helper", task="look"), say("found"), say("done")]) as served:
        client = served.client
        root = await client.start(LEAD, "go", subagents=[HELPER])
        await client.result(root)
        child = named_id(root, call_name(1, 0))
        types = [(await client.temporal.get_workflow_handle(each).describe()).workflow_type for each in (root, child)]
        await replayed(client, root)
    assert types == ["AgentExecution:lead", "AgentExecution:helper"]


async def test_a_session_and_its_executions_are_named_as_well(serve: Serve) -> None:
    async with serve([say("hello")]) as served:
        agent = served.client.agent(definition=CLERK)
        state = await agent.ask("hi")
        described = [
            await served.client.temporal.get_workflow_handle(each).describe()
            for each in (session_workflow_id(agent.agent_id), state.execution_id)
        ]
    assert [each.workflow_type for each in described] == ["AgentSession:clerk", "AgentExecution:clerk"]
    assert described[1].parent_id == f"session-{agent.agent_id}"


async def test_a_session_under_a_runs_id_is_refused(serve: Serve) -> None:
    """One agent would have two sessions."""
    start = SessionInput(definition=CLERK, settings=SessionSettings())
    async with serve([]) as served:
        queue, id_ = served.client.settings.task_queue, str(uuid4())
        with pytest.raises(WorkflowFailureError) as failed:
            await served.client.temporal.execute_workflow(AGENT_SESSION, start, id=id_, task_queue=queue)
    assert isinstance(failed.value.cause, ApplicationError)
    assert f"session-{id_}" in failed.value.cause.message


async def test_a_run_under_a_sessions_id_is_refused(serve: Serve) -> None:
    start = ExecutionInput(agent_id=str(uuid4()), definition=CLERK, question="?", budget=ExecutionBudget())
    async with serve([]) as served:
        queue, id_ = served.client.settings.task_queue, session_workflow_id(str(uuid4()))
        with pytest.raises(WorkflowFailureError) as failed:
            await served.client.temporal.execute_workflow("AgentExecution:clerk", start, id=id_, task_queue=queue)
    assert "UUID" in str(failed.value.cause)
