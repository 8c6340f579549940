"""An example of each stored form, its shape, and how it is read; `python -m tests.storage.stored_forms` writes goldens.

A golden file holds what one version of a form looked like, and stays for good: data of that version must go on being
readable. So a file that is there is not replaced, except with `--anew`, until the first release.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from pydantic import TypeAdapter
from temporalio.api.common.v1 import Payload

from activities.records import RecordActivities
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.state_json import from_json, to_json
from holdfast.core.base.framing import framed
from holdfast.core.base.frozen import Frozen, canonical
from holdfast.core.base.stored_forms import (
    AGENT_STATE,
    CATALOG,
    EVENT,
    FORMAT,
    MANIFEST,
    RECORD,
    RESULT_PARTS,
    RUN_INPUT,
    SESSION,
    SESSION_INPUT,
    SINK_INPUT,
    SINK_POSITION,
    SNAPSHOT,
    STORE_USER,
    StoredForm,
)
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.events import ExecutionStarted, ModelAnswered, ToolReturned
from holdfast.core.session.session_state import SessionInput, SessionState
from holdfast.core.tools.mcp_catalog import McpCatalog, McpTool
from holdfast.core.wire import event_envelope
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.contracts import ExecutionInput, RecordRequest
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.execution_events import AgentExecutionStarted
from holdfast.core.wire.execution_record import record_of
from holdfast.core.wire.records import ExecutionRecord, Snapshot
from holdfast.core.wire.session_contracts import FindSession, SessionMessage
from holdfast.core.wire.sink_contracts import SinkStart
from holdfast.server.garbage.registration import registered
from holdfast.sinks import position
from holdfast.sinks.position import ConsumerPosition
from holdfast.storage.data_converter import PayloadFormat
from holdfast.storage.object_store import Objects
from holdfast.storage.parts import REF_CHARS, EncodedParts, PartList
from holdfast.storage.records import Records
from holdfast.workspace.snapshot_store import SnapshotStore
from tests.core.building import AGENT_ID, DEFINITION, START, USAGE, Run, call, moment
from workflows.continue_as_new import check_start

FOLDER: Final = Path(__file__).parent / "forms"
DIGEST_CHARS: Final = 12
EXECUTION_ID: Final = str(UUID(int=2))
SINK: Final = SinkStart(consumer="audit", task_queue="agents")


@dataclass(frozen=True)
class Stored:
    """A stored form: `shape` are its models, `read` puts data where it belongs and has it read by who reads it.

    `read` returns what would be written of what was read; None where that is no part of reading it.
    """

    form: StoredForm
    shape: Any
    example: Callable[[], bytes]
    read: Callable[[Path, bytes], Awaitable[bytes | None]]

    @property
    def key(self) -> str:
        """The name of its golden files, without the version."""
        return "-".join(
            word for word in self.form.name.lower().replace("'", "").split() if word not in ("a", "an", "the")
        )

    @property
    def golden(self) -> Path:
        """The golden file of its present version."""
        return FOLDER / f"{self.key}-{self.form.version}.json"

    def shapes(self) -> dict[str, str]:
        """Return a digest of each model that it is made of, texts for people left out."""
        if isinstance(self.shape, tuple):  # no models: the names of the fields
            return {"fields": " ".join(cast("tuple[str, ...]", self.shape))}
        whole: dict[str, Any] = TypeAdapter(self.shape).json_schema(mode="serialization")
        parts = {"": whole, **whole.pop("$defs", {})}
        return {name: _digest(_bare(part)) for name, part in sorted(parts.items())}


def _bare(part: Any) -> Any:  # noqa: ANN401  # JSON
    """Return a schema without titles and descriptions, but with fields of those names."""
    if isinstance(part, list):
        return [_bare(each) for each in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    items = cast("dict[str, Any]", part).items()
    return {
        name: {field: _bare(about) for field, about in value.items()} if name == "properties" else _bare(value)
        for name, value in items
        if name not in ("title", "description") or name == "properties"
    }


def _digest(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:DIGEST_CHARS]


def _ended() -> Run:
    run = Run()
    run.state, _ = run.loop.step(
        run.state, ExecutionStarted(EXECUTION_ID, (user_message("What is it?"),), run.budget, moment(0))
    )
    asked = InferenceResponse(tool_calls=(call("a"),), usage=USAGE)
    answer = InferenceResponse(text="It is two.", usage=USAGE)
    for event in (
        ModelAnswered(asked, moment(1)),
        ToolReturned("a", "two", moment(1), moment(2)),
        ModelAnswered(answer, moment(3)),
    ):
        run.state, _ = run.loop.step(run.state, event)
    return run


def _snapshot() -> Snapshot:
    return SealedHistory().snapshot(_ended().state)


def _record() -> ExecutionRecord:
    snapshot = _snapshot()
    digest = sha256(canonical(snapshot)).hexdigest()
    return record_of(RecordRequest(agent="tester", task="What is it?"), snapshot, digest, {})


def _session() -> SessionState:
    queue = (SessionMessage(message_id="one", text="And now?"),)
    return SessionState(agent_id=AGENT_ID, definition=DEFINITION, queue=queue, executions=1, updated_at=START)


def _catalog() -> McpCatalog:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    return McpCatalog(tools=(McpTool(name="notes_add", server="notes", tool="add", parameters=parameters),))


async def _placed(folder: Path, name: str, data: bytes) -> tuple[Records, Objects]:
    """Write an object as every process does that has no key."""
    objects = Objects(folder.as_uri())
    payload = Payload(metadata={"encoding": b"json/plain"}, data=data)
    await objects.replace(name, payload.SerializeToString(deterministic=True))
    return Records(objects), objects


async def _content(folder: Path, kind: str, data: bytes) -> tuple[Records, str]:
    digest = sha256(data).hexdigest()
    records, _ = await _placed(folder, f"{kind}/{digest[:2]}/{digest}", data)
    return records, digest


async def _read_state(_: Path, data: bytes) -> bytes:
    return to_json(from_json(AgentState, data))


async def _read_event(_: Path, data: bytes) -> bytes:
    return event_envelope.to_line(event_envelope.from_dict(json.loads(data))).strip()


def _event() -> bytes:
    said = AgentExecutionStarted(AGENT_ID, EXECUTION_ID, None, START, 0, agent="tester", resumed=False)
    return event_envelope.to_line(NumberedEvent(1, said)).strip()


async def _read_snapshot(folder: Path, data: bytes) -> bytes:
    records, digest = await _content(folder, "snapshots", data)
    assert await records.frames(digest) == framed([data])
    await records.state(digest)
    return canonical(await records.read_snapshot(digest))


async def _read_record(folder: Path, data: bytes) -> bytes:
    records, _ = await _placed(folder, f"records/{EXECUTION_ID[:2]}/{EXECUTION_ID}", data)
    return canonical(await records.by_id(EXECUTION_ID))


async def _read_session(folder: Path, data: bytes) -> bytes:
    records, _ = await _placed(folder, f"sessions/{AGENT_ID}", data)
    found = await RecordActivities(records).find_session(FindSession(agent_id=AGENT_ID))
    return canonical(SessionState.model_validate_json(found.kept or ""))


async def _read_catalog(folder: Path, data: bytes) -> bytes:
    records, digest = await _content(folder, "mcp", data)
    return canonical(await records.read_catalog(digest))


async def _read_manifest(folder: Path, data: bytes) -> None:
    records, digest = await _content(folder, "attachments", data)
    manifest = await SnapshotStore(records).manifest(digest)
    assert (set(manifest.files), set(manifest.folders)) == ({"deep/a"}, {"deep"})
    assert (dict(manifest.links), manifest.closed) == ({"out": "deep/a"}, ("shut",))


async def _read_result(folder: Path, data: bytes) -> None:
    objects = Objects(folder.as_uri())
    payload = Payload(metadata={"encoding": b"binary/plain"}, data=data)
    ref = sha256(data).hexdigest()[:REF_CHARS]
    await objects.replace(f"results/{ref}.parts", payload.SerializeToString(deterministic=True))
    assert await EncodedParts(objects).read_range("results", ref, 9, 9) == (b"", 3)


async def _read_position(folder: Path, data: bytes) -> None:
    records, _ = await _placed(folder, "sinks/default/agents/audit/place", data)
    consumer = ConsumerPosition(records, "default", SINK)
    await consumer.load(START + timedelta(days=1))
    assert (consumer.looked_until, consumer.told) == (START, {EXECUTION_ID: 3})


async def _read_registration(folder: Path, data: bytes) -> None:
    objects = Objects(folder.as_uri())
    await objects.replace("namespaces/an-id", data)
    assert await registered(objects) == (("an-id", "default", "temporal:7233"),)


async def _read_run_input(_: Path, data: bytes) -> bytes:
    start: dict[str, Any] = json.loads(data)
    check_start(start)
    return canonical(ExecutionInput.model_validate_json(data))


def _input_of(kind: type[Frozen]) -> Callable[[Path, bytes], Awaitable[bytes]]:
    async def read(_: Path, data: bytes) -> bytes:
        payload = Payload(metadata={"encoding": b"json/plain"}, data=data)
        [start] = PayloadFormat().for_workflow().from_payloads([payload], [kind])
        check_start(start)
        return canonical(start)

    return read


def _spelled(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


_MANIFEST: Final = {
    "closed": ["shut"],
    "files": [["deep/a", 0o644, 3, sha256(b"one").hexdigest()]],
    "folders": [["deep", 0o755]],
    "links": [["out", "deep/a"]],
}
_POSITION: Final = {
    "format": 1,
    "runner": "a-runner",
    "looked_until": "2025-01-01T12:00:00Z",
    "told": {EXECUTION_ID: 3},
    "done": {},
    "events": [],
    "singly": False,
}
_USER: Final = {FORMAT: 1, "namespace": "default", "address": "temporal:7233"}
_RUN: Final = ExecutionInput(agent_id=AGENT_ID, definition=DEFINITION, question="?", budget=ExecutionBudget())

OWN_REFUSAL: Final = (AGENT_STATE, EVENT)
"""The forms that people hand us, whose readers refuse another version in words of their own."""

FORMS: Final = (
    Stored(AGENT_STATE, AgentState, lambda: to_json(_ended().state), _read_state),
    Stored(EVENT, event_envelope.AnyEvent, _event, _read_event),
    Stored(SNAPSHOT, Snapshot, lambda: canonical(_snapshot()), _read_snapshot),
    Stored(RECORD, ExecutionRecord, lambda: canonical(_record()), _read_record),
    Stored(SESSION, SessionState, lambda: canonical(_session()), _read_session),
    Stored(CATALOG, McpCatalog, lambda: canonical(_catalog()), _read_catalog),
    Stored(MANIFEST, ("closed", "files", "folders", "links"), lambda: _spelled(_MANIFEST), _read_manifest),
    Stored(RESULT_PARTS, PartList, lambda: canonical(PartList(size=3, digests=("ab" * 32,))), _read_result),
    Stored(
        SINK_POSITION,
        position._SavedPosition,  # pyright: ignore[reportPrivateUsage]  # nobody else needs it
        lambda: _spelled(_POSITION),
        _read_position,
    ),
    Stored(STORE_USER, ("address", "format", "namespace"), lambda: _spelled(_USER), _read_registration),
    Stored(RUN_INPUT, ExecutionInput, lambda: canonical(_RUN), _read_run_input),
    Stored(
        SESSION_INPUT,
        SessionInput,
        lambda: canonical(SessionInput(definition=DEFINITION, carried=_session())),
        _input_of(SessionInput),
    ),
    Stored(SINK_INPUT, SinkStart, lambda: canonical(SINK), _input_of(SinkStart)),
)


def main() -> None:
    """Write the golden file of each form's present version."""
    parser = argparse.ArgumentParser(prog="python -m tests.storage.stored_forms", description=__doc__)
    parser.add_argument("--anew", action="store_true", help="replace what is there: allowed until the first release")
    anew = parser.parse_args().anew
    for each in FORMS:
        document = {"form": each.form.name, "version": each.form.version, "shape": each.shapes()}
        text = json.dumps({**document, "example": json.loads(each.example())}, indent=1, ensure_ascii=False) + "\n"
        if not each.golden.exists() or anew:
            each.golden.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
