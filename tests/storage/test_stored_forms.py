"""What Holdfast has stored stays readable, and what a newer Holdfast has stored is refused as just that, and kept."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ApplicationError

from activities.records import RecordActivities
from docs.schema.write import FOLDER as SCHEMAS
from holdfast.core.base import stored_forms
from holdfast.core.base.errors import FormNewer, InvalidInput, PayloadRefused
from holdfast.core.base.frozen import canonical
from holdfast.core.base.json_form import SparseForm
from holdfast.core.base.stored_forms import FORMAT, StoredForm
from holdfast.core.session.session_state import SessionState
from holdfast.core.wire import event_envelope
from holdfast.core.wire.session_contracts import SaveSession
from holdfast.server.garbage.mark_file import MarkFile
from holdfast.server.garbage.references import ReferenceReader
from holdfast.sinks.position import ConsumerPosition
from holdfast.storage.data_converter import PlainCodec
from holdfast.storage.encryption import EncryptionCodec
from holdfast.storage.keys import Key, KeyRing
from holdfast.storage.records import Records
from tests.core.building import AGENT_ID, START
from tests.storage.stored_forms import FOLDER, FORMS, OWN_REFUSAL, SINK, Stored
from workflows.continue_as_new import FAULTS, NotForThisWorker

GOLDEN = sorted(FOLDER.glob("*.json"))
SEALED = base64.b64decode(
    "Ch0KCGVuY29kaW5nEhFob2xkZmFzdC9zZWFsZWQtMQocCgNmb3ISFW9iamVjdDpyZWNvcmRzL2FiL2FiYwoNCgNrZXkSBmdvbGRl"
    "bhJY7gpNiYKbw5neVeyk1E/3W2xoTNR93JIEYg+3cGhEaXhctKhda+zvHhHTsVN792y/kBSSEmn977nBqjZdNOXjvFPYj1fq9KzV"
    "4BEngQ++7gpHejsa81lBJg=="
)
"""What an object of the store looks like that the first version has encrypted, with a key of 32 times `k`."""


def of(path: Path) -> Stored:
    return next(each for each in FORMS if path.stem.rpartition("-")[0] == each.key)


def document(path: Path) -> dict[str, Any]:
    golden: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return golden


def spelled(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def newer(stored: Stored) -> bytes:
    example: dict[str, Any] = json.loads(stored.example())
    return spelled({**example, FORMAT: stored.form.version + 1, "what is new": "in it"})


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
async def test_every_version_of_a_form_that_was_ever_written_is_read(path: Path, tmp_path: Path) -> None:
    golden, stored = document(path), of(path)
    data = spelled(golden["example"])
    written = await stored.read(tmp_path, data)
    if written is not None and golden["version"] == stored.form.version:
        assert written == data, "and written again as it was: digests are taken over it"


@pytest.mark.parametrize("stored", FORMS, ids=lambda stored: stored.key)
def test_a_forms_shape_changes_only_with_its_version(stored: Stored) -> None:
    before, now = document(stored.golden)["shape"], stored.shapes()
    changed = sorted(name or stored.form.name for name in {*before, *now} if before.get(name) != now.get(name))
    assert not changed, (
        f"the stored form of {stored.form.name} has changed, in {', '.join(changed)}: raise its version in "
        "holdfast/core/base/stored_forms.py, read the older one, and run `python -m tests.storage.stored_forms`; until "
        "the first release `python -m tests.storage.stored_forms --anew` is enough"
    )


def test_every_form_has_a_golden_file_and_every_version_before() -> None:
    named = [each for each in vars(stored_forms).values() if isinstance(each, StoredForm)]
    assert sorted(each.name for each in named) == sorted(each.form.name for each in FORMS)
    needed = {f"{each.key}-{number}.json" for each in FORMS for number in range(1, each.form.version + 1)}
    assert needed == {path.name for path in GOLDEN}


@pytest.mark.parametrize(
    "stored", [each for each in FORMS if each.form not in OWN_REFUSAL], ids=lambda stored: stored.key
)
async def test_a_newer_form_is_refused_with_its_version_and_what_to_do_and_stays_as_it_was(
    stored: Stored, tmp_path: Path
) -> None:
    with pytest.raises((FormNewer, NotForThisWorker, ApplicationError)) as refused:
        await stored.read(tmp_path, newer(stored))
    text = str(refused.value)
    assert f"{stored.form.name} of format {stored.form.version + 1}" in text
    assert "a newer Holdfast wrote it" in text
    assert "use that version, or a later one" in text
    assert "damaged" not in text
    assert "restore" not in text
    if isinstance(refused.value, ApplicationError):
        assert not refused.value.non_retryable, "a worker that reads it may have the next attempt"
    if isinstance(refused.value, NotForThisWorker):
        assert not isinstance(refused.value, FAULTS), "the run waits for such a worker, and does not fail"
    stays = list(files_in(tmp_path).values())
    assert all(b"what is new" in each for each in stays)


async def test_a_newer_session_in_the_store_is_not_replaced_by_an_older_worker(tmp_path: Path) -> None:
    [stored] = [each for each in FORMS if each.form is stored_forms.SESSION]
    records = Records.in_folder(tmp_path)
    await records.write_session(AGENT_ID, newer(stored))
    state = SessionState.model_validate_json(stored.example())
    with pytest.raises(ApplicationError, match="a newer Holdfast wrote it") as refused:
        await RecordActivities(records).keep_session(SaveSession(agent_id=AGENT_ID, state=canonical(state).decode()))
    assert not refused.value.non_retryable
    assert await records.read_session(AGENT_ID) == newer(stored)


async def test_a_sinks_runner_does_not_write_over_the_position_of_a_newer_one(tmp_path: Path) -> None:
    [stored] = [each for each in FORMS if each.form is stored_forms.SINK_POSITION]
    records = Records.in_folder(tmp_path)
    consumer = ConsumerPosition(records, "default", SINK)
    await consumer.load(START)
    place = f"default/{SINK.task_queue}/{SINK.consumer}/place"
    await records.write_sink(place, newer(stored))
    with pytest.raises(FormNewer):
        await consumer.save()
    assert await records.read_sink(place) == newer(stored)


@pytest.mark.parametrize("version", [2, 10**30, 2.5, "2", None, True])
def test_only_a_later_number_is_a_later_version(version: object) -> None:
    form = StoredForm("a thing", 1)
    if type(version) is int:
        with pytest.raises(FormNewer, match="a newer Holdfast"):
            form.check({FORMAT: version})
    else:
        form.check({FORMAT: version})
    for nothing in (b"", b"[]", b"{", b'{"format":1}', "{}"):
        form.check(nothing)


def test_a_sparse_form_says_its_version_unless_it_is_the_first() -> None:
    class First(SparseForm):
        format: int = 1
        text: str = ""

    class Second(SparseForm):
        format: int = 2
        text: str = ""

    assert canonical(First()) == b"{}"
    assert canonical(Second()) == b'{"format":2}'


def test_events_of_another_version_are_refused() -> None:
    line = (SCHEMAS / "events.jsonl").read_text(encoding="utf-8").splitlines()[0]
    event = json.loads(line)
    assert event_envelope.to_dict(event_envelope.from_dict(event)) == event
    with pytest.raises(InvalidInput, match="version 2, this Holdfast reads 1"):
        event_envelope.from_dict({**event, "version": 2})


@pytest.mark.parametrize(
    "codec", [PlainCodec(), EncryptionCodec(KeyRing((Key("golden", b"k" * 32),))).for_run("a-run")]
)
async def test_a_payload_that_a_newer_holdfast_has_encrypted_waits_for_it(codec: PlainCodec | EncryptionCodec) -> None:
    sealed = Payload(metadata={"encoding": b"holdfast/sealed-2", "key": b"golden"}, data=b"?")
    with pytest.raises(PayloadRefused, match=r"encrypted as 'holdfast/sealed-2'.*a newer Holdfast wrote it"):
        await codec.decode([sealed])


async def test_a_collection_reads_no_object_that_a_newer_holdfast_has_encrypted() -> None:
    sealed = Payload(metadata={"encoding": b"holdfast/sealed-2", "key": b"golden"}, data=b"?")
    with pytest.raises(PayloadRefused, match="a newer Holdfast"):
        await ReferenceReader(None).in_object(sealed.SerializeToString())


def test_a_collections_file_of_a_newer_holdfast_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "storage-gc.db"
    with MarkFile(path, "one") as marks:
        marks.read("a run")
    with MarkFile(path, "one") as marks:
        assert marks.resumed
        marks.database.execute("PRAGMA user_version = 2")
    with MarkFile(path, "one") as marks:
        assert not marks.resumed
        assert not marks.has_read("a run")


async def test_what_the_first_version_has_encrypted_is_read() -> None:
    codec = EncryptionCodec(KeyRing((Key("golden", b"k" * 32),))).for_object("records/ab/abc")
    [opened] = await codec.decode([Payload.FromString(SEALED)])
    assert opened == Payload(metadata={"encoding": b"json/plain"}, data=b'{"canary":"' + b"x" * 300 + b'"}')
