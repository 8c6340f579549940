"""Workspaces of runs on the real server, in a folder: files by digest, lost and restored, forked, stopped."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest

from holdfast import AgentDefinition, tool
from holdfast.client import Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.base.frozen import replace
from holdfast.core.tools.workspace_profile import WorkspaceProfile
from holdfast.local import LocalDriver
from holdfast.storage.fetch_result_tool import ResultStore
from holdfast.storage.object_store import Objects
from holdfast.storage.parts import EncodedParts
from holdfast.storage.records import Records
from holdfast.testing.script import Reply, call, say
from holdfast.testing.scripted_model import ScriptedModel
from holdfast.workspace.calls import RESTORED, WorkspaceCalls
from holdfast.workspace.folder import FolderBackend
from holdfast.workspace.tools import WorkspaceTools
from tests.serving import Serve
from tests.workflows.histories import history_of, replayed, written
from tests.workspace.programs import alive

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

CODER = AgentDefinition(name="coder", workspace=WorkspaceProfile(backend="folder"))
SECONDS_MAX = 90


def offered(settings: Settings, path: Path) -> Toolset:
    """Return the tools over the folder backend, with the snapshots in the store of the test's worker."""
    assert settings.storage is not None
    return over(Records(Objects(settings.storage)), path)


def over(records: Records, path: Path) -> Toolset:
    return WorkspaceTools(WorkspaceCalls({"folder": FolderBackend(path / "workspaces")}, records)).toolset()


def results(state: AgentState) -> list[str]:
    return [str(each.result or each.error_message) for step in state.steps for each in step.tool_executions]


async def test_an_agent_works_on_files_of_its_own_and_the_history_has_digests_alone(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    script = [
        call("write_file", path="src/a.py", content="print('hello')\n"),
        call(
            "shell", command="python3 src/a.py; python3 -c \"open('big', 'w').write('only in the ' + 'files ' * 5000)\""
        ),
        call("edit_file", path="src/a.py", old="hello", new="bye"),
        call("read_file", path="src/a.py"),
        call("run_python", code="import runpy; runpy.run_path('src/a.py')"),
        call("list_files", recursive=True),
        call("search_files", pattern="b.e", regex=True),
        say("done"),
    ]
    async with serve(script, offer=offered(settings, tmp_path)) as served:
        result = await served.client.run(CODER, "work")
        id_ = result.state.running.execution_id
        history = written((await history_of(served.client, id_)).events)
        await replayed(served.client, id_)
    made, ran, edited, read, python, listed, found = results(result.state)
    assert made == "made src/a.py: 15 bytes"
    assert ran.startswith("[exit code 0 after ")
    assert ran.endswith("hello\n")
    assert edited == "replaced 1 time in src/a.py, first in line 1"
    assert read == "print('bye')\n"
    assert python.endswith("bye\n")
    assert listed == "big  30,012\nsrc  folder\nsrc/a.py  13"
    assert found == "src/a.py:1: print('bye')"
    assert b"files files files" not in history
    digests = [each.workspace for step in result.state.steps for each in step.tool_executions]
    assert digests[3] is digests[5] is digests[6] is None, "reading leaves no snapshot"
    assert len({digests[0], digests[1], digests[2]}) == 3
    assert digests[4] == digests[2], "the same files have the same digest"
    assert (result.state.running.workspace_base, result.state.workspace) == (None, digests[4])


@pytest.mark.slow
async def test_a_lost_workspace_comes_back_from_the_last_snapshot_and_the_model_is_told(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    @tool
    def lose() -> str:
        """Do what an end of the lease does."""
        shutil.rmtree(tmp_path / "workspaces")
        return "lost"

    script = [
        call("shell", command="echo kept > file; chmod 700 file"),
        call("lose"),
        call("read_file", path="file"),
        call("shell", command="echo more >> file; cat file; stat -c %a file"),
        say("done"),
    ]
    offer = offered(settings, tmp_path).joined(Toolset(tools=(lose,)))
    async with serve(script, offer=offer) as served:
        result = await served.client.run(replace(CODER, tools=("lose",)), "work")
    _, _, read, ran = results(result.state)
    assert read == f"{RESTORED}\nkept\n"
    assert ran.endswith("]\nkept\nmore\n700\n"), "it is told once"


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["execution", "session"])
async def test_a_fork_and_a_rewind_have_the_files_of_their_step_and_leave_those_of_others_alone(
    serve: Serve, settings: Settings, tmp_path: Path, scope: Literal["execution", "session"]
) -> None:
    def script(request: dict[str, Any]) -> Reply:
        asked = [each["role"] for each in request["messages"]][::-1].index("user")
        commands = {"begin": ["echo 1 > file", "echo 2 >> file"]}.get(question(request), ["cat file; echo 3 >> file"])
        return call("shell", command=commands[asked // 2]) if asked // 2 < len(commands) else say("done")

    def question(request: dict[str, Any]) -> str:
        return str([each["content"] for each in request["messages"] if each["role"] == "user"][-1])

    definition = replace(CODER, workspace=WorkspaceProfile(backend="folder", scope=scope))
    async with serve(script, offer=offered(settings, tmp_path)) as served:
        agent = served.client.agent(definition=definition)
        first = await agent.ask("begin")
        second = await agent.ask("go on")
        fork = await agent.fork(first.state.running.execution_id, steps=1)
        forked = await fork.ask("once more")
        third = await agent.ask("and now")
        await agent.rewind(first.state.running.execution_id, steps=1)
        rewound = await agent.ask("from there")
    assert [each.rpartition("]")[2].split() for each in results(second.state)] == [["1", "2"]]
    assert [each.rpartition("]")[2].split() for each in results(forked.state)] == [["1"]], "as after its step"
    assert [each.rpartition("]")[2].split() for each in results(third.state)] == [["1", "2", "3"]]
    assert [each.rpartition("]")[2].split() for each in results(rewound.state)] == [["1"]]
    assert RESTORED in results(forked.state)[0]
    assert (RESTORED in results(second.state)[0]) is (scope == "execution"), "a session's workspace stays"


@pytest.mark.slow
async def test_a_stop_ends_the_command_and_all_that_it_has_started(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    mark = f"mark-{uuid4()}"
    sleeper = f"python3 -c 'import time; time.sleep(600)  # {mark}'"
    async with serve(
        [call("shell", command=f"{sleeper} & setsid {sleeper}")], offer=offered(settings, tmp_path)
    ) as served:
        run = await served.client.start(CODER, "work")
        await until(lambda: len(alive(mark)) >= 3)
        await served.client.stop(run)
        state = await served.client.result(run)
        await until(lambda: not alive(mark))
    assert state.status is ExecutionStatus.STOPPED


async def test_a_long_output_is_cut_for_the_model_and_kept_whole(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    script = [call("shell", command="seq 1 200000"), say("done")]
    assert settings.storage is not None
    results_kept = ResultStore(EncodedParts(Objects(settings.storage)))
    async with serve(script, offer=offered(settings, tmp_path), results=results_kept) as served:
        result = await served.client.run(CODER, "work")
    [ran] = result.state.steps[0].tool_executions
    assert ran.reference is not None
    whole = await results_kept.whole(result.state.running.execution_id, ran.reference)
    assert whole.endswith("\n199999\n200000\n")
    assert len(str(ran.result)) < len(whole)


@pytest.mark.slow
async def test_the_same_run_in_process_leaves_the_same_files(serve: Serve, settings: Settings, tmp_path: Path) -> None:
    script = [call("write_file", path="a", content="x"), call("shell", command="cp a b; exit 3"), say("done")]
    async with serve(script, offer=offered(settings, tmp_path)) as served:
        distant = (await served.client.run(CODER, "work")).state
    records = Records.in_folder(tmp_path / "other")
    offer = over(records, tmp_path / "local")
    driver = LocalDriver(CODER, model=ScriptedModel(script), records=records, offer=offer)
    near = (await driver.run("work")).state
    assert near.workspace == distant.workspace != None  # noqa: E711
    assert results(near)[1].startswith("[exit code 3 after ")


async def test_a_worker_without_the_backend_refuses_the_run_and_says_what_to_do(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    async with serve([say("never")], offer=offered(settings, tmp_path)) as served:
        with pytest.raises(ExecutionFailed, match=r"'docker'.*--workspace docker.*--workspace-queue.*of the agent$"):
            await served.client.run(AgentDefinition(name="coder", workspace=WorkspaceProfile()), "work")
    async with serve([say("never")]) as served:
        with pytest.raises(ExecutionFailed, match="--workspace folder"):
            await served.client.run(CODER, "work")


async def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not met():
        assert time.monotonic() < deadline, "it has not come to that"
        await asyncio.sleep(0.02)
