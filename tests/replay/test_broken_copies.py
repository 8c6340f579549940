"""The gate is no decoration: a copy of the code that does one thing otherwise is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

import pytest

Replay = subprocess.CompletedProcess[str]

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 2
SECONDS_MAX = 90

RUNS = (
    "rich",
    "rich, stopped at tool",
    "rich, stopped at approval",
    "parallel_tools",
    "the_time_is_up_during_a_tool",
    "several_steps, continued",
)
"""Runs that have every kind of command between them: few, because each copy replays them in a process of its own."""


@dataclass(frozen=True, slots=True)
class Break:
    """What a broken copy does otherwise: `pattern`, which stands once in the file, reads `instead` there."""

    file: str
    pattern: str
    instead: str


BREAKS = {
    "another id of the model call": Break(
        "holdfast/core/agent/execution_state.py", r"step-\{number\}-model", "step-{number}-ask"
    ),
    "another activity": Break(
        "holdfast/core/wire/contracts.py", r'INFERENCE_ACTIVITY: Final = "\w+"', 'INFERENCE_ACTIVITY: Final = "ask"'
    ),
    "a timer more": Break(
        "workflows/execution/activity_calls.py",
        r'(async def call_tool\((?:.|\n)*?"""(?:.|\n)*?""")',
        r"\1\n    await workflow.sleep(0.001)",
    ),
    "an event less": Break(
        "workflows/execution/agent_execution.py", r"upsert\(\*ended\(self\._state\)\)", "ended(self._state)"
    ),
    "another order": Break(
        "workflows/execution/agent_execution.py",
        r"for command in commands:(\s+self\._perform)",
        r"for command in reversed(commands):\1",
    ),
    "calls that a stop leaves running": Break(
        "workflows/execution/agent_execution.py",
        r"(CancelInFlight\(\):(?:.|\n)*?)task\.cancel\(\)((?:.|\n)*?_let_go\(self\)(?:.|\n)*?)task\.cancel\(\)",
        r"\1task.done()\2task.done()",
    ),
    "an execution that does not go on in a new run": Break(
        "workflows/execution/agent_execution.py", r"(_is_long\(\):\s+)self\._go_on_in_a_new_run\(\)", r"\1pass"
    ),
    "an execution that goes on at another moment": Break(
        "workflows/execution/agent_execution.py", r"idle and state\.step_count > self", "state.step_count - 1 > self"
    ),
    "another id of the subagent's run": Break(
        "holdfast/core/agent/execution_state.py",
        r"uuid5\(_space\(execution_id\), name\)",
        "uuid5(_space(execution_id), name * 2)",
    ),
    "a local activity that became another one": Break(
        "workflows/execution/activity_calls.py",
        r"workflow\.execute_local_activity\((\s+RESOLVE)",
        r"workflow.execute_activity(\1",
    ),
    "a time limit that is not kept": Break(
        "workflows/execution/executor.py", r"await workflow\.sleep\((?=[^\n]*command\.fires_at)", "repr("
    ),
}


def copied(folder: Path, broken: Break | None) -> Path:
    """Return a folder with the code in it, broken in that way."""
    for name in ("holdfast", "workflows"):
        shutil.copytree(ROOT / name, folder / name)  # compiled already: that takes longer than a replay
    (folder / "tests").symlink_to(ROOT / "tests")
    if broken is not None:
        path = folder / broken.file
        text, times = re.subn(broken.pattern, broken.instead, path.read_text())
        assert times == 1, f"{broken.pattern} stands {times} times in {broken.file}: say anew what this copy breaks"
        path.write_text(text)
        Path(cache_from_source(path)).unlink(missing_ok=True)
    return folder


def replay(folder: Path, broken: Break | None) -> Replay:
    """Replay the runs by a copy of the code."""
    command = [sys.executable, "-m", "tests.replay.replaying", *RUNS]
    copy = copied(folder, broken)
    return subprocess.run(command, cwd=copy, check=False, capture_output=True, text=True, timeout=SECONDS_MAX)


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, Future[Replay]]]:
    """The replays of all copies, under way."""
    copies = {"unbroken": None, **BREAKS}
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        yield {name: at_once.submit(replay, tmp_path_factory.mktemp("copy"), broken) for name, broken in copies.items()}


@pytest.mark.slow
def test_an_unbroken_copy_passes(replays: dict[str, Future[Replay]]) -> None:
    done = replays["unbroken"].result()
    assert (done.returncode, done.stdout) == (0, f"{len(RUNS)} runs, 0 of them go another way now\n"), done


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_copy_is_refused(replays: dict[str, Future[Replay]], name: str) -> None:
    done = replays[name].result()
    assert done.returncode == 1, done
    assert "make histories" in done.stdout
    assert "Nondeterminism" in done.stdout, done
