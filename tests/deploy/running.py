"""Docker, compose and the deployment of compose.yaml as the tests of this folder use them; it must not judge them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.ledger import Ledger

ROOT = Path(__file__).parents[2]
STACK_FILES = (ROOT / "deploy" / "compose.yaml", ROOT / "deploy" / "stand-in" / "compose.model.yaml")
COMMAND_SECONDS = 180


def run(*command: str, seconds: float = COMMAND_SECONDS, env: Mapping[str, str] | None = None) -> str:
    """Run a program in the repository's root and return its output; a failure shows all it said."""
    wanted = {**os.environ, **(env or {})}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, env=wanted, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str, seconds: float = COMMAND_SECONDS) -> None:
    """Ask again and again; containers have no event to await."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{seconds} s passed before {what}")
        time.sleep(0.2)


def answers(*command: str) -> bool:
    """Tell whether a program is there and succeeds."""
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, timeout=COMMAND_SECONDS, check=False).returncode == 0


@dataclass(frozen=True, slots=True)
class Stack:
    """A running deployment of compose.yaml, with a fake model."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    ledger_copy: Path
    name: str = field(default_factory=lambda: f"holdfast-test-{uuid.uuid4().hex[:8]}")

    def arguments(self, *arguments: str, files: Sequence[Path] = STACK_FILES) -> tuple[str, ...]:
        """Return the compose command line, for a caller who starts it himself with `env`."""
        named = [word for path in files for word in ("--file", str(path))]
        return (*self.command, "--project-name", self.name, *named, *arguments)

    def compose(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run a compose command for this deployment."""
        return run(*self.arguments(*arguments), seconds=seconds, env=self.env)

    def beside_the_worker(self, *command: str) -> str:
        """Run a `holdfast` command in a container of its own, as the documents say it: by compose.yaml alone.

        docker-compose 1.29 runs none that shares the network of the fake model.
        """
        words = ("run", "--rm", "--no-deps", "-T", "worker", *command)
        return run(*self.arguments(*words, files=STACK_FILES[:1]), env=self.env)

    def inside(self, service: str, *command: str) -> str:
        """Run a command in a service's container, as the service's own user."""
        return self.compose("exec", "-T", service, *command)

    def inspect(self, service: str, *, stopped: bool = False) -> dict[str, Any]:
        """Return what docker knows about a service's container, which runs unless it is `stopped`."""
        listed = ("ps", "-q", "--all") if stopped else ("ps", "-q")
        [container] = json.loads(run("docker", "inspect", self.compose(*listed, service).strip()))
        return dict(container)

    def until_healthy(self, service: str) -> None:
        """Return once a service is healthy by its own check."""
        wait_until(lambda: self.inspect(service)["State"]["Health"]["Status"] == "healthy", f"{service} is healthy")

    def crash(self, service: str) -> None:
        """Kill a container's first process from outside, and return once docker has started it anew.

        `docker kill` is no crash: docker leaves that container dead.
        """
        before = self.inspect(service)
        process = Path("/proc") / str(before["State"]["Pid"])
        if os.geteuid() != 0 or not process.exists() or before["Id"] not in (process / "cgroup").read_text():
            pytest.skip("only root on docker's own machine can kill a container's process")
        os.kill(int(process.name), signal.SIGKILL)
        wait_until(
            lambda: (
                (after := self.inspect(service))["RestartCount"] > before["RestartCount"]
                and bool(after["State"]["Running"])
            ),
            f"docker has started {service} again",
        )

    def ledger(self) -> Ledger:
        """Return what the fake model has noted so far; before its first call there is no file yet."""
        read = "cat /tmp/ledger.jsonl 2>/dev/null || true"
        self.ledger_copy.write_text(self.inside("model", "sh", "-c", read))
        return Ledger(self.ledger_copy)
