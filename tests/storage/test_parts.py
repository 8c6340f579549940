"""Long results where a codec is on: kept in parts, read in pieces, none in the clear or in another one's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.base.errors import ObjectMissing, PayloadRefused, StorageFailed
from holdfast.core.tools.tool_context import ToolContext
from holdfast.storage.encryption import EncryptionCodec
from holdfast.storage.fetch_result_tool import ResultStore
from holdfast.storage.keys import Key, KeyRing
from holdfast.storage.object_store import Objects
from holdfast.storage.parts import RESULT_PART_BYTES, EncodedParts
from tests.storage.reading import part_of

CODEC = EncryptionCodec(KeyRing((Key("one", b"1" * 32),)))
RUN = "5f0c1d52-9d2c-4d39-b1a5-6a8f4a1d6a01"


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def at(folder: Path, codec: EncryptionCodec | None = CODEC) -> EncodedParts:
    return EncodedParts(Objects(folder.as_uri()), codec)


@pytest.mark.parametrize("codec", [CODEC, None], ids=["encrypted", "plain"])
@pytest.mark.parametrize("size", [0, 1, RESULT_PART_BYTES, RESULT_PART_BYTES + 1, 2 * RESULT_PART_BYTES + 7])
async def test_every_piece_is_what_was_written(size: int, codec: EncryptionCodec | None, tmp_path: Path) -> None:
    data = bytes(number * 31 % 251 for number in range(size))
    parts = at(tmp_path, codec)
    ref = await parts.write("run", data)
    places = {0, 1, size // 2, size - 1, size, RESULT_PART_BYTES - 1, RESULT_PART_BYTES, RESULT_PART_BYTES + 1}
    for start in sorted(place for place in places if place >= 0):
        for length in (1, 100, size):
            assert await parts.read_range("run", ref, start, start + length) == (data[start : start + length], size)


async def test_a_parts_place_is_its_own_and_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    parts = at(tmp_path)
    a, b = [await parts.write("run", name * RESULT_PART_BYTES * 2) for name in (b"a", b"b")]
    with pytest.raises(ObjectMissing):
        await parts.read_range("other", a, 0, 1)
    with pytest.raises(PayloadRefused, match="with the key 'one', and the key file has only two"):
        await at(tmp_path, EncryptionCodec(KeyRing((Key("two", b"2" * 32),)))).read_range("run", a, 0, 1)
    with pytest.raises(PayloadRefused, match="this process has no key file"):
        await at(tmp_path, None).read_range("run", a, 0, 1)
    (tmp_path / f"run/{a}.0").write_bytes((tmp_path / f"run/{b}.0").read_bytes())
    with pytest.raises(PayloadRefused, match=rf"a payload of 'object:run/{b}\.0' stands in the place of one of "):
        await parts.read_range("run", a, 0, 1)
    (tmp_path / f"run/{b}.1").write_bytes(b"\xff")
    with pytest.raises(StorageFailed, match=r"the object run/.*\.1 in .* is damaged"):
        await parts.read_range("run", b, RESULT_PART_BYTES, RESULT_PART_BYTES + 1)
    assert (await parts.read_range("run", b, 0, 1))[0] == b"b"
    (tmp_path / f"run/{b}.1").write_bytes(b"")
    with pytest.raises(StorageFailed, match=r"the object run/.*\.1 in .* is damaged: it is empty"):
        await parts.read_range("run", b, RESULT_PART_BYTES, RESULT_PART_BYTES + 1)


async def test_what_somebody_has_put_in_the_place_of_a_result_is_not_believed(tmp_path: Path) -> None:
    parts = at(tmp_path, None)
    ref = await parts.write("run", b"a" * RESULT_PART_BYTES * 2)
    forged = await parts.write("run", b"b" * RESULT_PART_BYTES * 2)
    for suffix in ("1", "parts"):
        (tmp_path / f"run/{ref}.{suffix}").write_bytes((tmp_path / f"run/{forged}.{suffix}").read_bytes())
        with pytest.raises(StorageFailed, match="is damaged: its content has another digest"):
            await parts.read_range("run", ref, 0, 2 * RESULT_PART_BYTES)


async def test_a_model_reads_on_in_an_encrypted_result(tmp_path: Path) -> None:
    results = ResultStore(at(tmp_path))
    text = "".join(f"canary {number}\n" for number in range(150_000))
    shown = part_of(await results.bounded(text, ToolContext(RUN, "key", 1), 60))
    read = shown.text
    while len(read) < 200_000:
        part = part_of(await results.read(RUN, shown.ref, len(read), 40_000))
        read += part.text
    assert text.startswith(read)
    assert (await results.read(RUN, shown.ref, len(text) - 5, 100)) == text[-5:]
    kept = files_in(tmp_path)
    assert len(kept) == 2 + 1
    assert all(b"canary" not in path.read_bytes() for path in kept)
