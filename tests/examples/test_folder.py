"""The folder cannot be left, whatever a path says and whoever swaps what in the meantime."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.repo_detective import folder as module
from examples.repo_detective.folder import DEPTH_MAX, PATH_CHARS_MAX, READ_BYTES_MAX, Folder
from examples.repo_detective.globbing import Glob
from holdfast.core.base.errors import InvalidInput

OUTSIDE = "what lies outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret.txt").write_text(OUTSIDE)
    return place


@pytest.fixture
def inside(tmp_path: Path, outside: Path) -> Path:
    """Return the folder; beside it lies a secret."""
    assert outside.exists()
    place = tmp_path / "inside"
    (place / "sub").mkdir(parents=True)
    (place / "a.txt").write_text("one\ntwo\r\nthree")
    (place / "sub" / "b.txt").write_text("b\n")
    return place


def read(place: Path, path: str) -> str:
    with Folder.opened(place) as folder:
        return "\n".join(folder.read(path).lines)


def walked(place: Path, pattern: str = "**/*") -> list[str]:
    with Folder.opened(place) as folder:
        return [found.path for found in folder.walk(Glob.parse(pattern))]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if Path("/proc").exists() else "/dev/fd"))  # noqa: PTH208  # no Path of it


def test_a_text_comes_in_lines_without_their_ends(inside: Path) -> None:
    assert read(inside, "a.txt") == "one\ntwo\nthree"
    assert read(inside, "./sub//b.txt") == "b"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "sub/../../outside/secret.txt",
        "sub/..",
        "/etc/passwd",
        "//etc/passwd",
        "a.txt\0.png",
        "\0",
        "",
        "/",
        ".",
        ".git/config",
        "sub/.git/config",
        "x" * (PATH_CHARS_MAX + 1),
        "x" * 300,
        "\ud800",
        "no such file",
        "a.txt/b",
        "sub",
    ],
)
def test_a_path_that_must_not_be_read_is_refused_in_words(inside: Path, path: str) -> None:
    (inside / ".git").mkdir()
    (inside / ".git" / "config").write_text(OUTSIDE)
    with pytest.raises(InvalidInput) as caught:
        read(inside, path)
    assert OUTSIDE not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("target", ["../outside/secret.txt", "a.txt", "/etc/passwd", "link", "nowhere"])
def test_a_link_is_not_followed_wherever_it_leads(inside: Path, target: str) -> None:
    (inside / "link").symlink_to(target)
    with pytest.raises(InvalidInput, match="link, which is not followed"):
        read(inside, "link")
    assert walked(inside) == ["a.txt", "sub/b.txt"]


def test_a_linked_folder_is_not_entered(inside: Path, outside: Path) -> None:
    (inside / "way").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    with pytest.raises(InvalidInput, match="way is a link, which is not followed"):
        read(inside, "way/secret.txt")
    assert walked(inside) == ["a.txt", "sub/b.txt"]


def swap_after_check(monkeypatch: pytest.MonkeyPatch, name: str, swap: Callable[[], None]) -> list[str]:
    """Call `swap` when `name` has been looked at and before it is opened; return the list that says so."""
    real, swapped = os.stat, list[str]()

    def stat(path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        found = real(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        if path == name and not swapped:
            swapped.append(path)
            swap()
        return found

    monkeypatch.setattr(os, "stat", stat)
    return swapped


def test_a_file_swapped_for_a_link_between_check_and_use_is_not_read(
    inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap() -> None:
        (inside / "a.txt").unlink()
        (inside / "a.txt").symlink_to(outside / "secret.txt")

    swapped = swap_after_check(monkeypatch, "a.txt", swap)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(inside, "a.txt")
    assert swapped


def test_a_folder_swapped_for_a_link_between_check_and_use_is_not_entered(
    inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap() -> None:
        (inside / "sub").rename(inside / "gone")
        (inside / "sub").symlink_to(outside)

    swapped = swap_after_check(monkeypatch, "sub", swap)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(inside, "sub/secret.txt")
    assert swapped


def test_a_folder_moved_out_while_it_is_read_shows_only_what_it_held(
    inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is looked up in the folder that was opened, not along the path once more."""

    def swap() -> None:
        (inside / "sub").rename(outside / "moved")
        (inside / "sub").symlink_to(outside)

    swapped = swap_after_check(monkeypatch, "b.txt", swap)
    assert read(inside, "sub/b.txt") == "b"
    assert swapped


@pytest.mark.timeout(60)
def test_a_file_swapped_for_a_fifo_between_check_and_use_does_not_hang(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap() -> None:
        (inside / "a.txt").unlink()
        os.mkfifo(inside / "a.txt")

    swapped = swap_after_check(monkeypatch, "a.txt", swap)
    with pytest.raises(InvalidInput, match="not a regular file"):
        read(inside, "a.txt")
    assert swapped


@pytest.mark.timeout(60)
def test_a_fifo_and_a_socket_are_refused_and_not_listed(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(inside / "fifo")
    monkeypatch.chdir(inside)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name in ("fifo", "socket"):
            with pytest.raises(InvalidInput, match=f"{name} is not a regular file"):
                read(inside, name)
    assert walked(inside) == ["a.txt", "sub/b.txt"]


@pytest.mark.timeout(60)
def test_a_device_is_refused_and_not_listed() -> None:
    with pytest.raises(InvalidInput, match="not a regular file"):
        read(Path("/dev"), "zero")
    assert "zero" not in walked(Path("/dev"), "zero")


def test_a_binary_file_is_refused_with_its_size(inside: Path) -> None:
    (inside / "picture.png").write_bytes(b"\x89PNG\0\0" + bytes(2_000))
    with pytest.raises(InvalidInput, match=r"binary file \(2,006 bytes\)"):
        read(inside, "picture.png")


def test_of_a_huge_file_only_the_beginning_is_read(inside: Path) -> None:
    with (inside / "huge.log").open("wb") as file:
        file.write(b"line\n" * (READ_BYTES_MAX // 5))
        file.truncate(50 * 1024**3)  # sparse: 50 GB that no disk holds
    with Folder.opened(inside) as folder:
        text = folder.read("huge.log")
    assert text.is_cut
    assert text.size == 50 * 1024**3
    assert len(text.lines) == READ_BYTES_MAX // 5 + 1


def test_text_that_is_no_utf8_is_read_with_replacements(inside: Path) -> None:
    (inside / "latin.txt").write_bytes("für".encode("latin-1"))
    assert read(inside, "latin.txt") == "f\ufffdr"


def test_an_empty_file_has_no_lines(inside: Path) -> None:
    (inside / "empty").touch()
    with Folder.opened(inside) as folder:
        assert folder.read("empty").lines == ()


def test_a_walk_leaves_out_caches_and_comes_from_above_in_order(inside: Path) -> None:
    for skipped in (".git", "node_modules", "__pycache__", ".venv"):
        (inside / "sub" / skipped).mkdir()
        (inside / "sub" / skipped / "c.txt").touch()
    (inside / "z.txt").touch()
    assert walked(inside) == ["a.txt", "z.txt", "sub/b.txt"]


def test_a_name_that_is_no_text_is_shown_in_one_printable_line(inside: Path) -> None:
    (inside / "line\nbreak\x1b[31m").touch()
    Path(os.fsdecode(os.fsencode(inside) + b"/\xff")).touch()
    assert all(path.isprintable() for path in walked(inside))
    assert len(walked(inside)) == 4


def test_a_walk_of_a_folder_with_too_many_names_ends_and_says_so(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 50)
    for number in range(100):
        (inside / "sub" / f"{number}").touch()
    with Folder.opened(inside) as folder:
        walk = folder.walk(Glob.parse("**/*"))
        assert 40 < len(list(walk)) <= 51
    assert "ended after 50 names" in walk.cut


def test_a_walk_whose_reader_is_slow_ends_and_says_so(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WALK_SECONDS_MAX", 0.0)
    with Folder.opened(inside) as folder:
        walk = folder.walk(Glob.parse("**/*"))
        assert len(list(walk)) == 1
    assert "ended after 0 s" in walk.cut


def test_folders_nested_without_end_are_left_out(inside: Path) -> None:
    deep = inside
    for _ in range(DEPTH_MAX + 10):
        deep /= "d"
        deep.mkdir()
        (deep / "f").touch()
    assert len(walked(inside, "f")) == DEPTH_MAX - 1


def test_a_folder_of_somebody_else_is_left_out_without_an_error(inside: Path) -> None:
    (inside / "sub").chmod(0)
    try:
        assert walked(inside)[0] == "a.txt"
    finally:
        (inside / "sub").chmod(0o700)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere' cannot be opened: No such file"):
        read(tmp_path / "nowhere", "a")


def test_no_descriptor_is_left_open(inside: Path) -> None:
    before = open_descriptors()
    for path in ("a.txt", "sub/b.txt", "sub/none", "none/none", "sub", "a.txt/x"):
        try:
            read(inside, path)
        except InvalidInput:
            continue
    walked(inside)
    assert open_descriptors() == before
