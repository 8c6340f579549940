"""A production server's workers whose storage is a bucket: what they keep there, and what a collection leaves of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.storage.fetch_result_tool import ResultStore
from holdfast.storage.object_store import Objects
from holdfast.storage.parts import EncodedParts
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, call, say
from tests.chaos.processes import worker
from tests.cli.program import Project, beside
from tests.cluster.bucket import Bucket, bucket
from tests.cluster.cluster import Cluster
from tests.cluster.log_tools import LOG_CHARS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

READER: Final = AgentDefinition(name="reader", tools=("read_log",))
DOOMED: Final = "doomed"
LARGE_BYTES: Final = 600_000
"""More than a history holds itself."""

LONG: Final = "a long story " * 2_000
"""Enough to be sealed as a part."""

OBJECTS_MAX: Final = 1_000
SECONDS_MAX: Final = 120.0
PAUSE_SECONDS: Final = 0.2
MODULES: Final = ("tests.cluster.log_tools",)


def reading(request: dict[str, Any]) -> Reply:
    """Read the log that a message names, then answer; never where the message says that it is doomed."""
    messages = request["messages"]
    said = [str(each["content"]) for each in messages if each["role"] == "user"]
    if messages[-1]["role"] == "user" and len(said) == 1:
        return call("read_log", name=said[0][:40])
    return Reply(text="", hang=True) if hung(messages) else say(f"message {len(said)}")


def hung(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the model does not answer: after the tool's result, where the message says that the run is doomed."""
    return messages[-1]["role"] == "tool" and DOOMED in str(messages)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Bucket]:
    """An empty bucket, which this process and those that it starts may use."""
    with bucket(tmp_path) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def project(running: Cluster, settings: Settings, store: Bucket, tmp_path: Path) -> Project:
    """A user's folder: a namespace of its own, and the bucket as its storage."""
    here = replace(settings, storage=store.url("agents"))
    own = {"TEMPORAL_NAMESPACE": f"bucket-{uuid4()}", "HOLDFAST_DATA_DIR": str(tmp_path / "data")}
    project = Project(tmp_path, {**beside(here), **store.environment, **own})
    assert project.run("setup", "--create-namespace", seconds_max=SECONDS_MAX).code == 0, running.address
    return project


async def doomed(client: Holdfast, endpoint: FakeOpenAI) -> str:
    """Begin a run that has a result and a payload in the store and never ends; delete it, and return its id."""
    execution_id = await client.start(READER, f"{DOOMED} {uuid4()}")
    await endpoint.until(lambda requests: any(hung(each.body["messages"]) for each in requests), SECONDS_MAX)
    handle = client.temporal.get_workflow_handle(execution_id)
    await handle.signal("large", os.urandom(LARGE_BYTES).hex())
    await handle.terminate("of no use")
    execution = WorkflowExecution(workflow_id=execution_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.temporal.namespace, workflow_execution=execution)
    await client.temporal.workflow_service.delete_workflow_execution(request)
    async with asyncio.timeout(SECONDS_MAX):
        while await exists(client, execution_id):  # noqa: ASYNC110  # the server has no event for it
            await asyncio.sleep(PAUSE_SECONDS)
    return execution_id


async def exists(client: Holdfast, execution_id: str) -> bool:
    try:
        await client.temporal.get_workflow_handle(execution_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


async def collected(project: Project, *options: str) -> dict[str, Any]:
    ended = await asyncio.to_thread(project.run, "storage", "gc", "--json", *options, seconds_max=SECONDS_MAX)
    assert ended.code == 0, ended
    document: dict[str, Any] = ended.document
    return document


async def check_whole(client: Holdfast, objects: Objects, execution_id: str) -> None:
    """Read a run's long result whole, by its record."""
    state = await client.recorded_state(await client.record(execution_id))
    [execution] = [each for step in state.step_executions for each in step.step.tool_executions]
    assert execution.reference is not None
    whole = await ResultStore(EncodedParts(objects)).whole(execution_id, execution.reference)
    assert len(whole) == LOG_CHARS


async def test_a_bucket_keeps_what_is_large_and_a_collection_deletes_what_a_deleted_run_left(
    settings: Settings, project: Project, store: Bucket, tmp_path: Path
) -> None:
    namespace = project.env["TEMPORAL_NAMESPACE"]
    here = replace(settings, storage=store.url("agents"), namespace=namespace)
    objects = Objects(here.storage_place)
    async with FakeOpenAI(reading) as endpoint:
        async with worker(here, endpoint, tmp_path / "ledger", modules=MODULES):
            client = await Holdfast.connect(here)
            kept = (await client.run(READER, "the first log")).execution_id
            friend = client.agent(definition=READER)
            assert (await friend.ask(f"the second log {LONG}")).output == "message 1"
            assert (await friend.ask(LONG)).output == "message 2"
            left = {each for each in await objects.names("", OBJECTS_MAX) if not each.startswith(("gc/", "probe"))}
            folders = {each.partition("/")[0] for each in left}
            assert folders >= {"results", "parts", "snapshots", "records", "agents", "namespaces"}
            gone_run = await doomed(client, endpoint)
            left_by_it = {*await objects.names("payloads", OBJECTS_MAX)} - left
            left_by_it |= {*await objects.names(f"results/{gone_run}", OBJECTS_MAX)}
            assert {each.partition("/")[0] for each in left_by_it} == {"payloads", "results"}
            assert (await collected(project))["trashed_names"] == [], "all of it is young"
        await asyncio.to_thread(store.age)
        there = {*await objects.names("", OBJECTS_MAX)}
        assert {*(await collected(project, "--dry-run"))["trashed_names"]} == left_by_it
        assert {*await objects.names("", OBJECTS_MAX)} == there, "a dry run changes nothing"
        assert {*(await collected(project))["trashed_names"]} == left_by_it
        assert {*await objects.names("trash", OBJECTS_MAX)} == {f"trash/{each}" for each in left_by_it}
        await asyncio.to_thread(store.age)
        assert {*(await collected(project))["deleted_names"]} == left_by_it
        assert not {*await objects.names("", OBJECTS_MAX)} & {*left_by_it, *(f"trash/{each}" for each in left_by_it)}

        async with worker(here, endpoint, tmp_path / "ledger", modules=MODULES):  # it remembers nothing
            client = await Holdfast.connect(here)
            assert (await client.agent(friend.agent_id).ask("and now?")).output == "message 3"
            await check_whole(client, objects, kept)
