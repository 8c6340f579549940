"""The worker process that serves the tools of one queue and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import AgentDefinition
from holdfast.client import Settings
from holdfast.core.tools.tools import AnyTool, tool
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing.script import Call, calls, say
from tests.serving import Serve

pytestmark = pytest.mark.temporal

READY_SECONDS_MAX = 90
MODULE = """
from holdfast import tool

@tool(task_queue={queue!r})
def where() -> str:
    '''Say where this is.'''
    return __name__
"""

REMOTE = """
from holdfast import remote_tool

word_count = remote_tool(name="word_count", description="Count.", parameters={"type": "object"}, task_queue="words")
"""


@pytest.mark.slow
async def test_a_worker_process_serves_the_tools_of_its_queue_without_a_model_or_agents(
    settings: Settings, serve: Serve, tmp_path: Path
) -> None:
    queue, heard = f"gpu-{uuid4()}", list[str]()
    (tmp_path / "gpu_tools.py").write_text(MODULE.format(queue=queue))
    command = worker_command(replace(settings, task_queue=queue), ["gpu_tools"], tools_only=True)
    inherited = {name: value for name, value in worker_environment().items() if not name.startswith("OPENAI_")}
    environment = {**inherited, "PYTHONPATH": f"{inherited['PYTHONPATH']}:{tmp_path}"}

    def where() -> str:
        """Say where this is."""
        return "in the wrong place"

    known: AnyTool = tool(task_queue=queue)(where)
    async with serve([calls(Call("where")), say("done")], [known]) as served:
        with WorkerProcess(command, heard.append, environment) as process:
            assert await asyncio.to_thread(process.wait_until_ready, READY_SECONDS_MAX), heard
            state = await served.client.run(AgentDefinition(name="asker", tools="all"), "where?")
    assert state.state.steps[0].tool_executions[0].result == "gpu_tools"
    at = f"{settings.address}, namespace 'default'"
    assert heard[0] == f"worker ready: {at}, task queue '{queue}', tools: where"


@pytest.mark.slow
def test_a_queue_that_no_tool_names_is_refused_in_one_line(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "gpu_tools.py").write_text(MODULE.format(queue="gpu"))
    command = worker_command(replace(settings, task_queue="cpu"), ["gpu_tools"], tools_only=True)
    done = subprocess.run(
        command, cwd=tmp_path, env=worker_environment(), capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 2
    said = "error: no tool here names the task queue 'cpu': the queues named are ['gpu']"
    assert done.stderr.strip().startswith(said)
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_queue_that_only_a_remote_tool_names_is_refused_as_one_whose_code_is_elsewhere(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "far_tools.py").write_text(REMOTE)
    command = worker_command(replace(settings, task_queue="words"), ["far_tools"], tools_only=True)
    done = subprocess.run(
        command, cwd=tmp_path, env=worker_environment(), capture_output=True, text=True, timeout=90, check=False
    )
    what = "'word_count', which names the task queue 'words', is a remote tool: its code is not here"
    assert (done.returncode, done.stderr) == (2, f"error: {what}; start the worker that has it\n")
