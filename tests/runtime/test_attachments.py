"""The files that a call attaches: what they are called, what is refused, and what a lost store costs."""

from __future__ import annotations

import asyncio
import json
import os
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

import pytest

from holdfast import Tool, ToolContext, tool
from holdfast.core.base.errors import InvalidInput, ObjectMissing, StorageFailed
from holdfast.core.conversation import attachments
from holdfast.core.conversation.attachments import (
    ATTACHED_BYTES_MAX,
    ATTACHMENT_BYTES_MAX,
    ATTACHMENTS_MAX,
    ATTACHMENTS_STEP_MAX,
    Attachment,
    legal_file_name,
    legal_media_type,
    share_of_step,
)
from holdfast.core.tools.tool_results import ToolReply
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.runtime.files.attachments import AttachedFiles, MemoryAttachments, attachment_store
from holdfast.runtime.tool_runner import run_tool
from holdfast.storage.records import Records

CONTEXT = ToolContext(execution_id="e", idempotency_key="k", attempt=1)


class BrokenStore:
    """Stores nothing; counts how often it was asked."""

    def __init__(self, wait_seconds: float = 0) -> None:
        self.asked, self._wait_seconds = 0, wait_seconds

    async def write_attachment(self, data: bytes) -> str:
        self.asked += len(data[:1])
        await asyncio.sleep(self._wait_seconds)
        raise StorageFailed("the bucket is gone")

    async def read_attachment(self, digest: str) -> bytes:
        raise ObjectMissing(digest)


def test_a_file_is_named_and_typed_by_its_path_or_by_what_is_said(tmp_path: Path) -> None:
    path = tmp_path / "sales 2026.csv"
    path.write_bytes(b"1,2")
    files = AttachedFiles()
    by_path = files.add(path)
    assert by_path == files.add(str(path))
    assert by_path == Attachment(
        name="sales 2026.csv", media_type="text/csv", size=3, digest=sha256(b"1,2").hexdigest()
    )
    assert files.add(b"", media_type="image/png").name == "file-3.png"
    assert files.add(b"", "noise").media_type == "application/octet-stream"
    assert files.add(b"", "a.webp").media_type == "image/webp"
    assert files.add(b"", "a.csv.gz").media_type == "application/octet-stream", "its bytes are not what is packed"
    assert [files.add(b"", name).name for name in ("...", ".a", "..a", "a.")] == ["...", ".a", "..a", "a."]


REFUSED: dict[str, tuple[bytes | str | Path, str | None, str | None, str]] = {
    "nothing": ("/no/such/file", None, None, "cannot be attached: No such file"),
    "a device": (os.devnull, None, None, "is not a regular file"),
    "a folder": (Path(__file__).parent, None, None, "cannot be attached: Is a directory"),
    "a path as a name": (b"", "a/b", None, "the file cannot be attached: 'a/b' cannot name a file"),
    "two lines": (b"", "two\nlines", None, "cannot name a file; give 1 to 120 characters in one line"),
    "a long name": (b"", "x" * 121, None, "cannot name a file"),
    "no name": (b"", "", None, "'' cannot name a file"),
    "a folder's name": (b"", ".", None, r"'\.' cannot name a file"),
    "its parent's": (b"", "..", None, r"'\.\.' cannot name a file"),
    "a reordered line": (b"", "invoice\u202egnp.exe", None, r"'invoice\\u202egnp\.exe' cannot name a file"),
    "an isolated part": (b"", "a\u2066b", None, "cannot name a file"),
    "another line of Unicode": (b"", "two\u2028lines", None, "cannot name a file"),
    "a terminal's command": (b"", "a\x9b31m", None, "cannot name a file"),
    "no media type": (b"", "x", "image/PNG; q=1", "the file cannot be attached: media_type"),
    "too much": (bytes(ATTACHMENT_BYTES_MAX + 1), "big", None, "'big' has 16,777,217 bytes or more"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_kept_is_refused_with_the_reason(case: str) -> None:
    content, name, media_type, why = REFUSED[case]
    with pytest.raises(InvalidInput, match=why):
        AttachedFiles().add(content, name, media_type)


def test_one_call_attaches_so_many_files_and_bytes() -> None:
    files = AttachedFiles()
    for _ in range(ATTACHMENTS_MAX):
        files.add(b"x")
    with pytest.raises(InvalidInput, match="one file too many: one call attaches 16"):
        files.add(b"x")
    heavy = AttachedFiles()
    for _ in range(ATTACHED_BYTES_MAX // ATTACHMENT_BYTES_MAX):
        heavy.add(bytes(ATTACHMENT_BYTES_MAX))
    with pytest.raises(InvalidInput, match="at most 33,554,432 are kept"):
        heavy.add(b"x")


async def test_a_store_that_fails_costs_the_files_and_never_the_call() -> None:
    store = BrokenStore()
    ended = await run_tool(drawing(), {}, CONTEXT, attachments=store)
    assert store.asked == 1, "the fault has fired"
    assert ended.text == '{"bars":3}\n[not kept: chart.png: the bucket is gone]'
    assert (ended.attachments, ended.structured, ended.result_type) == ((), '{"bars":3}', "text")
    nowhere = await run_tool(drawing(), {}, CONTEXT)
    assert nowhere.text.endswith("[not kept: chart.png: nothing here stores files]")


async def test_a_store_that_hangs_is_left_before_the_calls_time_is_up() -> None:
    files, store = AttachedFiles(), BrokenStore(wait_seconds=600)
    files.add(b"x", "a.txt")
    async with asyncio.timeout(60):
        kept = await files.kept(ToolReply(text="done"), store, seconds_left=0.2)
    assert store.asked == 1
    assert kept.text == "done\n[not kept: a.txt: the storage took too long]"


async def test_nothing_can_be_attached_after_the_call() -> None:
    files = AttachedFiles()
    await files.kept(ToolReply(text=""), None, 1)
    with pytest.raises(InvalidInput, match="the call has ended"):
        files.add(b"late")


async def test_the_record_store_and_memory_keep_files_by_their_content(tmp_path: Path) -> None:
    records = Records.in_folder(tmp_path)
    assert attachment_store(records) is records
    for store in (records, attachment_store(None)):
        digest = await store.write_attachment(b"bytes")
        assert digest == await store.write_attachment(b"bytes") == sha256(b"bytes").hexdigest()
        assert await store.read_attachment(digest) == b"bytes"
        with pytest.raises(ObjectMissing):
            await store.read_attachment("0" * 64)
    again: AttachmentStore = Records.in_folder(tmp_path)
    assert await again.read_attachment(sha256(b"bytes").hexdigest()) == b"bytes", "it is on disk"


async def test_a_file_that_was_deleted_from_the_store_is_there_again_once_it_is_attached_again(tmp_path: Path) -> None:
    records = Records.in_folder(tmp_path)
    await records.write_attachment(b"bytes")
    rmtree(tmp_path / "attachments")
    digest = await records.write_attachment(b"bytes")
    assert await Records.in_folder(tmp_path).read_attachment(digest) == b"bytes", "its readers are other processes"


async def test_memory_keeps_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.files.attachments.MEMORY_BYTES_MAX", 3)
    store = MemoryAttachments()
    await store.write_attachment(b"123")
    await store.write_attachment(b"123")
    with pytest.raises(StorageFailed, match="give the driver `records`"):
        await store.write_attachment(b"4")


def test_foreign_names_and_types_become_legal() -> None:
    assert legal_file_name("file:///tmp/a b.txt") == "a b.txt"
    assert legal_file_name("C:\\temp\\x\ny") == "x_y"
    assert (legal_file_name(""), legal_file_name("http://x/")) == ("", "")
    assert (legal_file_name("file:///a/.."), legal_file_name(".")) == ("", "")
    assert legal_file_name("a\u202eb\u2069c\x85d") == "a_b_c_d"
    assert len(legal_file_name("x" * 999)) == attachments.ATTACHMENT_NAME_CHARS_MAX
    assert legal_media_type("Image/PNG; charset=x") == "image/png"
    assert legal_media_type("nonsense") == legal_media_type("a/" + "b" * 200) == attachments.UNKNOWN_MEDIA_TYPE


def test_the_calls_of_a_step_share_its_files_and_each_may_have_one() -> None:
    files = tuple(Attachment(name=f"{n}", media_type="a/b", size=0, digest="0" * 64) for n in range(ATTACHMENTS_MAX))
    assert share_of_step(files, 1) == files
    assert len(share_of_step(files, 8)) == ATTACHMENTS_STEP_MAX // 8
    assert len(share_of_step(files, 500)) == 1


def drawing() -> Tool[..., dict[str, int]]:
    @tool
    def draw(context: ToolContext) -> dict[str, int]:
        """Draw."""
        made = context.attach(b"x", name="chart.png")
        assert json.loads(made.model_dump_json())["name"] == "chart.png"
        return {"bars": 3}

    return draw
