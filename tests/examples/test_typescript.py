"""The tool worker in TypeScript, really installed and run, with an agent of ours that calls its tools."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from examples.typescript.words import agent, last_word, word_count
from holdfast import ExecutionStatus, StopReason
from holdfast.client import Settings
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.base.frozen import replace as changed
from holdfast.core.tools.tools import AnyTool
from holdfast.testing import assert_every_call_answered
from holdfast.testing.script import Call, calls, say
from tests.serving import Serve
from tests.workflows.histories import replayed

pytestmark = [
    pytest.mark.temporal,
    pytest.mark.npm,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js with npm"),
]

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "typescript"
READY_SECONDS_MAX = 90


@asynccontextmanager
async def typescript_worker(folder: Path, settings: Settings, queue: str) -> AsyncGenerator[None]:
    """Install the example's packages into `folder` and run its worker there."""
    for name in ("package.json", "worker.ts"):
        shutil.copy(FOLDER / name, folder)
    install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
    installing = await asyncio.create_subprocess_exec(*install, cwd=folder, stdout=PIPE, stderr=STDOUT)
    told, _ = await installing.communicate()
    assert installing.returncode == 0, told.decode()
    process = await asyncio.create_subprocess_exec(
        *(str(folder / "node_modules" / ".bin" / "tsx"), "worker.ts"),
        cwd=folder,
        env={**os.environ, "TEMPORAL_ADDRESS": settings.address or "", "TASK_QUEUE": queue},
        stdout=PIPE,
        start_new_session=True,  # tsx runs node in a process of its own
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_SECONDS_MAX):
            assert b"tools ready" in await process.stdout.readline()
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_an_agent_calls_tools_that_are_written_in_typescript(
    settings: Settings, serve: Serve, tmp_path: Path
) -> None:
    queue = f"words-{uuid4()}"
    tools: list[AnyTool] = [
        replace(each, traits=changed(each.traits, task_queue=queue)) for each in (word_count, last_word)
    ]
    script = [
        calls(Call("word_count", {"text": "one two three"}), Call("word_count", {"text": 3})),
        calls(Call("last_word", {"text": "first and last"})),
        say("never said"),
    ]
    async with typescript_worker(tmp_path, settings, queue), serve(script, tools) as served:
        state = await served.client.run(agent, "Count.")
        execution_id = state.execution_id
        await replayed(served.client, execution_id)
    counted, misfit = state.state.steps[0].tool_executions
    key = named_id(execution_id, call_name(1, 0))
    assert counted.result == f'{{"words":3,"key":"{key}"}}'
    assert misfit.error is not None
    assert (misfit.error.type, misfit.error.message) == ("InvalidArguments", "$.text: 3 is not of type 'string'")
    assert state.state.steps[1].tool_executions[0].result == "last"
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.STOP_REQUESTED)
    assert_every_call_answered(state.state)
