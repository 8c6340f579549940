"""What docs/start.md tells a new user to type works as it stands there, in that order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.connection.data_directory import running_server
from holdfast.testing.openai_server import FakeOpenAI
from tests.cli.program import HOLDFAST, Project, embedded_only
from tests.cli.terminal import ENTER, terminal

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
SECONDS_MAX = 90

TYPED = (
    ('run clerk "Where is order 17?"', 0, "I looked: order 17 left the warehouse this morning."),
    ("count the stock", 0, ""),
    ("stop $ID", 0, "stop requested"),
    ("show $ID", 0, "the shop has opened"),
    ("money back", 0, ""),
    ("holdfast waiting", 0, "refund"),
    ("approve $ID", 0, ""),
    ("show $ID", 0, "I looked: 500 cents are paid back for order 17."),
    ("--max-cost", 3, "cost_limit"),
    ("temporal workflow list", 0, "AgentExecution"),
)
"""The commands for the second terminal: part of each, its exit code, and what it says in the end."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@embedded_only
@pytest.mark.slow
@pytest.mark.temporal
@pytest.mark.timeout(180)
def test_a_new_user_can_type_what_the_page_says(built: Path, tmp_path: Path) -> None:
    tools, script = blocks("python")
    (agent,) = blocks("markdown")
    install, serve, with_key, *typed = blocks("sh")
    assert "pip install" in install
    assert "--script my_script:script" in serve
    assert all("holdfast dev --import my_tools\n" in each for each in (serve, with_key))
    said: dict[str, Any] = {}
    exec(compile(script, "my_script.py", "exec"), said)  # noqa: S102  # the page's own code
    with FakeOpenAI.in_thread(said["script"]) as endpoint:
        project = Project.at(tmp_path / "project", endpoint.base_url, built)
        for other in (project.folder / "agents").iterdir():
            other.unlink()
        (project.folder / "my_tools.py").write_text(tools)
        (project.folder / "agents" / "clerk.md").write_text(agent)
        with project.dev():
            server = running_server(project.folder / "data")
            assert server is not None
            places = (str(project.on_path(tmp_path)), str(HOLDFAST.parent), os.environ["PATH"])
            env = {**project.env, "PATH": os.pathsep.join(places)}
            env |= {"TEMPORAL_ADDRESS": server.address, "ID": ""}
            assert len(typed) == len(TYPED)
            for command, (part, code, words) in zip(typed, TYPED, strict=True):
                assert part in command
                if command.startswith("holdfast approve"):
                    approve(project, command.replace("$ID", env["ID"]))
                else:
                    env["ID"] = until(command, code, words, project.folder, env)


def approve(project: Project, command: str) -> None:
    """Type the command in a terminal, look at the call, and say yes."""
    with terminal(project, *shlex.split(command)[1:]) as screen:
        screen.shows("refund")
        screen.shows("approve this call? [y/N]")
        screen.types(f"y{ENTER}")
        assert screen.ended() == 0


def until(command: str, code: int, words: str, folder: Path, env: Mapping[str, str]) -> str:
    """Type `command` until it ends with `code` and says `words`, as one does who looks again; return the run's id."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        done = subprocess.run(
            ["/bin/bash", "-c", f"{command}\ncode=$?\necho; echo $ID\nexit $code"],
            cwd=folder,
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        if done.returncode == code and words in done.stdout:
            return done.stdout.splitlines()[-1]
        assert time.monotonic() < deadline, done
