"""Servers over stdio that misbehave: each is a real process, and what it does is bounded."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.base.frozen import replace
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.mcp import stdio
from holdfast.mcp.connection import McpConnection
from holdfast.mcp.errors import McpOutcomeUnknown, McpUnavailable
from holdfast.mcp.server_requests import UNANSWERED_MAX
from holdfast.mcp.stdio import LOG_LINE_CHARS_MAX, LOG_LINES_MAX, ServerLog, StdioServer
from tests.mcp.places import connection, odd
from tests.pids import alive, until_gone

pytestmark = pytest.mark.timeout(120)


async def test_an_answer_of_50_mb_is_not_kept_and_the_reason_is_told() -> None:
    async with connection(odd("huge")) as server:
        with pytest.raises(McpOutcomeUnknown, match="a line of more than 16,777,216 bytes"):
            await server.call("go", {})
        assert not server.open


async def test_a_server_that_hangs_is_given_up_and_ended() -> None:
    async with connection(odd("silent")) as server:
        with pytest.raises(McpOutcomeUnknown, match=r"took longer than 0\.5 s"):
            await server.call("go", {}, seconds_max=0.5)


async def test_where_nothing_can_be_written_since_a_server_ends_its_end_is_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "EXIT_SECONDS_MAX", 60)
    async with connection(odd("deaf")) as server:
        pid = int((await server.call("go", {})).text)
        calling = asyncio.create_task(server.call("go", {}))
        async with asyncio.timeout(60):
            while server.open:  # noqa: ASYNC110  # nobody is called back
                await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(McpOutcomeUnknown, match="it has ended with code -9"):
            await calling


async def test_an_answer_that_comes_too_late_harms_no_later_call() -> None:
    async with connection(odd("late")) as server:
        with pytest.raises(McpOutcomeUnknown, match=r"took longer than 0\.2 s"):
            await server.call("go", {}, seconds_max=0.2)
        assert (await server.call("go", {})).text == "late"


async def test_what_a_server_logs_has_its_name_and_bounds_and_no_secret() -> None:
    log = io.StringIO()
    place = odd("chatty", env={"KEY": "${TOKEN}"})
    async with McpConnection(place, {"TOKEN": "s3cret-token"}, log) as server:
        assert (await server.call("go", {})).text == "after"
        async with asyncio.timeout(30):
            while log.getvalue().count("\n") < LOG_LINES_MAX:  # noqa: ASYNC110  # a text calls nobody
                await asyncio.sleep(0.02)
    lines = log.getvalue().splitlines()
    assert lines[0] == "[mcp odd] my key is ***"
    assert max(map(len, lines)) < LOG_LINE_CHARS_MAX + 100
    assert len(lines) == LOG_LINES_MAX + 1
    assert lines[-1] == f"[mcp odd] ({5_002 - LOG_LINES_MAX:,} more lines within 60 s are left out)"


async def test_no_part_of_a_secret_is_in_what_is_told_of_a_broken_answer() -> None:
    log = io.StringIO()
    secret = f"s3cret-{'0123456789' * 6}"
    async with McpConnection(odd("secret", env={"KEY": "${KEY}"}), {"KEY": secret}, log) as server:
        with pytest.raises(McpOutcomeUnknown, match="content: Input should be a list") as raised:
            await server.call("go", {})
    for part in (secret[:8], secret[-8:]):
        assert part not in f"{raised.value}{log.getvalue()}"


@pytest.mark.slow
async def test_a_server_that_asks_without_end_is_left() -> None:
    async with connection(odd("asks without end")) as server:
        with pytest.raises(McpOutcomeUnknown, match="more than 1,000 requests without taking the answers"):
            await server.call("go", {})
        assert not server.open
        assert len(asyncio.all_tasks()) < 2 * UNANSWERED_MAX


async def test_what_cannot_be_read_costs_no_traceback_for_each(caplog: pytest.LogCaptureFixture) -> None:
    async with connection(odd("broken notifications", env={"KEY": "${KEY}"}), KEY="s3cret-token") as server:
        assert (await server.call("go", {})).text == "after"
    assert not caplog.records


async def test_what_a_server_has_started_ends_with_it() -> None:
    async with connection(odd("family")) as server:
        child = int((await server.call("go", {})).text)
        assert alive(child)
    await until_gone([child])


async def test_a_server_that_stays_is_killed(tmp_path: Path) -> None:
    """Neither its closed stdin nor SIGTERM end it."""
    note = tmp_path / "pid"
    program = (
        "import os, pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"pathlib.Path({str(note)!r}).write_text(str(os.getpid())); time.sleep(600)"
    )
    place = McpServer(name="stays", command=(sys.executable, "-c", program), start_timeout_seconds=2)
    with pytest.raises(McpUnavailable, match=r"has not answered within 2 s \(start_timeout_seconds\)"):
        async with connection(place):
            pass
    assert not alive(int(note.read_text()))


async def test_a_server_that_ends_at_once_says_with_which_code() -> None:
    place = replace(odd("x"), command=(sys.executable, "-c", "import sys; sys.exit(7)"))
    with pytest.raises(McpUnavailable, match="it has ended with code 7"):
        async with connection(place):
            pass


async def test_a_server_gets_no_variable_that_its_entry_does_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", "x")
    program = "import os, sys; sys.exit(9 if 'HOLDFAST_TEST_SECRET' in os.environ else 8)"
    assert os.environ["HOLDFAST_TEST_SECRET"]
    with pytest.raises(McpUnavailable, match="code 8"):
        async with connection(McpServer(name="bare", command=(sys.executable, "-c", program))):
            pass


def test_a_server_whose_ending_is_cut_off_is_reaped_before_its_event_loop_closes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else asyncio says "Loop that handles pid ... is closed": `holdfast doctor` on a busy machine did."""
    waitpid = os.waitpid

    def late(pid: int, options: int) -> tuple[int, int]:
        reaped = waitpid(pid, options)
        time.sleep(0.3)  # before asyncio's thread tells the loop
        return reaped

    monkeypatch.setattr(os, "waitpid", late)
    stubborn = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"]

    async def begin_and_leave(begun: asyncio.Event) -> None:
        log = ServerLog("stubborn", io.StringIO(), str)
        async with StdioServer(stubborn, {}, None, log, lambda _: None).streams():
            begun.set()

    async def main() -> None:
        begun = asyncio.Event()
        leaving = asyncio.create_task(begin_and_leave(begun))
        await begun.wait()
        await asyncio.sleep(0.2)  # into the wait for its end, which takes 1.5 s
        assert not leaving.done()
        # as `asyncio.run` does, which cancels all tasks in any order
        for task in asyncio.all_tasks() - {leaving, asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])

    asyncio.run(main())
    time.sleep(0.5)
    assert [each.message for each in caplog.records] == []
