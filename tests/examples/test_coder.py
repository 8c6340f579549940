"""The coder: killed half-way and finishing, forked before its last step, its patch read from the store."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from examples.coder.scripted_model import STEPS, TESTS, turn
from holdfast.client import Holdfast, Settings
from holdfast.client.definition_files import load_agents
from holdfast.client.workspace_files import NEW, latest_snapshot, snapshot_files
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, call
from tests.cli.program import HOLDFAST, beside, linux_only
from tests.forked import WarmWorker, fork_request, forks
from tests.workspace.programs import alive

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300), linux_only]

CODER = Path(__file__).resolve().parents[2] / "examples" / "coder"
SECONDS_MAX = 120


async def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not met():
        assert time.monotonic() < deadline, "it has not come to that"
        await asyncio.sleep(0.05)


def results(state: AgentState) -> list[str]:
    return [str(each.result or each.error_message) for step in state.steps for each in step.tool_executions]


async def put(client: Holdfast) -> str:
    return await snapshot_files(client).with_files(await latest_snapshot(client, NEW), CODER / "repository", ".")


def cli(settings: Settings, *words: str) -> bytes:
    program = fork_request("holdfast") if forks(beside(settings)) else [str(HOLDFAST)]
    command = [*program, "workspace", *words]
    done = subprocess.run(command, env=beside(settings), capture_output=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_definition_names_the_snapshot_of_the_repository(settings: Settings) -> None:
    workspace = load_agents(CODER / "agents")["coder"].workspace
    assert workspace is not None
    assert workspace.files == await put(await Holdfast.connect(settings))
    assert cli(settings, "new", "put", str(CODER / "repository")).decode().strip() == workspace.files


@pytest.mark.slow
async def test_the_coder_is_killed_half_way_finishes_and_is_forked_with_files_of_its_own(
    settings: Settings, tmp_path: Path
) -> None:
    mark, slow = f"mark-{uuid4()}", asyncio.Event()

    def script(request: dict[str, Any]) -> Reply:
        reply = turn(request)
        if reply == STEPS[5] and not slow.is_set():  # the second run of the tests, behind the change
            slow.set()
            return call("shell", command=f"python3 -c 'import time; time.sleep(600)  # {mark}'; {TESTS}")
        return reply

    definition = load_agents(CODER / "agents")["coder"]
    serving = replace(settings, workspaces=("folder",), data_dir=tmp_path / "data")
    async with FakeOpenAI(script) as endpoint:
        own = {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": "key", "HOLDFAST_MODEL": "scripted"}
        environment, lines = {**worker_environment(), **own}, list[str]()

        async def started() -> WorkerProcess:
            process = WarmWorker(worker_command(serving, []), lines.append, environment)
            assert await asyncio.to_thread(process.wait_until_ready, SECONDS_MAX), lines
            return process

        client = await Holdfast.connect(settings)
        await put(client)
        agent = client.agent(definition=definition)
        with await started() as first:
            receipt = await agent.send("Make the tests pass.")
            await until(lambda: len(alive(mark)) > 0)
            first.kill()
            await until(lambda: not alive(mark))
        with await started():
            state = await agent.answer(receipt)
            execution_id = state.running.execution_id
            patch = cli(settings, execution_id, "get", "fix.patch").decode()
            before_last = next(step.number - 1 for step in state.steps if "fix.patch" in str(step.requested_tool_calls))
            fork = await agent.fork(execution_id, before_last)
            forked = await fork.ask("Look again.")
        listed = [cli(settings, each, "ls").decode() for each in (agent.agent_id, fork.agent_id)]
    assert any("no boundary" in line for line in lines)
    assert state.status is ExecutionStatus.COMPLETED
    assert "passes" in state.final_response
    assert sum("its outcome is unknown" in each for each in results(state)) == 1, "the worker was killed in a call"
    assert "+    for word in text.lower().split():" in patch
    assert "words.py.orig" in results(forked.state)[0]
    assert "fix.patch" not in results(forked.state)[0], "the fork has the files from before the last step"
    assert all("fix.patch" in each for each in listed), "and has made its own since"
    again = cli(settings, fork.agent_id, "get", "fix.patch").decode()
    assert again != patch
    assert cli(settings, execution_id, "get", "fix.patch").decode() == patch
