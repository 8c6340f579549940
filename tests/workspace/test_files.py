"""Files of a workspace: names of every kind, links, what is no file, and nothing outside the root."""

from __future__ import annotations

import ast
import os
import socket
from pathlib import Path

import pytest

from holdfast.workspace import inside as package
from holdfast.workspace.inside.file_operations import READ_BYTES_MAX
from holdfast.workspace.program import ARGUMENT_BYTES_MAX, MODULES, program
from tests.workspace.programs import Inside

ODD = (
    "with space",
    "line\nbreak",
    "tab\t",
    "quote'\"",
    "ümläut",
    "emoji-\N{SNAKE}",
    "-rf",
    "$(touch hacked)",
    "back\\slash",
)


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside.below(tmp_path)


def refusal(inside: Inside, **header: object) -> str:
    ran = inside.ask({"old": "a", **header}, b"new")
    assert ran.result["status"] == "refused", ran
    return str(ran.result["message"])


def test_the_program_is_one_argument_and_needs_python_39_and_the_standard_library_alone() -> None:
    assert len(program().encode()) < ARGUMENT_BYTES_MAX
    folder = Path(package.__file__).parent
    assert {each.stem for each in folder.glob("*.py")} == {"__init__", *MODULES}
    for name in MODULES:
        source = (folder / f"{name}.py").read_text()
        for node in ast.walk(ast.parse(source, feature_version=(3, 9))):
            if isinstance(node, ast.ImportFrom) and "holdfast" in str(node.module):
                assert str(node.module).startswith("holdfast.workspace.inside."), name


@pytest.mark.parametrize("name", ODD)
def test_a_file_of_any_name_is_written_read_edited_listed_and_found(inside: Inside, name: str) -> None:
    path = f"folder/{name}"
    assert inside.ask({"op": "write", "path": path}, b"one\ntwo\n").result["made"] is True
    assert (inside.root / "folder" / name).read_bytes() == b"one\ntwo\n"
    assert inside.ask({"op": "edit", "path": path, "old": "two"}, b"three").result["line"] == 2
    assert inside.ask({"op": "read", "path": path, "first": 2}).contents == b"three\n"
    [entry] = inside.ask({"op": "list", "path": "folder"}).result["entries"]
    assert entry["path"] in (name, ascii(name))
    assert "\n" not in entry["path"]
    [match] = inside.ask({"op": "search", "pattern": "three"}).result["matches"]
    assert match["line"] == 2


def test_a_name_that_is_no_text_is_shown_escaped_and_kept_by_a_snapshot(inside: Inside) -> None:
    ran = inside.shell("echo x > \"$(printf 'a\\377')\"")
    assert ran.result["snapshot"]["contents"] == 2
    [entry] = inside.ask({"op": "list"}).result["entries"]
    assert entry["path"] == "'a\\udcff'"


@pytest.mark.parametrize("path", ["../out", "inner/../../out", "/etc/passwd", "link/passwd", "up/out", "through/out"])
@pytest.mark.parametrize("op", ["read", "write", "edit", "list", "search"])
def test_no_path_leads_out(inside: Inside, op: str, path: str) -> None:
    outside = inside.root.parent / "out"
    outside.write_text("a secret")
    (inside.root / "link").symlink_to("/etc")
    (inside.root / "up").symlink_to("..")
    (inside.root / "inner").mkdir()
    (inside.root / "through").symlink_to("inner/../..")
    assert "leads out of the workspace" in refusal(inside, op=op, path=path, pattern="secret")
    assert outside.read_text() == "a secret"


def test_links_within_the_workspace_are_followed(inside: Inside) -> None:
    (inside.root / "real").mkdir()
    (inside.root / "relative").symlink_to("real")
    (inside.root / "absolute").symlink_to(inside.root / "relative")
    assert inside.ask({"op": "write", "path": "absolute/file"}, b"x").result["status"] == "done"
    assert (inside.root / "real" / "file").read_text() == "x"
    (inside.root / "circle").symlink_to("circle")
    assert "symbolic links" in refusal(inside, op="read", path="circle")


@pytest.mark.slow
def test_what_is_no_file_is_neither_opened_nor_replaced(inside: Inside) -> None:
    os.mkfifo(inside.root / "fifo")
    (inside.root / "folder").mkdir()
    (inside.root / "null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(inside.root)  # a socket's path is short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        for name, kind in (("fifo", "a FIFO"), ("socket", "a socket"), ("folder", "a folder")):
            assert refusal(inside, op="read", path=name) == f"{name} is {kind}"
            assert refusal(inside, op="write", path=name) == f"{name} is {kind}; it is not replaced"
        assert "leads out" in refusal(inside, op="read", path="null")
        snapshot = inside.shell("true").result["snapshot"]
    assert snapshot["contents"] == 1, "they are left out of a snapshot"


def test_a_path_with_nul_is_refused_in_words(inside: Inside) -> None:
    assert "NUL" in refusal(inside, op="read", path="a\0b")


def test_an_edit_needs_the_text_once(inside: Inside) -> None:
    inside.ask({"op": "write", "path": "f"}, b"a b a")
    assert "2 times" in refusal(inside, op="edit", path="f", old="a")
    assert "is not in f" in refusal(inside, op="edit", path="f", old="c")
    assert "empty" in refusal(inside, op="edit", path="f", old="")
    assert inside.ask({"op": "edit", "path": "f", "old": "a", "all": True}, b"z").result["replaced"] == 2
    assert (inside.root / "f").read_text() == "z b z"


def test_an_edit_makes_no_file_larger_than_can_be_edited(inside: Inside) -> None:
    (inside.root / "f").write_text("a" * 10_000)
    result = inside.ask({"op": "edit", "path": "f", "old": "a", "all": True}, b"b" * 10_000).result
    assert result["message"] == "f would have 100,000,000 bytes, more than 16,777,216; change it by a command"
    assert (inside.root / "f").read_text() == "a" * 10_000


def test_a_line_longer_than_a_reading_is_cut_and_the_next_can_be_read(inside: Inside) -> None:
    (inside.root / "f").write_bytes(b"one\n" + b"2" * (READ_BYTES_MAX + 1) + b"\nthree\n")
    ran = inside.ask({"op": "read", "path": "f", "first": 2})
    assert (len(ran.contents), ran.result["last"], ran.result["more"], ran.result["cut"]) == (
        READ_BYTES_MAX,
        2,
        True,
        True,
    )
    ran = inside.ask({"op": "read", "path": "f", "first": 3})
    assert (ran.contents, ran.result["last"], ran.result["more"]) == (b"three\n", 3, False)
    ran = inside.ask({"op": "read", "path": "f", "lines": 1})
    assert (ran.contents, ran.result["more"], ran.result["cut"]) == (b"one\n", True, False)


def test_an_edit_keeps_the_files_mode(inside: Inside) -> None:
    inside.shell("echo a > script; chmod 755 script")
    inside.ask({"op": "edit", "path": "script", "old": "a"}, b"b")
    assert (inside.root / "script").stat().st_mode & 0o777 == 0o755


def test_a_binary_file_is_named_as_one(inside: Inside) -> None:
    inside.ask({"op": "write", "path": "f"}, b"\0\1")
    ran = inside.ask({"op": "read", "path": "f"})
    assert (ran.result["binary"], ran.contents) == (True, b"")


def test_a_pattern_that_never_ends_is_given_up(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    inside.ask({"op": "write", "path": "f"}, b"a" * 40 + b"!")
    assert "no regular expression" in refusal(inside, op="search", pattern="(", regex=True)
    source = program().replace("SECONDS_MAX = 20", "SECONDS_MAX = 1")
    assert source != program()
    monkeypatch.setattr("tests.workspace.programs.program", lambda: source)
    assert "took more than 1 s" in refusal(inside, op="search", pattern="(a+)+$", regex=True)
