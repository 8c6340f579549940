"""`holdfast records | record | rewind | fork | tree` as processes: what an agent has done, and going on from there."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.cli.page import examples, keys
from tests.cli.program import Project, Running

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]


@pytest.fixture(scope="module")
def told(project: Project, dev: Running) -> str:  # noqa: ARG001  # it serves the agent
    """The id of an agent that was told two things."""
    agent_id = str(uuid4())
    for text in ("one", "multiply"):
        assert project.run("send", agent_id, text, "--agent", "clerk").code == 0
    return agent_id


def records(project: Project, agent_id: str) -> list[dict[str, Any]]:
    ended = project.run("records", agent_id, "--json")
    assert (ended.code, ended.err) == (0, "")
    found: list[dict[str, Any]] = ended.document
    return found


@pytest.mark.slow
def test_records_lists_an_agents_runs_the_newest_first(project: Project, told: str) -> None:
    found = records(project, told)
    assert [(each["number"], each["task"], each["answer"]) for each in found] == [
        (2, "multiply", "it is 42"),
        (1, "one", "1: one"),
    ]
    plain = project.run("records", told)
    assert [line.split()[0] for line in plain.out.splitlines()[1:]] == [each["execution_id"] for each in found]
    assert len(project.run("records", told, "--limit", "1", "--json").document) == 1
    assert project.run("records", told, "--limit", "0").code == 2


@pytest.mark.slow
def test_a_record_tells_what_became_of_a_run(project: Project, told: str) -> None:
    execution_id = records(project, told)[0]["execution_id"]
    plain, as_json = project.both("record", execution_id)
    assert (plain.code, plain.err, as_json.code, as_json.err) == (0, "", 0, "")
    assert as_json.document == records(project, told)[0]
    assert keys(as_json.document) == keys(examples("holdfast record")[0])
    assert f"run {execution_id}, number 2 of agent {told}" in plain.out
    assert plain.out.rstrip().endswith("it is 42")


def test_a_record_has_the_conversation_as_the_agent_had_it(project: Project, told: str) -> None:
    execution_id = records(project, told)[0]["execution_id"]
    plain, as_json = project.both("record", execution_id, "--transcript")
    said = [(each["role"], each["content"]) for each in as_json.document["messages"]]
    assert said == [
        ("user", "one"),
        ("assistant", "1: one"),
        ("user", "multiply"),
        ("assistant", ""),
        ("tool", "42"),
        ("assistant", "it is 42"),
    ]
    assert 'multiply({"a":6,"b":7})' in plain.out


def test_a_record_that_is_not_there_has_its_exit_code(project: Project, dev: Running) -> None:  # noqa: ARG001
    plain, as_json = project.both("record", str(uuid4()))
    assert (plain.code, as_json.code, as_json.document["error"]["type"]) == (5, 5, "RecordNotFound")
    assert len(plain.err.splitlines()) == 1


@pytest.mark.slow
def test_a_fork_goes_on_from_a_run_and_leaves_the_agent_alone(project: Project, told: str) -> None:
    first = records(project, told)[1]["execution_id"]
    chosen = str(uuid4())
    forked = project.run("fork", told, "--execution", first, "--id", chosen)
    assert (forked.code, forked.out, forked.err) == (0, f"{chosen}\n", "")
    assert project.run("send", chosen, "two").out == "2: two\n"
    latest = project.run("fork", told, "--json").document
    assert keys(latest) == keys(examples("holdfast fork")[0])
    assert project.run("send", latest["agent_id"], "three").out == "3: three\n"
    assert len(records(project, told)) == 2


@pytest.mark.timeout(240)  # a dozen processes, one after another
def test_rewind_has_an_agent_go_on_from_where_it_was(project: Project) -> None:
    agent_id = str(uuid4())
    for text in ("one", "two"):
        project.run("send", agent_id, text, "--agent", "clerk")
    first = records(project, agent_id)[1]["execution_id"]
    ended = project.run("rewind", agent_id, first, "--json")
    assert (ended.code, ended.document["agent_id"]) == (0, agent_id)
    told = project.run("rewind", agent_id, first).out
    assert told.startswith(f"now at the end of run {first}\n")
    stepped = project.run("rewind", agent_id, first, "--steps", "1").out
    for shown in (stepped, project.run("show", agent_id).out, project.run("session", "show", agent_id).out):
        assert f"after step 1 of run {first}" in shown
    project.run("rewind", agent_id, first)
    assert project.run("send", agent_id, "three").out == "2: three\n"
    assert "of run" not in project.run("session", "show", agent_id).out, "it stands at the end of its last run"
    assert [each["task"] for each in records(project, agent_id)] == ["three", "two", "one"], "nothing is lost"
    assert project.run("rewind", agent_id, first, "--steps", "99").code != 0


@pytest.mark.slow
def test_tree_shows_a_run_with_its_subagents(project: Project) -> None:
    execution_id = project.run("run", "lead", "what?", "--json").document["execution_id"]
    plain, as_json = project.both("tree", execution_id)
    assert (plain.code, plain.err, as_json.code, as_json.err) == (0, "", 0, "")
    told = as_json.document
    assert keys(told) == keys(examples("holdfast tree")[0])
    [child] = told["children"]
    assert (told["execution_id"], told["agent"], told["steps"]) == (execution_id, "lead", 2)
    assert (told["usage"]["total_tokens"], child["usage"]["total_tokens"], child["steps"]) == (360, 120, 1)
    first, second = plain.out.splitlines()
    assert first.startswith(f"lead {execution_id} completed 2 steps, 360 tokens")
    assert f"clerk {child['execution_id']} completed 1 step, 120 tokens" in second
    missing = project.run("tree", str(uuid4()))
    assert (missing.code, len(missing.err.splitlines())) == (5, 1)
