"""Three hundred sessions through a storm: every acknowledged message is answered once, and no session is stuck."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.base.errors import ServerUnavailable
from holdfast.testing.openai_server import FakeOpenAI
from tests.chaos.storm import Storm, echo, talk
from tests.chaos.test_server_lost import OwnServer
from tests.workflows.chats import texts

pytestmark = [pytest.mark.temporal, pytest.mark.chaos, pytest.mark.timeout(1_500)]

SESSIONS = int(os.environ.get("HOLDFAST_STORM_SESSIONS", "300"))
TURNS = 3
AT_ONCE = 20
STORM_SECONDS = float(os.environ.get("HOLDFAST_STORM_SECONDS", "120"))
DRAINED_SECONDS_MAX = 60.0
SEEDS = [int(each) for each in os.environ.get("HOLDFAST_STORM_SEEDS", "").split()] or random.sample(range(10**6), 3)


@pytest.fixture
def own(tmp_path: Path) -> Generator[OwnServer]:
    own = OwnServer(tmp_path / "server")
    yield own
    own.server.stop()


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_acknowledged_message_is_answered_once_whatever_dies(
    settings: Settings, own: OwnServer, tmp_path: Path, seed: int
) -> None:
    here = replace(settings, address=own.address, data_dir=tmp_path / "server")
    async with FakeOpenAI(echo) as endpoint:
        holdfast = await _client(here)
        storm = Storm(here, own, endpoint, seed, tmp_path / "workers.log")
        figures, places = storm.figures, asyncio.Semaphore(AT_ONCE)

        async def session(number: int) -> None:
            async with places:
                await talk(holdfast, f"s{number}", TURNS, figures)

        async with storm.raging():
            talks = [asyncio.create_task(session(number)) for number in range(SESSIONS)]
            done, _ = await asyncio.wait(talks, timeout=STORM_SECONDS)
            storm.calm.set()
            figures.quiet_at = time.monotonic()
            under_way = [each for each, _ in figures.acknowledged.items() if each not in figures.answered]
            ended = await asyncio.gather(*talks, return_exceptions=True)
        print(  # noqa: T201  # the figures are what one runs it for
            f"\n{figures.report(seed, len(endpoint.requests))}; {len(done)} sessions ended in the storm"
        )
    faults = [each for each in ended if isinstance(each, BaseException)]
    assert not faults, faults[:3]
    assert min(figures.worker_kills, figures.server_kills) > 0, "the faults really fired"
    for number in range(SESSIONS):
        said = [(role, f"{before}s{number}.{turn}") for turn in range(TURNS) for role, before in PARTS]
        assert texts(figures.states[f"s{number}"]) == said
    late = [figures.answered[each] - figures.quiet_at for each in under_way]
    assert max(late, default=0.0) < DRAINED_SECONDS_MAX, "what was acknowledged is drained soon after the storm"


PARTS = (("user", ""), ("assistant", "re "))


async def _client(settings: Settings) -> Holdfast:
    while True:
        try:
            return await Holdfast.connect(settings)
        except ServerUnavailable:
            await asyncio.sleep(0.2)
