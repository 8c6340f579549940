"""The gate replays as the worker works."""

from __future__ import annotations

from typing import cast

import pytest

from activities.provider import OpenAIModel, ProviderSettings
from holdfast.client import Settings
from holdfast.client.connection import connect
from holdfast.core.offer import Offer
from tests.replay.replaying import replayer
from worker import make_worker

pytestmark = pytest.mark.temporal


async def test_the_gate_replays_as_the_worker_works(settings: Settings) -> None:
    client = await connect(settings)
    model = OpenAIModel(ProviderSettings(base_url="http://127.0.0.1:1/v1", api_key="none", model="none"))
    working = cast("dict[str, object]", make_worker(client, settings, Offer(), model).config())
    replaying = cast("dict[str, object]", replayer().config())
    assert replaying["workflows"] == working["workflows"]
    assert type(replaying["workflow_runner"]) is type(working["workflow_runner"])
    assert vars(replaying["workflow_runner"]) == vars(working["workflow_runner"])
    assert replaying["data_converter"] == client.data_converter
    await model.close()
