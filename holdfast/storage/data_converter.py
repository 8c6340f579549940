"""The data converter of every worker and client: it stores payloads too large for Temporal's history as objects.

The history holds the driver's name and the stored payload's digest, so neither may ever change. What is in the record
store already (`holdfast.storage.records`) is not stored again: a payload then holds its digest alone.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from typing import Any, Final

from google.protobuf.message import DecodeError
from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    ExternalStorage,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverSelectContext,
    StorageDriverStoreContext,
    WithSerializationContext,
)

from holdfast.core.base.bounds import (
    ANSWER_INLINE_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    STORED_BYTES_MIN,
    STORED_CACHE_BYTES_MAX,
)
from holdfast.core.base.errors import FormNewer, PayloadRefused, StorageFailed
from holdfast.core.base.stored_forms import SESSION_INPUT, SINK_INPUT, StoredForm
from holdfast.core.session.session_state import SessionInput
from holdfast.core.wire.contracts import BufferPage, EventsPage, PartPage, StatePage, TranscriptPage
from holdfast.core.wire.records import Snapshot, SnapshotReference
from holdfast.core.wire.refused_start import RefusedStart
from holdfast.core.wire.sink_contracts import SinkStart
from holdfast.storage.bound_codec import REFUSED_ENCODING, codec_for_run, is_encrypted
from holdfast.storage.keys import KEY_FILE
from holdfast.storage.lru_cache import LruCache, digest_of
from holdfast.storage.object_store import Objects, objects_at
from holdfast.storage.records import Records

DRIVER: Final = "holdfast"
DIGEST: Final = "sha256"
SNAPSHOT: Final = "snapshot"
"""The keys of a claim: content stored under its digest, or a snapshot of the record store."""

_HEX: Final = re.compile(r"[0-9a-f]{64}")

ANSWER_END: Final = b"\n"
"""The last byte of a query's answer. An answer is in no history, so storing it would only fill the storage: most stay
inline.

JSON has no trailing space of its own, and readers skip it. A metadata field cannot mark the answer: Temporal's command
prints a payload as JSON only if its metadata holds the encoding alone, and as base64 otherwise.
"""

ANSWER: Final = "holdfast-answer"
"""The metadata mark of an answer that a codec has encoded."""

JSON_ENCODING: Final = b"json/plain"

SEGMENT_ENCODING: Final = b"binary/plain"
"""The SDK's encoding of bytes: of our values only the segments of `holdfast.core.wire.carry_over` are bytes."""

SEGMENT: Final = "holdfast-segment"
"""The metadata mark of plain bytes that a codec has encoded."""

SNAPSHOT_MARK: Final = "holdfast-kept"
"""The mark of what the driver read for a `SnapshotReference`: the store decoded it, so the codec must not."""

OPEN: Final = b"1"
"""The value of that mark if there is no codec."""

SNAPSHOT_ENCODING: Final = b"holdfast/kept"
"""The encoding of a `SnapshotReference`: the snapshot's digest. Only the storage driver can read it."""

NOT_ENCODED: Final = "(a failure that was not encrypted: whoever reported it does not have the key file)"
"""Replaces the message of a failure that was written without the key."""

PAGES: Final = (BufferPage, EventsPage, PartPage, Snapshot, StatePage, TranscriptPage)
"""The types of the answers of queries."""

INPUT_FORMS: Final[dict[type, StoredForm]] = {SessionInput: SESSION_INPUT, SinkStart: SINK_INPUT}
"""The types of workflows' inputs that are read before the workflow begins; an execution reads its own."""


_FORMATS: Final = PydanticPayloadConverter().converters


@cache
def converter(place: str, codec: PayloadCodec | None) -> DataConverter:
    """Return the data converter for every client and worker, with large data stored at the URL `place`.

    `codec` encodes all payloads and the whole record store. Equal arguments return the same converter.
    """
    objects = objects_at(place)
    marking = None if codec is None else MarkingCodec(codec)
    opened = OPEN if marking is None else marking.opened
    driver = PayloadDriver(objects, records=Records(objects, codec), opened=opened)
    return replace(
        pydantic_data_converter,
        payload_converter_class=PayloadFormat,
        payload_codec=marking or PlainCodec(),
        failure_converter_class=FailureFormat if codec is None else EncodedFailureFormat,
        # threshold 0: the selector decides by a payload's kind; the SDK's 256 KB default looks at the size only
        external_storage=ExternalStorage(drivers=[driver], driver_selector=driver.selected, payload_size_threshold=0),
    )


def is_sealed(data_converter: DataConverter) -> bool:
    """Return whether this data converter encrypts payloads and refuses unencrypted ones."""
    return isinstance(data_converter.payload_codec, MarkingCodec)


def records_of(data_converter: DataConverter) -> Records:
    """Return the record store of a client's or worker's data converter. Raises StorageFailed if it has none."""
    drivers = data_converter.external_storage.drivers if data_converter.external_storage else ()
    for driver in drivers:
        if isinstance(driver, PayloadDriver):
            return driver.records
    raise StorageFailed(
        "this Temporal client has no record store; connect with holdfast.connection.temporal_client.connect"
    )


class PlainCodec(PayloadCodec):
    """Encodes nothing. It refuses encrypted payloads, so that a run waits for a worker that has the key file."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads as they are."""
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads as they are. Raises PayloadRefused for an encrypted one."""
        for payload in payloads:
            if is_encrypted(payload):
                key = payload.metadata.get("key", b"")[:100].decode(errors="replace")
                # raised within a workflow task it fails the task, which is retried until the key is there
                problem = f"a payload is encrypted with the key {key!r}, and this process has no key file"
                raise PayloadRefused(f"{problem}; set {KEY_FILE}")
        return list(payloads)


class MarkingCodec(PayloadCodec, WithSerializationContext):
    """A codec that skips payloads that hold only digests, and keeps the marks by which the driver selects payloads.

    The record store has already decoded what the driver read for a snapshot. The mark of such a payload is `opened`, a
    random value known only in this process, so a history cannot claim that its payload was decoded.
    """

    def __init__(self, codec: PayloadCodec, opened: bytes | None = None) -> None:
        self.opened = opened or secrets.token_bytes(16)
        self._codec = codec

    def with_context(self, context: SerializationContext) -> MarkingCodec:
        """Return the codec bound to the workflow of `context`."""
        return MarkingCodec(codec_for_run(self._codec, context), self.opened)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encode each payload; its marks stay readable."""
        return [await self._encoded(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decode each payload, except what the driver has decoded."""
        return [await self._decoded(payload) for payload in payloads]

    async def _encoded(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") == SNAPSHOT_ENCODING:
            return payload
        # the codec runs before the storage, so that objects are encrypted; metadata it adds survives
        [encoded] = await self._codec.encode([payload])
        if payload.metadata.get("encoding") == SEGMENT_ENCODING:
            encoded.metadata[SEGMENT] = b"1"
        if _is_answer(payload):
            encoded.metadata[ANSWER] = b"1"
        return encoded

    async def _decoded(self, payload: Payload) -> Payload:
        if payload.metadata.get(SNAPSHOT_MARK) == self.opened:
            return payload
        [decoded] = await self._codec.decode([payload])
        return decoded


class PayloadFormat(PydanticPayloadConverter):
    """Values as JSON; query answers are marked, and a `SnapshotReference` becomes its digest."""

    _in_workflow = False

    # The SDK creates one for most payloads, so they share the converters. Creating those is all that the base class's
    # __init__ does in 1.35.
    def __init__(self) -> None:
        self.converters = _FORMATS

    def for_workflow(self) -> PayloadFormat:
        """Return the converter for workflows, which decide themselves about refused input."""
        converter = type(self)()
        converter._in_workflow = True  # noqa: SLF001  # our own class
        return converter

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Return one payload for each value."""
        payloads = super().to_payloads(values)
        for value, payload in zip(values, payloads, strict=True):
            if isinstance(value, PAGES):
                # the driver sees bytes and no types: an answer must be recognised in its payload
                payload.data += ANSWER_END
            elif isinstance(value, SnapshotReference):
                payload.CopyFrom(Payload(metadata={"encoding": SNAPSHOT_ENCODING}, data=value.snapshot.encode()))
        return payloads

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Return the values. Raises PayloadRefused for a refused payload whose value is read.

        An error here would end a run, and its input is converted before it starts. So a refused input becomes a
        `RefusedStart`, and the run decides. (An execution's input comes without a type, or as a plain `dict`.)
        """
        for payload, hint in zip_longest(payloads, type_hints or ()):
            # RawValue passes through undecoded: what nobody reads is not refused
            if hint is RawValue or payload.metadata.get("encoding") != REFUSED_ENCODING:
                continue
            why = payload.data.decode(errors="replace")
            if self._in_workflow and (hint in INPUT_FORMS or not isinstance(hint, type)):
                return [RefusedStart(why)]
            raise PayloadRefused(why)
        try:
            return super().from_payloads(payloads, type_hints)
        except ValidationError:
            form = INPUT_FORMS.get(type_hints[0]) if self._in_workflow and type_hints else None
            if form is None:
                raise
            try:
                form.check(payloads[0].data)
            except FormNewer as error:
                return [RefusedStart(error.message, newer=True)]
            raise


class FailureFormat(DefaultFailureConverter):
    """Failures in the SDK's format; details that cannot be decoded, from any kind of worker, are dropped."""

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """Return the error of `failure`, without its details if they cannot be decoded.

        The SDK would fail the whole run because of one tool call's details.
        """
        try:
            return super().from_failure(failure, payload_converter)
        except Exception:  # a decoder can raise anything for such bytes
            bare = Failure()
            bare.CopyFrom(failure)
            match failure.WhichOneof("failure_info"):
                case "application_failure_info":
                    bare.application_failure_info.ClearField("details")
                case "canceled_failure_info":
                    bare.canceled_failure_info.ClearField("details")
                case "timeout_failure_info":
                    bare.timeout_failure_info.ClearField("last_heartbeat_details")
                case _:
                    raise
            return super().from_failure(bare, payload_converter)


class EncodedFailureFormat(FailureFormat):
    """Failures whose message and stack trace are encoded with the codec, too.

    The message of an unencoded application failure is replaced: a model would read what anybody wrote there. A refused
    payload is reported in plain text as well: whoever looks for the cause may not have the key.
    """

    def __init__(self) -> None:
        super().__init__(encode_common_attributes=True)

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Write the error into `failure`."""
        super().to_failure(exception, payload_converter, failure)
        # the SDK wraps what a codec raises
        for refused in (exception, exception.__cause__):
            if isinstance(refused, PayloadRefused):
                failure.message = str(refused)

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """Return the error of `failure`; a message that was written without the key is replaced."""
        # timeouts and cancels are the server's own failures, which it cannot encrypt
        if failure.HasField("application_failure_info") and not failure.HasField("encoded_attributes"):
            bare = Failure()
            bare.CopyFrom(failure)
            bare.message, bare.stack_trace = NOT_ENCODED, ""
            failure = bare
        return super().from_failure(failure, payload_converter)


class PayloadDriver(StorageDriver):
    """Stores payloads under their SHA-256, so that equal ones are written once and a changed one is detected.

    Recent ones stay in memory: replaying a run reads every payload that its history refers to.
    """

    def __init__(
        self,
        objects: Objects,
        cache_bytes_max: int = STORED_CACHE_BYTES_MAX,
        records: Records | None = None,
        opened: bytes = OPEN,
    ) -> None:
        self.records = records or Records(objects)
        self._opened = opened
        self._objects = objects
        self._recent = LruCache(cache_bytes_max)

    def name(self) -> str:
        """Return the driver's name in histories."""
        return DRIVER

    def type(self) -> str:
        """Return the driver's type, as Temporal shows it."""
        return DRIVER

    def selected(self, _: StorageDriverSelectContext, payload: Payload) -> StorageDriver | None:
        """Return this driver for payloads that it stores: large ones, and sealed segments, which are plain bytes.

        Also for a snapshot's digest, whose snapshot is in the record store already.
        """
        metadata = payload.metadata
        if metadata.get("encoding") == SNAPSHOT_ENCODING:
            return self
        if ANSWER in metadata or _is_answer(payload):
            # the server refuses a query's answer over 2 MB; a smaller one need not be stored
            least = ANSWER_INLINE_BYTES_MAX
        elif metadata.get("encoding") == SEGMENT_ENCODING or SEGMENT in metadata:
            least = SEGMENT_BYTES_MIN
        else:
            least = STORED_BYTES_MIN
        return self if payload.ByteSize() >= least else None

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Store `payloads` and return a claim for each. Raises StorageFailed."""
        del context  # equal content is shared between runs
        return list(await asyncio.gather(*(self._claim(payload) for payload in payloads)))

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Return the payloads of the claims. Raises ObjectMissing, StorageFailed (also for changed content)."""
        del context
        return list(await asyncio.gather(*(self._claimed(claim) for claim in claims)))

    async def _claim(self, payload: Payload) -> StorageDriverClaim:
        if payload.metadata.get("encoding") == SNAPSHOT_ENCODING:
            return StorageDriverClaim(claim_data={SNAPSHOT: payload.data.decode()})
        # metadata is a map: without `deterministic` equal payloads would have different digests
        data = payload.SerializeToString(deterministic=True)
        digest = digest_of(data)
        await self._objects.write(_name(digest), data)
        self._recent.put(digest, data)
        return StorageDriverClaim(claim_data={DIGEST: digest})

    async def _claimed(self, claim: StorageDriverClaim) -> Payload:
        snapshot = claim.claim_data.get(SNAPSHOT)
        digest = snapshot or claim.claim_data.get(DIGEST, "")
        # it becomes an object name: anything but a digest could lead out of the folder (`../`)
        if _HEX.fullmatch(digest) is None:
            raise StorageFailed(f"the history refers to {digest[:80]!r} in our storage, which is no digest of ours")
        if snapshot is not None:
            frames = await self.records.frames(snapshot)
            return Payload(metadata={"encoding": SEGMENT_ENCODING, SNAPSHOT_MARK: self._opened}, data=frames)
        data = self._recent.get(digest)
        if data is None:
            data = await self._objects.read(_name(digest))
            if digest_of(data) != digest:
                problem = (
                    f"the object {_name(digest)} in {self._objects.url} is damaged: its content has another digest"
                )
                raise StorageFailed(f"{problem}; restore it from a backup")
            self._recent.put(digest, data)
        try:
            return Payload.FromString(data)
        except DecodeError:
            raise StorageFailed(f"the object {_name(digest)} in {self._objects.url} is no payload of ours") from None


def _is_answer(payload: Payload) -> bool:
    return payload.metadata.get("encoding") == JSON_ENCODING and payload.data.endswith(ANSWER_END)


def _name(digest: str) -> str:
    return f"payloads/{digest[:2]}/{digest}"
