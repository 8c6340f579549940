"""`EncryptionCodec`: compresses payloads, then encrypts and authenticates them; it refuses any other payload.

An encoded payload has three metadata fields, which are authenticated with its content:

    encoding   holdfast/sealed-1
    key        the id of the key
    for        the place it is bound to, if known: `run:WORKFLOW-ID`, or `object:NAME` in the store

Its data is a nonce of 12 random bytes, followed by the AES-256-GCM ciphertext of the whole original payload, metadata
included: one byte that says whether the rest is compressed with zstd, and the rest.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.core.base.errors import PayloadRefused
from holdfast.storage.bound_codec import SEALED_ENCODING, is_encrypted, refused_payload
from holdfast.storage.keys import KEY_FILE, KeyRing

ENCODED_IN_PLACE_BYTES_MAX: Final = 128 * 1024
"""Payloads up to this size are encrypted on the event loop (at most some 0.3 ms), longer ones in a thread."""

DECODED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The largest decompressed payload: twice RESULT_KEPT_BYTES_MAX, the largest stored object."""

KEY: Final = "key"
FOR: Final = "for"

NONCE_BYTES: Final = 12
COMPRESSED_MIN: Final = 200
"""Shorter payloads hardly shrink."""

LEVEL: Final = 3
PLAIN: Final = b"\0"
ZSTD: Final = b"\1"


class _Zstd(threading.local):
    """One per thread: they cannot be shared, and creating one costs more than compressing a short payload."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd: Final = _Zstd()


class EncryptionCodec(PayloadCodec):
    """Encrypts with the first key of a ring and decrypts with any. Codecs with equal keys and binding are equal."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._ciphers = {key.id.encode(): AESGCM(key.secret) for key in ring.keys}
        self._bound = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptionCodec) and (self._ring, self._bound) == (other._ring, other._bound)

    def __hash__(self) -> int:
        return hash((self._ring, self._bound))

    def for_run(self, workflow_id: str) -> EncryptionCodec:
        """Return the codec for one workflow's payloads; it also accepts unbound payloads."""
        return self._bound_to(f"run:{workflow_id}")

    def for_object(self, name: str) -> EncryptionCodec:
        """Return the codec for one stored object; it accepts only what was encoded for that name."""
        return self._bound_to(f"object:{name}")

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encode each payload, long ones in a thread."""
        return [
            self._sealed(each)
            if len(each.data) <= ENCODED_IN_PLACE_BYTES_MAX
            else await asyncio.to_thread(self._sealed, each)
            for each in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decode encrypted payloads. Raises PayloadRefused for one that is unencrypted, bound elsewhere or changed.

        Of a workflow's payloads, only those raise that another key could decrypt. One that can never be read is
        replaced by a refusal, which `data_converter.PayloadFormat` raises when the value is read: so an unencrypted
        message is refused by itself and does not block the rest of the workflow.
        """
        return [
            self._opened(each)
            if len(each.data) <= ENCODED_IN_PLACE_BYTES_MAX
            else await asyncio.to_thread(self._opened, each)
            for each in payloads
        ]

    def _bound_to(self, what: str) -> EncryptionCodec:
        # __init__ would create every cipher again
        bound = object.__new__(EncryptionCodec)
        bound._ring, bound._ciphers, bound._bound = self._ring, self._ciphers, what.encode()
        return bound

    def _never(self, why: str) -> Payload:
        # raising in a workflow task fails the task, and with it everything else that the task brings
        if self._bound.startswith(b"run:"):
            return refused_payload(why)
        raise PayloadRefused(why)

    def _sealed(self, payload: Payload) -> Payload:
        key_id = self._ring.keys[0].id.encode()
        nonce = os.urandom(NONCE_BYTES)  # AES-GCM is broken by a nonce that is used twice with one key
        content = _packed(payload.SerializeToString())
        data = nonce + self._ciphers[key_id].encrypt(nonce, content, _associated(key_id, self._bound))
        sealed = Payload(metadata={"encoding": SEALED_ENCODING, KEY: key_id}, data=data)
        if self._bound:
            sealed.metadata[FOR] = self._bound
        return sealed

    def _opened(self, payload: Payload) -> Payload:
        metadata = payload.metadata
        if not is_encrypted(payload):
            problem = f"a payload is not encrypted (its encoding is {_shown(metadata.get('encoding', b''))})"
            remedy = "does whoever wrote it have the key file, and is it Holdfast's codec?"
            return self._never(f"{problem}, and this process takes encrypted ones only; {remedy}")
        key_id, bound = metadata.get(KEY, b""), metadata.get(FOR, b"")
        cipher = self._ciphers.get(key_id)
        # always raised: a worker with the right key file can still read it
        if cipher is None:
            there = ", ".join(key.id for key in self._ring.keys)
            problem = f"a payload is encrypted with the key {_shown(key_id)}, and the key file has only {there}"
            raise PayloadRefused(f"{problem}; put that key's line back into the file ({KEY_FILE})")
        # what the SDK encodes without a workflow id is unbound; a run accepts it, a stored object does not
        if self._bound and bound != self._bound and (bound or self._bound.startswith(b"object:")):
            problem = f"a payload of {_shown(bound)} stands in the place of one of {_shown(self._bound)}"
            return self._never(f"{problem}; somebody has moved it: restore the database, or the object, from a backup")
        try:
            return _unpacked(
                cipher.decrypt(payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:], _associated(key_id, bound))
            )
        except (InvalidTag, ValueError, DecodeError, zstandard.ZstdError):
            problem = f"a payload cannot be decrypted with the key {_shown(key_id)}"
            remedy = "either the key file has another key of that name, or the payload was changed"
            raise PayloadRefused(f"{problem}: {remedy}; restore whichever it is") from None


def codec_at(path: Path) -> EncryptionCodec:
    """Return the codec with the keys of a file. Raises InvalidInput."""
    return EncryptionCodec(KeyRing.read(path))


def _associated(key_id: bytes, bound: bytes) -> bytes:
    """Return the associated data. It is unambiguous: a key id has no NUL, and the binding comes last."""
    return b"\0".join((SEALED_ENCODING, key_id, bound))


def _packed(content: bytes) -> bytes:
    # compressed before encryption: ciphertext does not shrink
    if len(content) >= COMPRESSED_MIN:
        packed = _zstd.compressor.compress(content)
        if len(packed) < len(content):
            return ZSTD + packed
    return PLAIN + content


def _unpacked(packed: bytes) -> Payload:
    content = packed[1:]
    if packed[:1] == ZSTD:
        # checked before decompressing: a few bytes can declare gigabytes
        if zstandard.frame_content_size(content) > DECODED_BYTES_MAX:
            raise ValueError(packed[:1])
        content = _zstd.decompressor.decompress(content, max_output_size=DECODED_BYTES_MAX)
    return Payload.FromString(content)


def _shown(value: bytes) -> str:
    return repr(value[:100].decode(errors="replace"))
