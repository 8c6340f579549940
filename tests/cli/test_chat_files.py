"""What a person types in a chat about files."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.screens.chat_files import ChatFiles, paths_in
from holdfast.core.conversation.attachments import ATTACHMENTS_MAX
from holdfast.runtime.files.message_files import MessageFile


def names(files: ChatFiles) -> list[str]:
    return [each.attachment.name for each in files.waiting if isinstance(each, MessageFile)]


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was said on standard error since, without its line ends."""
    return " ".join(capsys.readouterr().err.split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a.txt", "b.txt", "my notes.txt", "it's.txt"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", []),
        ("a.txt", ["a.txt"]),
        ("a.txt b.txt", ["a.txt", "b.txt"]),
        ("  my notes.txt ", ["my notes.txt"]),
        ("'my notes.txt' a.txt", ["my notes.txt", "a.txt"]),
        (r"my\ notes.txt", ["my notes.txt"]),
        ("it's.txt", ["it's.txt"]),
        ("it's gone.txt", ["it's gone.txt"]),
    ],
)
@pytest.mark.usefixtures("folder")
def test_paths_are_read_as_they_are_or_as_a_shell_does(typed: str, expected: list[str]) -> None:
    assert paths_in(typed) == expected


def test_a_path_may_begin_at_home(folder: Path) -> None:
    assert paths_in("~/a.txt") == [str(folder / "a.txt")]
    assert paths_in("~/a.txt b.txt") == [str(folder / "a.txt"), "b.txt"]


@pytest.mark.usefixtures("folder")
async def test_files_add_up_until_they_are_sent_or_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    files = ChatFiles()
    assert await files.take("/attach a.txt")
    assert await files.take("  /attach\tmy notes.txt")
    assert names(files) == ["a.txt", "my notes.txt"]
    assert await files.take("/attach")
    assert "with your next message: a.txt, text/plain, 5 bytes; my notes.txt" in " ".join(
        capsys.readouterr().err.split()
    )
    files.sent()
    assert names(files) == []
    assert await files.take("/attach b.txt")
    assert await files.take("/detach")
    assert names(files) == []


@pytest.mark.usefixtures("folder")
async def test_what_cannot_be_attached_leaves_what_was(capsys: pytest.CaptureFixture[str]) -> None:
    files = ChatFiles()
    assert await files.take("/attach a.txt")
    for typed, named in (("nothing.txt", "No such file"), ("b.txt nothing.txt", "No such file"), (".", "directory")):
        assert await files.take(f"/attach {typed}")
        assert named in shown(capsys)
    assert await files.take("/attach " + " ".join(["b.txt"] * ATTACHMENTS_MAX))
    assert names(files) == ["a.txt"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("typed", ["~nobody-of-that-name/a.txt", "a" * 5_000, "'" + "b" * 300, "a\0b", "\ud800", "'"])
async def test_what_can_be_no_path_ends_no_chat(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = ChatFiles()
    assert await files.take(f"/attach {typed}")
    assert "not attached: " in shown(capsys)
    assert names(files) == []


@pytest.mark.parametrize(
    "line", ["hello", "attach a.txt", "/attached a.txt", "/detach a.txt", "what does /attach do?", "/"]
)
async def test_any_other_line_is_a_message(line: str) -> None:
    assert not await ChatFiles().take(line)
