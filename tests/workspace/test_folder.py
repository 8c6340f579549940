"""Workspaces in folders, used without a run: what the backend and the calls themselves do."""

from __future__ import annotations

import asyncio
import shlex
import sys
import tracemalloc
from pathlib import Path

import pytest

from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import Tool
from holdfast.core.tools.workspace_profile import WorkspaceProfile, WorkspaceUse
from holdfast.storage.records import Records
from holdfast.workspace.backend import Workspace
from holdfast.workspace.calls import CLOSED, RESTORED, WorkspaceCalls
from holdfast.workspace.folder import FolderBackend
from holdfast.workspace.inside.snapshots import EMPTY
from holdfast.workspace.snapshot_files import SnapshotFiles
from holdfast.workspace.tools import WorkspaceTools
from tests.workspace.programs import UNPRIVILEGED, modes_hold

PROFILE = WorkspaceProfile(backend="folder")


@pytest.mark.slow
async def test_a_result_longer_than_a_frame_arrives_whole(tmp_path: Path) -> None:
    calls = WorkspaceCalls({"folder": FolderBackend(tmp_path / "workspaces")}, Records.in_folder(tmp_path / "objects"))
    context = ToolContext("run", "key", 1, workspace=WorkspaceUse(id="a", profile=PROFILE))
    made = "import pathlib\nfor each in range(2000): pathlib.Path('\u00e9' * 110 + str(each)).touch()"
    await calls.call(context, {"op": "run", "argv": ["{python}", "-"], "timeout": 60}, made.encode())
    answer = await calls.call(context, {"op": "list"})
    assert len(answer.result["entries"]) == 2_000


async def test_of_a_commands_output_the_last_line_that_says_something_is_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = WorkspaceCalls({"folder": FolderBackend(tmp_path / "workspaces")}, Records.in_folder(tmp_path / "objects"))
    seen = list[str]()

    def progress(_: ToolContext, text: str) -> None:
        seen.append(text)

    monkeypatch.setattr(ToolContext, "progress", progress)
    context = ToolContext("run", "key", 1, workspace=WorkspaceUse(id="a", profile=PROFILE))
    shell = next(each for each in WorkspaceTools(calls).toolset().tools if each.name == "shell")
    assert isinstance(shell, Tool)
    command = "echo; sleep 0.3; printf 'one\\n\\n'; sleep 0.3; echo '  '"
    await shell.function(command=command, context=context)
    assert seen == ["one"]


async def test_removing_a_workspace_leaves_alone_where_its_links_lead(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", Workspace("a", "", PROFILE)
    outside.mkdir(mode=0o755)
    backend = FolderBackend(tmp_path / "workspaces")
    await backend.ensure(workspace)
    (files,) = (tmp_path / "workspaces").glob("*/files")
    (files / "link").symlink_to(outside)
    (files / "closed").mkdir(mode=0o500)
    await backend.remove(workspace)
    assert (list((tmp_path / "workspaces").iterdir()), outside.stat().st_mode & 0o777) == ([], 0o755)


@pytest.mark.slow
async def test_calls_side_by_side_have_the_files_restored_once(tmp_path: Path) -> None:
    records, source = Records.in_folder(tmp_path / "objects"), tmp_path / "source"
    source.mkdir()
    for number in range(1_500):
        (source / f"{number}.txt").write_text(f"{number}\n")
    files = await SnapshotFiles(records).with_files(EMPTY, source, ".")
    calls = WorkspaceCalls({"folder": FolderBackend(tmp_path / "workspaces")}, records)
    context = ToolContext("run", "key", 1, workspace=WorkspaceUse(id="a", profile=PROFILE, files=files))
    header = {"op": "read", "path": "1499.txt"}
    answers = await asyncio.gather(*(calls.call(context, header) for _ in range(8)))
    assert [each.contents for each in answers] == [b"1499\n"] * 8


@pytest.mark.parametrize("began", [True, False])
async def test_the_files_that_a_workspace_begins_with_are_not_called_the_last_calls(
    tmp_path: Path, *, began: bool
) -> None:
    records, source = Records.in_folder(tmp_path / "objects"), tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("a\n")
    files = await SnapshotFiles(records).with_files(EMPTY, source, ".")
    profile = WorkspaceProfile(backend="folder", files=files if began else None)
    calls = WorkspaceCalls({"folder": FolderBackend(tmp_path / "workspaces")}, records)
    context = ToolContext("run", "key", 1, workspace=WorkspaceUse(id="a", profile=profile, files=files))
    answer = await calls.call(context, {"op": "list"})
    assert answer.notes == (() if began else (RESTORED,))


@modes_hold
async def test_the_model_is_told_of_folders_that_a_snapshot_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.join([*UNPRIVILEGED, sys.executable])} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    calls = WorkspaceCalls({"folder": FolderBackend(tmp_path / "workspaces")}, Records.in_folder(tmp_path / "objects"))
    context = ToolContext("run", "key", 1, workspace=WorkspaceUse(id="a", profile=PROFILE))
    answer = await calls.call(context, {"op": "run", "shell": "mkdir -m 0 secret", "timeout": 60})
    assert answer.notes == (CLOSED.format("secret", "this folder"),)
    many = {"op": "run", "shell": "for each in $(seq 100 120); do mkdir -m 0 $each; done", "timeout": 60}
    (note,) = (await calls.call(ToolContext("run", "key", 1, workspace=context.workspace), many)).notes
    assert "108, 109 and 12 more folders" in note


@pytest.mark.slow
async def test_files_that_another_machine_has_made_as_they_once_were_are_restored(tmp_path: Path) -> None:
    records = Records.in_folder(tmp_path / "objects")
    here, there = (WorkspaceCalls({"folder": FolderBackend(tmp_path / name)}, records) for name in ("here", "there"))
    files: str | None = None
    outputs = list[bytes]()
    commands = ((here, "touch base"), (here, "touch more"), (there, "rm more; ls"), (here, "ls"), (here, "ls"))
    for number, (calls, command) in enumerate(commands):
        use = WorkspaceUse(id="a", profile=PROFILE, files=files, left_by=f"call {number - 1}" if files else None)
        context = ToolContext("run", f"call {number}", 1, workspace=use)
        answer = await calls.call(context, {"op": "run", "shell": command, "timeout": 60})
        files = answer.snapshot
        outputs.append(answer.output)
    assert outputs[2:] == [b"base\n", b"base\n", b"base\n"]


@pytest.mark.slow
async def test_a_restore_has_the_files_in_memory_once(tmp_path: Path) -> None:
    records, source = Records.in_folder(tmp_path / "objects"), tmp_path / "source"
    source.mkdir()
    for number in range(4):
        (source / str(number)).write_bytes(bytes([number]) * 15_000_000)
    files = await SnapshotFiles(records).with_files(EMPTY, source, ".")
    calls = WorkspaceCalls({"folder": FolderBackend(tmp_path / "workspaces")}, Records.in_folder(tmp_path / "objects"))
    context = ToolContext("run", "key", 1, workspace=WorkspaceUse(id="a", profile=PROFILE, files=files))
    tracemalloc.start()
    try:
        answer = await calls.call(context, {"op": "list"})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(answer.result["entries"]) == 4
    assert peak < 120_000_000


@pytest.mark.slow
async def test_a_snapshot_has_the_files_in_memory_once_and_those_being_stored(tmp_path: Path) -> None:
    calls = WorkspaceCalls({"folder": FolderBackend(tmp_path / "workspaces")}, Records.in_folder(tmp_path / "objects"))
    context = ToolContext("run", "key", 1, workspace=WorkspaceUse(id="a", profile=PROFILE))
    command = {
        "op": "run",
        "shell": "for each in 1 2 3 4; do head -c 15000000 /dev/urandom > $each; done",
        "timeout": 60,
    }
    tracemalloc.start()
    try:
        answer = await calls.call(context, command)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(answer.snapshot or ""), answer.notes) == (64, ())
    assert peak < 150_000_000
