"""`holdfast watch`, and what `holdfast run` shows in a terminal, as processes against one `holdfast dev`."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from uuid import uuid4

import pytest

from holdfast.client.watch_events import AttemptFailed, TextDelta, Watched, from_dict, to_dict
from holdfast.core.wire.execution_events import AgentExecutionCompleted
from tests.cli.page import examples
from tests.cli.program import STORY, Project, start_id

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

QUESTION = "what is six times seven?"
STEP = ["AgentStepStarted", "InferenceRequestStarted", "InferenceResponseReceived"]
STEP_END = ["AgentStepCompleted", "TokenUsageReported", "ContinuationEvaluated"]
EVENTS = [
    *("AgentExecutionStarted", *STEP, "ToolCallStarted", "ToolCallCompleted", *STEP_END),
    *(*STEP, *STEP_END, "AgentExecutionStopped", "AgentExecutionCompleted"),
]


def watched_lines(text: str) -> list[Watched]:
    return [from_dict(json.loads(line)) for line in text.splitlines()]


@pytest.mark.slow
def test_watch_gives_each_event_as_a_line_of_json(project: Project) -> None:
    execution_id = start_id(project, "teller")
    ended = project.run("watch", execution_id, "--json")
    assert (ended.code, ended.err) == (0, "")
    watched = watched_lines(ended.out)
    assert [to_dict(each) for each in watched] == [json.loads(line) for line in ended.out.splitlines()]
    [mark] = [place for place, each in enumerate(watched) if isinstance(each, AttemptFailed)]
    assert "".join(each.text for each in watched[mark:] if isinstance(each, TextDelta)) == STORY
    last = watched[-1]
    assert isinstance(last, AgentExecutionCompleted)
    assert (last.execution_id, last.answer) == (execution_id, STORY)


def test_the_documented_lines_are_what_is_written() -> None:
    for example in examples("holdfast watch"):
        assert to_dict(from_dict(example)) == example


@pytest.mark.slow
def test_watch_shows_each_event_and_the_text_as_it_comes(project: Project) -> None:
    execution_id = start_id(project)
    plain = project.run("watch", execution_id)
    assert (plain.code, plain.err) == (0, "")
    lines = [line.split() for line in plain.out.splitlines()]
    assert [line[3] for line in lines if len(line) > 3 and line[3] in EVENTS] == EVENTS
    assert {line[1] for line in lines if len(line) > 3} == {execution_id[:8]}
    assert "42" in plain.out.splitlines(), "the answer's text"
    assert "ToolCallStarted multiply" in plain.out


@pytest.mark.slow
def test_watch_ends_as_its_run_ends(project: Project) -> None:
    stopped = start_id(project, "slow", "--max-seconds", "0.5")
    failed = start_id(project, "refused")
    assert project.run("watch", stopped).code == 3
    plain, as_json = project.both("watch", failed)
    assert (plain.code, as_json.code, as_json.err) == (4, 4, "")
    assert "no such key" in plain.err
    *events, error = as_json.out.splitlines()
    assert json.loads(error)["error"]["type"] == "ExecutionFailed"
    assert json.loads(events[-1])["kind"] == "AgentExecutionFailed"


@pytest.mark.slow
def test_watch_of_no_run_says_so(project: Project) -> None:
    for unknown in (str(uuid4()), "nobody"):  # an id and an agent's name, neither on the server
        plain, as_json = project.both("watch", unknown)
        assert (plain.code, plain.out, as_json.code) == (5, "", 5)
        assert as_json.document["error"]["type"] == "ExecutionNotFound"
    malformed = project.run("watch", "no id")
    assert (malformed.code, malformed.out) == (2, "")
    assert "'no id' is not an id of" in malformed.err


@pytest.mark.slow
def test_ctrl_c_ends_the_watching_and_not_the_run(project: Project) -> None:
    execution_id = start_id(project, "slow")
    with project.started("watch", execution_id) as running:
        running.heard("InferenceRequestStarted")
        running.process.send_signal(signal.SIGINT)
        ended = running.ended(5)
    assert ended.code == 130
    assert ended.err == f"the run continues: holdfast show {execution_id}, holdfast stop {execution_id}\n"
    assert project.run("stop", execution_id).out == f"stop requested for {execution_id}\n"


@pytest.mark.slow
def test_watching_an_agent_shows_its_runs_until_its_session_is_closed(project: Project) -> None:
    agent_id = str(uuid4())
    assert project.run("send", agent_id, "slow", "--agent", "clerk", "--no-wait").code == 0
    with project.started("watch", agent_id, "--json") as running:
        running.heard("InferenceRequestStarted")
        closed = project.run("session", "close", agent_id, "--stop", "--json")
        ended = running.ended(20)
    assert (ended.code, ended.err) == (0, "")
    told = watched_lines(ended.out)
    assert {each.execution_id for each in told} == {closed.document["running_id"]}
    assert isinstance(told[-1], AgentExecutionCompleted)
    assert told[-1].status == "stopped"


@pytest.mark.slow
def test_watching_an_idle_agent_says_what_is_waited_for_and_a_closed_one_that_it_is_over(project: Project) -> None:
    agent_id = str(uuid4())
    assert project.run("send", agent_id, "one", "--agent", "clerk").code == 0
    with project.started("watch", agent_id) as running:
        running.heard(f"agent {agent_id} is ")
        assert project.run("session", "close", agent_id).code == 0
        ended = running.ended(20)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines()[-1] == f"the session of agent {agent_id} has ended: holdfast records {agent_id}"
    assert "its next run is shown once it begins" in ended.err


@pytest.mark.slow
def test_run_prints_text_as_it_comes_in_a_terminal_and_not_into_a_pipe(project: Project) -> None:
    shown = in_terminal(project, "run", "teller", "tell me")
    story = STORY.replace("\x1b", "\\x1b")
    assert shown.count(story) == 1, "once as it came, and not again as the answer"
    [mark] = re.findall(r"attempt 1 failed, (?:next in [\d.]+ \w+|next now|asking again): ", shown)
    before, _, after = shown.partition(mark)
    assert "step 1" in before
    assert "Long ago" in before
    assert "completed" in after
    piped = project.run("run", "teller", "tell me")
    assert piped.code == 0
    assert "attempt" not in piped.out
    assert piped.out.count(story) == 1
    assert piped.out.rstrip().endswith(story)


def in_terminal(project: Project, *arguments: str) -> str:
    """Run a command in a terminal of its own and return what it shows."""
    terminal, program_side = pty.openpty()
    env = {**project.env, "TERM": "dumb", "COLUMNS": "1000", "NO_COLOR": "1"}
    command = [str(project.program), *arguments]
    with subprocess.Popen(command, cwd=project.folder, env=env, stdin=program_side, stdout=program_side) as process:
        os.close(program_side)
        shown = b""
        while True:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # how a terminal says that nobody writes to it any more
                break
            if not part:
                break
            shown += part
        assert process.wait(10) == 0
    os.close(terminal)
    return shown.decode().replace("\r\n", "\n")
