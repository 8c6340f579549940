"""The detective's tools as a model sees them: answers that are bounded and say where they were cut, errors in words."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from examples.repo_detective import folder, recording, tools
from examples.repo_detective.tools import list_files, read_file, search_text
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import AnyTool
from holdfast.runtime.tool_runner import run_tool
from holdfast.testing.ledger import Ledger

CONTEXT = ToolContext(execution_id="run", idempotency_key="key", attempt=1)


async def ask(tool: AnyTool, **arguments: object) -> str:
    """Call the tool as an activity does: arguments checked, in a thread."""
    return (await run_tool(tool, arguments, CONTEXT)).text


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the tools are set to."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "README.md").write_text("# Project\n\nIt finds Needles.\n")
    (place / "src").mkdir()
    (place / "src" / "a.py").write_text("def needle():\n    return 1\n")
    monkeypatch.setenv(tools.FOLDER, str(place))
    monkeypatch.delenv(recording.LEDGER, raising=False)
    monkeypatch.delenv(recording.PAUSE, raising=False)
    return place


async def test_files_are_listed_with_their_sizes() -> None:
    listed = "2 files in project match '**/*':\nREADME.md (29 bytes)\nsrc/a.py (27 bytes)"
    assert await ask(list_files) == listed
    assert await ask(list_files, pattern="*.py") == "1 file in project matches '*.py':\nsrc/a.py (27 bytes)"
    assert await ask(list_files, pattern="*.rs") == "0 files in project match '*.rs'"


async def test_a_file_is_read_with_line_numbers_and_says_where_to_go_on() -> None:
    whole = "README.md, lines 1 to 3 of 3:\n1: # Project\n2: \n3: It finds Needles."
    assert await ask(read_file, path="README.md") == whole
    part = "README.md, lines 2 to 2 of 3:\n2: \n[goes on at start_line 3]"
    assert await ask(read_file, path="README.md", start_line=2, lines=1) == part


async def test_a_text_is_found_whatever_its_case_with_file_and_line() -> None:
    found = "2 lines in 2 files hold 'NEEDLE':\nREADME.md:3: It finds Needles.\nsrc/a.py:1: def needle():"
    assert await ask(search_text, text="NEEDLE") == found
    assert await ask(search_text, text="needle", pattern="src/") == (
        "1 line in 1 file holds 'needle':\nsrc/a.py:1: def needle():"
    )
    assert await ask(search_text, text="(a+)+$") == "0 lines in 0 files hold '(a+)+$'"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (read_file, {"path": "../secret"}, "leads out of the folder"),
        (read_file, {"path": "/etc/passwd"}, "absolute path"),
        (read_file, {"path": "a\0b"}, "NUL"),
        (read_file, {"path": "none"}, "there is no file none; list_files shows"),
        (read_file, {"path": "README.md", "start_line": 9}, "ends at line 3; start_line 9 is behind it"),
        (list_files, {"pattern": "../*"}, "inside the folder"),
        (search_text, {"text": " "}, "empty"),
        (search_text, {"text": "a\nb"}, "a part of one line"),
        (search_text, {"text": "x" * 201}, "at most 200"),
        (search_text, {"text": "x", "pattern": "/etc/*"}, "inside the folder"),
    ],
)
async def test_what_cannot_be_done_is_said_in_words(tool: AnyTool, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        await ask(tool, **arguments)


@pytest.mark.parametrize("arguments", [{}, {"path": "a", "lines": 0}, {"path": "a", "lines": 9_999}, {"path": 7}])
async def test_arguments_that_do_not_fit_are_refused_before_the_call(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        await ask(read_file, **arguments)


async def test_without_a_folder_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tools.FOLDER)
    with pytest.raises(InvalidInput, match="HOLDFAST_FOLDER is not set"):
        await ask(list_files)
    monkeypatch.setenv(tools.FOLDER, "/no/such/place")
    with pytest.raises(InvalidInput, match="'/no/such/place' cannot be opened"):
        await ask(list_files)


async def test_a_long_listing_is_cut_and_says_so(place: Path) -> None:
    for number in range(tools.FILES_LISTED_MAX + 7):
        (place / "src" / f"{number}.txt").touch()
    lines = (await ask(list_files)).splitlines()
    assert len(lines) == tools.FILES_LISTED_MAX + 2
    assert lines[-1].startswith("[cut: the first 400 of 409 files")


async def test_a_long_file_is_cut_at_a_whole_line_and_goes_on_there(place: Path) -> None:
    (place / "long.txt").write_text("".join(f"{number} {'x' * 5_000}\n" for number in range(1, 201)))
    text = await ask(read_file, path="long.txt")
    assert len(text) < tools.TEXT_CHARS_MAX + 200
    assert " [cut]" in text
    last = text.splitlines()[-2].split(":")[0]
    assert text.splitlines()[-1] == f"[goes on at start_line {int(last) + 1}]"


async def test_of_a_huge_file_the_reach_is_told(place: Path) -> None:
    with (place / "huge").open("wb") as file:
        file.write(b"needle\n")
        file.truncate(10 * 1024**3)
        file.seek(0)
        file.write(b"x\n" * folder.BINARY_BYTES)
    assert "only the first 2,097,152 of 10,737,418,240 bytes can be read" in await ask(read_file, path="huge", lines=3)


async def test_many_matches_are_cut_and_counted(place: Path) -> None:
    (place / "many.txt").write_text("needle\n" * 100)
    for number in range(tools.MATCHES_MAX):
        (place / "src" / f"{number}.txt").write_text("needle")
    text = await ask(search_text, text="needle")
    assert "[94 more in many.txt]" in text
    assert len(text.splitlines()) <= tools.MATCHES_MAX + 3
    assert "ended early" in text.splitlines()[-1]


@pytest.mark.timeout(60)
async def test_a_search_passes_by_what_is_no_text(place: Path) -> None:
    (place / "binary").write_bytes(b"needle\0")
    (place / "link").symlink_to("/etc/passwd")
    os.mkfifo(place / "fifo")
    assert (await ask(search_text, text="needle")).startswith("2 lines in 2 files hold")


async def test_a_search_through_a_large_tree_ends_in_time(place: Path) -> None:
    text = ("y" * 200 + "\n") * 5_000
    for number in range(60):
        (place / "src" / f"{number}.txt").write_text(text)
    began = time.monotonic()
    said = await ask(search_text, text="needle")
    assert time.monotonic() - began < folder.WALK_SECONDS_MAX + 10
    whole = said.startswith("2 lines in 2 files hold")
    assert whole or "[ended after 5 s; a narrower pattern reaches the rest]" in said  # on a busy machine


async def test_each_call_is_noted_with_its_idempotency_key(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(place.parent / "ledger.jsonl")
    monkeypatch.setenv(recording.LEDGER, str(ledger.path))
    await ask(list_files)
    with pytest.raises(InvalidInput):
        await ask(read_file, path="../x")
    noted = [(entry.kind, entry.name, entry.phase, entry.key) for entry in ledger.entries()]
    assert noted == [
        ("tool", "list_files", "started", "key"),
        ("tool", "list_files", "finished", "key"),
        ("tool", "read_file", "started", "key"),
        ("tool", "read_file", "failed", "key"),
    ]


async def test_a_call_pauses_in_its_middle_when_told_to(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(place.parent / "ledger.jsonl")
    monkeypatch.setenv(recording.LEDGER, str(ledger.path))
    monkeypatch.setenv(recording.PAUSE, "0.3")
    await ask(list_files)
    started, finished = ledger.entries()
    assert finished.at - started.at >= 0.29


@pytest.mark.parametrize("pause", ["soon", "-1", "nan", "inf", "1000"])
async def test_a_pause_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, pause: str) -> None:
    monkeypatch.setenv(recording.PAUSE, pause)
    with pytest.raises(InvalidInput, match=recording.PAUSE):
        await ask(list_files)
