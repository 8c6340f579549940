"""`holdfast dev` and `holdfast worker` as processes: what they start, what they survive, what they leave behind."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.cli.page import examples, keys
from tests.cli.program import (
    READY,
    Project,
    Running,
    Watched,
    children,
    embedded_only,
    linux_only,
    server_of,
    start_id,
    worker_of,
)

pytestmark = [pytest.mark.temporal, embedded_only]

DEV = ("dev", "--port", "0", "--ui-port", "0")
NAPPING_SECONDS_MAX = 90

DYING = """
import os, sys

class DeadlyOutput:
    def write(self, text):
        os.write(1, text.encode())

    def flush(self):
        os._exit(9)  # having said that it is ready

sys.stdout = DeadlyOutput()
"""


@pytest.mark.slow
@linux_only
def test_dev_says_where_it_serves_and_ends_cleanly_on_ctrl_c(own: Project) -> None:
    with own.cold.started(*DEV, "--import", "my_tools") as dev:
        ui, temporal, data = (dev.heard(each).split() for each in ("Web UI", "Temporal", "data"))
        assert ui[2].startswith("http://127.0.0.1:")
        assert temporal[1].startswith("127.0.0.1:")
        assert data[1] == str(own.folder / "data")
        dev.heard("Ctrl-C stops all")
        started = children(dev.pid)
        assert started == sorted([worker_of(dev), server_of(dev)])
        watched = Watched(started)
        dev.process.send_signal(signal.SIGINT)
        ended = dev.ended()
        assert watched.all_end(1), "a process is left"
    assert ended.code == 0
    assert ended.err.splitlines()[-1] == "stopped the worker; stopping the server"
    assert not (own.folder / "data" / "server.json").exists()


@linux_only
def test_dev_says_where_it_serves_as_json_and_ends_cleanly_on_sigterm(own: Project) -> None:
    with own.cold.started(*DEV, "--import", "my_tools", "--json") as dev:
        dev.heard('"address"')
        plain, as_json = own.both("list")
        watched = Watched(children(dev.pid))
        dev.process.terminate()
        ended = dev.ended()
        assert watched.all_end(1), "a process is left"
    assert (plain.code, plain.out, as_json.document, as_json.err) == (0, "", [], "")
    assert plain.err == 'no runs yet; start one with: holdfast run AGENT "question"\n'
    assert (ended.code, keys(ended.document)) == (0, keys(examples("holdfast dev")[0]))
    assert ended.document["address"].startswith("127.0.0.1:")
    assert (ended.document["data_dir"], ended.document["attached"]) == (str(own.folder / "data"), False)


@pytest.mark.slow
@linux_only
def test_a_second_dev_on_the_directory_uses_the_first_ones_server_and_leaves_it_alone(
    project: Project, dev: Running
) -> None:
    server = server_of(dev)
    with project.started(*DEV, "--import", "my_tools") as second:
        second.heard(f"the server of pid {server}, which keeps running")
        assert children(second.pid) == [worker_of(second)]
        second.process.terminate()
        assert second.ended().code == 0
    assert server_of(dev) == server
    assert project.run("run", "assistant", "what is six times seven?").code == 0


@pytest.mark.slow
@linux_only
def test_a_killed_worker_is_started_again(project: Project, dev: Running) -> None:
    killed = worker_of(dev)
    os.kill(killed, signal.SIGKILL)
    dev.heard("the worker has ended (exit code -9); starting another")
    dev.heard(READY)
    dev.heard(f"the new worker has the pid {worker_of(dev)}")
    assert worker_of(dev) != killed
    assert project.run("run", "assistant", "what is six times seven?").code == 0


@pytest.mark.slow
@linux_only
@pytest.mark.timeout(400)
def test_a_worker_that_always_dies_is_given_up_and_the_server_goes_on(own: Project) -> None:
    (own.folder / "dying.py").write_text(DYING)
    with own.started(*DEV, "--import", "dying", "--agents", "none") as dev:
        dev.heard(READY)
        server = server_of(dev)
        dev.heard("the worker has ended 6 times in a row", 240)
        assert server_of(dev) == server
        assert own.run("list").code == 0, "the server answers"
        watched = Watched([server])
        dev.process.send_signal(signal.SIGINT)
        ended = dev.ended()
        assert watched.all_end(5)
    assert "Traceback" not in ended.err


@pytest.mark.slow
@linux_only
@pytest.mark.timeout(240)
def test_a_worker_that_cannot_start_again_is_told_and_the_server_goes_on(own: Project) -> None:
    (own.folder / "growing.py").write_text("")
    with own.started(*DEV, "--import", "growing", "--agents", "none") as dev:
        dev.heard("Ctrl-C stops all")
        server = server_of(dev)
        (own.folder / "growing.py").write_text("import no_such_module")
        os.kill(worker_of(dev), signal.SIGKILL)
        dev.heard("cannot import 'growing': it needs 'no_such_module'")
        (own.folder / "growing.py").write_text("")
        dev.heard(READY, 60)
        assert server_of(dev) == server


@pytest.mark.slow
@linux_only
@pytest.mark.parametrize("victim", ["dev", "server"])
def test_nothing_is_left_when_dev_or_its_server_is_killed(own: Project, victim: str) -> None:
    with own.cold.started(*DEV, "--import", "my_tools") as dev:
        dev.heard("Ctrl-C stops all")
        watched = Watched([worker_of(dev), server_of(dev)])
        os.kill(dev.pid if victim == "dev" else server_of(dev), signal.SIGKILL)
        ended = dev.ended(25)
        assert watched.all_end(10), "a process is left"
    assert ended.code == (-signal.SIGKILL if victim == "dev" else 6)
    if victim == "server":
        assert ended.err.splitlines()[-1].startswith("error: the Temporal server has ended; its log is in ")


@pytest.mark.slow
@linux_only
def test_a_second_ctrl_c_does_not_wait_for_a_tool_under_way_and_leaves_nothing(own: Project) -> None:
    with own.cold.dev() as dev:
        start_id(own, "napper")
        wait_for_nap(own.folder)
        watched = Watched([worker_of(dev), server_of(dev)])
        dev.process.send_signal(signal.SIGINT)
        dev.heard("worker stopping")
        dev.process.send_signal(signal.SIGINT)
        dev.ended(5)
        assert watched.all_end(2), "a process outlives dev"


def test_an_agent_that_names_an_unknown_tool_is_refused_before_anything_is_served(own: Project) -> None:
    (own.folder / "agents" / "odd.md").write_text("---\ntools: [multipy]\n---\n")
    ended = own.run("worker", "--address", "127.0.0.1:1", "--import", "my_tools")
    told = "error: agent 'odd', tools: 'multipy' is not there (did you mean 'multiply'?)\n"
    assert (ended.code, ended.out, ended.err) == (2, "", told)


def test_a_broken_definition_is_refused_before_anything_is_served(own: Project) -> None:
    (own.folder / "agents" / "odd.md").write_text("---\nbugdet: {max_steps: 3}\n---\n")
    ended = own.run("worker", "--import", "my_tools")
    told = "error: agents/odd.md: unknown field 'bugdet', did you mean 'budget'?\n"
    assert (ended.code, ended.out, ended.err) == (2, "", told)


def test_a_setting_of_a_worker_is_an_option_that_wins_over_its_variable(own: Project) -> None:
    ended = own.where(HOLDFAST_GRACE_SECONDS="1").run("worker", "--import", "my_tools", "--grace-seconds", "-1")
    told = "error: grace_seconds is -1.0; choose 0 to 3,600\n"
    assert (ended.code, ended.out, ended.err) == (2, "", told)


@pytest.mark.slow
def test_dev_takes_the_queue_of_workspaces_and_its_agents_may_have_any_backend(own: Project) -> None:
    coder = "name: coder\nsystem_prompt: Make the tests pass.\nworkspace: {backend: docker}\n"
    (own.folder / "agents" / "coder.yaml").write_text(coder)
    with own.started(*DEV, "--import", "my_tools", "--workspace-queue", "sandbox") as dev:
        dev.heard("Ctrl-C stops all")
        dev.process.send_signal(signal.SIGINT)
        assert dev.ended().code == 0
    refused = own.run(*DEV, "--import", "my_tools")
    assert refused.code == 2
    assert "`--workspace-queue QUEUE`" in refused.err


@pytest.mark.slow
def test_a_worker_alone_ends_with_zero_on_ctrl_c(project: Project, dev: Running) -> None:
    assert dev.process.poll() is None
    with project.cold.started("worker", "--import", "my_tools", "--task-queue", "alone") as worker:
        worker.heard(READY)
        worker.process.send_signal(signal.SIGINT)
        ended = worker.ended()
    assert ended.code == 0
    at, _, what = ended.out.splitlines()[0].partition(", task queue ")
    assert re.fullmatch(rf"{READY}: 127\.0\.0\.1:\d+, namespace 'default'", at)
    assert what == "'alone', tools: multiply, draw, nap, fetch_result, read_records"


def wait_for_nap(folder: Path) -> None:
    """Return when the tool `nap` has begun; it says so by a file."""
    signs = 0
    while not (folder / "napping").exists() and signs < NAPPING_SECONDS_MAX * 20:
        signal.sigtimedwait([], 0.05)
        signs += 1
    assert (folder / "napping").exists()
