"""What `/ready` of a worker says of a production server that loses its matching service, and gets it again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from holdfast.client import Settings
from holdfast.testing.openai_server import FakeOpenAI
from tests.chaos.processes import worker
from tests.cluster.cluster import Cluster
from tests.server.health import READY, Answer, Health, not_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

NAMED: Final = "(matching service): "


def names_matching(answer: Answer) -> bool:
    """Return whether the server is all that is wrong, and matching is what is named of it."""
    problems = not_ready(answer)
    return problems.keys() == {"server"} and NAMED in problems["server"]


async def test_a_worker_is_not_ready_while_matching_is_down(
    settings: Settings, running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    health = Health()
    environment = {"HOLDFAST_HEALTH": str(health.port)}
    async with FakeOpenAI([]) as endpoint, worker(settings, endpoint, tmp_path / "tools.jsonl", environment):
        await health.until("/ready", lambda answer: answer == READY)
        for node in running.nodes["matching"]:
            node.kill()
        try:
            answer = await health.until("/ready", names_matching)
        finally:
            for node in running.nodes["matching"]:
                node.start_again()
        problem = not_ready(answer)["server"]
        assert problem.startswith(f"{settings.address}, namespace 'default', task queue '{settings.task_queue}")
        await running.until_ready()
        await health.until("/ready", lambda answer: answer == READY)
    with capsys.disabled():
        print(f"\nmatching down: {problem}")
