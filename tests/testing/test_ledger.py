"""The outside ledger: what is appended comes back, whoever wrote it and however the writer ended."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import openai
import pytest

from holdfast.core.base.errors import InvalidInput
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, say

PROCESSES = 8
LINES_EACH = 100

WRITER = """
import sys
from pathlib import Path
from holdfast.testing.ledger import Ledger

ledger = Ledger(Path(sys.argv[1]))
for i in range(int(sys.argv[2])):
    ledger.append("tool", "write", "started", key=str(i), detail={"filler": "x" * 5_000})
"""


@pytest.fixture(name="ledger")
def make_ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


def test_an_entry_comes_back_as_it_was_appended(ledger: Ledger) -> None:
    before = time.time()
    entry = ledger.append("tool", "send_mail", "started", key="k1", detail={"to": "\ud800 ü\n"})
    assert ledger.entries() == (entry,)
    assert before <= entry.at <= time.time()
    assert (entry.pid, entry.kind, entry.name, entry.phase, entry.key) == (
        os.getpid(),
        "tool",
        "send_mail",
        "started",
        "k1",
    )
    assert entry.detail == {"to": "\ud800 ü\n"}


def test_a_ledger_nobody_wrote_is_empty(ledger: Ledger) -> None:
    assert ledger.entries() == ()
    assert ledger.count() == 0


def test_entries_are_counted_by_any_of_their_fields(ledger: Ledger) -> None:
    ledger.append("model", "m", "started", key="a")
    ledger.append("model", "m", "finished", key="a")
    ledger.append("tool", "add", "started", key="b")
    assert ledger.count() == 3
    assert ledger.count(kind="model") == 2
    assert ledger.count(phase="started") == 2
    assert ledger.count(kind="model", phase="started") == 1
    assert ledger.count(name="add") == ledger.count(key="b") == 1
    assert ledger.count(name="other") == 0


def test_a_torn_last_line_is_skipped(ledger: Ledger) -> None:
    entry = ledger.append("model", "m", "started")
    with ledger.path.open("ab") as file:
        file.write(b'{"at": 1.0, "pid": 7, "ki')
    assert ledger.entries() == (entry,)


@pytest.mark.parametrize("line", [b"not JSON", b'{"at": 1.0}', b"[]", b""])
def test_a_broken_line_in_the_middle_is_an_error_that_names_it(ledger: Ledger, line: bytes) -> None:
    ledger.append("model", "m", "started")
    with ledger.path.open("ab") as file:
        file.write(line + b"\n")
    ledger.append("model", "m", "finished")
    with pytest.raises(InvalidInput, match=r"Line 2 of the ledger .*ledger\.jsonl"):
        ledger.entries()


@pytest.mark.slow
def test_many_processes_share_one_file(ledger: Ledger) -> None:
    command = [sys.executable, "-c", WRITER, str(ledger.path), str(LINES_EACH)]
    writers = [subprocess.Popen(command) for _ in range(PROCESSES)]
    assert [writer.wait() for writer in writers] == [0] * PROCESSES
    entries = ledger.entries()
    assert len(entries) == PROCESSES * LINES_EACH
    for writer in writers:
        assert [entry.key for entry in entries if entry.pid == writer.pid] == [str(i) for i in range(LINES_EACH)]


def test_a_ledger_can_be_pickled(ledger: Ledger) -> None:
    assert pickle.loads(pickle.dumps(ledger)) == ledger  # noqa: S301 - our own bytes


def test_only_its_owner_may_read_it(ledger: Ledger) -> None:
    ledger.append("model", "m", "started")
    assert ledger.path.stat().st_mode & 0o777 == 0o600


async def test_the_fake_server_tells_repeated_calls_from_different_ones(ledger: Ledger) -> None:
    script = [say("Hi.", usage=(7, 3), failures=(Reply(status=500), Reply(disconnect=True)))]
    async with (
        FakeOpenAI(script, ledger=ledger.path) as server,
        openai.AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client,
    ):

        async def ask(text: str, temperature: float) -> None:
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": text}], temperature=temperature
            )

        for _ in range(2):
            with pytest.raises(openai.APIError):
                await ask("Hello", 0)
        await ask("Hello", 1)
        with pytest.raises(openai.InternalServerError):
            await ask("Goodbye", 0)
        with pytest.raises(openai.BadRequestError):
            await ask("Hello", 9)
    phases = [entry.phase for entry in ledger.entries()]
    assert phases == ["started", "failed", "started", "dropped", "started", "finished", "started", "failed", "refused"]
    keys = [entry.key for entry in ledger.entries(phase="started")]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    (finished,) = ledger.entries(phase="finished")
    assert (finished.kind, finished.name) == ("model", "m")
    assert finished.detail == {"turn": 0, "status": 200, "prompt_tokens": 7, "completion_tokens": 3}
    assert "'temperature'" in ledger.entries(phase="refused")[0].detail["message"]
