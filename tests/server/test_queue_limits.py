"""The rates of routes with limits, as a real server keeps them: who writes them, and what the doctor says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from temporalio.client import Client as TemporalClient

from holdfast.client import Settings
from holdfast.connection.temporal_client import connect
from holdfast.core.wire.contracts import limited_queue
from holdfast.models.rate_limits.token_bucket import steady_rate
from holdfast.models.routes import RateLimits
from holdfast.server.doctor.findings import Level
from holdfast.server.doctor.rate_limits import examine_rates
from holdfast.server.queue_limits import QueueLimit, queue_limits, set_up_limits, write_missing_limits

pytestmark = pytest.mark.temporal

SIXTY = {"large": RateLimits(requests_per_minute=60)}


async def kept(temporal: TemporalClient, settings: Settings) -> QueueLimit:
    [limit] = await queue_limits(temporal, settings.task_queue, SIXTY)
    return limit


async def once_right(temporal: TemporalClient, settings: Settings, limits: Mapping[str, RateLimits]) -> QueueLimit:
    """Return what the server has once it has told all its parts of it."""
    async with asyncio.timeout(30):
        while True:
            [limit] = await queue_limits(temporal, settings.task_queue, limits)
            if limit.is_right:
                return limit
            await asyncio.sleep(0.05)  # the server has no event for it


async def test_a_worker_writes_a_rate_where_there_is_none_and_leaves_another(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    temporal = await connect(settings)
    assert (await kept(temporal, settings)).there is None
    await write_missing_limits(temporal, settings.task_queue, SIXTY)
    first = await once_right(temporal, settings, SIXTY)
    assert first.queue == limited_queue(settings.task_queue, "large")
    assert first.there == pytest.approx(steady_rate(60))
    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        await write_missing_limits(temporal, settings.task_queue, {"large": RateLimits(requests_per_minute=120)})
    assert (await kept(temporal, settings)).is_right
    assert "large: 57 calls a minute instead of 114 calls a minute; `holdfast setup` writes it" in caplog.text


async def test_setup_writes_what_the_file_says_also_that_there_is_no_limit_any_more(settings: Settings) -> None:
    temporal = await connect(settings)
    for allowed in (
        RateLimits(requests_per_minute=60),
        RateLimits(requests_per_minute=1),
        RateLimits(tokens_per_minute=9),
    ):
        limits = {"large": allowed}
        [checked] = await set_up_limits(temporal, settings.task_queue, limits, check=True)
        assert not checked.is_right
        await set_up_limits(temporal, settings.task_queue, limits, check=False)
        there = await once_right(temporal, settings, limits)
    assert there.there is None


async def test_the_doctor_compares_the_server_with_the_file(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    settings = replace(settings, models_file=file)
    temporal = await connect(settings)
    file.write_text(yaml.safe_dump({"models": {"small": {"api": "openai_chat"}}}))
    assert [found.result for found in await examine_rates(temporal, settings)] == ["no route has any"]
    route = {"api": "openai_chat", "rate_limits": {"requests_per_minute": 60}}
    file.write_text(yaml.safe_dump({"models": {"large": route}}))
    [missing] = await examine_rates(temporal, settings)
    assert missing.level is Level.WARNING
    assert missing.result == "large: no rate instead of 57 calls a minute"
    assert "`holdfast setup`" in missing.remedy
    await set_up_limits(temporal, settings.task_queue, SIXTY, check=False)
    await once_right(temporal, settings, SIXTY)
    [right] = await examine_rates(temporal, settings)
    assert right.level is Level.OK
    assert right.result.startswith("large: 57 calls a minute (")
