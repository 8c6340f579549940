"""The gate replays as the worker works."""

from __future__ import annotations

from typing import cast

import pytest

from holdfast.client import Settings
from holdfast.connection.temporal_client import connect
from holdfast.core.agent.toolset import Toolset
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.storage.data_converter import converter
from tests.replay.replaying import replayer
from workers import make_worker

pytestmark = pytest.mark.temporal


async def test_the_gate_replays_as_the_worker_works(settings: Settings) -> None:
    client = await connect(settings)
    model = OpenAIChat(ProviderSettings(base_url="http://127.0.0.1:1/v1", api_key="none", model="none"))
    working = cast("dict[str, object]", make_worker(client, settings, Toolset(), model).parts[0].config())
    replaying = cast("dict[str, object]", replayer(client.data_converter).config())
    assert replaying["workflows"] == working["workflows"]
    assert type(replaying["workflow_runner"]) is type(working["workflow_runner"])
    assert replaying["workflow_runner"] == working["workflow_runner"]
    assert client.data_converter is converter(settings.storage_place, None), "as tests.replay.replaying makes it"
    await model.close()
