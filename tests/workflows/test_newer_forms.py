"""A run or a session that a newer Holdfast has begun waits on an older worker, and goes on with one that reads it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from holdfast.client import Settings
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.base.stored_forms import RUN_INPUT, StoredForm
from holdfast.core.wire.session_contracts import AGENT_SESSION
from holdfast.core.wire.workflow_ids import session_workflow_id
from tests.sinks.delivering import worker_with
from workflows import continue_as_new

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

SECONDS_MAX = 120
ADDER = AgentDefinition(name="adder", tools="all", llm=LLM(model="adder"))


async def first_failure(handle: WorkflowHandle[Any, Any]) -> str:
    """Return why the first of its tasks has failed, once one has."""
    async with asyncio.timeout(SECONDS_MAX):
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_task_failed_event_attributes"):
                return event.workflow_task_failed_event_attributes.failure.message
    raise AssertionError("none has failed")


async def test_a_run_waits_for_a_worker_that_reads_its_input(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = StoredForm(RUN_INPUT.name, RUN_INPUT.version - 1)
    async with worker_with(settings) as client:
        with monkeypatch.context() as patch:
            patch.setattr(continue_as_new, "RUN_INPUT", older)
            execution_id = await client.start(ADDER, "Add.")
            handle = client.temporal.get_workflow_handle(execution_id)
            assert "the input of a run of format 1, and this Holdfast reads format 0" in await first_failure(handle)
            assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        async with asyncio.timeout(SECONDS_MAX):
            state = await client.result(execution_id)
        assert state.messages[-1].text == "done"


async def test_a_session_of_a_newer_holdfast_does_not_fail(settings: Settings) -> None:
    agent_id = str(uuid4())
    async with worker_with(settings) as client:
        handle = await client.temporal.start_workflow(
            AGENT_SESSION,
            {"format": 2, "what is new": "in it"},
            id=session_workflow_id(agent_id),
            task_queue=settings.task_queue,
        )
        assert "the input of a session of format 2, and this Holdfast reads format 1" in await first_failure(handle)
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        await handle.terminate()
