"""`holdfast doctor` on tools whose resource nobody gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client import Settings
from holdfast.server.doctor.checks import examine
from holdfast.server.doctor.findings import Level
from holdfast.server.doctor.machine_findings import AGENTS

TOOLS = """
from collections.abc import AsyncIterator
from holdfast import resource, tool

class Pool: ...

@tool
async def find_order(order: str, db: Pool) -> str:
    "Find an order."
    return order
"""

RESOURCE = """
@resource
async def database() -> AsyncIterator[Pool]:
    yield Pool()
"""


@pytest.mark.parametrize(("module", "given", "level"), [("unserved", "", Level.ERROR), ("served", RESOURCE, Level.OK)])
async def test_the_doctor_names_a_tool_without_its_resource(
    module: str, given: str, level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{module}_tools.py").write_text(TOOLS + given)
    monkeypatch.chdir(tmp_path)
    settings = replace(Settings(data_dir=tmp_path / "data", agents_dir=tmp_path / "agents"), address="127.0.0.1:1")
    findings = await examine(replace(settings, modules=(f"{module}_tools",)))
    [found] = [each for each in findings if each.check == AGENTS]
    assert found.level is level
    assert ("find_order" in found.result and "Pool" in found.result) is (level is Level.ERROR)
