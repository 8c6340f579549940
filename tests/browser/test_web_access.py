"""A hostile page in a real browser, at the ports of a server of ours: cross-site calls, and DNS rebinding."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Error as PageError
from playwright.async_api import Page, async_playwright

from tests.browser.conftest import CHROMIUM, Stage
from tests.server.test_dns_rebinding import ATTACK, BODY, attacks, listening

pytestmark = [
    pytest.mark.browser,
    pytest.mark.temporal,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc"),
]

SITE = "evil.example"
CALLS = """async ([urls, body]) => {
  const cookie = (document.cookie.match(/_csrf=([^;]+)/) || [])[1] || '';
  const types = ['text/plain', 'application/json'];
  const made = urls.flatMap(url => types.flatMap(type => [
    fetch(url, {method: 'POST', mode: 'no-cors', credentials: 'include', headers: {'Content-Type': type}, body}),
    fetch(url, {method: 'POST', credentials: 'include', headers: {'Content-Type': type, 'X-CSRF-TOKEN': cookie}, body}),
  ]));
  const answers = await Promise.allSettled(made);
  return answers.map(each => each.status === 'fulfilled' ? each.value.status : 0);
}"""


@pytest_asyncio.fixture(loop_scope="module")
async def hostile() -> AsyncGenerator[Page]:
    """A page of a browser that takes `evil.example` for this machine, as a rebound name is."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium; `apt-get install chromium` brings it")
    rules = f"--host-resolver-rules=MAP {SITE} 127.0.0.1"
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", rules],
        )
        try:
            yield await browser.new_page()
        finally:
            await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def site() -> AsyncGenerator[int]:
    """The hostile site's own server."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>prizes</title>", content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


async def test_a_page_from_elsewhere_starts_nothing_at_any_port(stage: Stage, hostile: Page, site: int) -> None:
    await hostile.goto(f"http://{SITE}:{site}/")
    ports = sorted({port for host, port in listening(stage.server) if host == "127.0.0.1" and port != site})
    urls = [f"http://127.0.0.1:{port}/api/v1/namespaces/default/workflows/{ATTACK}-{port}" for port in ports]
    assert len(await hostile.evaluate(CALLS, [urls, BODY])) == 4 * len(urls)
    assert await attacks(stage.server.address) == 0


async def test_a_rebound_name_is_refused_at_every_port(stage: Stage, hostile: Page) -> None:
    for port in sorted({port for host, port in listening(stage.server) if host == "127.0.0.1"}):
        url = f"http://{SITE}:{port}"
        try:
            await hostile.goto(f"{url}/", wait_until="commit", timeout=5_000)
        except PageError:
            continue  # no HTTP is spoken there
        answers = await hostile.evaluate(CALLS, [[f"{url}/api/v1/namespaces/default/workflows/rebound"], BODY])
        assert not {200, 201} & set(answers), port
    assert await attacks(stage.server.address) == 0


async def test_the_rebound_web_ui_shows_why_it_refuses(stage: Stage, hostile: Page) -> None:
    answer = await hostile.goto(stage.ui.replace("127.0.0.1", SITE))
    assert answer is not None
    assert answer.status == 403
    assert "answers only to" in await hostile.content()
