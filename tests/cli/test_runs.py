"""`holdfast run | stop | show | list` as processes, against one `holdfast dev`."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Generator
from contextlib import aclosing, suppress
from datetime import datetime
from uuid import uuid4

import pytest

from holdfast.client import Holdfast
from holdfast.client.watch_events import TextDelta
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ExecutionNotFound, ServerUnavailable
from tests.cli.page import examples, keys
from tests.cli.program import Project, Running
from tests.sent_files import pdf

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

QUESTION = "what is six times seven?"


@pytest.fixture(scope="module")
def finished(project: Project, dev: Running) -> str:  # noqa: ARG001  # it serves the run
    """The id of a run that has completed."""
    ended = project.run("run", "assistant", QUESTION, "--json")
    return str(ended.document["execution_id"])


@pytest.fixture
def under_way(client: Holdfast) -> Generator[str]:
    """The id of a run whose model takes its time."""
    execution_id = asyncio.run(client.start("slow", QUESTION))
    yield execution_id
    asyncio.run(client.stop(execution_id))


# --- run


def test_run_shows_each_step_and_the_answer(project: Project) -> None:
    ended = project.run("run", "assistant", QUESTION)
    assert (ended.code, ended.err) == (0, "")
    lines = [line.strip() for line in ended.out.splitlines()]
    assert lines[0].startswith("run ")
    if project.address is None:  # of another server we know no Web UI
        page = lines.pop(1)
        assert re.search(r"/namespaces/default/workflows/[0-9a-f-]{36}/[0-9a-f-]{36}/user-metadata$", page)
    shown = [line for line in lines[1:] if line and "tokens" not in line]
    [unpriced] = [line for line in shown if line.startswith("warning")]
    assert "no price is known for model 'scripted'" in unpriced
    steps = ["step 1", "multiply(a=6, b=7)", "ok multiply: 42", "step 2 final answer"]
    assert shown == [*steps, unpriced, "42"]
    assert "2 steps, 240 tokens" in ended.out


def test_run_gives_the_outcome_as_json(project: Project) -> None:
    ended = project.run("run", "assistant", QUESTION, "--json")
    assert (ended.code, ended.err) == (0, "")
    told = ended.document
    assert keys(told) == keys(examples("holdfast run")[0])
    assert (told["status"], told["stop_reason"], told["final_response"]) == ("completed", "completed", "42")
    assert (told["steps"], told["usage"]) == (2, {"input_tokens": 200, "output_tokens": 40, "estimated_tokens": 0})


@pytest.mark.slow
def test_run_detached_prints_the_id_alone(project: Project, client: Holdfast) -> None:
    plain, as_json = project.both("run", "assistant", QUESTION, "--detach")
    assert (plain.code, plain.err, as_json.code, as_json.err) == (0, "", 0, "")
    assert keys(as_json.document) == keys(examples("holdfast run")[1])
    for execution_id in (plain.out.rstrip("\n"), as_json.document["execution_id"]):
        assert asyncio.run(client.result(execution_id)).final_response == "42"


def test_run_takes_an_id_once(project: Project) -> None:
    chosen = str(uuid4())
    assert (
        project.run("run", "assistant", QUESTION, "--id", chosen.upper(), "--json").document["execution_id"] == chosen
    )
    again = project.run("run", "assistant", QUESTION, "--id", chosen, "--json")
    assert (again.code, again.document["error"]["type"]) == (7, "ExecutionExists")


def test_run_reads_the_question_from_standard_input(project: Project, client: Holdfast) -> None:
    question = "line one\n  Zeile zwei: größer als 🎉?\n"
    ended = project.run("run", "assistant", "-", "--json", said=question)
    assert ended.code == 0
    assert asyncio.run(client.state(ended.document["execution_id"])).messages[0].content == question


@pytest.mark.slow
def test_run_and_send_attach_files(project: Project, client: Holdfast) -> None:
    (project.folder / "paper.pdf").write_bytes(pdf(2))
    (project.folder / "notes.csv").write_text("a,b\n")
    files = ("--attach", "paper.pdf", "--attach", "notes.csv")
    ended = project.run("run", "clerk", "Read them.", *files, "--json")
    assert (ended.code, ended.err) == (0, ""), ended
    state = asyncio.run(client.state(str(ended.document["execution_id"])))
    assert [(each.name, each.media_type, each.pages) for each in state.messages[0].files] == [
        ("paper.pdf", "application/pdf", 2),
        ("notes.csv", "text/csv", None),
    ]
    transcript = project.run("show", state.running.execution_id, "--transcript").out
    assert "[attached: notes.csv, text/csv, 4 bytes]" in transcript
    agent_id = str(uuid4())
    sent = project.run("send", agent_id, "Read it.", "--agent", "clerk", "--attach", "paper.pdf")
    assert (sent.code, sent.err) == (0, ""), sent
    said = asyncio.run(client.agent(agent_id).messages())[0]
    assert [each.name for each in said.files] == ["paper.pdf"]


def test_run_takes_a_definition_file(project: Project) -> None:
    ended = project.run("run", "agents/assistant.md", QUESTION, "--json")
    assert (ended.code, ended.document["final_response"]) == (0, "42")


@pytest.mark.slow
def test_run_goes_on_from_an_exported_run(project: Project) -> None:
    first = project.run("run", "clerk", "one", "--json").document
    assert project.run("export", first["execution_id"], "-o", "first.json").code == 0
    told = project.run("run", "clerk", "two", "--from", "first.json", "--json").document
    assert (first["final_response"], told["final_response"]) == ("1: one", "2: two")
    assert told["execution_id"] != first["execution_id"]
    silent = project.run("run", "clerk", "--from", "first.json", "--json")
    assert (silent.code, "give a question" in silent.document["error"]["message"]) == (2, True)


@pytest.mark.slow
def test_a_step_limit_stops_the_run(project: Project) -> None:
    plain, as_json = project.both("run", "assistant", QUESTION, "--max-steps", "1")
    assert (plain.code, plain.err, as_json.code, as_json.err) == (3, "", 3, "")
    told = as_json.document
    assert (told["status"], told["stop_reason"], told["steps"]) == ("stopped", "steps_limit", 1)
    assert "stopped (steps_limit: " in plain.out


@pytest.mark.slow
def test_a_time_limit_stops_a_model_call_under_way(project: Project) -> None:
    plain, as_json = project.both("run", "slow", QUESTION, "--max-seconds", "0.5")
    assert (plain.code, plain.err, as_json.code, as_json.err) == (3, "", 3, "")
    told = as_json.document
    assert (told["status"], told["stop_reason"], told["steps"]) == ("stopped", "time_limit", 0)
    assert "stopped (time_limit: " in plain.out
    assert max(plain.seconds, as_json.seconds) < 60, "the answer would take two minutes"


@pytest.mark.slow
def test_what_had_come_of_an_answer_is_kept(project: Project, client: Holdfast) -> None:
    ids = str(uuid4()), str(uuid4())
    with (
        project.started("run", "writer", QUESTION, "--id", ids[0]) as plain,
        project.started("run", "writer", QUESTION, "--id", ids[1], "--json") as json,
    ):
        for execution_id in ids:
            asyncio.run(_stopped_within_the_answer(client, execution_id))
        ended, as_json = plain.ended(), json.ended()
    assert (ended.code, as_json.code) == (3, 3)
    assert "step 1 cut off\nDear customer, six times seven" in ended.out
    assert as_json.document["final_response"] in (None, "")
    assert as_json.document["partial_response"].startswith("Dear customer, six times seven")


async def _stopped_within_the_answer(client: Holdfast, execution_id: str) -> None:
    while True:
        with suppress(ExecutionNotFound):  # the command is about to start it
            await client.state(execution_id)
            break
    async with aclosing(client.watch(execution_id)) as watched:
        text = ""
        async for each in watched:
            text += each.text if isinstance(each, TextDelta) else ""
            if "six times seven" in text:
                await client.stop(execution_id)
                return


def test_a_token_limit_stops_the_run(project: Project) -> None:
    told = project.run("run", "assistant", QUESTION, "--max-tokens", "120", "--json")
    assert (told.code, told.document["stop_reason"]) == (3, "token_limit")


@pytest.mark.slow
def test_a_failed_run_says_why_in_one_line(project: Project) -> None:
    plain, as_json = project.both("run", "refused", QUESTION)
    assert (plain.code, as_json.code, as_json.err) == (4, 4, "")
    [line] = plain.err.splitlines()
    assert "401" in line
    assert "no such key" in line
    assert "check OPENAI_API_KEY of the worker" in line
    assert "answers" not in plain.out, "the model has not answered"
    told = as_json.document
    assert keys(told) == keys(examples("holdfast run")[0]) | {"error"}
    assert (told["status"], told["stop_reason"], told["error"]["type"]) == ("failed", "error", "ExecutionFailed")


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["plain", "json"])
def test_ctrl_c_ends_the_following_and_not_the_run(
    project: Project, client: Holdfast, options: tuple[str, ...]
) -> None:
    chosen = str(uuid4())
    with project.started("run", "slow", QUESTION, "--id", chosen, *options) as running:
        asyncio.run(until_known(client, chosen))
        running.process.send_signal(signal.SIGINT)
        ended = running.ended(5)
    assert ended.code == 130
    goes_on = ("the run continues", "the run may have started anyway")  # the latter before the server has said so
    assert ended.err in {f"{each}: holdfast show {chosen}, holdfast stop {chosen}\n" for each in goes_on}
    assert ended.out == "" or not options
    assert asyncio.run(client.state(chosen)).status is ExecutionStatus.IN_PROGRESS
    assert asyncio.run(client.stop(chosen))


# --- stop


@pytest.mark.slow
def test_stop_ends_a_run_under_way_with_its_reason(project: Project, under_way: str) -> None:
    ended = project.run("stop", under_way, "--reason", "changed my mind")
    assert (ended.code, ended.out, ended.err) == (0, f"stop requested for {under_way}\n", "")
    assert "stopped (user_requested: changed my mind)" in project.run("show", under_way).out


def test_stop_after_the_step_lets_it_finish(project: Project, client: Holdfast, under_way: str) -> None:
    assert project.run("stop", under_way, "--after-step").code == 0
    assert asyncio.run(client.state(under_way)).status is ExecutionStatus.IN_PROGRESS


def test_stop_gives_json(project: Project, under_way: str) -> None:
    ended = project.run("stop", under_way, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert keys(ended.document) == keys(examples("holdfast stop")[0])
    assert ended.document == {"execution_id": under_way, "stop_requested": True}


@pytest.mark.slow
def test_stop_of_a_run_that_has_ended_is_no_error(project: Project, finished: str) -> None:
    plain, as_json = project.both("stop", finished)
    assert (plain.code, plain.out, plain.err) == (0, f"run {finished} had already ended\n", "")
    assert (as_json.code, as_json.err) == (0, "")
    assert as_json.document == {"execution_id": finished, "stop_requested": False}


# --- show and list


def test_show_tells_what_run_told(project: Project, finished: str) -> None:
    plain, as_json = project.both("show", finished)
    assert (plain.code, plain.err, as_json.code, as_json.err) == (0, "", 0, "")
    assert plain.out.splitlines()[0] == f"run {finished}"
    assert "multiply(a=6, b=7)" in plain.out
    assert plain.out.rstrip().endswith("42")
    told = as_json.document
    assert keys(told) == keys(examples("holdfast run")[0]) | {"state"}
    state = AgentState.from_dict(told["state"])
    assert (state.status, state.final_response, state.step_count) == (ExecutionStatus.COMPLETED, "42", told["steps"])


@pytest.mark.slow
def test_list_gives_what_is_under_way_first_then_the_latest_to_end(project: Project, finished: str) -> None:
    latest = project.run("run", "assistant", QUESTION, "--json").document["execution_id"]
    alone = () if project.address is None else ("--query", f"TaskQueue = '{project.settings.task_queue}'")
    plain, as_json = project.both("list", "--limit", "1000", *alone)
    assert (plain.code, plain.err, as_json.code, as_json.err) == (0, "", 0, "")
    told = as_json.document
    assert len(plain.out.splitlines()) == 1 + len(told)
    assert keys(told[0]) == keys(examples("holdfast list")[0][0])
    ended = [each for each in told if each["closed_at"]]
    assert all(each["status"] == "in_progress" for each in told[: -len(ended)])
    closings = [datetime.fromisoformat(each["closed_at"]) for each in ended]
    assert closings == sorted(closings, reverse=True)
    assert finished in {each["execution_id"] for each in ended}
    expected = {"agent": "assistant", "status": "completed", "stop_reason": "completed", "steps": 2, "tokens": 240}
    assert {name: ended[0][name] for name in ("execution_id", *expected)} == {"execution_id": latest, **expected}
    assert datetime.fromisoformat(ended[0]["started_at"]) <= closings[0]
    assert project.run("list", "--limit", "1", "--json", *alone).document == told[:1]


def test_list_shows_the_cost_and_takes_a_query(project: Project, finished: str) -> None:
    plain, as_json = project.both("list", "--query", f"WorkflowId = '{finished}'")
    (told,) = as_json.document
    heading, row = (line.split() for line in plain.out.splitlines())
    assert row[heading.index("id")] == told["execution_id"] == finished
    assert (told["cost"], told["unpriced"]) == (0.0, ["scripted"])
    assert " ? (unpriced: scripted) " in plain.out.splitlines()[1], "the model has no price"
    none = project.run("list", "--query", "HoldfastAgent = 'nobody'")
    assert (none.code, none.out, none.err) == (0, "", "no run matches this query\n")
    bad = project.run("list", "--query", "nonsense")
    assert bad.code == 2
    assert "does not understand the query" in bad.err
    assert "HoldfastAgent = 'clerk'" in bad.err


async def until_known(client: Holdfast, execution_id: str) -> None:
    """Return when a worker has begun the run."""
    async with asyncio.timeout(90):
        while True:
            with suppress(ExecutionNotFound, ServerUnavailable):
                if (await client.state(execution_id)).execution:
                    return
