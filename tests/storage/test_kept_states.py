"""Conversations as arguments of workflows: the history holds a digest, what arrives is what the record store has."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import Client as TemporalClient
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast.client import Settings
from holdfast.connection.temporal_client import connect
from holdfast.core.base.bounds import ANSWER_INLINE_BYTES_MAX, SEGMENT_BYTES_MIN
from holdfast.core.base.errors import ObjectMissing, StorageFailed
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.contracts import PartPage
from holdfast.core.wire.records import SnapshotReference
from holdfast.storage.data_converter import PayloadDriver, converter, records_of
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from tests.storage.keeping import Flipped, Kept
from tests.storage.test_data_converter import files_in

RETRIEVE = StorageDriverRetrieveContext()


@workflow.defn(name="Holder", sandboxed=False)
class Holder:
    """Says how long the conversation is that it was given, and gives it to a child."""

    @workflow.run
    async def run(self, depth: int, *frames: bytes) -> list[int]:
        said = [len(SealedHistory().restored(each, agent_id=str(workflow.uuid4())).messages) for each in frames]
        return said if depth else await workflow.execute_child_workflow("Holder", args=[1, *map(passed, KEPT)])


KEPT: list[str] = []


def passed(digest: str) -> SnapshotReference:
    return SnapshotReference(snapshot=digest)


@pytest.mark.temporal
@pytest.mark.parametrize("codec", [None, Flipped()], ids=["in the clear", "with a codec"])
async def test_a_conversation_is_handed_to_a_child_as_its_digest(settings: Settings, codec: Flipped | None) -> None:
    plain = await connect(settings)
    config = plain.config()
    config["data_converter"] = converter(settings.storage_place, codec)
    client = TemporalClient(**config)
    agent = Kept(records_of(client.data_converter))
    await agent.turn("the canary question", "answer", "x" * 200_000, steps=2)
    await agent.turn("question", "answer", "x" * 200_000, steps=2)
    KEPT[:] = [agent.snapshot or ""] * 2
    folder = Path(settings.storage_place.removeprefix("file://"))
    before = files_in(folder)
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=settings.task_queue, workflows=[Holder], workflow_runner=runner):
        handle = await client.start_workflow(
            "Holder",
            args=[0, *map(passed, KEPT)],
            id=str(uuid4()),
            task_queue=settings.task_queue,
            execution_timeout=timedelta(seconds=30),
        )
        assert await handle.result() == [12, 12]
    history = await handle.fetch_history()
    assert sum(event.ByteSize() for event in history.events) < 8 * 1024
    assert files_in(folder) == before, "nothing was written for it"
    if codec is not None:
        assert all(b"canary" not in path.read_bytes() for path in before)


async def test_a_snapshot_that_is_gone_or_no_digest_is_told_of(tmp_path: Path) -> None:
    driver = PayloadDriver(Objects(tmp_path.as_uri()))
    with pytest.raises(ObjectMissing, match="has no object snapshots/"):
        await driver.retrieve(RETRIEVE, [StorageDriverClaim({"snapshot": "0" * 64})])
    for odd in ("../../etc/passwd", "0" * 63):
        with pytest.raises(StorageFailed, match="is no digest"):
            await driver.retrieve(RETRIEVE, [StorageDriverClaim({"snapshot": odd})])


async def test_whoever_reads_a_conversation_again_needs_nothing_of_the_store(tmp_path: Path) -> None:
    agent = Kept(Records(Objects(tmp_path.as_uri())))
    await agent.turn("question", "answer", "x" * 200_000, steps=2)
    driver = PayloadDriver(Objects(tmp_path.as_uri()))
    claim = StorageDriverClaim({"snapshot": agent.snapshot or ""})
    first = await driver.retrieve(RETRIEVE, [claim])
    for path in files_in(tmp_path):
        path.unlink()
    assert await driver.retrieve(RETRIEVE, [claim]) == first


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (b"x" * (SEGMENT_BYTES_MIN - 500), 0),
        (b"x" * SEGMENT_BYTES_MIN, 1),
        (PartPage(data="x" * (ANSWER_INLINE_BYTES_MAX - 500)), 0),
        (PartPage(data="x" * ANSWER_INLINE_BYTES_MAX), 1),
    ],
    ids=["too short for a segment", "a segment", "an answer under 2 MB", "an answer over 2 MB"],
)
async def test_a_codec_changes_nothing_about_what_is_kept_outside(
    value: bytes | PartPage, kept: int, tmp_path: Path
) -> None:
    with_codec = converter(tmp_path.as_uri(), Flipped())
    encoded = await with_codec.encode([value])
    assert len(files_in(tmp_path)) == kept
    assert await with_codec.decode(encoded, [type(value)]) == [value]
    assert all(b"x" * 100 not in path.read_bytes() for path in files_in(tmp_path))


def test_a_client_that_is_not_ours_has_no_record_store(tmp_path: Path) -> None:
    assert records_of(converter(tmp_path.as_uri(), None)) is records_of(converter(tmp_path.as_uri(), None))
    with pytest.raises(StorageFailed, match="has no record store; connect with"):
        records_of(pydantic_data_converter)
