"""The demo as a newcomer runs it: a real server, a real worker that is really killed, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.testing.ledger import Ledger

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 180
"""Longer than the demo's own limit of 100 seconds and the starts of its processes on a busy machine."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "README.md").write_text("# Winder\n\nWinder winds clocks.\n")
    (place / "spring.py").write_text("class MainSpring:\n    '''Keeps the force.'''\n")
    return place


def environment(**more: str) -> Mapping[str, str]:
    """Return this environment without anything that would choose a model, a server or a way to print."""
    chosen = re.compile(r"OPENAI_|HOLDFAST_|TEMPORAL_|NO_COLOR|FORCE_COLOR|LANG|LC_|TERM")
    return {**{name: value for name, value in os.environ.items() if not chosen.match(name)}, **more}


def command(data_dir: Path, *arguments: str) -> list[str]:
    demo = [sys.executable, "-m", "examples.repo_detective.demo", "--data-dir", str(data_dir)]
    return [*demo, "--port", "0", "--ui-port", "0", *arguments]


def begun(data_dir: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(data_dir, *arguments),
        cwd=ROOT,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def pids(output: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"pid (\d+)", output)]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_the_run_survives_the_kill_and_nothing_is_left(folder: Path, tmp_path: Path) -> None:
    demo = begun(tmp_path / "data", str(folder), "Where is the main spring?", LANG="C", NO_COLOR="1")
    output, errors = demo.communicate(timeout=SECONDS_MAX)
    assert (demo.returncode, errors) == (0, ""), output
    assert "\x1b" not in output
    assert "KILL -9 worker" in output
    assert 'spring.py:1  "class MainSpring:"' in output
    assert "scripted model" in output

    server, endpoint, killed, other = pids(output)
    assert len({server, endpoint, killed, other}) == 4
    assert [pid for pid in (server, endpoint, killed, other) if alive(pid)] == []

    (path,) = (tmp_path / "data" / "demo").glob("*.jsonl")
    ledger = Ledger(path)
    assert path.stem in output
    for step in range(4):  # each model call once, although the worker that asked it died
        assert [entry.phase for entry in ledger.entries(kind="model") if entry.detail["turn"] == step] == [
            "started",
            "finished",
        ]
    started = ledger.entries(kind="tool", phase="started")
    finished = ledger.entries(kind="tool", phase="finished")
    assert len({entry.key for entry in finished}) == len(finished) == 6  # list, 3 searches and a read, the second read
    assert {entry.key for entry in started} == {entry.key for entry in finished}
    cut = len(started) - len(finished)
    assert cut >= 1, "the kill landed outside a tool call"
    assert {entry.pid for entry in started} == {killed, other}


@pytest.mark.slow
@pytest.mark.parametrize("until", ["  worker  ", "KILL -9"])
def test_a_signal_ends_everything_in_order(folder: Path, tmp_path: Path, until: str) -> None:
    demo = begun(tmp_path / "data", str(folder))
    assert demo.stdout is not None
    seen = ""
    while until not in seen:
        line = demo.stdout.readline()
        assert line, seen
        seen += line
    demo.send_signal(signal.SIGTERM)
    rest, errors = demo.communicate(timeout=SECONDS_MAX)
    assert demo.returncode == 128 + signal.SIGTERM
    assert errors == "interrupted; everything the demo had started has ended\n"
    assert [pid for pid in pids(seen + rest) if alive(pid)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "more", "told"),
    [
        (["/no/such/folder"], {}, "is not a folder"),
        ([".", " "], {}, "the question is empty"),
        (["--port", "99999"], {}, "--port is 99999"),
        ([], {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, "HOLDFAST_MODEL"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: list[str], more: dict[str, str], told: str) -> None:
    demo = begun(tmp_path / "data", *arguments, **more)
    _, errors = demo.communicate(timeout=SECONDS_MAX)
    assert demo.returncode == 2
    assert errors.startswith("error: ")
    assert told in errors
    assert errors.count("\n") == 1
