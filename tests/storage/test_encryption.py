"""The codec: what it encodes comes back as it was, and nothing else is let through."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload

from holdfast.core.base.errors import PayloadRefused
from holdfast.storage.bound_codec import REFUSED_ENCODING
from holdfast.storage.encryption import ENCODED_IN_PLACE_BYTES_MAX, EncryptionCodec
from holdfast.storage.keys import Key, KeyRing

OLD, NEW = Key("old", b"o" * 32), Key("new", b"n" * 32)
CODEC = EncryptionCodec(KeyRing((OLD,)))
VALUE = Payload(metadata={"encoding": b"json/plain"}, data=b'"canary"')


async def sealed(codec: EncryptionCodec = CODEC, payload: Payload = VALUE) -> Payload:
    [one] = await codec.encode([payload])
    return one


async def refused(codec: EncryptionCodec, payload: Payload) -> str:
    with pytest.raises(PayloadRefused) as told:
        await codec.decode([payload])
    assert "canary" not in str(told.value)
    return str(told.value)


@settings(max_examples=50)
@given(
    st.lists(
        st.builds(
            Payload,
            metadata=st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
            data=st.binary(max_size=2_000),
        ),
        max_size=3,
    )
)
async def test_all_that_is_encoded_comes_back(payloads: list[Payload]) -> None:
    assert await CODEC.decode(await CODEC.encode(payloads)) == payloads


@pytest.mark.parametrize("size", [ENCODED_IN_PLACE_BYTES_MAX + 1, 3_000_000])
async def test_what_is_long_comes_back_too_smaller_if_it_can_be(size: int) -> None:
    for data in (b"x" * size, os.urandom(size)):
        value = Payload(metadata={"encoding": b"binary/plain"}, data=data)
        one = await sealed(CODEC, value)
        assert one.ByteSize() < (size // 100 if data[:2] == b"xx" else size + 200)
        assert await CODEC.decode([one]) == [value]


async def test_equal_values_are_not_seen_to_be_equal_and_nothing_shows_through() -> None:
    one, other = await sealed(), await sealed()
    assert one.data != other.data
    assert b"canary" not in one.SerializeToString()
    assert b"json" not in one.SerializeToString()
    assert dict(one.metadata) == {"encoding": b"holdfast/sealed-1", "key": b"old"}


async def test_any_changed_bit_is_refused() -> None:
    one = await sealed(CODEC.for_run("a"))
    for place in range(len(one.data)):
        data = bytearray(one.data)
        data[place] ^= 1
        assert "cannot be decrypted" in await refused(CODEC, Payload(metadata=one.metadata, data=bytes(data)))
    for cut in (b"", one.data[:11], one.data[:-1], one.data + b"x"):
        assert "cannot be decrypted" in await refused(CODEC, Payload(metadata=one.metadata, data=cut))
    for name in ("key", "for"):
        changed = Payload(metadata={**one.metadata, name: b"run:b" if name == "for" else b"new"}, data=one.data)
        assert "cannot be decrypted" in await refused(EncryptionCodec(KeyRing((OLD, Key("new", b"x" * 32)))), changed)


async def test_the_first_key_encrypts_and_all_decrypt() -> None:
    before = await sealed()
    rotated = EncryptionCodec(KeyRing((NEW, OLD)))
    after = await sealed(rotated)
    assert after.metadata["key"] == b"new"
    assert await rotated.decode([before, after]) == [VALUE, VALUE]
    assert "with the key 'new', and the key file has only old; put that" in await refused(CODEC, after)
    assert "another key of that name" in await refused(EncryptionCodec(KeyRing((Key("old", b"x" * 32),))), before)


async def test_what_is_not_encrypted_is_refused() -> None:
    for odd in (VALUE, Payload(), Payload(metadata={"encoding": b"binary/encrypted"}, data=b"canary")):
        assert "is not encrypted" in await refused(CODEC, odd)
        assert "is not encrypted" in await refused(CODEC.for_object("a"), odd)


async def test_a_run_takes_its_own_and_what_is_for_nobody() -> None:
    mine, unbound, others = await sealed(CODEC.for_run("mine")), await sealed(), await sealed(CODEC.for_run("theirs"))
    stored = await sealed(CODEC.for_object("results/1"))
    run = CODEC.for_run("mine")
    assert await run.decode([mine, unbound]) == [VALUE, VALUE]
    assert await CODEC.decode([mine, others, stored]) == [VALUE] * 3, "who asks for no run's reads all"
    for other in (others, stored, VALUE):
        [instead] = await run.decode([other])
        assert instead.metadata["encoding"] == REFUSED_ENCODING
        assert b"canary" not in instead.data


async def test_an_object_takes_its_own_alone() -> None:
    mine = await sealed(CODEC.for_object("a"))
    assert await CODEC.for_object("a").decode([mine]) == [VALUE]
    for other in (await sealed(), await sealed(CODEC.for_object("b")), await sealed(CODEC.for_run("a"))):
        assert "stands in the place of one of 'object:a'" in await refused(CODEC.for_object("a"), other)


def test_equal_keys_make_equal_codecs() -> None:
    again = EncryptionCodec(KeyRing((OLD,)))
    assert again == CODEC
    assert hash(again) == hash(CODEC)
    assert CODEC not in {EncryptionCodec(KeyRing((NEW,))), CODEC.for_run("a"), "codec"}
