"""A TCP load balancer before the frontends or the database: a proxy in a thread of its own, which no test holds up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from tests.tcp_proxy import Cut, Proxy

CALL_SECONDS_MAX: Final = 10.0


class Balancer:
    """Forwards each connection to the next of `targets` (HOST:PORT) that takes it."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._proxy = Proxy(*targets)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self._proxy.own_address

    @property
    def targets(self) -> tuple[str, ...]:
        """Where it forwards to."""
        return tuple(self._proxy.targets)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._proxy.__aenter__(), self._loop).result(CALL_SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.__aexit__(), self._loop).result(CALL_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()

    def turn_to(self, *targets: str) -> None:
        """End every connection, and forward new ones to others."""

        def turn() -> None:
            self._proxy.targets = list(targets)
            self._proxy.drop()

        self._call(turn)

    def slow(self, seconds: float) -> None:
        """Hold back for so long whatever clients send; 0 for not at all."""
        self._call(lambda: setattr(self._proxy, "delay_seconds", seconds))

    def cut(self, kind: Cut = "reset") -> None:
        """End every connection and refuse others, or let nothing through, until `heal`."""
        self._call(lambda: self._proxy.cut(kind))

    def heal(self) -> None:
        """Let everything through again."""
        self._call(self._proxy.heal)

    def _call(self, deed: Callable[[], Any]) -> None:
        """Do something in the proxy's thread, and return when it is done."""

        async def done() -> None:
            deed()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(CALL_SECONDS_MAX)
