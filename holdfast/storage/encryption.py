"""`EncryptionCodec`: payloads compressed, then encrypted and authenticated; what is not so is refused.

An encoded payload has three metadata fields, which are authenticated with its content:

    encoding   holdfast/sealed-1
    key        the id of the key
    for        what it stands for, where that is known: `run:WORKFLOW-ID`, or `object:NAME` in the store

Its data are a nonce of 12 random bytes and what AES-256-GCM makes of the whole payload as it was before, metadata and
all: one byte that says whether the rest is zstd's, and the rest.
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
from holdfast.storage.bound_codec import SEALED_ENCODING, refused_payload
from holdfast.storage.keys import KEY_FILE, KeyRing

ENCODED_IN_PLACE_BYTES_MAX: Final = 128 * 1024
"""Payloads up to here are encrypted on the event loop (some 0.3 ms at the most), longer ones in a thread."""

DECODED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The most that a compressed payload may come to: twice RESULT_KEPT_BYTES_MAX, the largest thing that we keep."""

KEY: Final = "key"
FOR: Final = "for"

NONCE_BYTES: Final = 12
COMPRESSED_MIN: Final = 200
"""Shorter payloads hardly shrink."""

LEVEL: Final = 3
PLAIN: Final = b"\0"
ZSTD: Final = b"\1"


class _Zstd(threading.local):
    """Each thread's own: they cannot be shared, and to make one costs more than to compress a short payload."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd: Final = _Zstd()


class EncryptionCodec(PayloadCodec):
    """Encrypts with the first key of a ring and decrypts with any. Equal for equal keys."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._ciphers = {key.id.encode(): AESGCM(key.secret) for key in ring.keys}
        self._bound = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptionCodec) and (self._ring, self._bound) == (other._ring, other._bound)

    def __hash__(self) -> int:
        return hash((self._ring, self._bound))

    def for_run(self, workflow_id: str) -> EncryptionCodec:
        """Return the codec of one workflow's payloads; it also takes what is bound to nothing."""
        return self._bound_to(f"run:{workflow_id}")

    def for_object(self, name: str) -> EncryptionCodec:
        """Return the codec of one object of the store, which takes what was encoded for that name alone."""
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
        """Decode what was encoded. Raises PayloadRefused for whatever was not, or not for this, or was changed.

        Of a workflow's payloads only those raise that could be read with another key. What never can be is replaced by
        its refusal, which `data_converter.PayloadFormat` raises where the value is wanted: so a message that somebody
        sent unencrypted is refused by itself, and does not keep the workflow from all else.
        """
        return [
            self._opened(each)
            if len(each.data) <= ENCODED_IN_PLACE_BYTES_MAX
            else await asyncio.to_thread(self._opened, each)
            for each in payloads
        ]

    def _bound_to(self, what: str) -> EncryptionCodec:
        bound = object.__new__(EncryptionCodec)
        bound._ring, bound._ciphers, bound._bound = self._ring, self._ciphers, what.encode()
        return bound

    def _never(self, why: str) -> Payload:
        if self._bound.startswith(b"run:"):
            return refused_payload(why)
        raise PayloadRefused(why)

    def _sealed(self, payload: Payload) -> Payload:
        key_id = self._ring.keys[0].id.encode()
        nonce = os.urandom(NONCE_BYTES)
        content = _packed(payload.SerializeToString())
        data = nonce + self._ciphers[key_id].encrypt(nonce, content, _associated(key_id, self._bound))
        sealed = Payload(metadata={"encoding": SEALED_ENCODING, KEY: key_id}, data=data)
        if self._bound:
            sealed.metadata[FOR] = self._bound
        return sealed

    def _opened(self, payload: Payload) -> Payload:
        metadata = payload.metadata
        if metadata.get("encoding") != SEALED_ENCODING:
            problem = f"a payload is not encrypted (its encoding is {_shown(metadata.get('encoding', b''))})"
            remedy = "does whoever wrote it have the key file, and is it Holdfast's codec?"
            return self._never(f"{problem}, and this process takes encrypted ones only; {remedy}")
        key_id, bound = metadata.get(KEY, b""), metadata.get(FOR, b"")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            there = ", ".join(key.id for key in self._ring.keys)
            problem = f"a payload is encrypted with the key {_shown(key_id)}, and the key file has only {there}"
            raise PayloadRefused(f"{problem}; put that key's line back into the file ({KEY_FILE})")
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
    """Return what is authenticated beside the content; a key's id has no NUL, and what it is for comes last."""
    return b"\0".join((SEALED_ENCODING, key_id, bound))


def _packed(content: bytes) -> bytes:
    if len(content) >= COMPRESSED_MIN:
        packed = _zstd.compressor.compress(content)
        if len(packed) < len(content):
            return ZSTD + packed
    return PLAIN + content


def _unpacked(packed: bytes) -> Payload:
    content = packed[1:]
    if packed[:1] == ZSTD:
        if zstandard.frame_content_size(content) > DECODED_BYTES_MAX:
            raise ValueError(packed[:1])
        content = _zstd.decompressor.decompress(content, max_output_size=DECODED_BYTES_MAX)
    return Payload.FromString(content)


def _shown(value: bytes) -> str:
    return repr(value[:100].decode(errors="replace"))
