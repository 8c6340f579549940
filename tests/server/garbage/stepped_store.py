"""A store in memory whose every operation waits until the test lets it happen, under a clock of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from holdfast.storage.object_store import Entry, Objects


class Steps:
    """Where tasks wait for their next step."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[Any] | None, list[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> bool:
        """Whether any task waits."""
        return any(self._waiting.values())

    async def turn(self) -> None:
        """Wait until this is the step to be taken."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asyncio.current_task(), []).append(future)
        await future

    def take(self, number: int) -> None:
        """Let one of the waiting tasks take its step; the same number is the same task, while it waits again."""
        waiting = [futures for futures in self._waiting.values() if futures]
        future = waiting[number % len(waiting)].pop()
        if not future.done():
            future.set_result(None)


class SteppedObjects(Objects):
    """Everything above the single operations is the real code; `in_one_step`: a move is a rename, as in a folder."""

    def __init__(self, steps: Steps, *, in_one_step: bool) -> None:
        super().__init__("memory:///stepped", lambda: datetime.fromtimestamp(self.now, UTC))
        self.now = 1_800_000_000.0
        self.stored: dict[str, tuple[bytes, float]] = {}
        self._steps = steps
        self._in_one_step = in_one_step

    async def _put(self, name: str, data: bytes) -> None:
        await self._steps.turn()
        self.stored[name] = (data, self.now)

    async def _read(self, name: str) -> bytes:
        async with self._typed_errors("read", name):
            await self._steps.turn()
            return self._there(name)[0]

    async def _facts(self, name: str) -> tuple[int, datetime]:
        await self._steps.turn()
        data, written = self._there(name)
        return len(data), datetime.fromtimestamp(written, UTC)

    async def _move(self, name: str, to: str) -> None:
        await self._steps.turn()
        self.stored[to] = (self._there(name)[0], self.now)
        if not self._in_one_step:
            await self._steps.turn()
        self.stored.pop(name, None)

    async def _delete(self, name: str) -> None:
        await self._steps.turn()
        self.stored.pop(name, None)

    async def _bucket_pages(self, prefix: str) -> AsyncGenerator[list[Entry]]:
        names = sorted(name for name in self.stored if name.startswith(f"{prefix}/"))
        while names:
            await self._steps.turn()
            page, names = names[:2], names[2:]
            facts = [(name, self.stored[name]) for name in page if name in self.stored]
            yield [Entry(name, len(data), datetime.fromtimestamp(at, UTC)) for name, (data, at) in facts]

    def _there(self, name: str) -> tuple[bytes, float]:
        if name not in self.stored:
            raise FileNotFoundError(name)
        return self.stored[name]
