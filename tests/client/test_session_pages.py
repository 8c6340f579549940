"""What the pages on agents that live show runs as it stands there, against a real server and a worker."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import tool
from holdfast.client import Settings
from holdfast.testing.script import Reply, call, say
from tests.serving import Serve

pytestmark = pytest.mark.temporal

ROOT = Path(__file__).parents[2]
PAGES = ["docs/sessions.md", "docs/approvals.md", "docs/records.md", "docs/recipes.md"]
SECONDS_MAX = 90


@tool
def refund(order: int, cents: int) -> str:
    """Pay money back."""
    return f"{cents} cents of order {order} are paid back"


def model(request: dict[str, Any]) -> Reply:
    """Pay back what is asked for where there is a tool for it; answer anything else at once."""
    last = request["messages"][-1]
    if request.get("tools") and last["role"] == "user":
        return call("refund", order=17, cents=2_000)
    return say("I see.")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
async def test_every_example_of_a_page_runs(page: str, serve: Serve, settings: Settings, tmp_path: Path) -> None:
    codes = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    assert codes, "it has no examples"
    assert settings.address is not None
    assert settings.storage is not None
    own = {"TEMPORAL_ADDRESS": settings.address, "HOLDFAST_TASK_QUEUE": settings.task_queue}
    environment = {**os.environ, **own, "HOLDFAST_STORAGE": settings.storage, "PYTHONPATH": str(ROOT)}
    async with serve(model, [refund]):
        for code in codes:
            path = tmp_path / "example.py"
            path.write_text(code)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-W", "error", path, cwd=tmp_path, env=environment, stderr=asyncio.subprocess.PIPE
            )
            _, errors = await asyncio.wait_for(process.communicate(), SECONDS_MAX)
            assert process.returncode == 0, errors.decode()
