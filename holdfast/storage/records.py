"""`Records`: the agents' data outside Temporal's history, as objects: parts, snapshots, records, saved sessions.

    parts/AA/DIGEST                 the long series of a state, sealed: a JSON list. Shared by snapshots, never changed
    snapshots/AA/DIGEST             an agent's state at the end of an execution, or where a branch was cut
    records/AA/EXECUTION            the record of an execution
    agents/AGENT/WHEN-EXECUTION     empty: its name is the index, newest first
    attachments/AA/DIGEST           a file that a tool has attached to its result
    mcp/AA/DIGEST                   a catalog of the tools of MCP servers, as one execution or more have pinned it
    sessions/AGENT                  a session's state when it left the server; replaced each time
    sinks/…                         each sink's position, and the events it did not accept (`holdfast.sinks.position`)

A snapshot is written after its parts and a record after its snapshot, so every reference resolves. Each object is a
Temporal payload, encoded by the payload codec if there is one; a digest is that of the decoded content.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError
from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.core.agent.execution_state import checked_id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import LISTED_MAX, STORED_CACHE_BYTES_MAX
from holdfast.core.base.errors import (
    InvalidInput,
    ObjectDamaged,
    ObjectMissing,
    PayloadRefused,
    RecordNotFound,
    StateInvalid,
    StorageFailed,
)
from holdfast.core.base.framing import framed
from holdfast.core.base.frozen import canonical
from holdfast.core.base.stored_forms import CATALOG, RECORD, SNAPSHOT, StoredForm
from holdfast.core.tools.mcp_catalog import McpCatalog
from holdfast.core.wire.branch_points import cut, messages_before
from holdfast.core.wire.carry_over import SealedHistory, message_parts, snapshot_of, whole
from holdfast.core.wire.contracts import RecordRequest
from holdfast.core.wire.execution_record import parts_needed, record_of
from holdfast.core.wire.records import ExecutionRecord, Part, Snapshot
from holdfast.core.wire.session_contracts import Branched, BranchRequest
from holdfast.storage.bound_codec import codec_for_object, is_encrypted
from holdfast.storage.keys import KEY_FILE
from holdfast.storage.lru_cache import LruCache, digest_of
from holdfast.storage.object_store import Objects

PARTS: Final = "parts"
SNAPSHOTS: Final = "snapshots"
CATALOGS: Final = "mcp"
ATTACHMENTS: Final = "attachments"
SINKS: Final = "sinks"

ENCODING: Final = b"json/plain"

KEY_REMEDY: Final = "does this process have the payload codec, and the key, of whoever wrote it?"

AT_ONCE_MAX: Final = 16
"""How many objects of one snapshot or listing are read or written at once."""

AGENTS_MAX: Final = 256
"""For how many agents `write_execution` remembers the sealed parts."""

_INDEXED: Final = re.compile(r"agents/[^/]+/[0-9]{15}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The name of an index entry."""

LATEST_MS: Final = 10**14
"""Index names count down from here, so that an agent's newest record sorts first, until the year 5138."""


class Records:
    """The record store at one URL. Safe to use from any thread and event loop.

    Recently used content stays in memory, a shared part only once: reading a conversation that has grown reads only its
    new parts from the store.
    """

    def __init__(
        self, objects: Objects, codec: PayloadCodec | None = None, cache_bytes_max: int = STORED_CACHE_BYTES_MAX
    ) -> None:
        self.codec = codec
        self._objects = objects
        self._recent = LruCache(cache_bytes_max)
        self._sealed: dict[str, SealedHistory] = {}

    @classmethod
    def in_folder(cls, folder: Path) -> Records:
        """Return the record store in a folder, which is created by the first write."""
        return cls(Objects(folder.absolute().as_uri()))

    async def write_part(self, data: bytes) -> str:
        """Write a sealed part and return its digest. Raises StorageFailed."""
        return await self._write_content(PARTS, data)

    async def write_catalog(self, catalog: McpCatalog) -> str:
        """Write a catalog of MCP tools and return its digest. Raises StorageFailed."""
        return await self._write_content(CATALOGS, canonical(catalog))

    async def read_catalog(self, digest: str) -> McpCatalog:
        """Return a catalog of MCP tools. Raises ObjectMissing, StorageFailed (also for changed content)."""
        data = await self._read_content(CATALOGS, digest)
        try:
            return McpCatalog.model_validate_json(data)
        except ValidationError:
            raise self._unreadable(CATALOG, _named(CATALOGS, digest), data, "it is no catalog") from None

    async def write_attachment(self, data: bytes) -> str:
        """Write a file of a message or a tool, and return its digest. Raises StorageFailed.

        It is there on return, also where this process has written it before: files may have been deleted since, and the
        time until they expire counts anew.
        """
        digest = digest_of(data)
        name = _named(ATTACHMENTS, digest)
        await self._objects.write(name, await self._encoded(name, data))
        self._recent.put(name, data)
        return digest

    async def read_attachment(self, digest: str) -> bytes:
        """Return a file of a message or a tool. Raises ObjectMissing, StorageFailed (also for changed content)."""
        return await self._read_content(ATTACHMENTS, digest)

    async def has_part(self, digest: str) -> bool:
        """Return whether the part exists. Raises StorageFailed."""
        name = _named(PARTS, digest)
        return self._recent.get(name) is not None or await self._objects.has(name)

    async def read_part(self, digest: str) -> bytes:
        """Return a sealed part. Raises ObjectMissing, StorageFailed (also for changed content)."""
        return await self._read_content(PARTS, digest)

    async def write_snapshot(self, snapshot: Snapshot) -> str:
        """Write a snapshot, whose parts must exist, and return its digest. Raises StorageFailed."""
        return await self._write_content(SNAPSHOTS, canonical(snapshot))

    async def read_snapshot(self, digest: str) -> Snapshot:
        """Return a snapshot. Raises ObjectMissing, StorageFailed (also for changed content)."""
        return self._understood(digest, await self._read_content(SNAPSHOTS, digest))

    async def frames(self, digest: str) -> bytes:
        """Return what a `SnapshotReference` names: the snapshot and its message parts, framed. Raises StorageFailed."""
        data = await self._read_content(SNAPSHOTS, digest)
        return framed((data, *await self._parts(message_parts(self._understood(digest, data)))))

    async def state(self, digest: str) -> AgentState:
        """Return a snapshot's whole state: the agent with its execution and its steps. Raises StorageFailed."""
        return await self._whole(digest, await self.read_snapshot(digest))

    async def write_execution(self, state: AgentState, *, agent: str, task: str) -> ExecutionRecord:
        """Write the ended execution of `state`, and return its record. Raises StorageFailed.

        The sealed parts of an agent's conversation are remembered, for at most AGENTS_MAX agents and
        STORED_CACHE_BYTES_MAX bytes, so that later executions seal only what is new.
        """
        past = self._sealed.pop(state.agent_id, None) or SealedHistory()
        self._sealed[state.agent_id] = past
        while len(self._sealed) > AGENTS_MAX or self._sealed_bytes() > STORED_CACHE_BYTES_MAX:
            self._sealed.pop(next(iter(self._sealed)))
        snapshot = past.snapshot(state)
        for sealed in past.sealed:
            await self.write_part(sealed.data)
        digest = await self.write_snapshot(snapshot)
        needed = {part.digest: past.part(part.digest) or b"" for part in parts_needed(snapshot)}
        record = record_of(RecordRequest(agent=agent, task=task), snapshot, digest, needed)
        await self.write(record)
        return record

    def _sealed_bytes(self) -> int:
        """Return how many bytes are remembered for all agents except the latest, whose conversation is needed now."""
        return sum(past.size for past in list(self._sealed.values())[:-1])

    async def state_of(self, record: ExecutionRecord) -> AgentState:
        """Return the agent's state at the end of that execution. Raises StorageFailed."""
        return await self.state(record.snapshot)

    async def write(self, record: ExecutionRecord) -> None:
        """Write the record of an execution, whose snapshot must exist, and its index entry. Raises StorageFailed."""
        await self._objects.replace(
            _record(record.execution_id), await self._encoded(_record(record.execution_id), canonical(record))
        )
        await self._objects.replace(f"{_index(record.agent_id)}/{_entry(record)}", b"")

    async def by_id(self, execution_id: str) -> ExecutionRecord:
        """Return the record of an execution. Raises RecordNotFound, InvalidInput for an invalid id, StorageFailed."""
        execution_id = _id(execution_id)
        try:
            data = await self._decoded(_record(execution_id), await self._objects.read(_record(execution_id)))
        except ObjectMissing:
            problem = f"there is no record of the run {execution_id} in {self._objects.url}"
            raise RecordNotFound(
                f"{problem}; it is written when the run ends (is the id right, and HOLDFAST_STORAGE that of the "
                "worker?)"
            ) from None
        try:
            return ExecutionRecord.model_validate_json(data)
        except ValidationError:
            raise self._unreadable(RECORD, _record(execution_id), data, "it is no record") from None

    async def of_agent(self, agent_id: str, execution_id: str) -> ExecutionRecord:
        """Return the record of one of an agent's executions. Raises as `by_id` does, RecordNotFound for another's."""
        record = await self.by_id(execution_id)
        if record.agent_id != agent_id:
            problem = f"the run {execution_id} is not the agent {agent_id}'s but {record.agent_id}'s"
            raise RecordNotFound(f"{problem}; name that agent, or a run from its records")
        return record

    async def by_agent(self, agent_id: str, limit: int = 20) -> list[ExecutionRecord]:
        """Return the latest records of an agent, newest first, at most LISTED_MAX; empty if it has none.

        Raises InvalidInput for an invalid id, StorageFailed.
        """
        folder, wanted = _index(_id(agent_id)), max(0, min(limit, LISTED_MAX))
        names = await self._objects.names(folder, wanted)
        records = await self._indexed(names)
        if len(records) < wanted <= len(names):  # entries of lost runs take no place
            records = await self._indexed(await self._objects.names(folder, LISTED_MAX))
        return records[:wanted]

    async def _indexed(self, names: Iterable[str]) -> list[ExecutionRecord]:
        """Return the records of index entries, each once.

        After a restore of Temporal's database an execution can have the id of one that the server has lost. Its record
        replaces the lost one's, whose entry stays: an entry with another moment than its record's.
        """
        at_once = asyncio.Semaphore(AT_ONCE_MAX)

        async def read(name: str) -> ExecutionRecord | None:
            if _INDEXED.fullmatch(name) is None:  # somebody else's file
                return None
            entry = name.rpartition("/")[2]
            async with at_once:
                record = await self.by_id(entry.partition("-")[2])
            return record if _entry(record) == entry else None

        return [each for each in await asyncio.gather(*map(read, names)) if each is not None]

    async def branch(self, request: BranchRequest) -> Branched:
        """Return the snapshot to continue from: an execution's last one, or a new one cut after one of its steps.

        Raises RecordNotFound for an unknown execution or another agent's, InvalidInput for an unknown step,
        StorageFailed.
        """
        branch = request.branch
        record = await self.of_agent(branch.agent_id, branch.execution_id)
        snapshot = await self.read_snapshot(record.snapshot)
        state = await self._whole(record.snapshot, snapshot)
        digest = record.snapshot
        if branch.steps is not None and branch.steps != record.step_count:
            digest = await self.write_snapshot(cut(snapshot, state, branch.steps))
        return Branched(snapshot=digest, messages_before=messages_before(state))

    async def write_session(self, agent_id: str, data: bytes) -> None:
        """Write a session's state, replacing the previous one. Raises StorageFailed."""
        name = _session(agent_id)
        await self._objects.replace(name, await self._encoded(name, data))

    async def read_session(self, agent_id: str) -> bytes | None:
        """Return the saved state of an agent's session; None if there is none. Raises StorageFailed."""
        name = _session(agent_id)
        try:
            return await self._decoded(name, await self._objects.read(name))
        except ObjectMissing:
            return None

    async def write_sink(self, name: str, data: bytes) -> None:
        """Write a sink's position, or what it did not accept, replacing the previous one. Raises StorageFailed."""
        place = f"{SINKS}/{name}"
        await self._objects.replace(place, await self._encoded(place, data))

    async def read_sink(self, name: str) -> bytes | None:
        """Return what `write_sink` last wrote; None if there is nothing. Raises StorageFailed."""
        try:
            place = f"{SINKS}/{name}"
            return await self._decoded(place, await self._objects.read(place))
        except ObjectMissing:
            return None

    async def _whole(self, digest: str, snapshot: Snapshot) -> AgentState:
        parts = await self._parts(snapshot.parts)
        try:
            return await asyncio.to_thread(whole, snapshot, parts)
        except StateInvalid as error:
            raise self._damaged(_named(SNAPSHOTS, digest), error.message) from None

    async def _parts(self, parts: Iterable[Part]) -> list[bytes]:
        at_once = asyncio.Semaphore(AT_ONCE_MAX)

        async def read(part: Part) -> bytes:
            async with at_once:
                return await self.read_part(part.digest)

        return list(await asyncio.gather(*map(read, parts)))

    def _understood(self, digest: str, data: bytes) -> Snapshot:
        try:
            return snapshot_of(data)
        except StateInvalid as error:
            raise self._unreadable(SNAPSHOT, _named(SNAPSHOTS, digest), data, error.message) from None

    async def _write_content(self, kind: str, data: bytes) -> str:
        digest = digest_of(data)
        name = _named(kind, digest)
        if self._recent.get(name) is None:
            await self._objects.write(name, await self._encoded(name, data))
            self._recent.put(name, data)
        return digest

    async def _read_content(self, kind: str, digest: str) -> bytes:
        name = _named(kind, digest)
        data = self._recent.get(name)
        if data is None:
            data = await self._decoded(name, await self._objects.read(name))
            if digest_of(data) != digest:
                raise self._damaged(name, "its content has another digest")
            self._recent.put(name, data)
        return data

    async def _encoded(self, name: str, data: bytes) -> bytes:
        payload = Payload(metadata={"encoding": ENCODING}, data=data)
        if self.codec is not None:
            [payload] = await codec_for_object(self.codec, name).encode([payload])
        return payload.SerializeToString(deterministic=True)

    async def _decoded(self, name: str, data: bytes) -> bytes:
        if not data:  # which is a payload, but none of ours: a copy or a file system has lost what was in it
            raise self._damaged(name, "it is empty")
        try:
            payload = Payload.FromString(data)
        except DecodeError:
            raise self._damaged(name, "it is no payload") from None
        if self.codec is not None:
            try:
                [payload] = await codec_for_object(self.codec, name).decode([payload])
            except PayloadRefused as error:
                raise PayloadRefused(f"the object {name} in {self._objects.url}: {error}") from None
            except Exception as error:  # noqa: BLE001  # a codec can raise anything for foreign data
                problem = f"cannot be decoded ({type(error).__name__})"
                raise StorageFailed(f"the object {name} in {self._objects.url} {problem}; {KEY_REMEDY}") from None
        elif is_encrypted(payload):
            problem = f"the object {name} in {self._objects.url} is encrypted, and this process has no key file"
            raise PayloadRefused(f"{problem}; set {KEY_FILE}")
        if payload.metadata.get("encoding") != ENCODING:
            raise StorageFailed(f"the object {name} in {self._objects.url} is still encoded; {KEY_REMEDY}")
        return payload.data

    def _unreadable(self, form: StoredForm, name: str, data: bytes, why: str) -> ObjectDamaged:
        """Return the error for an object that is not in that form. Raises FormNewer where it is in a later one."""
        form.check(data, f"the object {name} in {self._objects.url}")
        return self._damaged(name, why)

    def _damaged(self, name: str, why: str) -> ObjectDamaged:
        return ObjectDamaged(f"the object {name} in {self._objects.url} is damaged: {why}; restore it from a backup")


def _named(kind: str, digest: str) -> str:
    return f"{kind}/{digest[:2]}/{digest}"


def _record(execution_id: str) -> str:
    return f"records/{execution_id[:2]}/{execution_id}"


def _index(agent_id: str) -> str:
    return f"agents/{agent_id}"


def _entry(record: ExecutionRecord) -> str:
    return f"{LATEST_MS - _milliseconds(record.started_at):015d}-{record.execution_id}"


def _session(agent_id: str) -> str:
    return f"sessions/{_id(agent_id)}"


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _id(value: str) -> str:
    """Return `value` if it can be part of an object name. Raises InvalidInput."""
    try:
        return checked_id(value)
    except ValueError as error:
        raise InvalidInput(f"{error}; agents and runs are named by theirs") from None
