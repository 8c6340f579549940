"""Large payloads through the real server: the history holds digests, the storage holds the content."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext, StorageDriverStoreContext
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from holdfast.client import Settings
from holdfast.connection.temporal_client import connect
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import SEGMENT_BYTES_MIN, STORED_BYTES_MIN
from holdfast.core.base.errors import ObjectMissing, StorageFailed
from holdfast.core.conversation.messages import Message
from holdfast.core.wire.contracts import TranscriptPage
from holdfast.core.wire.transcript_digest import TranscriptPrefix
from holdfast.storage.data_converter import PayloadDriver, converter
from holdfast.storage.object_store import Objects
from tests.server_credentials import plain_client

TASK_TIMEOUT = timedelta(seconds=2)
"""How long a task waits for a worker that has gone."""

LARGE = 3 * 1024 * 1024
"""More than the server takes in one payload."""


@activity.defn
async def grow(text: str) -> str:
    return text + text[:1]


@workflow.defn(sandboxed=False)
class Carrier:
    """Carries large data through everything that can hold some."""

    @workflow.init
    def __init__(self, text: str, *segments: bytes) -> None:
        self._texts = [text]
        self._segments = segments
        self._go = False

    @workflow.run
    async def run(self, text: str, *segments: bytes) -> str:
        grown = await workflow.execute_activity(grow, text, start_to_close_timeout=timedelta(seconds=20))
        await workflow.wait_condition(lambda: self._go or bool(segments))
        if not segments:
            workflow.continue_as_new(args=[self._texts[-1], b"\x00" * LARGE, b"\x00" * LARGE, b"\x01" * LARGE])
        return f"{len(grown)} {self._texts[-1][:1]} {[len(segment) for segment in segments]}"

    @workflow.signal
    def told(self, text: str) -> None:
        self._texts.append(text)
        self._go = True

    @workflow.query
    def asked(self) -> str:
        return self._texts[-1]

    @workflow.query
    def page(self, messages: int) -> TranscriptPage:
        large = Message(role="user", content="p" * 250_000)
        return TranscriptPage(
            opening=TranscriptPrefix(definition=AgentDefinition(name="a"), tools=()),
            start=0,
            messages=(large,) * messages,
        )


async def carried(client: TemporalClient, queue: str, text: str = "a" * LARGE) -> WorkflowHandle[Carrier, str]:
    return await client.start_workflow(
        Carrier.run, args=[text], id=str(uuid4()), task_queue=queue, task_timeout=TASK_TIMEOUT
    )


def objects_in(settings: Settings) -> list[Path]:
    return files_in(Path(settings.storage_place.removeprefix("file://")))


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_start_signal_activity_query_and_continuing_carry_more_than_a_payload_may_hold(
    settings: Settings,
) -> None:
    client = await connect(settings)
    queue = settings.task_queue
    async with Worker(client, task_queue=queue, workflows=[Carrier], activities=[grow]):
        handle = await carried(client, queue)
        before = objects_in(settings)
        await handle.signal(Carrier.told, "b" * LARGE)
        assert await handle.query(Carrier.asked) == "b" * LARGE
        assert await handle.result() == f"{LARGE + 1} b [{LARGE}, {LARGE}, {LARGE}]"
    assert len(before) <= 2
    kept = {path.name for path in objects_in(settings)}
    assert len(kept) == 6, "two results of the activity, two texts, and two segments, of which the equal ones are one"
    for run_id in (handle.first_execution_run_id, None):
        history = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
        written = b"".join(event.SerializeToString() for event in history.events)
        assert len(written) < 16 * 1024, "the history holds digests"
        await Replayer(
            workflows=[Carrier], data_converter=client.data_converter, workflow_runner=UnsandboxedWorkflowRunner()
        ).replay_workflow(history)


@pytest.mark.parametrize(("messages", "kept"), [(7, 0), (9, 1)], ids=["under 2 MB", "over 2 MB"])
async def test_the_answer_of_a_query_is_kept_only_when_the_server_would_refuse_it(
    settings: Settings, messages: int, kept: int
) -> None:
    client = await connect(settings)
    queue = settings.task_queue
    async with Worker(client, task_queue=queue, workflows=[Carrier], activities=[grow]):
        handle = await carried(client, queue, "small")
        page = await handle.query(Carrier.page, messages)
        await handle.terminate()
    assert len(page.messages) == messages
    assert len(objects_in(settings)) == kept


async def test_a_client_or_worker_without_our_converter_says_so(settings: Settings) -> None:
    ours = await connect(settings)
    plain = await plain_client(ours.service_client.config.target_host, pydantic_data_converter)
    handle = await carried(ours, settings.task_queue)
    async with Worker(plain, task_queue=settings.task_queue, workflows=[Carrier], activities=[grow]):
        said = await failed_task(handle)
    assert "external storage is not configured" in said
    async with Worker(ours, task_queue=settings.task_queue, workflows=[Carrier], activities=[grow]):
        await handle.signal(Carrier.told, "b" * LARGE)
        with pytest.raises(RuntimeError, match="external storage is not configured"):
            await plain.get_workflow_handle(handle.id).query(Carrier.asked)
        assert await handle.result() is not None


@pytest.mark.slow
async def test_a_worker_with_another_folder_says_where_it_looked_and_the_run_waits_for_the_right_one(
    settings: Settings, tmp_path: Path
) -> None:
    ours = await connect(settings)
    elsewhere = await connect(replace(settings, storage=(tmp_path / "elsewhere").as_uri()))
    handle = await carried(ours, settings.task_queue)
    async with Worker(elsewhere, task_queue=settings.task_queue, workflows=[Carrier], activities=[grow]):
        said = await failed_task(handle)
    assert "elsewhere has no object payloads/" in said
    assert "HOLDFAST_STORAGE" in said
    async with Worker(ours, task_queue=settings.task_queue, workflows=[Carrier], activities=[grow]):
        await handle.signal(Carrier.told, "b" * LARGE)
        assert await handle.result() is not None


async def failed_task(handle: WorkflowHandle[Carrier, str]) -> str:
    """Return what the first failed task of the run says."""
    while True:
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_task_failed_event_attributes"):
                return event.workflow_task_failed_event_attributes.failure.message


async def test_changed_or_foreign_content_is_refused(tmp_path: Path) -> None:
    objects = Objects(tmp_path.as_uri())
    driver = PayloadDriver(objects)
    payload = Payload(metadata={"encoding": b"binary/plain"}, data=b"x" * STORED_BYTES_MIN)
    [claim] = await driver.store(StorageDriverStoreContext(), [payload])
    assert await driver.retrieve(StorageDriverRetrieveContext(), [claim]) == [payload]
    [path] = files_in(tmp_path)

    fresh = PayloadDriver(objects)
    for content in (b"", path.read_bytes()[:-1], b"y" * path.stat().st_size):
        path.write_bytes(content)
        with pytest.raises(StorageFailed, match="is damaged: its content has another digest"):
            await fresh.retrieve(StorageDriverRetrieveContext(), [claim])
    path.unlink()
    with pytest.raises(ObjectMissing, match="has no object payloads/"):
        await fresh.retrieve(StorageDriverRetrieveContext(), [claim])
    for odd in ("", "../../etc/passwd", "0" * 63):
        with pytest.raises(StorageFailed, match="is no digest"):
            await fresh.retrieve(StorageDriverRetrieveContext(), [StorageDriverClaim({"sha256": odd})])


async def test_a_payload_read_again_comes_from_memory(tmp_path: Path) -> None:
    driver = PayloadDriver(Objects(tmp_path.as_uri()))
    payload = Payload(data=b"x" * STORED_BYTES_MIN)
    [claim] = await driver.store(StorageDriverStoreContext(), [payload])
    for path in files_in(tmp_path):
        path.unlink()
    assert await driver.retrieve(StorageDriverRetrieveContext(), [claim]) == [payload]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("x" * (STORED_BYTES_MIN - 100), 0),
        ("x" * STORED_BYTES_MIN, 1),
        (b"x" * (SEGMENT_BYTES_MIN - 100), 0),
        (b"x" * SEGMENT_BYTES_MIN, 1),
    ],
    ids=["what fits a checked payload", "what does not", "too short for a segment", "a segment"],
)
async def test_what_is_kept_outside_the_history(value: str | bytes, kept: int, tmp_path: Path) -> None:
    await converter(tmp_path.as_uri(), None).encode([value])
    assert len(files_in(tmp_path)) == kept
