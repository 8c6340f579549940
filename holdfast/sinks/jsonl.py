"""`JsonLines`: a sink that is a file, one event per line, each exactly once whatever dies in between."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any, Final

from holdfast.core.base.bounds import SINK_BATCH_BYTES_MAX
from holdfast.core.wire.event_envelope import to_line
from holdfast.core.wire.sink_contracts import checked_consumer
from holdfast.sinks.sink import Batch, SinkAway

AGAIN_BYTES: Final = 4 * SINK_BATCH_BYTES_MAX
"""So much of the file's end is looked through for what may have been written before: more than one batch takes."""

CUT_BYTES: Final = 64 * 1024
"""How much is read at once when the end of the file is looked for."""


class JsonLines:
    """Appends events to a file, and has them on disk before it says so.

    The file is locked while it is open (`flock`): whoever else would write to it waits. A line that a crash has torn
    is cut off, and what may have been written before is looked for in the file before it is written again. A file that
    was moved away, as by log rotation, is begun anew.
    """

    def __init__(self, path: str | Path, *, name: str = "jsonl") -> None:
        self.name: Final = checked_consumer(name)
        self.path: Final = Path(path)
        self._file: int | None = None
        self._at_work = threading.Lock()
        """A thread that writes goes on when nobody awaits it any more: its file must not be closed under it."""

    async def open(self) -> None:
        """Open and lock the file; SinkAway while another process has it."""
        await asyncio.to_thread(self._open)

    async def deliver(self, batch: Batch) -> None:
        """Return when every event of the batch stands in the file, once; SinkAway while it cannot be written."""
        try:
            await asyncio.to_thread(self._write, batch)
        except OSError as error:
            raise SinkAway(f"{self.path} cannot be written: {error.strerror}") from None

    async def close(self) -> None:
        """Let others have the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._at_work:
            self._let_go()

    def _let_go(self) -> None:
        opened, self._file = self._file, None
        if opened is not None:
            os.close(opened)

    def _open(self) -> None:
        with self._at_work:
            self._opened()

    def _opened(self) -> int:
        self._let_go()  # our own lock would keep us out, too
        self.path.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _cut_torn_line(opened)
        except BlockingIOError:
            os.close(opened)
            raise SinkAway(f"{self.path} is locked by another process") from None
        except BaseException:
            os.close(opened)
            raise
        self._file = opened
        return opened

    def _write(self, batch: Batch) -> None:
        with self._at_work:
            self._append(batch)

    def _append(self, batch: Batch) -> None:
        opened = self._current()
        lines = {each.id: to_line(each) for each in batch.events}
        if batch.again:
            _cut_torn_line(opened)
            there = _ids_at_end(opened, max(AGAIN_BYTES, sum(map(len, lines.values()))))
            lines = {id_: line for id_, line in lines.items() if id_ not in there}
        remaining = memoryview(b"".join(lines.values()))
        while remaining:
            remaining = remaining[os.write(opened, remaining) :]
        os.fsync(opened)

    def _current(self) -> int:
        """Return the open file; the one of that name, if it has been moved away or deleted."""
        if self._file is None:
            return self._opened()
        here = os.fstat(self._file)
        try:
            there = self.path.stat()
        except FileNotFoundError:
            there = None
        if there is not None and (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
            return self._file
        return self._opened()


def _cut_torn_line(opened: int) -> None:
    """Cut off what stands after the last end of a line."""
    size = place = os.fstat(opened).st_size
    while place > 0:
        start = max(0, place - CUT_BYTES)
        end = os.pread(opened, place - start, start).rfind(b"\n")
        if end >= 0:
            place = start + end + 1
            break
        place = start
    if place < size:
        os.ftruncate(opened, place)


def _ids_at_end(opened: int, size: int) -> set[str]:
    """Return the ids of the events in the last `size` bytes of the file."""
    total = os.fstat(opened).st_size
    start = max(0, total - size)
    data = b"".join(_pieces(opened, start, total))
    if start > 0 and os.pread(opened, 1, start - 1) != b"\n":
        data = data.partition(b"\n")[2]
    return {id_ for id_ in map(_id, data.splitlines()) if id_ is not None}


def _pieces(opened: int, start: int, end: int) -> list[bytes]:
    """Return all bytes between the places: one read gives no more than so much."""
    pieces: list[bytes] = []
    while start < end and (piece := os.pread(opened, end - start, start)):
        pieces.append(piece)
        start += len(piece)
    return pieces


def _id(line: bytes) -> str | None:
    try:
        event: Any = json.loads(line)
        return str(event["id"])
    except (ValueError, KeyError, TypeError):  # a line that is not ours
        return None
