"""Commands in a workspace: how they end, what they leave behind, what of their output comes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.workspace.inside.commands import OUTPUT_BYTES_MAX
from holdfast.workspace.inside.processes import call_file
from tests.workspace.programs import Inside, alive, answer

SECONDS_MAX = 60


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside.below(tmp_path)


@pytest.fixture
def mark() -> str:
    """Stand in a command's line, so that the process list can be asked for it."""
    return f"mark-{uuid4()}"


def until(mark: str, count: int) -> None:
    """Wait until so many processes hold the mark."""
    deadline = time.monotonic() + SECONDS_MAX
    while len(alive(mark)) != count:
        assert time.monotonic() < deadline, f"{alive(mark)} are alive, {count} are expected"
        time.sleep(0.02)


def sleeper(mark: str, *, before: str = "") -> str:
    return f"{before} python3 -c 'import time; time.sleep(600)  # {mark}'"


def test_a_command_has_its_exit_code_and_both_streams_in_order(inside: Inside) -> None:
    ran = inside.shell("echo one; echo two >&2; echo three; exit 7")
    assert (ran.output, ran.result["exit_code"], ran.result["timed_out"]) == (b"one\ntwo\nthree\n", 7, False)


def test_a_command_sees_nothing_of_the_workers_environment(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    ran = inside.shell("env; pwd")
    assert b"secret" not in ran.output
    assert f"HOME={inside.root}".encode() in ran.output
    assert ran.output.splitlines()[-1] == str(inside.root).encode()


def test_a_command_that_ignores_sigterm_is_ended_when_its_time_is_up(inside: Inside, mark: str) -> None:
    ran = inside.shell(f"trap 'echo ignored' TERM; echo on; while :; do sleep 0.1; done  # {mark}", timeout=2)
    assert b"ignored" in ran.output, "the signal came"
    assert (ran.result["timed_out"], ran.result["signal"]) == (True, signal.SIGKILL)
    assert not alive(mark)


def test_nothing_that_a_command_starts_outlives_it(inside: Inside, mark: str) -> None:
    left = sleeper(mark)
    ran = inside.shell(f"{left} & setsid {left} & (setsid nohup {left} >/dev/null 2>&1 &); sleep 0.5; echo done")
    assert (ran.output, ran.result["exit_code"]) == (b"done\n", 0)
    assert ran.result["adopted"], "orphans were ours to end"
    assert not alive(mark)


def test_zombies_are_collected_and_do_not_hold_a_command_up(inside: Inside) -> None:
    code = "import os, time\nfor _ in range(50):\n    if not os.fork():\n        os._exit(0)\nprint('made')"
    ran = inside.ask({"op": "run", "argv": ["{python}", "-"]}, code.encode())
    assert (ran.output, ran.result["exit_code"]) == (b"made\n", 0)


def test_a_caller_that_goes_away_ends_the_command(inside: Inside, mark: str) -> None:
    with inside.start({"op": "run", "shell": sleeper(mark)}) as process:
        until(mark, 2)  # the shell, and what it runs
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SECONDS_MAX) == 1
    assert not alive(mark)


def test_another_request_ends_the_command_of_a_call(inside: Inside, mark: str) -> None:
    with inside.start({"op": "run", "shell": sleeper(mark, before="trap '' TERM;"), "call": "one"}) as process:
        until(mark, 2)
        assert inside.ask({"op": "kill", "call": "another"}).result == {"status": "done", "killed": False}
        assert len(alive(mark)) == 2
        assert inside.ask({"op": "kill", "call": "one"}).result == {"status": "done", "killed": True}
        until(mark, 0)
        assert process.stdout is not None
        ended = answer(process.stdout.read())
    assert ended.result["signal"] == signal.SIGKILL


def test_a_pid_that_now_belongs_to_another_process_is_left_alone(inside: Inside, mark: str) -> None:
    with subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(600)  # {mark}"]) as other:
        until(mark, 1)
        Path(call_file(str(inside.runtime), "old")).write_text(f"{other.pid} 1")
        assert inside.ask({"op": "kill", "call": "old"}).result["killed"] is False
        assert alive(mark) == [other.pid]
        other.kill()


def test_output_without_end_is_cut_in_the_middle_and_read_to_its_end(inside: Inside) -> None:
    ran = inside.shell("head -c 20000000 /dev/zero | tr '\\0' 'a'; echo; echo the end")
    assert ran.output.endswith(b"\nthe end\n")
    assert len(ran.output) < OUTPUT_BYTES_MAX + 100
    assert ran.result["output_bytes"] == 20_000_009
    assert f"[{ran.result['omitted_bytes']} bytes of output left out here]".encode() in ran.output
    assert 20_000_009 - ran.result["omitted_bytes"] <= OUTPUT_BYTES_MAX


def test_a_command_that_writes_for_ever_ends_with_its_time(inside: Inside, mark: str) -> None:
    ran = inside.shell(f"yes {mark}", timeout=1)
    assert ran.result["timed_out"]
    assert ran.result["output_bytes"] > OUTPUT_BYTES_MAX
    assert not alive(mark)


def test_binary_output_comes_byte_for_byte(inside: Inside) -> None:
    ran = inside.ask({"op": "run", "shell": "cat"}, bytes(range(256)))
    assert ran.output == bytes(range(256))


def test_a_command_stays_within_its_file_size(inside: Inside) -> None:
    ran = inside.shell("head -c 5000000 /dev/zero > large; echo $?", limits={"file_bytes": 1_000_000})
    assert ran.output != b"0\n", "the limit struck"
    assert (inside.root / "large").stat().st_size == 1_000_000


def test_a_program_that_is_not_there_is_refused_in_words(inside: Inside) -> None:
    ran = inside.ask({"op": "run", "argv": ["no-such-program"]})
    assert ran.result["status"] == "refused"
    assert "could not be started" in ran.result["message"]


def test_a_command_waits_for_the_one_before_it(inside: Inside) -> None:
    with inside.start({"op": "run", "shell": "touch begun; sleep 1; echo first > order"}) as process:
        deadline = time.monotonic() + SECONDS_MAX
        while not (inside.root / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        second = inside.shell("echo second >> order; cat order")
        process.wait(SECONDS_MAX)
    assert second.output == b"first\nsecond\n"
