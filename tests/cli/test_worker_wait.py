"""Commands that only a worker can answer, typed before one is there."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.cli.program import READY, Project, Running
from tests.cli.terminal import CTRL_C, CTRL_D, ENTER, terminal

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]  # two programs start, one after the other


@pytest.mark.slow
def test_send_says_that_no_worker_serves_and_waits_for_one(project: Project, dev: Running) -> None:
    assert dev.process.poll() is None
    queue = ("--task-queue", f"alone-{uuid4()}")
    with project.started("send", str(uuid4()), "hello", "--agent", "clerk", *queue) as sending:
        line = sending.heard("no worker serves the task queue")
        assert "the message waits for `holdfast worker --task-queue alone-" in line
        with project.started("worker", "--import", "my_tools", *queue) as worker:
            worker.heard(READY)
            ended = sending.ended(60)
    assert (ended.code, ended.out) == (0, "1: hello\n")


@pytest.mark.slow
def test_chat_says_so_as_well(project: Project, dev: Running) -> None:
    assert dev.process.poll() is None
    queue = ("--task-queue", f"alone-{uuid4()}")
    with terminal(project, "chat", "clerk", *queue) as screen:
        screen.shows("the session waits for `holdfast worker --task-queue alone-")
        with project.started("worker", "--import", "my_tools", *queue) as worker:
            worker.heard(READY)
            screen.prompts()
            screen.types(f"hello{ENTER}")
            screen.shows("1: hello")
            screen.prompts()
            screen.types(CTRL_D)
            assert screen.ended() == 0


def test_ctrl_c_leaves_the_wait(project: Project, dev: Running) -> None:
    assert dev.process.poll() is None
    with terminal(project, "send", str(uuid4()), "hello", "--agent", "clerk", "--task-queue", str(uuid4())) as screen:
        screen.shows("no worker serves the task queue")
        screen.types(CTRL_C)
        assert screen.ended() == 130
    assert "Traceback" not in screen.shown
