"""Runs that cannot succeed because of the worker's surroundings: each fails in one line, within its time."""

from __future__ import annotations

import pytest

from tests.cli.failing import NOWHERE, QUESTION, WRONG_KEY, Failing
from tests.cli.program import Project

pytestmark = pytest.mark.temporal

WAIT_SECONDS_MAX = 90


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queue", "told"),
    [
        ("locked", ("401", "Incorrect API key", "check OPENAI_API_KEY of the worker")),
        ("unreachable", ("no model is named", "HOLDFAST_MODEL")),
        ("unset", ("no model endpoint", "set OPENAI_API_KEY (or OPENAI_BASE_URL) where the worker")),
    ],
)
@pytest.mark.usefixtures("failing")
def test_a_model_that_cannot_be_asked_fails_the_run_in_one_line(
    project: Project, queue: str, told: tuple[str, ...]
) -> None:
    plain, as_json = project.both("run", "assistant", QUESTION, "--task-queue", queue)
    assert (plain.code, as_json.code, as_json.err) == (4, 4, ""), plain
    [line] = plain.err.splitlines()
    assert all(words in line for words in told), line
    assert WRONG_KEY not in plain.err + plain.out + as_json.out
    assert as_json.document["error"]["type"] == "ExecutionFailed"
    assert max(plain.seconds, as_json.seconds) < WAIT_SECONDS_MAX, "there is nothing to wait for"


def test_an_agent_whose_tools_the_worker_lacks_fails_in_one_line(project: Project, failing: Failing) -> None:
    assert failing.workers["unset"].process.poll() is None
    (project.folder / "odd").mkdir()
    (project.folder / "odd" / "odd.md").write_text("---\ntools: [multipy]\n---\n")
    plain, as_json = project.both("run", "odd/odd.md", QUESTION, "--task-queue", "unset")
    assert (plain.code, as_json.code, as_json.err) == (4, 4, "")
    [line] = plain.err.splitlines()
    assert "agent 'odd' names the tool 'multipy', which is not there; did you mean 'multiply'?" in line
    told = as_json.document
    assert (told["status"], told["stop_reason"]) == ("failed", "error")
    line = failing.workers["unset"].heard("multipy")
    assert line.startswith("WARNING temporalio.activity: resolve_tools of "), line
    assert len(line) < 300, "the worker says no more of a person's typo"


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_given_up(failing: Failing) -> None:
    ended = failing.mute.ended()
    assert (ended.code, ended.out) == (6, "")
    [line] = ended.err.splitlines()
    assert "no answer from 127.0.0.1:" in line
    assert ended.seconds < 40


def test_a_run_that_no_worker_serves_cannot_be_shown(failing: Failing) -> None:
    ended = failing.unserved.ended()
    assert (ended.code, ended.out) == (6, "")
    [line] = ended.err.splitlines()
    assert "no worker answers" in line
    assert "`holdfast worker --task-queue nobody`" in line
    assert ended.seconds < 40


def test_an_endpoint_that_cannot_be_reached_fails_the_run_after_a_bounded_wait(failing: Failing) -> None:
    ended = failing.unreachable.ended(50)
    assert ended.code == 4
    [line] = ended.err.splitlines()
    assert f"the model endpoint {NOWHERE} cannot be reached" in line
    assert "is it running, is OPENAI_BASE_URL right?" in line
    assert ended.seconds < WAIT_SECONDS_MAX


def test_what_was_expected_leaves_no_traceback_in_the_worker_s_log(failing: Failing) -> None:
    for name, worker in failing.workers.items():
        worker.process.terminate()
        ended = worker.ended()
        assert ended.code == 0, ended.out + ended.err
        assert "Traceback" not in ended.err + ended.out, name
        assert WRONG_KEY not in ended.err + ended.out
