"""A server, the runs on it, and the faults that strike them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from holdfast.client import Holdfast, Settings
from holdfast.core.base.errors import HoldfastError, ServerUnavailable
from tests.chaos.certificate.checks import Strike
from tests.chaos.certificate.live_run import LiveRun
from tests.chaos.test_server_lost import OwnServer
from tests.tcp_proxy import Cut

Fault = Literal["worker", "server", "both", "partition"]
FAULTS: Final[tuple[Fault, ...]] = ("worker", "server", "both", "partition")
CUTS: Final[tuple[Cut, ...]] = ("stall", "reset")
CUT_SECONDS: Final = (0.3, 3.0)
SERVES_SECONDS: Final = 0.5
"""How long a server serves at least before it is killed again: a run that gets nowhere shows nothing."""

CONNECTS_MAX: Final = 20
RESTARTS_MAX: Final = 5


STUCK_SECONDS: Final = 150.0
"""How long a run may take after the latest fault that met it, and all that follows its end: longer means stuck."""


@dataclass
class Guest:
    """A run on the stage, the strikes that met it so far, and its time limit, which each of them moves."""

    run: LiveRun
    limit: asyncio.Timeout
    strikes: list[Strike] = field(default_factory=list[Strike])
    over: bool = False
    mending: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    """Its own strikes: none is to be left half-way."""

    def mend(self, strike: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Carry a strike out to its end."""
        self.mending.append(asyncio.create_task(strike))
        return self.mending[-1]

    def struck(self) -> None:
        """Note a strike, by what its histories hold now."""
        self.strikes.append(Strike(time.time(), self.run.histories.progress))
        self.limit.reschedule(asyncio.get_running_loop().time() + STUCK_SECONDS)


class Stage:
    """One server in `folder`; enter it to start it. Faults of the server meet every guest, others their own alone."""

    def __init__(self, folder: Path, chance: random.Random, keep: Path | None = None) -> None:
        self.folder = folder
        self.keep = keep
        """Where the histories of runs that broke a rule are written."""
        self._chance = chance
        self._striking = asyncio.Lock()
        self.guests: list[Guest] = []
        self._met: set[tuple[str, Fault, int]] = set()
        self._served_from = 0.0
        self.number = 0

    async def __aenter__(self) -> Self:
        self._own = await asyncio.to_thread(OwnServer, self.folder / "server")
        settings = Settings(address=self._own.address, storage=(self.folder / "objects").as_uri())
        self.client = await _connected(replace(settings, data_dir=self.folder / "data"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._own.server.stop)

    def leave(self, guest: Guest) -> None:
        """Let faults of the server not count for a guest any more."""
        guest.over = True
        if guest in self.guests:
            self.guests.remove(guest)

    def has_struck(self, scene: str, fault: Fault, aim: int) -> bool:
        """Return whether such a fault has met a run of the scene at exactly so many events."""
        return (scene, fault, aim) in self._met

    def guest_folder(self, name: str) -> Path:
        """Return a new place for a run's files."""
        self.number += 1
        return self.folder / f"{self.number}-{name}"

    async def strike(self, fault: Fault, guest: Guest) -> None:
        """Strike `guest`, and for a fault of the server all others that are there; return when all is mended."""
        match fault:
            case "worker":
                assert guest.run.worker is not None
                await asyncio.to_thread(guest.run.worker.kill)
                guest.struck()
                await guest.run.start_worker()
            case "partition":
                await self._partition(guest)
            case "server" | "both":
                await self._strike_server(guest, fault)

    async def _partition(self, guest: Guest) -> None:
        assert guest.run.proxy is not None
        await guest.run.proxy.connected()  # the last cut may be healed and the worker not be back yet
        met = guest.run.proxy.cut(self._chance.choice(CUTS))
        assert met, "there was no connection to cut"
        guest.struck()
        await asyncio.sleep(self._chance.uniform(*CUT_SECONDS))  # the fault itself
        guest.run.proxy.heal()

    async def _strike_server(self, guest: Guest, fault: Fault) -> None:
        before = len(guest.strikes)
        async with self._striking:
            if len(guest.strikes) > before:
                return  # somebody else's strike has met it meanwhile
            await asyncio.sleep(self._served_from + SERVES_SECONDS - time.monotonic())
            if guest.over:
                return
            met = [each for each in self.guests if not each.over]
            await asyncio.to_thread(self._own.kill)
            if fault == "both":
                await asyncio.gather(*(asyncio.to_thread(each.run.worker.kill) for each in met if each.run.worker))
            for each in met:
                each.struck()
                self._met.add((each.run.scene.name, fault, each.strikes[-1].progress.events))
            await _repeatedly(lambda: asyncio.to_thread(self._own.start_again))
            if fault == "both":
                await asyncio.gather(*(each.run.start_worker() for each in met))
            self._served_from = time.monotonic()


async def _repeatedly(start: Callable[[], Awaitable[None]]) -> None:
    for _ in range(RESTARTS_MAX - 1):
        try:
            return await start()
        except HoldfastError:
            await asyncio.sleep(1)
    return await start()


async def _connected(settings: Settings) -> Holdfast:
    for _ in range(CONNECTS_MAX):
        try:
            return await Holdfast.connect(settings)
        except ServerUnavailable:
            await asyncio.sleep(0.5)
    return await Holdfast.connect(settings)
