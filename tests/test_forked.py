"""Forked programs go as started ones do: their streams, signals, exit codes and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import Project
from tests.forked import fork_request, forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
SECONDS_MAX = 90


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
