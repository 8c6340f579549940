"""An encrypted run in a real browser: the stock Web UI shows it with a codec server, and nothing of it without."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from holdfast import AgentDefinition
from holdfast.client import Settings
from holdfast.connection.temporal_client import converter_of
from holdfast.core.agent.toolset import Toolset
from holdfast.server.codec_server import Access, CodecServer
from holdfast.server.embedded import EmbeddedServer
from holdfast.server.ports import choose_ports
from holdfast.storage.keys import create_key_file
from holdfast.testing.script import say
from tests.serving import Served, served

pytestmark = [pytest.mark.browser, pytest.mark.temporal, pytest.mark.asyncio(loop_scope="module")]


SECONDS_MAX = 20
LOOK_SECONDS = 0.05


@asynccontextmanager
async def encrypted(
    folder: Path, settings: Settings, endpoint: str, ui_port: int
) -> AsyncGenerator[tuple[Served, str]]:
    """A server of its own whose Web UI knows the codec server, and a worker with the key."""
    with EmbeddedServer.start(folder / "data", port=0, ui_port=ui_port, ui_codec=endpoint) as started:
        here = replace(settings, address=started.address.address)
        async with served(here, folder / "ledger", [say("canary-answer")], Toolset()) as at_work:
            yield at_work, started.address.ui


async def test_an_encrypted_run_is_decoded_in_the_browser(page: Page, tmp_path: Path) -> None:
    create_key_file(tmp_path / "keys", "first")
    settings = Settings(storage=(tmp_path / "objects").as_uri(), encryption_key_file=tmp_path / "keys")
    ui_port = choose_ports(0, 0).ui
    access = Access.checked(None, [f"http://127.0.0.1:{ui_port}"])
    codec = CodecServer(converter_of(settings), access)
    async with codec.serving("127.0.0.1", 0) as port:
        endpoint = f"http://127.0.0.1:{port}/{access.token}"
        async with encrypted(tmp_path, settings, endpoint, ui_port) as (at_work, ui):
            state = await at_work.client.run(AgentDefinition(name="clerk", tools="all"), "canary-question")
            told = await at_work.client.temporal.get_workflow_handle(state.execution_id).describe()
            run = f"{ui}/namespaces/default/workflows/{told.id}/{told.run_id}"
            await page.goto(f"{run}/history")
            await expect(page.get_by_text("canary-answer").first).to_be_visible()
            await expect(page.get_by_text(re.compile("canary-question")).first).to_be_attached()
            await page.goto(f"{run}/user-metadata")
            summary = page.frame_locator("iframe").first
            await expect(summary.get_by_text("canary-question").first).to_be_visible()
            asked: list[str] = []

            async def away(route: Route) -> None:
                asked.append(route.request.url)
                await route.abort()

            await page.route(f"http://127.0.0.1:{port}/**", away)
            await page.goto(f"{run}/history")
            await expect(page.get_by_text("Workflow Execution Started").first).to_be_visible()
            async with asyncio.timeout(SECONDS_MAX):
                while not asked:  # noqa: ASYNC110  # the page asks when it has drawn itself
                    await asyncio.sleep(LOOK_SECONDS)
            assert "canary" not in await page.content()
