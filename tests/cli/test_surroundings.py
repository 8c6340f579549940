"""The command line in poor surroundings: readers that go away, full disks, plain locales, no home, narrow terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.program import HOLDFAST, Project, Running, embedded_only, linux_only

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

BROKEN_PIPE = 141
QUESTION = "what is six times seven?"
PRINTING = [
    *(("list",), ("list", "--json"), ("show", "ID"), ("run", "assistant", QUESTION)),
    *(("record", "ID"), ("tree", "ID"), ("send", "NEW", "one", "--agent", "clerk")),
]


@pytest.fixture(scope="module")
def finished(project: Project, dev: Running) -> str:  # noqa: ARG001  # it serves the run
    """The id of a run that has completed."""
    ended = project.run("run", "assistant", QUESTION, "--json")
    return str(ended.document["execution_id"])


def into(project: Project, command: tuple[str, ...], output: int, finished: str) -> tuple[int, str]:
    """Run a command whose standard output is `output`; return its exit code and what it said on standard error."""
    ids = {"ID": finished, "NEW": str(uuid4())}
    words = [ids.get(word, word) for word in command]
    done = subprocess.run(
        [HOLDFAST, *words],
        cwd=project.folder,
        env=dict(project.env),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=90,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", PRINTING, ids=" ".join)
def test_a_reader_that_has_gone_is_no_fault_of_ours(project: Project, command: tuple[str, ...], finished: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert into(project, command, writer, finished) == (BROKEN_PIPE, "")
    finally:
        os.close(writer)


@pytest.mark.slow
@linux_only
def test_a_full_disk_is_told_in_one_line(project: Project, finished: str) -> None:
    with Path("/dev/full").open("wb") as full:
        code, said = into(project, ("list", "--json"), full.fileno(), finished)
    assert code == 1
    [line] = said.splitlines()
    assert "No space left on device" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "command"),
    [("<&-", "run assistant -"), (">&-", "list"), ("2>&-", "show no/id")],
)
def test_closed_streams_end_in_no_traceback(project: Project, closed: str, command: str) -> None:
    shell = ["/bin/sh", "-c", f'"$0" {command} {closed}', str(HOLDFAST)]
    done = subprocess.run(
        shell, cwd=project.folder, env=dict(project.env), capture_output=True, encoding="utf-8", timeout=90, check=False
    )
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1
    assert done.returncode == (0 if command.startswith("list") else 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "env", [{"LANG": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}], ids=["coerced", "ASCII"]
)
def test_a_plain_locale_shows_every_character_or_an_escape(project: Project, env: dict[str, str]) -> None:
    poor = project.where("LANG", **env)
    ended = poor.run("run", "agent-ü", "what?")
    assert (ended.code, ended.out) == (2, "")
    [line] = ended.err.splitlines()
    assert line.startswith("error: no agent is called 'agent-")
    shown = poor.run("run", "assistant", QUESTION)
    assert (shown.code, shown.err) == (0, "")


@embedded_only
@pytest.mark.slow
def test_nothing_but_the_path_is_needed(project: Project) -> None:
    bare = project.where(*(name for name in project.env if name != "HOLDFAST_DATA_DIR"), PATH="/usr/bin:/bin")
    ended = bare.cold.run("run", "assistant", QUESTION)
    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out, "colours are for terminals"


def read_to_its_end(screen: RawIOBase) -> bytes:
    shown = b""
    with suppress(OSError):  # Linux says so when the other side has gone
        while piece := screen.read(65536):
            shown += piece
    return shown


@pytest.mark.slow
def test_a_terminal_of_eighty_columns_shows_enough_of_an_id_to_give_it_back(project: Project, finished: str) -> None:
    command = ("list", "--query", f"WorkflowId = '{finished}'")  # what other tests leave here can be wider
    terminal, program_side = pty.openpty()
    fcntl.ioctl(program_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        reading = ThreadPoolExecutor(1).submit(read_to_its_end, screen)
        with os.fdopen(program_side, "wb", buffering=0) as side:
            code, said = into(project.where(TERM="xterm"), command, side.fileno(), finished)
        shown = reading.result(10)
    assert (code, said) == (0, "")
    cut = f"{finished[:8]}…"  # a cost with an unpriced part leaves no room for more
    assert cut in shown.decode()
    assert project.run("show", cut.rstrip("…"), "--json").document["execution_id"] == finished
