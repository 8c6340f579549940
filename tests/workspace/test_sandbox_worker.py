"""The tools of workspaces served by a worker of their own, on a queue of its own, without a model."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import AgentDefinition
from holdfast.client import Settings
from holdfast.core.tools.workspace_profile import WorkspaceProfile
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from holdfast.testing.script import call, say
from holdfast.workspace.calls import WorkspaceCalls
from holdfast.workspace.tools import WorkspaceTools
from tests.serving import Serve

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

READY_SECONDS_MAX = 90
CODER = AgentDefinition(name="coder", workspace=WorkspaceProfile(backend="folder"))


async def test_a_tools_only_worker_serves_the_workspaces_of_agents_elsewhere(
    settings: Settings, serve: Serve, tmp_path: Path
) -> None:
    queue, lines = f"sandbox-{uuid4()}", list[str]()
    there = replace(settings, task_queue=queue, workspaces=("folder",), data_dir=tmp_path / "there")
    environment = {name: value for name, value in worker_environment().items() if not name.startswith("OPENAI_")}
    assert settings.storage is not None
    agents = WorkspaceTools(WorkspaceCalls({}, Records(Objects(settings.storage))), queue).toolset()
    script = [call("shell", command="echo here > file; cat file"), call("read_file", path="file"), say("done")]
    async with serve(script, offer=agents) as served:
        with WorkerProcess(worker_command(there, [], tools_only=True), lines.append, environment) as process:
            assert await asyncio.to_thread(process.wait_until_ready, READY_SECONDS_MAX), lines
            result = await served.client.run(CODER, "work")
    ran, read = (step.tool_executions[0].result for step in result.state.steps[:2])
    assert str(ran).endswith("]\nhere\n")
    assert read == "here\n"
    assert (tmp_path / "there" / "workspaces").is_dir(), "it is that worker's folder"
    assert any(f"task queue {queue!r}, tools: shell, run_python" in line for line in lines)


@pytest.mark.slow
def test_a_backend_that_does_not_exist_is_refused_in_one_line(settings: Settings) -> None:
    command = [*worker_command(settings, []), "--workspace=vm"]
    done = subprocess.run(command, env=worker_environment(), capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "error: a workspace cannot have the backend 'vm'; choose docker or folder"
