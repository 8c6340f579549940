"""The file that events go to: torn lines, lines written before, locks, files that were moved away."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from holdfast.core.wire.event_envelope import to_line
from holdfast.sinks import JsonLines, SinkAway, jsonl
from tests.sinks.examples import NUMBERED, batch_of

LINES = [to_line(each) for each in NUMBERED]


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("written", [0, 1, 2, 3])
@pytest.mark.parametrize("torn", [0, 1, 40])
async def test_what_was_written_before_a_crash_is_not_written_again(tmp_path: Path, written: int, torn: int) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(LINES[:written]) + (LINES[written][:torn]))
    sink = JsonLines(path)
    await sink.open()
    await sink.deliver(batch_of(4, again=True))
    await sink.deliver(batch_of(2, start=4))
    await sink.close()
    assert path.read_bytes() == b"".join(LINES[:6])


async def test_only_the_end_of_a_long_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "AGAIN_BYTES", 1)
    monkeypatch.setattr(jsonl, "CUT_BYTES", 100)
    path = tmp_path / "deep" / "events.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"not ours\n" * 1000 + LINES[0] + LINES[1] + b"x" * 250)
    sink = JsonLines(path)
    await sink.open()
    await sink.deliver(batch_of(3, again=True))
    await sink.close()
    assert path.read_bytes().removeprefix(b"not ours\n" * 1000) == b"".join(LINES[:3])


async def test_a_file_without_any_whole_line_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"id": "to')
    sink = JsonLines(path)
    await sink.open()
    assert path.read_bytes() == b""
    await sink.close()


async def test_a_file_is_one_writers_at_a_time(tmp_path: Path) -> None:
    first, second = JsonLines(tmp_path / "events.jsonl"), JsonLines(tmp_path / "events.jsonl")
    await first.open()
    with pytest.raises(SinkAway, match="locked by another process"):
        await second.open()
    await first.close()
    await second.open()
    await second.close()


async def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonLines(path)
    await sink.open()
    await sink.deliver(batch_of(2))
    path.rename(tmp_path / "events.jsonl.1")
    await sink.deliver(batch_of(2, start=2))
    path.unlink()
    await sink.deliver(batch_of(2, start=4))
    await sink.close()
    assert ids(tmp_path / "events.jsonl.1") == [each.id for each in NUMBERED[:2]]
    assert ids(path) == [each.id for each in NUMBERED[4:6]]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_file_that_cannot_be_written_is_away(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonLines(path)
    await sink.open()
    path.unlink()
    path.mkdir()
    with pytest.raises(SinkAway, match="cannot be written: Is a directory"):
        await sink.deliver(batch_of(1))
    path.rmdir()
    await sink.deliver(batch_of(1, again=True))
    await sink.close()
    assert len(ids(path)) == 1


async def test_a_file_stays_open_until_what_is_being_written_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, go_on = threading.Event(), threading.Event()
    write = os.write

    def slow(opened: int, data: memoryview) -> int:
        writing.set()
        assert go_on.wait(20)
        return write(opened, data[: len(data) // 2 or 1])

    monkeypatch.setattr(os, "write", slow)
    sink = JsonLines(tmp_path / "events.jsonl")
    await sink.open()
    delivering = asyncio.create_task(sink.deliver(batch_of(3)))
    await asyncio.to_thread(writing.wait, 90)
    delivering.cancel()  # as at the end of a worker's turn; the thread knows nothing of it
    await asyncio.wait([delivering])
    closing = asyncio.create_task(sink.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert sink.path.read_bytes() == b"".join(LINES[:3])


async def test_a_file_can_be_opened_again_by_who_has_it(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "events.jsonl")
    await sink.open()
    await sink.open()
    await sink.deliver(batch_of(1))
    await sink.close()
    assert sink.path.read_bytes() == LINES[0]
