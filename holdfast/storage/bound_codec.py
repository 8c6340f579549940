"""What an encoded payload is for: a codec that can be bound refuses one that stands in another one's place.

And how such a refusal travels from the codec to where the value is wanted.
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

SEALED_ENCODING: Final = b"holdfast/sealed-1"
"""The encoding of what `holdfast.storage.encryption` has encrypted."""

REFUSED_ENCODING: Final = b"holdfast/refused"
"""The encoding of a refusal; its data are our own words, nothing of what was refused."""


@runtime_checkable
class Bindable(Protocol):
    """A codec that can say in what it encodes what that is for."""

    def for_run(self, workflow_id: str) -> PayloadCodec:
        """Return the codec of one workflow's payloads; it also takes what is bound to nothing."""
        ...

    def for_object(self, name: str) -> PayloadCodec:
        """Return the codec of one object of the store, which takes what was encoded for that name alone."""
        ...


def refused_payload(why: str) -> Payload:
    """Return what stands for a payload that can never be read."""
    return Payload(metadata={"encoding": REFUSED_ENCODING}, data=why.encode())


def codec_for_run(codec: PayloadCodec, context: SerializationContext) -> PayloadCodec:
    """Return the codec for what the SDK is about to encode or decode."""
    if isinstance(codec, Bindable) and isinstance(context, ActivitySerializationContext | WorkflowSerializationContext):
        return codec.for_run(context.workflow_id) if context.workflow_id else codec
    return codec


def codec_for_object(codec: PayloadCodec, name: str) -> PayloadCodec:
    """Return the codec for an object of the store."""
    return codec.for_object(name) if isinstance(codec, Bindable) else codec
