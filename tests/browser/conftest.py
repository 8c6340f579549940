"""The stage of the browser's tests: a server with its Web UI, a worker, runs at several moments, and chromium."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, async_playwright, expect

from holdfast import ExecutionBudget
from holdfast.client import Settings
from holdfast.connection.data_directory import ServerAddress
from holdfast.server.embedded import EmbeddedServer
from tests.browser.stage import OFFER, begin, play
from tests.serving import Served, served
from tests.workflows.waiting import waiting_calls

CHROMIUM = shutil.which("chromium")
PICTURES = os.environ.get("HOLDFAST_PICTURES")
"""Where `make pictures` wants the pictures; nowhere in a plain test run."""

expect.set_options(timeout=30_000)  # milliseconds: a page looks again every few seconds

WIDTH, HEIGHT = 1400, 1200


@dataclass(frozen=True, slots=True)
class Stage:
    """`waits` waits for approval, `spent` was stopped by its cost limit."""

    at_work: Served
    server: ServerAddress
    waits: str
    spent: str

    @property
    def ui(self) -> str:
        """Where the Web UI is."""
        return self.server.ui

    async def run(self, execution_id: str, view: str) -> str:
        """Return where the Web UI shows that of a run."""
        told = await self.at_work.client.temporal.get_workflow_handle(execution_id).describe()
        return f"{self.ui}/namespaces/default/workflows/{execution_id}/{told.run_id}/{view}"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    """Two runs, each at the moment that it is looked at."""
    folder = tmp_path_factory.mktemp("stage")
    with EmbeddedServer.start(folder / "data", port=0, ui_port=0) as server:
        settings = Settings(address=server.address.address, task_queue="orders", storage=(folder / "objects").as_uri())
        async with served(settings, folder / "ledger.jsonl", play, OFFER) as at_work:
            waits = await begin(at_work, "The customer of order 1001 wants the money back")
            spent = await begin(at_work, "look for ever", ExecutionBudget(max_cost=0.05, max_steps=100))
            await at_work.client.result(spent)
            await waiting_calls(at_work.client, waits)
            yield Stage(at_work, server.address, waits, spent)
            await at_work.client.stop(waits)
            await at_work.client.result(waits)


@pytest_asyncio.fixture(loop_scope="module")
async def page() -> AsyncGenerator[Page]:
    """A page of a fresh browser."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium; `apt-get install chromium` brings it")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            opened = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            opened.set_default_timeout(20_000)
            yield opened
        finally:
            await browser.close()


async def picture(page: Page, name: str) -> None:
    """Keep what the page shows as a picture of the documentation, where pictures are wanted."""
    if PICTURES is not None:
        await asyncio.sleep(0.5)  # what the page still moves has come to rest
        await page.screenshot(path=Path(PICTURES) / f"{name}.png")
