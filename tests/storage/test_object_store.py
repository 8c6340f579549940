"""Objects in a folder and in memory: whole, private, written once, and told of in one line when they are not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.core.base.errors import InvalidInput, ObjectMissing, StorageFailed
from holdfast.storage.lru_cache import LruCache
from holdfast.storage.object_store import Objects, objects_at
from holdfast.storage.storage_url import checked_place, default_place, folder_of

DATA = b"\x00large" * 1_000


def folder_url(folder: Path) -> str:
    return folder.as_uri()


async def test_what_was_written_is_read(tmp_path: Path) -> None:
    for url in (folder_url(tmp_path / "with space"), "memory://one"):
        objects = objects_at(url)
        await objects.write("payloads/ab/abc", DATA)
        assert await objects.read("payloads/ab/abc") == DATA


async def test_a_folder_is_made_with_the_first_object_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "objects"
    objects = Objects(folder_url(folder))
    with pytest.raises(ObjectMissing, match="has no object x; do all workers and clients share this folder"):
        await objects.read("x")
    assert not folder.exists()
    await objects.write("x", DATA)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == ["x"], "nothing is left beside it"


async def test_a_young_object_is_not_written_again_an_old_or_cut_one_is(tmp_path: Path) -> None:
    objects = Objects(folder_url(tmp_path))
    await objects.write("x", DATA)
    first = (tmp_path / "x").stat()
    await objects.write("x", DATA)
    assert (tmp_path / "x").stat().st_ino == first.st_ino

    old = first.st_mtime - timedelta(days=2).total_seconds()
    os.utime(tmp_path / "x", (old, old))
    await objects.write("x", DATA)
    assert (tmp_path / "x").stat().st_mtime >= first.st_mtime, "an expiry counts from the last use"

    os.truncate(tmp_path / "x", 10)
    await objects.write("x", DATA)
    assert await objects.read("x") == DATA


async def test_what_is_replaced_is_written_also_where_something_of_its_size_was(tmp_path: Path) -> None:
    for url in (folder_url(tmp_path), "memory://replaced"):
        objects = Objects(url)
        assert not await objects.has("sessions/x")
        for data in (b"one", b"two", b""):
            await objects.replace("sessions/x", data)
            assert await objects.read("sessions/x") == data
        assert await objects.has("sessions/x")


async def test_names_are_listed_in_their_order_from_one_folder_alone(tmp_path: Path) -> None:
    for url in (folder_url(tmp_path / "made"), "memory://listed"):
        objects = Objects(url)
        assert await objects.names("agents/a", 10) == []
        for name in ("agents/a/3", "agents/a/1", "agents/a/2", "agents/ab/1", "agents/b/1"):
            await objects.replace(name, b"")
        assert await objects.names("agents/a", 10) == ["agents/a/1", "agents/a/2", "agents/a/3"]
        assert await objects.names("agents/a", 2) == ["agents/a/1", "agents/a/2"]
        assert await objects.names("agents/c", 2) == []


async def test_objects_are_their_owners_alone_whatever_the_umask_and_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    before = os.umask(0)
    try:
        objects = Objects(folder_url(folder))
        await objects.write("payloads/ab/abc", DATA)
        await objects.replace("sessions/x", DATA)
    finally:
        os.umask(before)
    found = {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    files = {"payloads/ab/abc", "sessions/x"}
    assert found == {
        name: 0o600 if name in files else 0o700 for name in (*files, "payloads", "payloads/ab", "sessions")
    }


async def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    (secret / "file").write_bytes(b"canary")
    objects = Objects(folder_url(tmp_path / "objects"))
    await objects.write("payloads/abc", DATA)
    (tmp_path / "objects/payloads/link").symlink_to(secret / "file")
    (tmp_path / "objects/results").symlink_to(secret)
    for name in ("payloads/link", "results/file"):
        for done in (objects.read(name), objects.has(name), objects.write(name, b"canary")):
            with pytest.raises(StorageFailed, match="it is a link, and links are not followed"):
                await done
    with pytest.raises(StorageFailed, match="links are not followed"):
        await objects.replace("results/new", DATA)
    assert await objects.names("payloads", 10) == ["payloads/abc"]
    assert [path.name for path in secret.iterdir()] == ["file"]
    await objects.replace("payloads/link", DATA)
    assert (secret / "file").read_bytes() == b"canary", "the link was replaced, not what it leads to"
    assert await objects.read("payloads/link") == DATA


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//x", ".hidden", "a/\0", ""])
async def test_a_name_leads_nowhere_else(name: str, tmp_path: Path) -> None:
    objects = Objects(folder_url(tmp_path / "objects"))
    for done in (objects.read(name), objects.replace(name, DATA)):
        with pytest.raises(StorageFailed, match="it is no object's name"):
            await done


async def test_a_pipe_in_an_objects_place_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(StorageFailed, match="it is no regular file"):
        await Objects(folder_url(tmp_path)).read("x")


FULL_DISK = """
import asyncio, pathlib, subprocess, sys
folder = pathlib.Path(sys.argv[1])
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True).returncode:
    sys.exit(77)
from holdfast.core.base.errors import StorageFailed
from holdfast.storage.object_store import Objects
objects = Objects(folder.as_uri())
asyncio.run(objects.write("payloads/first", b"x" * 1000))
try:
    asyncio.run(objects.write("payloads/second", b"x" * 100_000))
except StorageFailed as error:
    print(error)
print(sorted(path.name for path in (folder / "payloads").iterdir()))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="mounts a disk of its own")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    mounting = ["unshare", "--user", "--map-root-user", "--mount"] if os.getuid() else ["unshare", "--mount"]
    command = [*mounting, sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no disk can be mounted here")
    told, left = done.stdout.splitlines()
    assert told.startswith(f"cannot write payloads/second in {tmp_path.as_uri()}: the disk is full (")
    assert "make room on it" in told
    assert left == "['first']", "nothing unfinished is left"


async def test_what_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder, name in ((tmp_path / "file", "x"), (tmp_path / "file" / "below", "x"), (tmp_path, "file/x")):
        with pytest.raises(StorageFailed, match=r"^cannot write .* in file:///") as failed:
            await Objects(folder_url(folder)).write(name, DATA)
        assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("objects", "is of no kind we know"),
        ("ftp://host/x", "is of no kind we know"),
        ("https://account.blob.core.windows.net/x", "is of no kind we know"),
        ("file://objects", "names no folder by its absolute path"),
        ("file:///", "names no folder by its absolute path"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket/a b", "holds characters that no URL has"),
        ("s3://bucket/\udc80", "holds characters that no URL has"),
        ("s3://[bucket", "cannot be read"),
    ],
)
def test_a_url_that_names_no_place_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        checked_place(url)


@pytest.mark.parametrize(
    "url",
    ["s3://me:canary@bucket/x", "s3://canary@bucket", "az://container/x?sig=canary", "s3://bucket#canary"],
)
def test_a_url_that_may_hold_a_secret_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidInput, match="credentials come from the cloud's own environment") as refused:
        checked_place(url)
    assert "canary" not in str(refused.value)


def test_a_folder_is_local_and_a_bucket_is_not(tmp_path: Path) -> None:
    odd = tmp_path / "ä b%"
    assert folder_of(f"file://{quote(str(odd))}") == odd
    assert folder_of(checked_place(default_place(odd))) == odd / "objects"
    for url in ("s3://bucket/prefix", "gs://bucket", "az://container/prefix", "memory://tests"):
        assert folder_of(checked_place(url)) is None


def test_recent_content_is_kept_within_its_bounds() -> None:
    recent = LruCache(10)
    recent.put("a", b"1234")
    recent.put("b", b"1234")
    assert recent.get("a") == b"1234"
    recent.put("c", b"1234")
    assert [recent.get(digest) for digest in "abc"] == [b"1234", None, b"1234"]
    recent.put("d", b"12345678901")
    assert recent.get("d") is None
    assert recent.get("a") == b"1234", "what is too large drives nothing out"
