"""What takes more than a second says so, on a terminal only; colours are for terminals, and NO_COLOR is heeded."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time

import pytest

from holdfast.cli import busy_indicator as module
from holdfast.cli.busy_indicator import busy
from tests.cli.program import Project, Running, start_id
from tests.cli.terminal import CTRL_C, terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")

STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Any style: bold and dim are codes as well."""

SLOW = """
import time
from holdfast.cli import busy_indicator as module
module.QUIET_SECONDS = {quiet}
with module.busy("counting [red]stars[/red]") as words:
    time.sleep(1)
    words.done()
    print("answer")
"""


def on_terminal(program: str, code: int = 0, **env: str) -> str:
    """Return what a program shows on a terminal, escapes and all."""
    screen, side = pty.openpty()
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=side, stderr=side, env={**os.environ, "TERM": "xterm", **env}) as process:
        os.close(side)
        shown = b""
        while True:
            try:
                piece = os.read(screen, 65536)
            except OSError:  # Linux says so when the other side has gone
                break
            if not piece:
                break
            shown += piece
    os.close(screen)
    assert process.returncode == code, shown
    return shown.decode()


WARNED = """
import sys
from pathlib import Path
from types import SimpleNamespace
from holdfast.cli import busy_indicator
from holdfast.cli.commands import dev
busy_indicator.QUIET_SECONDS = 0.05
dev.RESTARTS_MAX = 1
worker = "import time; time.sleep(1); print('warning: no docker', flush=True); time.sleep(1); print('worker ready')"
address = SimpleNamespace(address="", ui="", data_dir="", pid=1)
server = SimpleNamespace(address=address, attached=False, alive=True, fault="ended")
command = [sys.executable, "-c", worker]
supervised = dev._SupervisedWorker(server, SimpleNamespace(data_dir=Path(".")), command, as_json=False)
supervised._watch = lambda process: setattr(server, "alive", False)
try:
    supervised.run()
except Exception as error:
    print("ended:", error)
"""


@pytest.mark.slow
def test_a_line_of_a_worker_that_starts_ends_what_is_said_of_its_start() -> None:
    shown = on_terminal(WARNED)
    before, warning, after = shown.partition("warning: no docker")
    assert "starting the worker …" in before, shown
    assert warning, shown
    assert "starting the worker" not in after
    assert "ended:" in after


@pytest.mark.slow
def test_what_takes_its_time_says_so_and_leaves_no_trace() -> None:
    shown = on_terminal(SLOW.format(quiet=0.05))
    assert "counting [red]stars[/red] …" in shown
    assert shown.rstrip().endswith("answer")
    assert "\x1b[2K" in shown, "the line is cleared before the answer"


@pytest.mark.slow
def test_what_is_quick_says_nothing() -> None:
    assert on_terminal(SLOW.format(quiet=30)) == "answer\r\n"
    assert "counting" not in on_terminal(SLOW.format(quiet=0.05), TERM="dumb")


def test_nothing_is_said_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.01)
    with busy("counting"):
        time.sleep(0.1)  # what is shown would be shown by now
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["nonsense"]])
def test_no_color_leaves_no_codes(arguments: list[str]) -> None:
    shows = f"import sys; from holdfast.cli.main import main; sys.argv = ['holdfast', *{arguments!r}]; main()"
    assert "\x1b" not in on_terminal(shows, code=2 if arguments == ["nonsense"] else 0, NO_COLOR="1")


@pytest.mark.slow
@pytest.mark.temporal
def test_a_run_tells_what_it_waits_for(project: Project, dev: Running) -> None:  # noqa: ARG001  # its server
    with terminal(project, "run", "napper", "rest a while") as screen:
        screen.shows("nap")
        screen.shows("step 1: nap runs …")
        screen.types(CTRL_C)
        screen.shows("the run continues: holdfast show ")
        assert screen.ended() == 130
        execution_id = screen.shown.split("holdfast stop ")[-1].split()[0]
    assert project.run("stop", execution_id).code == 0


@pytest.mark.slow
@pytest.mark.temporal
def test_colours_are_for_terminals_that_want_them(project: Project, dev: Running) -> None:  # noqa: ARG001  # its server
    execution_id = start_id(project)
    shows = (
        "import sys; from holdfast.cli.main import main; "
        f"sys.argv = ['holdfast', 'show', {execution_id!r}, '--address', {address(project)!r}]; main()"
    )
    until = time.monotonic() + 20
    while not COLOUR.search(on_terminal(shows)) and time.monotonic() < until:
        pass  # the run is about to begin
    assert COLOUR.search(on_terminal(shows))
    assert not STYLE.search(on_terminal(shows, NO_COLOR="1"))
    assert "\x1b" not in project.run("show", execution_id).out
    assert "\x1b" not in project.run("show", "--help").out


def address(project: Project) -> str:
    """Return where the project's server is."""
    if project.address is not None:
        return project.address
    from holdfast.connection.data_directory import running_server  # noqa: PLC0415  # only here

    found = running_server(project.folder / "data")
    assert found is not None
    return found.address
