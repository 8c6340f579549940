"""Binding of encoded payloads: a bindable codec refuses a payload that was moved to another place.

Also how such a refusal travels from the codec to where the value is read.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    PayloadCodec,
    SerializationContext,
    WorkflowSerializationContext,
)

from holdfast.core.base.errors import PayloadRefused

SEALED_ENCODING: Final = b"holdfast/sealed-1"
"""The encoding of payloads that `holdfast.storage.encryption` has encrypted, with the version of the form."""

SEALED_PREFIX: Final = b"holdfast/sealed-"
"""How that encoding begins in every version."""

REFUSED_ENCODING: Final = b"holdfast/refused"
"""The encoding of a refusal; its data is our own text and nothing of the refused payload."""

ENCODING_BYTES_SHOWN: Final = 40
"""How much of an encoding that we cannot read an error shows."""


@runtime_checkable
class Bindable(Protocol):
    """A codec that can bind a payload to the place it is encoded for."""

    def for_run(self, workflow_id: str) -> PayloadCodec:
        """Return the codec for one workflow's payloads; it also accepts unbound payloads."""
        ...

    def for_object(self, name: str) -> PayloadCodec:
        """Return the codec for one stored object; it accepts only what was encoded for that name."""
        ...


def is_encrypted(payload: Payload) -> bool:
    """Return whether we have encrypted a payload. Raises PayloadRefused where a newer Holdfast did, in a later form.

    That is always raised, and no refusal that a run would end by: the payload is good, for a newer worker.
    """
    encoding = payload.metadata.get("encoding", b"")
    if encoding != SEALED_ENCODING and encoding.startswith(SEALED_PREFIX):
        shown, ours = encoding[:ENCODING_BYTES_SHOWN].decode(errors="replace"), SEALED_ENCODING.decode()
        problem = f"a payload is encrypted as {shown!r}, and this Holdfast reads {ours!r}: a newer Holdfast wrote it"
        raise PayloadRefused(f"{problem}; use that version, or a later one")
    return encoding == SEALED_ENCODING


def refused_payload(why: str) -> Payload:
    """Return the replacement for a payload that can never be read."""
    return Payload(metadata={"encoding": REFUSED_ENCODING}, data=why.encode())


def codec_for_run(codec: PayloadCodec, context: SerializationContext) -> PayloadCodec:
    """Return the codec for the payloads of the SDK's serialization context."""
    if isinstance(codec, Bindable) and isinstance(context, ActivitySerializationContext | WorkflowSerializationContext):
        return codec.for_run(context.workflow_id) if context.workflow_id else codec
    return codec


def codec_for_object(codec: PayloadCodec, name: str) -> PayloadCodec:
    """Return the codec for one stored object."""
    return codec.for_object(name) if isinstance(codec, Bindable) else codec
