"""Snapshots of a workspace: equal files have equal digests, only what changed is read, and they come back."""

from __future__ import annotations

from collections import deque
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.core.base.errors import StorageFailed
from holdfast.workspace.calls import unpacked
from holdfast.workspace.inside.paths import Root
from holdfast.workspace.inside.snapshots import CLOSED_SHOWN_MAX, EMPTY, FILE_BYTES_MAX, FILES_MAX, take
from holdfast.workspace.snapshot_store import EMPTY_MANIFEST, Manifest
from tests.workspace.programs import UNPRIVILEGED, Inside, modes_hold


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside.below(tmp_path)


FILL = "mkdir -p a/b c; echo one > a/b/one; echo two > two; chmod 700 two; ln -s a/b/one link; chmod 555 a/b"


def test_equal_files_have_the_same_digest_whoever_made_them(tmp_path: Path) -> None:
    first, second = Inside.below(tmp_path / "1"), Inside.below(tmp_path / "2")
    first.shell(FILL)
    second.shell("echo two > two")
    second.shell(f"rm two; {FILL}")
    assert first.files == second.files != EMPTY


def test_a_call_that_changes_nothing_leaves_the_same_snapshot_and_sends_nothing(inside: Inside) -> None:
    inside.shell(FILL)
    before = inside.files
    ran = inside.shell("cat two")
    assert (inside.files, ran.result["snapshot"]["contents"], ran.contents) == (before, 0, b"")


def test_only_contents_that_the_snapshot_before_lacks_are_sent(inside: Inside) -> None:
    inside.shell("head -c 1000000 /dev/urandom > large; echo a > small")
    ran = inside.shell("echo b > small; cp large copy")
    manifest, *contents = unpacked(deque([ran.contents]))
    assert contents == [b"b\n"]
    assert set(Manifest(manifest).files) == {"copy", "large", "small"}


def test_a_snapshot_comes_back_in_an_empty_workspace(inside: Inside, tmp_path: Path) -> None:
    packed = inside.shell(FILL).contents
    other = Inside.below(tmp_path / "other")
    other.shell("mkdir -p deep/er; echo gone > deep/er/file; chmod 500 deep/er deep")
    ran = other.ask({"op": "restore", "files": inside.files}, packed)
    assert ran.result == {"status": "done", "files": 2}
    assert sorted(str(each.relative_to(other.root)) for each in other.root.rglob("*")) == [
        *("a", "a/b", "a/b/one", "c", "link", "two")
    ]
    assert (other.root / "two").stat().st_mode & 0o777 == 0o700
    assert (other.root / "a" / "b").stat().st_mode & 0o777 == 0o555
    other.files = inside.files
    other.shell("true")
    assert other.files == inside.files


def test_a_workspace_with_other_files_does_nothing_until_they_are_restored(inside: Inside, tmp_path: Path) -> None:
    packed = inside.shell(FILL).contents
    other = Inside.below(tmp_path / "other")
    other.files = inside.files
    ran = other.shell("touch hacked")
    assert ran.result == {"status": "stale"}
    assert not list(other.root.iterdir())
    other.ask({"op": "restore"}, packed)
    assert other.shell("cat two").output == b"two\n"


def test_a_call_whose_result_was_lost_had_its_effect(inside: Inside) -> None:
    inside.shell("echo 1 > f")
    inside.shell("true")
    recorded = inside.files, inside.left_by
    inside.shell("echo 2 > f")
    inside.files, inside.left_by = recorded  # the run never heard of the last one
    assert inside.shell("cat f").output == b"2\n"


def test_another_run_begins_with_exactly_the_files_that_it_names(inside: Inside) -> None:
    inside.shell("echo 1 > f")
    earlier = inside.files
    inside.shell("echo 2 > f")
    assert inside.shell("cat f", execution="next").output == b"2\n", "it goes on where the last one ended"
    assert inside.shell("cat f", execution="fork", files=earlier).result == {"status": "stale"}


def test_a_rewind_to_no_files_empties_the_workspace(inside: Inside) -> None:
    inside.shell("echo 1 > f")
    assert inside.shell("ls", execution="rewound", files=EMPTY).result == {"status": "stale"}
    packed = len(EMPTY_MANIFEST).to_bytes(4, "big") + EMPTY_MANIFEST
    inside.ask({"op": "restore", "execution": "rewound", "files": EMPTY}, packed)
    inside.files = EMPTY
    assert inside.shell("ls", execution="rewound").output == b""


def test_files_whose_restore_has_failed_are_nobodys(inside: Inside) -> None:
    inside.shell("echo 1 > f")
    manifest = b'{"files":[["g",420,1,"0"]],"folders":[],"links":[]}'
    half = len(manifest).to_bytes(4, "big") + manifest  # its content is missing
    assert inside.ask({"op": "restore", "execution": "next", "files": sha256(manifest).hexdigest()}, half).result == {}
    assert inside.shell("cat f").result == {"status": "stale"}


@pytest.mark.slow
def test_files_beyond_the_bounds_are_left_out_with_the_reason(inside: Inside) -> None:
    ran = inside.shell(f"head -c {FILE_BYTES_MAX + 1} /dev/zero > large")
    assert ran.result["exit_code"] == 0
    assert "large has 16,777,217 bytes" in ran.result["snapshot"]["left_out"]
    ran = inside.shell(f"rm large; seq {FILES_MAX + 1} | xargs touch")
    assert "more than 5,000" in ran.result["snapshot"]["left_out"]
    assert inside.shell("rm -rf *").result["snapshot"]["digest"] == EMPTY


def test_a_file_that_a_command_has_closed_to_us_is_why_no_snapshot_is_made(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_root: Root, path: str) -> int:
        raise PermissionError(13, "Permission denied", path)

    inside.shell("echo secret > closed")
    (inside.runtime / "index").unlink()
    monkeypatch.setattr(Root, "open_file", closed)
    request = {"execution": "run", "files": inside.files}
    taken = take(Root(str(inside.root)), str(inside.runtime), request)
    assert taken == {"left_out": "Permission denied: closed"}


@modes_hold
def test_folders_closed_to_the_program_stand_in_the_manifest_and_the_result(tmp_path: Path) -> None:
    inside = Inside.below(tmp_path / "1", UNPRIVILEGED)
    closing = "chmod 000 secret; chmod 300 in/unlisted; chmod 400 in/unsearched; chmod 500 open"
    making = "mkdir -p secret in/unlisted in/unsearched open; for each in * in/*; do touch $each/x; done"
    ran = inside.shell(f"{making}; {closing}")
    closed = ["in/unlisted", "in/unsearched", "secret"]
    assert ran.result["snapshot"]["closed"] == {"folders": closed, "count": 3}
    manifest = Manifest(unpacked(deque([ran.contents]))[0]).checked()
    assert (manifest.closed, [*manifest.files]) == (tuple(closed), ["in/x", "open/x"])
    again = inside.shell("true").result["snapshot"]
    assert (again["contents"], again["closed"]["count"]) == (0, 3), "it is told as long as it is so"
    other = Inside.below(tmp_path / "2", UNPRIVILEGED)
    other.ask({"op": "restore", "files": inside.files}, ran.contents)
    other.files = inside.files
    other.shell("true")
    assert other.files == inside.files
    opened = inside.shell("chmod 700 secret in/*").result["snapshot"]
    assert "closed" not in opened


@modes_hold
def test_of_many_closed_folders_a_result_names_the_first(tmp_path: Path) -> None:
    inside = Inside.below(tmp_path, UNPRIVILEGED)
    closed = inside.shell("for each in $(seq 100 199); do mkdir -m 0 $each; done").result["snapshot"]["closed"]
    assert closed == {"folders": [str(each) for each in range(100, 100 + CLOSED_SHOWN_MAX)], "count": 100}


@pytest.mark.parametrize("pieces", [[], [b"\0\0\0"], [b"\0\0\0\1a\0\0\0\2", b"b"]])
def test_a_snapshot_that_ends_early_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(StorageFailed, match="no whole snapshot"):
        unpacked(deque(pieces))
