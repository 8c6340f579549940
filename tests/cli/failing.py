"""Workers in three kinds of trouble, and commands that take their time to fail: begun early, judged later."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from holdfast.testing.openai_server import FakeOpenAI
from tests.cli.program import READY, SCRIPTS, Project, Running, start_id

QUESTION = "what is six times seven?"
NOWHERE = "http://127.0.0.1:1/v1"
WRONG_KEY = "wrong-key-4711"
WAITS_SECONDS = "60"
"""How long a worker waits for its own end before it exits with 1: longer than a crowded machine takes."""


@dataclass(frozen=True, slots=True)
class Failing:
    """The workers by their task queue, and the commands.

    `unreachable` runs an agent whose endpoint is not there, `unserved` shows a run that no worker serves, `mute` asks
    a server that accepts and is silent.
    """

    workers: dict[str, Running]
    unreachable: Running
    unserved: Running
    mute: Running


@contextmanager
def begun(project: Project) -> Generator[Failing]:
    """Start all of it beside the `holdfast dev` of `project`."""
    with ExitStack() as around:
        locked = around.enter_context(FakeOpenAI.in_thread(SCRIPTS, api_key="the-right-key"))
        troubles = {
            "unreachable": project.where("HOLDFAST_MODEL", OPENAI_BASE_URL=NOWHERE),
            "locked": project.where(OPENAI_BASE_URL=locked.base_url, OPENAI_API_KEY=WRONG_KEY),
            "unset": project.where("OPENAI_BASE_URL", "OPENAI_API_KEY"),
        }
        workers = {
            name: around.enter_context(
                there.started("worker", "--import", "my_tools", "--task-queue", name, "--grace-seconds", WAITS_SECONDS)
            )
            for name, there in troubles.items()
        }
        for worker in workers.values():
            worker.heard(READY)
        nobody = start_id(project, "assistant", "--task-queue", "nobody")
        silent = around.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        slow = (
            ("run", "slow", QUESTION, "--task-queue", "unreachable"),
            ("show", nobody),
            ("list", "--address", f"127.0.0.1:{silent}"),
        )
        yield Failing(workers, *(around.enter_context(project.started(*command)) for command in slow))
