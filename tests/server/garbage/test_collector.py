"""Who uses a store, and the rules of a collection: what is refused before anything is read."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryResponse

from holdfast.connection.data_directory import DataDirectory
from holdfast.core.base.errors import Conflict, FormNewer, InvalidInput, PayloadRefused, StorageFailed
from holdfast.core.base.stored_forms import STORE_USER
from holdfast.server.garbage import collector, registration
from holdfast.server.garbage.collection import Rules
from holdfast.server.garbage.collector import StoreUsers, collect_garbage
from holdfast.server.garbage.mark_file import Listed, MarkFile
from holdfast.server.garbage.references import ReferenceReader, digests_in
from holdfast.server.garbage.registration import StoreUser
from holdfast.storage.bound_codec import SEALED_ENCODING
from holdfast.storage.object_store import Objects

OWN = StoreUser("id-1", "default", "127.0.0.1:7233")
DIGEST = "ab" * 32


class Reached(Exception):
    """Nothing was refused: the collection would begin."""


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """A store; a server that knows the namespaces `default` and `other`."""

    async def store_user(_: object, namespace: str | None = None) -> StoreUser:
        return OWN if namespace in (None, "default") else StoreUser("id-2", "other", OWN.address)

    async def living(_: object, id_: str) -> StoreUser | None:
        return StoreUser("id-2", "other", OWN.address) if id_ == "id-2" else None

    def begin(_: Path) -> None:
        raise Reached

    monkeypatch.setattr(collector, "store_user", store_user)
    monkeypatch.setattr(collector, "living", living)
    monkeypatch.setattr(DataDirectory, "at", begin)
    return Objects((tmp_path / "objects").as_uri())


async def collect(objects: Objects, users: StoreUsers | None = None) -> None:
    await collect_garbage(cast("Any", None), objects, Path("nowhere"), Rules(), users)


async def registered(objects: Objects, *ids: str) -> None:
    for each in ids:
        document = {"namespace": f"name-{each}", "address": "far:7233"}
        await objects.write(f"namespaces/{each}", json.dumps(document).encode())


async def test_a_store_in_which_no_worker_has_registered_is_refused(objects: Objects) -> None:
    with pytest.raises(InvalidInput, match="no worker of the namespace 'default'"):
        await collect(objects)


async def test_a_store_that_others_use_is_refused_by_their_names(objects: Objects) -> None:
    await registered(objects, "id-1", "id-2", "id-3")
    with pytest.raises(Conflict, match=r"'name-id-2' on far:7233 \(id id-2\), 'name-id-3'"):
        await collect(objects)
    with pytest.raises(Conflict, match="lose their data: 'name-id-3'"):
        await collect(objects, StoreUsers(namespaces=("other",)))
    with pytest.raises(Reached):
        await collect(objects, StoreUsers(namespaces=("other",), gone=("id-3",)))


async def test_a_namespace_that_the_server_still_has_is_not_taken_for_gone(objects: Objects) -> None:
    await registered(objects, "id-1", "id-2")
    with pytest.raises(Conflict, match=r"the namespace 'other' of 127.0.0.1:7233 \(id id-2\) is not gone"):
        await collect(objects, StoreUsers(gone=("id-2",)))


async def test_a_worker_leaves_the_registration_of_a_newer_one_as_it_is(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def store_user(_: object) -> StoreUser:
        return OWN

    monkeypatch.setattr(registration, "store_user", store_user)
    temporal = cast("Any", None)
    await registration.register(temporal, objects)
    await registration.register(temporal, objects)
    with pytest.raises(Reached):
        await collect(objects)
    newer = json.dumps({"format": STORE_USER.version + 1, "namespace": OWN.namespace, "address": OWN.address}).encode()
    await objects.replace(f"namespaces/{OWN.id}", newer)
    await registration.register(temporal, objects)  # after a roll-back, or beside it while workers are replaced
    assert await objects.read(f"namespaces/{OWN.id}") == newer
    with pytest.raises(FormNewer, match="the registration of a namespace of format 2"):
        await collect(objects)


def test_ages_below_the_least_are_refused() -> None:
    with pytest.raises(InvalidInput, match="--older-than is 47 hours"):
        Rules(unused=timedelta(hours=47))
    with pytest.raises(InvalidInput, match="--trash is 23 hours"):
        Rules(trash=timedelta(hours=23))


def test_a_file_is_one_collections_and_resumes_that_one_alone(tmp_path: Path) -> None:
    path = tmp_path / "gc.db"
    with MarkFile(path, "one") as marks:
        marks.mark([b"k"])
        marks.read("a closed run")
        with pytest.raises(Conflict, match="another garbage collection"):
            MarkFile(path, "one")
    with MarkFile(path, "one") as marks:
        assert (marks.resumed, marks.has_read("a closed run")) == (True, True)
        marks.add([Listed("payloads/aa/k", trash=False, key=b"k", size=1, written=0.0)])
        assert [each.name for each in marks.objects(marked=True, trash=False)] == ["payloads/aa/k"]
    with MarkFile(path, "another") as marks:
        assert (marks.resumed, marks.has_read("a closed run")) == (False, False)


def test_a_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "gc.db"
    path.write_bytes(b"no database at all, but long enough to be looked at" * 50)
    with MarkFile(path, "one") as marks:
        assert not marks.resumed


def test_a_disk_that_fills_up_meanwhile_is_told_as_that(tmp_path: Path) -> None:
    def collect() -> None:
        with MarkFile(tmp_path / "gc.db", "one") as marks:
            marks.database.execute("PRAGMA max_page_count = 20")
            marks.mark(number.to_bytes(32) for number in range(10_000))

    full = r"gc\.db cannot be read or written: database or disk is full; make room on its disk, or choose another --d"
    with pytest.raises(StorageFailed, match=full):
        collect()


def test_a_file_that_turns_out_to_be_damaged_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "gc.db"
    with MarkFile(path, "one") as marks:
        marks.mark(number.to_bytes(32) for number in range(10_000))
        pages = marks.database.execute("PRAGMA page_count").fetchone()[0]
        size = marks.database.execute("PRAGMA page_size").fetchone()[0]
    with path.open("r+b") as file:
        file.seek(size * (pages // 2))
        file.write(b"\xff" * size * (pages // 4))

    def resume() -> None:
        with MarkFile(path, "one") as marks:
            assert marks.resumed, "its beginning is sound"
            marks.mark(number.to_bytes(32) for number in range(0, 20_000, 2))

    with pytest.raises(StorageFailed, match=r"is damaged \(.*\), and was removed; run"):
        resume()
    with MarkFile(path, "one") as marks:
        assert not marks.resumed


async def test_references_are_found_wherever_a_message_has_payloads() -> None:
    response = GetWorkflowExecutionHistoryResponse()
    event = response.history.events.add()
    payload = Payload(metadata={"encoding": b"json/plain"}, data=f'{{"sha256":"{DIGEST}"}}'.encode())
    event.workflow_execution_started_event_attributes.header.fields["deep"].CopyFrom(payload)
    assert await ReferenceReader(None).in_message(response.history) == {bytes.fromhex(DIGEST)}
    payload.metadata["encoding"] = SEALED_ENCODING
    event.workflow_execution_started_event_attributes.memo.fields["deep"].CopyFrom(payload)
    with pytest.raises(PayloadRefused, match="no key file"):
        await ReferenceReader(None).in_message(response.history)


def test_a_digest_within_more_digits_is_found() -> None:
    assert bytes.fromhex(DIGEST) in digests_in(f"0{DIGEST}f".encode())
    assert digests_in(DIGEST[:-1].encode()) == set()
