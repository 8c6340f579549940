"""The record store: all of an agent comes back, parts are shared, what was changed is refused, nothing is in the clear
where a codec is on, and all that is written grows linearly."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from time import perf_counter
from uuid import uuid4

import pytest

from holdfast.core.base.errors import InvalidInput, ObjectDamaged, ObjectMissing, RecordNotFound, StorageFailed
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.session_contracts import Branch, BranchRequest
from holdfast.storage.encryption import EncryptionCodec
from holdfast.storage.keys import Key, KeyRing
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from tests.storage.keeping import Flipped, Kept

CODEC = EncryptionCodec(KeyRing((Key("one", b"1" * 32),)))


def files_in(folder: Path) -> dict[str, int]:
    """Return the sizes of all objects by their names."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def records_in(folder: Path, codec: Flipped | None = None) -> Records:
    """Return the store as a new process sees it."""
    return Records(Objects(folder.as_uri()), codec)


def branch(agent_id: str, execution_id: str, steps: int | None = None) -> BranchRequest:
    return BranchRequest(branch=Branch(agent_id=agent_id, execution_id=execution_id, steps=steps), agent_id=agent_id)


async def test_what_was_kept_of_an_execution_is_found_by_its_id_and_its_agent(tmp_path: Path) -> None:
    agent, other = Kept(records_in(tmp_path)), Kept(records_in(tmp_path))
    kept = [await agent.turn(f"question {number}", f"answer {number}", "x" * 5_000) for number in range(5)]
    await other.turn("another", "one")
    fresh = records_in(tmp_path)
    assert [each.number for each in kept] == [1, 2, 3, 4, 5]
    assert await fresh.by_id(kept[2].execution_id) == kept[2]
    assert await fresh.by_agent(agent.agent_id) == kept[::-1], "the newest first"
    assert await fresh.by_agent(agent.agent_id, limit=2) == [kept[4], kept[3]]
    assert await fresh.by_agent(str(uuid4())) == []
    state = await fresh.state(kept[-1].snapshot)
    assert state == agent.run.state
    assert (state.step_count, len(state.messages)) == (2, 20)


async def test_a_record_written_twice_is_listed_once_and_the_last_one_holds(tmp_path: Path) -> None:
    agent = Kept(records_in(tmp_path))
    first = await agent.turn("question", "answer")
    again = first.model_copy(update={"answer": "ANSWER"})
    await agent.records.write(again)
    assert await agent.records.by_agent(agent.agent_id) == [again]


async def test_a_record_that_replaced_a_lost_runs_is_listed_once_and_others_in_its_place(tmp_path: Path) -> None:
    agent = Kept(records_in(tmp_path))
    kept = [await agent.turn(f"question {number}", f"answer {number}") for number in range(4)]
    # restored from a backup, the session begins its last two executions again, under the same ids
    again = [each.model_copy(update={"started_at": each.started_at + timedelta(hours=1)}) for each in kept[2:]]
    for each in again:
        await agent.records.write(each)
    assert await agent.records.by_agent(agent.agent_id) == [again[1], again[0], kept[1], kept[0]]
    for limit in range(5):
        assert await agent.records.by_agent(agent.agent_id, limit) == [again[1], again[0], kept[1], kept[0]][:limit]
    assert len(await agent.records.by_agent(agent.agent_id, 3)) == 3, "entries of lost runs take no place"


async def test_what_there_is_no_record_of_says_where_it_was_looked_for(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "never made"):
        with pytest.raises(RecordNotFound, match=r"no record of the run .* in file://.*HOLDFAST_STORAGE"):
            await records_in(folder).by_id(str(uuid4()))
        assert await records_in(folder).by_agent(str(uuid4())) == []
    for odd in ("", "../../etc/passwd", "0" * 36):
        with pytest.raises(InvalidInput, match="is not a UUID"):
            await records_in(tmp_path).by_id(odd)
        with pytest.raises(InvalidInput, match="is not a UUID"):
            await records_in(tmp_path).by_agent(odd)
        with pytest.raises(InvalidInput, match="is not a UUID"):
            await records_in(tmp_path).read_session(odd)


@pytest.mark.parametrize("kind", ["parts", "snapshots"])
async def test_a_damaged_object_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    agent = Kept(records_in(tmp_path))
    record = await agent.turn("question", "answer", "x" * 20_000)
    name = next(each for each in files_in(tmp_path) if each.startswith(kind))
    path, content = tmp_path / name, (tmp_path / name).read_bytes()
    for damaged in (b"", content[:-1], content.replace(b"x", b"y", 1) if kind == "parts" else content + b" "):
        path.write_bytes(damaged)
        with pytest.raises(ObjectDamaged, match=f"{kind}/.* is damaged"):
            await records_in(tmp_path).state(record.snapshot)
    path.unlink()
    with pytest.raises(ObjectMissing, match=f"no object {kind}/"):
        await records_in(tmp_path).state(record.snapshot)


@pytest.mark.parametrize("codec", [None, CODEC], ids=["plain", "encrypted"])
async def test_an_empty_object_is_damaged_and_not_encoded_by_others(
    codec: EncryptionCodec | None, tmp_path: Path
) -> None:
    agent = Kept(Records(Objects(tmp_path.as_uri()), codec))
    record = await agent.turn("question", "answer")
    picture = await agent.records.write_attachment(b"a picture")
    await agent.records.write_session(agent.agent_id, b"{}")
    await agent.records.write_sink("audit/place", b"{}")
    for name in files_in(tmp_path):
        (tmp_path / name).write_bytes(b"")
    fresh = Records(Objects(tmp_path.as_uri()), codec)
    for read, of in (
        (fresh.by_id, record.execution_id),
        (fresh.by_agent, agent.agent_id),
        (fresh.state, record.snapshot),
        (fresh.read_attachment, picture),
        (fresh.read_session, agent.agent_id),
        (fresh.read_sink, "audit/place"),
    ):
        with pytest.raises(ObjectDamaged, match=r"is damaged: it is empty; restore it from a backup"):
            await read(of)
    assert await fresh.write_attachment(b"a picture") == picture
    assert await fresh.read_attachment(picture) == b"a picture", "who writes it again mends it"


async def test_files_of_others_in_an_agents_index_are_no_records(tmp_path: Path) -> None:
    agent = Kept(records_in(tmp_path))
    kept = [await agent.turn(f"question {number}", "answer") for number in range(3)]
    index = tmp_path / "agents" / agent.agent_id
    entries = sorted(each.name for each in index.iterdir())
    for name in ("!first", "desktop.ini", f"{entries[0]}~", f"copies/{entries[0]}", f"0-{kept[0].execution_id}"):
        (index / name).parent.mkdir(exist_ok=True)
        (index / name).touch()
    fresh = records_in(tmp_path)
    assert await fresh.by_agent(agent.agent_id) == kept[::-1]
    assert await fresh.by_agent(agent.agent_id, 1) == kept[:1:-1]


async def test_a_conversation_that_has_grown_is_read_as_far_as_it_is_new(tmp_path: Path) -> None:
    agent = Kept(records_in(tmp_path))
    await agent.turn("question", "answer", "x" * 40_000)
    reader = records_in(tmp_path)
    await reader.frames(agent.snapshot or "")
    for path in (tmp_path / "parts").rglob("*"):
        if path.is_file():
            path.unlink()
    await agent.turn("question", "answer", "y" * 40_000)
    assert len(await reader.frames(agent.snapshot or "")) > 80_000, "the old parts come from memory"
    with pytest.raises(ObjectMissing):
        await records_in(tmp_path).frames(agent.snapshot or "")


async def test_after_a_step_a_branch_is_a_snapshot_of_its_own_at_the_end_it_is_the_executions(tmp_path: Path) -> None:
    agent = Kept(records_in(tmp_path))
    await agent.turn("first", "one")
    record = await agent.turn("second", "two", "x" * 3_000, steps=8)
    records = records_in(tmp_path)
    for steps in (None, 9):
        ended = await records.branch(branch(agent.agent_id, record.execution_id, steps))
        assert (ended.snapshot, ended.messages_before) == (record.snapshot, 2)
    for steps in (0, 3):
        cut = await records.branch(branch(agent.agent_id, record.execution_id, steps))
        assert cut.messages_before == 2
        state = await records.state(cut.snapshot)
        assert (len(state.messages), state.step_count) == (3 + 2 * steps, steps)
        assert cut == await records.branch(branch(agent.agent_id, record.execution_id, steps)), "made once"


async def test_equal_bytes_of_two_kinds_are_two_objects(tmp_path: Path) -> None:
    records = records_in(tmp_path)
    digest = await records.write_attachment(b"[]")
    assert not await records.has_part(digest)
    assert await records.write_part(b"[]") == digest
    assert await records_in(tmp_path).read_part(digest) == b"[]"
    with pytest.raises(ObjectMissing, match="attachments/"):
        await records.read_attachment(await records.write_part(b"[1]"))


async def test_a_branch_of_what_is_not_there_says_what_is(tmp_path: Path) -> None:
    agent = Kept(records_in(tmp_path))
    record = await agent.turn("question", "answer")
    with pytest.raises(InvalidInput, match=r"has 1 step,.*give 0 to 1"):
        await agent.records.branch(branch(agent.agent_id, record.execution_id, 2))
    with pytest.raises(RecordNotFound, match=f"is not the agent .* but {agent.agent_id}'s"):
        await agent.records.branch(branch(str(uuid4()), record.execution_id))
    with pytest.raises(RecordNotFound, match="no record of the run"):
        await agent.records.branch(branch(agent.agent_id, str(uuid4())))


async def test_of_a_session_the_last_thing_kept_is_found(tmp_path: Path) -> None:
    records, agent_id = records_in(tmp_path), str(uuid4())
    assert await records.read_session(agent_id) is None
    await records.write_session(agent_id, b'{"one":1}')
    await records.write_session(agent_id, b'{"two":2}')
    assert await records_in(tmp_path).read_session(agent_id) == b'{"two":2}'


async def test_with_a_codec_nothing_is_in_the_store_in_the_clear(tmp_path: Path) -> None:
    agent = Kept(records_in(tmp_path, Flipped()))
    record = await agent.turn("the canary question", "the canary answer", "the canary result " * 2_000)
    await agent.turn("the canary question", "the canary answer", "the canary result " * 2_000)
    await agent.records.write_session(agent.agent_id, b'"the canary session"')
    cut = await agent.records.branch(branch(agent.agent_id, record.execution_id, 1))
    folders = {name.partition("/")[0] for name in files_in(tmp_path)}
    assert folders == {"parts", "snapshots", "records", "agents", "sessions"}
    for name in files_in(tmp_path):
        content = (tmp_path / name).read_bytes()
        assert b"canary" not in content
        assert b"tester" not in content, "nor what the agent is called"
    fresh = records_in(tmp_path, Flipped())
    assert await fresh.by_agent(agent.agent_id, 1) != []
    assert await fresh.by_id(record.execution_id) == record
    assert (await fresh.state(cut.snapshot)).messages[0].text == "the canary question"
    assert await fresh.read_session(agent.agent_id) == b'"the canary session"'


async def test_what_another_codec_wrote_is_told_of_as_that(tmp_path: Path) -> None:
    encoded, plain = Kept(records_in(tmp_path / "encoded", Flipped())), Kept(records_in(tmp_path / "plain"))
    record = await encoded.turn("question", "answer")
    with pytest.raises(StorageFailed, match="is still encoded; does this process have the payload codec, and the key"):
        await records_in(tmp_path / "encoded").by_id(record.execution_id)
    record = await plain.turn("question", "answer")
    with pytest.raises(StorageFailed, match=r"cannot be decoded \(ValueError\); does this process have the payload"):
        await records_in(tmp_path / "plain", Flipped()).by_id(record.execution_id)


class Counted(Objects):
    """Objects in memory that know how many bytes were ever written."""

    def __init__(self) -> None:
        super().__init__("memory://counted")
        self.bytes = 0

    async def write(self, name: str, data: bytes) -> None:
        self.bytes += 0 if await self.has(name) else len(data)
        await super().write(name, data)

    async def replace(self, name: str, data: bytes) -> None:
        self.bytes += len(data)
        await super().replace(name, data)


@pytest.mark.slow
async def test_all_that_is_written_of_a_session_grows_linearly() -> None:
    objects, written = Counted(), [0]
    agent = Kept(Records(objects))
    for _ in range(4):
        for _ in range(100):
            await agent.turn("q" * 1_000, "a" * 1_000)
        written.append(objects.bytes)
    assert 0 < written[2] <= 2.2 * written[1], written
    assert written[4] <= 2.2 * written[2], written


@pytest.mark.slow
async def test_a_conversation_of_a_megabyte_is_branched_with_a_few_kilobytes(tmp_path: Path) -> None:
    agent = Kept(records_in(tmp_path))
    for _ in range(50):
        await agent.turn("question", "answer", "x" * 10_000, steps=2)
    record = await agent.turn("last question", "answer", "y" * 500, steps=4)
    before = files_in(tmp_path)
    assert sum(size for name, size in before.items() if name.startswith("parts")) > 1024 * 1024
    assert len(await agent.records.frames(record.snapshot)) > 1024 * 1024
    await records_in(tmp_path).branch(branch(agent.agent_id, record.execution_id))
    assert files_in(tmp_path) == before, "at its end, nothing at all"
    begun = perf_counter()
    cut = await records_in(tmp_path).branch(branch(agent.agent_id, record.execution_id, 2))
    assert perf_counter() - begun < 20, "a generous bound; it takes some 30 ms"
    added = {name: size for name, size in files_in(tmp_path).items() if name not in before}
    assert len(added) == 1
    assert sum(added.values()) < 10 * 1024, added
    restored = SealedHistory().restored(await records_in(tmp_path).frames(cut.snapshot), agent_id=str(uuid4()))
    assert restored.messages == agent.run.state.messages.before(len(agent.run.state.messages) - 5)
