"""Forked programs go as started ones do: their streams, signals, exit codes and ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import Project
from tests.forked import START_SECONDS_MAX, ForkedProcess, fork_request, forks
from tests.pids import alive, until_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
SECONDS_MAX = 90

WAITS = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
child = subprocess.Popen(["sleep", "600"])
print(os.getpid(), child.pid, flush=True)
sys.stdin.read()
signal.pause()
"""


def requested(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start `holdfast` as who has it forked."""
    command = [*fork_request("holdfast"), *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=ENV, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_a_request_has_the_streams_the_folder_and_the_exit_code_of_its_program(tmp_path: Path) -> None:
    (tmp_path / "mcp.yaml").write_text("servers: {till: {url: http://127.0.0.1:9/mcp}}\n")
    with requested(tmp_path, "mcp") as listing, requested(tmp_path, "lsit") as wrong:
        out, err = listing.communicate(timeout=SECONDS_MAX)
        assert (listing.returncode, "till" in out, err) == (0, True, "")
        out, err = wrong.communicate(timeout=SECONDS_MAX)
        assert (wrong.returncode, out, err.startswith("error: ")) == (2, "", True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_passes_signals_on(tmp_path: Path, number: signal.Signals) -> None:
    with requested(tmp_path, "codec-server", "--port", "0", "--json") as server:
        assert server.stdout is not None
        assert "url" in server.stdout.readline()
        server.send_signal(number)
        server.communicate(timeout=SECONDS_MAX)
        assert server.returncode == 0


def test_who_kills_a_request_kills_its_program(tmp_path: Path) -> None:
    with requested(tmp_path, "codec-server", "--port", "0", "--json") as server:
        assert server.stdout is not None
        assert "url" in server.stdout.readline()
        server.kill()
        assert server.stdout.read() == "", "nobody holds the stream any more"


def test_a_variable_that_was_read_before_a_fork_begins_needs_a_real_start() -> None:
    for name, value in (("LC_ALL", "C"), ("LANG", "C"), ("PYTHONUTF8", "0"), ("OPENAI_LOG", "debug")):
        assert not forks({**ENV, name: value}), name
    for name in ("COLUMNS", "NO_COLOR", "TEMPORAL_ADDRESS", "OPENAI_BASE_URL", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"):
        assert forks({**ENV, name: "1"}), name


def test_a_forked_command_becomes_the_worker(tmp_path: Path) -> None:
    refused = Project(tmp_path, ENV).run("worker", "--import", "no_such_module")
    assert (refused.code, refused.out) == (2, "")
    assert "no_such_module" in refused.err


def written(folder: Path, program: str) -> Path:
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    return file


def started(folder: Path, program: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start the program and return who has it forked, and the process ids that it prints."""
    process = subprocess.Popen(
        fork_request(str(written(folder, program))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, [int(each) for each in process.stdout.readline().split()]


def test_a_program_has_the_streams_arguments_environment_and_folder_of_its_request(tmp_path: Path) -> None:
    program = written(
        tmp_path,
        "import json, os, sys\n"
        "seen = [sys.stdin.read(), sys.argv, dict(os.environ), os.getcwd(), __name__, __file__]\n"
        "print(json.dumps([*seen, os.listdir('/proc/self/fd')])); print('aside', file=sys.stderr); sys.exit(3)\n",
    )
    environment = {"ONE": "1=1", "LINES": "a\nb", "LC_ALL": "C.UTF-8"}
    ended = subprocess.run(
        [*fork_request(str(program)), "a", "ü \n"],
        input="hello\nyou",
        capture_output=True,
        encoding="utf-8",
        env=environment,
        cwd=tmp_path,
        check=False,
        timeout=60,
    )
    *seen, files = json.loads(ended.stdout)
    path = str(program)
    assert seen == ["hello\nyou", [path, "a", "ü \n"], environment, str(tmp_path), "__main__", path]
    assert len(files) <= 4, "its streams, and the folder that it lists"
    assert (ended.stderr, ended.returncode) == ("aside\n", 3)


def test_a_program_that_a_signal_ends_has_ended_by_that_signal_for_others_too(tmp_path: Path) -> None:
    process, _ = started(tmp_path, "import os, signal; print(os.getpid(), flush=True); os.kill(os.getpid(), 6)")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGABRT


async def test_what_a_program_has_started_ends_with_it_and_signals_reach_it(tmp_path: Path) -> None:
    process, pids = started(tmp_path, WAITS)
    assert all(alive(each) for each in pids)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 5
    await until_gone(pids)


async def test_a_program_ends_with_a_request_that_is_killed(tmp_path: Path) -> None:
    process, pids = started(tmp_path, WAITS)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    await until_gone(pids)


def test_who_is_killed_before_it_can_ask_harms_nobody(tmp_path: Path) -> None:
    command = fork_request(str(written(tmp_path, "print('here')")))
    door = command[-2]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as killed:
        killed.connect(door)
    assert subprocess.run(command, capture_output=True, check=True, timeout=SECONDS_MAX).stdout == b"here\n"


MANY_FILES = """
import os, resource, sys
from pathlib import Path
from tests.forked import Forked

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2_048), most))
while os.open(os.devnull, os.O_RDONLY) < 1_100:
    pass
forked = Forked("holdfast", ["lsit"], dict(os.environ), Path.cwd(), apart=True, errors="strict")
assert forked.stdout.fileno() > 1_100
assert forked.poll() in (None, 2)
sys.exit(forked.wait(90))
"""


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2_048, reason="a process may not open so many files"
)
def test_a_process_with_more_than_a_thousand_files_forks_too() -> None:
    root = Path(__file__).parents[1]
    environment = {**ENV, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", MANY_FILES]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=START_SECONDS_MAX
    )
    assert ended.returncode == 2, ended.stderr


class Untold(ForkedProcess):
    """A process of which nobody has told yet that it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> None:
        return None


def test_a_signal_to_a_process_whose_end_is_not_told_yet_is_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait(60)
    Untold(ended.pid).kill()
