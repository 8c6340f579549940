"""Commands for tools: bounded in time and output, and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.base.errors import InvalidInput
from holdfast.runtime import subprocesses
from holdfast.runtime.user_code import call_foreign
from tests.pids import until_gone

PROMPTLY_SECONDS = 60.0


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def with_child(pids: Path, *, stubborn: bool) -> list[str]:
    """A command that starts one like itself; both note their pid and sleep, and heed SIGTERM or not."""
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " if stubborn else ""
    work = f"{ignore}import os, time; open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    return python(f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {work!r}]); exec({work!r})")


def noted(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().splitlines()] if pids.exists() else []


async def until_noted(pids: Path, count: int) -> None:
    async with asyncio.timeout(PROMPTLY_SECONDS):
        while len(noted(pids)) < count:  # noqa: ASYNC110  # a file tells nobody that it has grown
            await asyncio.sleep(0.02)


def test_a_command_is_told_by_its_exit_code_and_what_it_wrote() -> None:
    ended = subprocesses.run_command(
        python("import sys; print(sys.stdin.read().upper(), flush=True); print('x', file=sys.stderr); sys.exit(3)"),
        timeout_seconds=PROMPTLY_SECONDS,
        text_in="read me",
    )
    assert ended == subprocesses.Ended(exit_code=3, output="READ ME\nx\n", cut_bytes=0, timed_out=False)


def test_of_a_long_output_the_end_is_kept() -> None:
    ended = subprocesses.run_command(python("print('a' * 500_000 + 'end')"), timeout_seconds=30, output_bytes_max=1_000)
    assert len(ended.output) == 1_000
    assert ended.output.endswith("aend\n")
    assert ended.cut_bytes == 500_004 - 1_000


def test_its_folder_is_the_one_that_is_named(tmp_path: Path) -> None:
    ended = subprocesses.run_command(["pwd"], timeout_seconds=PROMPTLY_SECONDS, cwd=tmp_path)
    assert ended.output == f"{tmp_path}\n"


@pytest.fixture
def workers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker's environment holds: keys, settings, and what every program needs."""
    for name in tuple(os.environ):
        if name not in {"PATH", "HOME"}:
            monkeypatch.delenv(name)
    secrets = ("OPENAI_API_KEY", "HOLDFAST_CODEC_TOKEN", "DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "TEMPORAL_API_KEY")
    for name in secrets:
        monkeypatch.setenv(name, "canary")
    for name, value in {"LANG": "C.UTF-8", "LC_TIME": "C", "TMPDIR": "/tmp", "HOME": "/", "EDITOR": "ed"}.items():  # noqa: S108
        monkeypatch.setenv(name, value)


def environment_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.usefixtures("workers_environment")
def test_a_command_sees_no_key_of_the_workers() -> None:
    ended = subprocesses.run_command(["env"], timeout_seconds=PROMPTLY_SECONDS)
    found = environment_of(ended.output)
    assert "canary" not in ended.output
    assert found.keys() == {"PATH", "HOME", "LANG", "LC_TIME", "TMPDIR"}
    assert found["LC_TIME"] == "C"


@pytest.mark.usefixtures("workers_environment")
async def test_a_command_gets_what_its_tool_names() -> None:
    named = ["EDITOR", "AWS_SECRET_ACCESS_KEY", "NOT_SET"]
    given = {"ONLY": "this", "HOME": "/nowhere"}
    ended = await subprocesses.run_command_async(["env"], timeout_seconds=PROMPTLY_SECONDS, env=given, pass_env=named)
    found = environment_of(ended.output)
    assert found.items() >= {"EDITOR": "ed", "AWS_SECRET_ACCESS_KEY": "canary", **given}.items()
    assert found.keys().isdisjoint({"OPENAI_API_KEY", "NOT_SET"})


def test_a_name_alone_is_no_list_of_names() -> None:
    with pytest.raises(InvalidInput, match="a list of names"):
        subprocesses.run_command(["env"], timeout_seconds=1, pass_env="PATH")  # noqa: S106  # a variable's name


@pytest.mark.parametrize("argv", ["ls -l", [], ""])
def test_a_command_line_is_not_split(argv: list[str]) -> None:
    with pytest.raises(InvalidInput, match="a list of the program and its arguments"):
        subprocesses.run_command(argv, timeout_seconds=1)


def test_a_program_that_is_not_there_is_an_ordinary_error() -> None:
    with pytest.raises(FileNotFoundError):
        subprocesses.run_command(["no-such-program"], timeout_seconds=1)


@pytest.mark.parametrize("stubborn", [False, True], ids=["heeds SIGTERM", "ignores SIGTERM"])
async def test_when_its_time_is_over_the_whole_group_is_killed(tmp_path: Path, stubborn: bool) -> None:  # noqa: FBT001  # a case
    pids = tmp_path / "pids"
    ended = await asyncio.to_thread(subprocesses.run_command, with_child(pids, stubborn=stubborn), timeout_seconds=6)
    assert ended.timed_out
    assert ended.exit_code == (-9 if stubborn else -15)
    assert len(noted(pids)) == 2
    await until_gone(noted(pids))


async def test_what_a_command_leaves_behind_is_killed_when_it_has_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    work = f"import os, time; open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    code = f"import os, subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {work!r}])\n"
    code += f"while not os.path.exists({str(pids)!r}): time.sleep(0.01)"
    began = time.monotonic()
    ended = await asyncio.to_thread(subprocesses.run_command, python(code), timeout_seconds=30)
    assert (ended.exit_code, ended.timed_out) == (0, False)
    assert time.monotonic() - began < PROMPTLY_SECONDS
    await until_gone(noted(pids))


@pytest.mark.parametrize("flavour", ["sync", "async"])
async def test_cancelling_the_tool_kills_the_group(tmp_path: Path, flavour: str) -> None:
    pids = tmp_path / "pids"
    argv = with_child(pids, stubborn=False)

    async def work() -> object:
        if flavour == "async":
            return await subprocesses.run_command_async(argv, timeout_seconds=60)
        return await call_foreign(
            "tool", "work", lambda: subprocesses.run_command(argv, timeout_seconds=60), apart=False
        )

    call = asyncio.create_task(work())
    await until_noted(pids, 2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until_gone(noted(pids))


async def test_an_async_tool_gets_the_same_end() -> None:
    ended = await subprocesses.run_command_async(python("print('hello')"), timeout_seconds=PROMPTLY_SECONDS)
    assert ended.output == "hello\n"


async def test_a_worker_that_leaves_kills_all_groups(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import threading, time
from holdfast.runtime import subprocesses
argv = {with_child(pids, stubborn=True)!r}
threading.Thread(target=subprocesses.run_command, args=(argv,), kwargs={{"timeout_seconds": 60}}, daemon=True).start()
while not (__import__("os").path.exists({str(pids)!r}) and len(open({str(pids)!r}).readlines()) == 2):
    time.sleep(0.01)
subprocesses.kill_all()
__import__("os")._exit(0)
"""
    done = await asyncio.to_thread(subprocess.run, python(code), timeout=90, check=True)
    assert done.returncode == 0
    await until_gone(noted(pids))


def test_a_stranger_that_has_got_the_number_of_an_ended_command_is_not_signalled() -> None:
    stranger = subprocess.Popen(python("import time; time.sleep(60)"), start_new_session=True)
    try:
        subprocesses.signal_group(stranger.pid, signal.SIGKILL, reaped=True)
        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.5)
        subprocesses.signal_group(stranger.pid, signal.SIGKILL, reaped=False)
        assert stranger.wait(PROMPTLY_SECONDS) == -signal.SIGKILL
    finally:
        stranger.kill()
        stranger.wait()


def test_of_a_command_whose_end_was_waited_for_the_rest_of_its_group_is_signalled() -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid)"
    ended = subprocess.Popen(python(code), start_new_session=True, stdout=subprocess.PIPE, text=True)
    left_behind = int(ended.communicate(timeout=PROMPTLY_SECONDS)[0])
    subprocesses.signal_group(ended.pid, signal.SIGKILL, reaped=True)
    asyncio.run(until_gone([left_behind]))
