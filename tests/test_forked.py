"""Programs that stand-ins have forked: as real ones in all that tests see of a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import stand_in_command
from tests.pids import alive, until_gone

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="forks are Linux's; elsewhere these are real starts"),
]

WAITS = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
child = subprocess.Popen(["sleep", "600"])
print(os.getpid(), child.pid, flush=True)
sys.stdin.read()
signal.pause()
"""


def written(folder: Path, program: str) -> Path:
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    return file


def started(folder: Path, program: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start the program and return the stand-in and the process ids that it prints."""
    process = subprocess.Popen(
        stand_in_command(written(folder, program)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, [int(each) for each in process.stdout.readline().split()]


def test_a_program_has_the_streams_arguments_environment_and_folder_of_its_stand_in(tmp_path: Path) -> None:
    program = written(
        tmp_path,
        "import json, os, sys\n"
        "seen = [sys.stdin.read(), sys.argv, dict(os.environ), os.getcwd(), __name__, __file__]\n"
        "print(json.dumps([*seen, os.listdir('/proc/self/fd')])); print('aside', file=sys.stderr); sys.exit(3)\n",
    )
    environment = {"ONE": "1=1", "LINES": "a\nb", "LC_ALL": "C.UTF-8"}
    ended = subprocess.run(
        stand_in_command(program, "a", "ü \n"),
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


async def test_a_program_ends_with_a_stand_in_that_is_killed(tmp_path: Path) -> None:
    process, pids = started(tmp_path, WAITS)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    await until_gone(pids)
