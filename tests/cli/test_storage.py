"""`holdfast storage gc` on a real server: what still exists reads whole and goes on, what was deleted is gone."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, DescribeWorkflowExecutionRequest
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import Holdfast, Settings
from holdfast.storage.data_converter import records_of
from holdfast.storage.fetch_result_tool import ResultStore
from holdfast.storage.object_store import objects_at
from holdfast.storage.parts import EncodedParts
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, calls, say
from tests.cli.page import examples, keys
from tests.cli.program import Project, embedded_only

pytestmark = [pytest.mark.temporal, embedded_only, pytest.mark.timeout(600)]

PARTS = 3
"""So many long results has each run."""

LARGE_BYTES = 600_000
"""Random bytes beyond what a history holds itself."""

DAY = 24 * 3600
SECONDS_MAX = 90.0
PAUSE_SECONDS = 0.2

TOOLS = """
import random
import string

from holdfast import tool

@tool
def read_log(name: str, part: int) -> str:
    \"\"\"Read a part of a log.

    Args:
        name: the log
        part: the part
    \"\"\"
    return "".join(random.Random(f"{name} {part}").choices(string.ascii_letters, k=80_000))

@tool
def publish() -> str:
    \"\"\"Publish the log.\"\"\"
    return "published"
"""


def reader(request: dict[str, Any]) -> Reply:
    """Read the log that the first message names; publish it where the message says so; count later messages."""
    said = [str(each["content"]) for each in request["messages"] if each["role"] == "user"]
    results = [str(each["content"]) for each in request["messages"] if each["role"] == "tool"]
    if len(said) > 1:
        return say(f"message {len(said)}")
    if not results:
        name = said[0].split()[0]
        return calls(*(Call("read_log", {"name": name, "part": part}) for part in range(PARTS)))
    if "publish" in said[0] and len(results) == PARTS:
        return calls(Call("publish", {}))
    return say(f"read {len(results)}")


@pytest.fixture
def own(built: Path, tmp_path: Path) -> Generator[Project]:
    """A project with an encrypted store whose agent reads logs, and publishes one when somebody lets it."""
    with FakeOpenAI.in_thread({"reader": reader}) as endpoint:
        project = Project.at(tmp_path / "project", endpoint.base_url, built)
        (project.folder / "logs.py").write_text(TOOLS, encoding="utf-8")
        (project.folder / "agents" / "reader.md").write_text(
            "---\nllm: {model: reader}\ntools: [read_log, publish]\napprovals: [{tools: [publish]}]\n---\nYou read.\n",
            encoding="utf-8",
        )
        assert project.run("codec-key", "keys").code == 0
        yield project.where(HOLDFAST_ENCRYPTION_KEY_FILE=str(project.folder / "keys"))


def objects(store: Path, folder: str = "") -> set[str]:
    """The names of the objects below a folder of the store."""
    return {str(each.relative_to(store)) for each in (store / folder).rglob("*") if each.is_file()}


def age(store: Path, days: float) -> None:
    """Make all that can be collected, and the trash, older than they are."""
    for folder in ("payloads", "results", "attachments", "trash"):
        for each in (store / folder).rglob("*"):
            if each.is_file():
                before = time.time() - days * DAY
                os.utime(each, (before, before))


def collect(project: Project, *options: str) -> dict[str, Any]:
    ended = project.run("storage", "gc", "--json", *options, seconds_max=SECONDS_MAX)
    assert ended.code == 0, ended
    document: dict[str, Any] = ended.document
    return document


async def begin_and_delete(client: Holdfast, store: Path) -> str:
    """Begin a run that waits with results and a payload in the store; terminate and delete it; return its id."""
    execution_id = await client.start("reader", "doomed publish")
    await until_waiting(client, execution_id)
    assert objects(store, f"results/{execution_id}")
    handle = await refer_to_large(client, execution_id)
    await handle.terminate("of no use")
    execution = WorkflowExecution(workflow_id=execution_id)
    service, namespace = client.temporal.workflow_service, client.temporal.namespace
    await service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=namespace, workflow_execution=execution)
    )
    async with asyncio.timeout(SECONDS_MAX):
        while await is_there(client, execution):  # noqa: ASYNC110  # the server has no event for it
            await asyncio.sleep(PAUSE_SECONDS)
    return execution_id


async def refer_to_large(client: Holdfast, execution_id: str) -> WorkflowHandle[Any, Any]:
    """Have a run's history refer to a stored payload of its own, which is a signal that nobody knows."""
    handle = client.temporal.get_workflow_handle(execution_id)
    await handle.signal("large", os.urandom(LARGE_BYTES).hex())
    return handle


async def is_there(client: Holdfast, execution: WorkflowExecution) -> bool:
    request = DescribeWorkflowExecutionRequest(namespace=client.temporal.namespace, execution=execution)
    try:
        await client.temporal.workflow_service.describe_workflow_execution(request)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


async def until_waiting(client: Holdfast, execution_id: str) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await is_waiting(client, execution_id):  # noqa: ASYNC110  # as above
            await asyncio.sleep(PAUSE_SECONDS)


async def is_waiting(client: Holdfast, execution_id: str) -> bool:
    return execution_id in [each.execution_id for each in await client.waiting()]


@pytest.mark.slow
def test_a_collection_deletes_what_a_deleted_run_left_and_nothing_else(own: Project) -> None:
    store, agent_id = own.folder / "data" / "objects", str(uuid4())
    settings = Settings(
        data_dir=own.folder / "data",
        agents_dir=own.folder / "agents",
        encryption_key_file=own.folder / "keys",
    )
    (own.folder / "notes.txt").write_text("three notes\n", encoding="utf-8")
    with own.dev("--import", "logs"):
        client = asyncio.run(Holdfast.connect(settings))
        ended = own.run("run", "reader", "kept", "--json").document["execution_id"]
        assert own.run("send", agent_id, "talk", "--agent", "reader", "--attach", "notes.txt").code == 0
        before = objects(store, "payloads")
        doomed = asyncio.run(begin_and_delete(client, store))
        doomed_payloads = objects(store, "payloads") - before
        waiting = own.run("run", "reader", "open publish", "--detach").out.strip()
        asyncio.run(until_waiting(client, waiting))
        asyncio.run(refer_to_large(client, waiting))
        orphan = asyncio.run(records_of(client.temporal.data_converter).write_attachment(b"of nobody"))
        assert len(doomed_payloads) == 1
        assert collect(own)["trashed_names"] == [], "all of it is young"

        age(store, days=4)
        there = objects(store)
        gone = {*doomed_payloads, *objects(store, f"results/{doomed}"), f"attachments/{orphan[:2]}/{orphan}"}
        dry = collect(own, "--dry-run")
        [example] = examples("holdfast storage gc")
        assert (keys(dry), keys(dry["folders"]["results"])) == (keys(example), keys(example["folders"]["results"]))
        assert set(dry["trashed_names"]) == gone
        assert objects(store) == there, "a dry run changes nothing"
        assert set(collect(own)["trashed_names"]) == gone
        assert objects(store, "trash") == {f"trash/{each}" for each in gone}
        assert collect(own)["deleted_names"] == [], "they have been there for no time"
        age(store, days=8)
        assert set(collect(own)["deleted_names"]) == gone
        assert objects(store, "trash") == set()
        assert not objects(store) & gone

    with own.dev("--import", "logs") as dev:  # a new worker and server: nothing is remembered
        assert dev.pid
        for command in ("show", "export", "record"):
            told = own.run(command, ended, *(("--transcript",) if command == "record" else ()))
            assert (told.code, told.err) == (0, ""), command
        told = own.run("send", agent_id, "and now?")
        assert told.out == "message 2\n", told
        asyncio.run(read_whole(settings, ended))
        assert own.run("approve", waiting, "--yes").code == 0
        assert own.run("watch", waiting).code == 0
        state = own.run("show", waiting, "--json").document
        assert (state["status"], state["final_response"]) == ("completed", f"read {PARTS + 1}")
        assert own.run("show", doomed).code != 0


async def read_whole(settings: Settings, execution_id: str) -> None:
    """Read a run's results whole, from the store."""
    client = await Holdfast.connect(settings)
    codec = records_of(client.temporal.data_converter).codec
    results = ResultStore(EncodedParts(objects_at(settings.storage_place), codec))
    state = await client.recorded_state(await client.record(execution_id))
    executions = [each for step in state.step_executions for each in step.step.tool_executions]
    assert len(executions) == PARTS
    for each in executions:
        assert each.reference is not None
        assert len(await results.whole(execution_id, each.reference)) > len(each.result or "")
