"""`holdfast workspace`: the files of a snapshot, and what it lacks."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.client import Settings
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from holdfast.workspace.inside.snapshots import EMPTY
from holdfast.workspace.snapshot_files import SnapshotFiles
from holdfast.workspace.snapshot_store import SnapshotStore
from tests.cli.program import Project, beside

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]


async def test_ls_names_the_folders_whose_files_a_snapshot_lacks(settings: Settings, tmp_path: Path) -> None:
    assert settings.storage is not None
    records, content = Records(Objects(settings.storage)), b"one"
    manifest = {
        "files": [["a/b", 0o644, len(content), sha256(content).hexdigest()]],
        "folders": [["a", 0o755], ["a/c", 0], ["d", 0]],
        "links": [],
        "closed": ["a/c", "d"],
    }
    data = json.dumps(manifest).encode()
    snapshot = sha256(data).hexdigest()
    await SnapshotStore(records).write(snapshot, [data, content], EMPTY)
    (tmp_path / "more").write_text("more")
    grown = await SnapshotFiles(records).with_files(snapshot, tmp_path / "more", ".")
    project = Project(tmp_path, beside(settings))
    listed, below, as_json = await asyncio.gather(
        asyncio.to_thread(project.run, "workspace", grown, "ls"),
        asyncio.to_thread(project.run, "workspace", snapshot, "ls", "d"),
        asyncio.to_thread(project.run, "workspace", snapshot, "ls", "--json"),
    )
    lines = [each.split(None, 1) for each in listed.out.splitlines()]
    lacks = "(its mode kept its files out of the snapshot)"
    assert lines == [["3", "a/b"], ["4", "more"], ["?", f"a/c/ {lacks}"], ["?", f"d/ {lacks}"]], listed.err
    assert below.out.split(None, 1)[1].startswith("d/"), below.err
    assert json.loads(as_json.out)["closed"] == ["a/c", "d"]
