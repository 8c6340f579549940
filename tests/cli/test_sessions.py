"""`holdfast send | sessions | session`, and what the commands for runs make of agents, as processes."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from tests.cli.page import examples, keys
from tests.cli.program import Ended, Project

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]


def sent(project: Project, agent_id: str, text: str, *options: str) -> Ended:
    return project.run("send", agent_id, text, "--agent", "clerk", *options)


@pytest.fixture
def agent_id() -> str:
    """The id of an agent that is not there yet."""
    return str(uuid4())


@pytest.fixture
def busy(project: Project, agent_id: str) -> str:
    """The id of an agent that has a slow run under way."""
    assert sent(project, agent_id, "slow", "--no-wait").code == 0
    return agent_id


def view(project: Project, agent_id: str, action: str = "show", *options: str) -> dict[str, object]:
    ended = project.run("session", action, agent_id, "--json", *options)
    assert (ended.code, ended.err) == (0, "")
    assert keys(ended.document) == keys(examples("holdfast session")[0])
    told: dict[str, object] = ended.document
    return told


# --- send


@pytest.mark.slow
def test_send_makes_the_agent_and_prints_its_answer_alone(project: Project, agent_id: str) -> None:
    first = sent(project, agent_id, "one")
    assert (first.code, first.out, first.err) == (0, "1: one\n", "")
    second = project.run("send", agent_id, "-", said="two")
    assert (second.code, second.out, second.err) == (0, "2: two\n", "")


def test_send_gives_the_outcome_as_json(project: Project, agent_id: str) -> None:
    told = sent(project, agent_id, "multiply", "--message-id", "m1", "--json").document
    assert keys(told) == keys(examples("holdfast run")[0]) | {"agent_id", "message_id"}
    assert (told["agent_id"], told["message_id"], told["final_response"]) == (agent_id, "m1", "it is 42")


@pytest.mark.slow
def test_the_same_message_twice_is_one_message(project: Project, agent_id: str) -> None:
    first, second = (sent(project, agent_id, "one", "--message-id", "m1", "--json").document for _ in range(2))
    assert first == second
    assert view(project, agent_id)["executions"] == 1


@pytest.mark.slow
def test_send_without_waiting_prints_the_receipt(project: Project, busy: str) -> None:
    plain = sent(project, busy, "two", "--no-wait", "--message-id", "m2")
    assert (plain.code, plain.out) == (0, "message m2: waits for its turn\n")
    told = sent(project, busy, "three", "--no-wait", "--json").document
    assert keys(told) == keys(examples("holdfast send")[0])
    assert (told["state"], told["ahead"]) == ("waiting", 1)
    view(project, busy, "close", "--stop")


@pytest.mark.slow
def test_send_says_what_a_run_came_to_with_its_exit_code(project: Project, agent_id: str) -> None:
    plain = sent(project, agent_id, "fail")
    assert (plain.code, plain.out) == (4, "")
    assert "no such key" in plain.err
    as_json = sent(project, agent_id, "fail", "--json")
    assert (as_json.code, as_json.document["status"], as_json.document["error"]["type"]) == (
        4,
        "failed",
        "ExecutionFailed",
    )


def test_send_to_an_agent_that_is_not_there_says_what_is_missing(project: Project, agent_id: str) -> None:
    ended = project.run("send", agent_id, "one")
    assert (ended.code, ended.out) == (5, "")
    assert f"there is no agent {agent_id}" in ended.err


# --- sessions


@pytest.mark.slow
def test_sessions_lists_agents_with_what_they_have_done(project: Project, agent_id: str) -> None:
    sent(project, agent_id, "one")
    plain, as_json = project.both("sessions", "--limit", "100")
    assert (plain.code, plain.err, as_json.code, as_json.err) == (0, "", 0, "")
    [line] = [each for each in as_json.document if each["agent_id"] == agent_id]
    assert keys(line) == keys(examples("holdfast sessions")[0][0])
    assert (line["agent"], line["status"], line["executions"], line["waiting"]) == ("clerk", "idle", 1, 0)
    [row] = [each.split() for each in plain.out.splitlines() if each.startswith(agent_id)]
    assert row[1:5] == ["clerk", "idle", "1", "0"]


@pytest.mark.slow
def test_sessions_takes_a_query(project: Project, agent_id: str) -> None:
    sent(project, agent_id, "one")
    found = project.run("sessions", "--query", "HoldfastAgent = 'nobody'", "--json")
    assert found.document == []
    none = project.run("sessions", "--query", "HoldfastAgent = 'nobody'")
    assert (none.code, none.out, none.err) == (0, "", "no session matches this query\n")
    bad = project.run("sessions", "--query", "nonsense")
    assert bad.code == 2
    assert "does not understand the query" in bad.err


# --- session


@pytest.mark.slow
def test_session_shows_what_an_agent_is(project: Project, agent_id: str) -> None:
    sent(project, agent_id, "one")
    told = view(project, agent_id)
    assert (told["status"], told["executions"], told["last_status"]) == ("idle", 1, "completed")
    for command in (("session", "show"), ("show",)):
        assert project.run(*command, agent_id).out.startswith(f"agent {agent_id} (clerk): idle\n")


@pytest.mark.slow
def test_session_show_lists_what_happened_to_an_agent(project: Project, agent_id: str) -> None:
    sent(project, agent_id, "one", "--message-id", "m1")
    view(project, agent_id, "suspend")
    view(project, agent_id, "change", "--model", "other")
    plain, as_json = (project.run("session", "show", agent_id, "--events", *more) for more in ((), ("--json",)))
    assert (plain.code, plain.err, as_json.code, as_json.err) == (0, "", 0, "")
    told = [json.loads(line) for line in as_json.out.splitlines()]
    kinds = ["SessionCreated", "MessageAccepted", "SessionSuspended", "SessionChanged"]
    assert [each["kind"] for each in told] == kinds
    assert keys(told[1]) == keys(examples("holdfast session")[1])
    lines = plain.out.splitlines()
    assert [kind for kind, line in zip(kinds, lines, strict=True) if kind in line] == kinds
    assert lines[1].endswith("MessageAccepted m1 (queue, 3 characters): one")
    assert lines[3].endswith("SessionChanged llm")


@pytest.mark.slow
def test_session_stop_ends_what_runs(project: Project, busy: str) -> None:
    assert view(project, busy, "stop", "--reason", "enough")["status"] in ("running", "idle")
    told = sent(project, busy, "two", "--json").document
    assert told["final_response"] == "2: two"
    assert [each["status"] for each in project.run("records", busy, "--json").document] == ["completed", "stopped"]


@pytest.mark.slow
def test_stop_takes_an_agent_and_names_the_run_it_stops(project: Project, busy: str) -> None:
    running = view(project, busy)["running_id"]
    ended = project.run("stop", busy, "--json")
    assert ended.document == {"execution_id": running, "stop_requested": True}
    assert sent(project, busy, "two").code == 0
    idle = project.run("stop", busy)
    assert (idle.code, idle.out) == (0, f"agent {busy} has no run under way\n")


@pytest.mark.slow
def test_a_suspended_session_lets_messages_wait_until_it_is_resumed(project: Project, agent_id: str) -> None:
    sent(project, agent_id, "one")
    assert view(project, agent_id, "suspend")["status"] == "suspended"
    sent(project, agent_id, "two", "--no-wait", "--message-id", "m2")
    assert view(project, agent_id)["waiting"] == ["m2"]
    view(project, agent_id, "resume")
    assert sent(project, agent_id, "two", "--message-id", "m2").out == "2: two\n"


@pytest.mark.slow
def test_a_cleared_session_knows_nothing_of_what_was_said(project: Project, agent_id: str) -> None:
    sent(project, agent_id, "one")
    view(project, agent_id, "clear")
    assert sent(project, agent_id, "two").out == "1: two\n"


@pytest.mark.slow
def test_a_closed_session_takes_nothing_any_more(project: Project, agent_id: str) -> None:
    sent(project, agent_id, "one")
    assert view(project, agent_id, "close")["status"] == "closed"
    plain, as_json = project.both("send", agent_id, "two")
    assert (plain.code, as_json.code, as_json.document["error"]["type"]) == (7, 7, "SessionClosed")


@pytest.mark.slow
def test_session_change_changes_what_is_named_and_nothing_else(project: Project, agent_id: str) -> None:
    sent(project, agent_id, "one")
    before = view(project, agent_id)
    changes = ("--model", "scripted", "--system-prompt", "Be brief.", "--max-steps", "3", "--while-running", "inject")
    after = view(project, agent_id, "change", *changes)
    expected = json.loads(json.dumps(before["definition"]))
    expected["system_prompt"] = "Be brief."
    expected["llm"]["model"], expected["budget"]["max_steps"] = "scripted", 3
    assert after["definition"] == expected
    assert view(project, agent_id, "change", "--agent", "assistant")["definition"] != expected
    assert project.run("session", "change", agent_id).code == 2
    assert project.run("session", "change", agent_id, "--model", "").code == 2


# --- ids


def run_of(project: Project, question: str) -> str:
    """Return the id of a run of the clerk that has ended."""
    return str(project.run("run", "clerk", question, "--json").document["execution_id"])


@pytest.mark.slow
def test_a_message_to_a_run_is_refused_and_hides_nothing(project: Project) -> None:
    run_id = run_of(project, "one")
    for given in (run_id, run_id[:13]):
        for options in ((), ("--agent", "clerk")):
            refused = project.run("send", given, "hi", *options)
            assert (refused.code, refused.out) == (2, "")
            assert f"{run_id} is a run of agent 'clerk', not a session: use `holdfast show" in refused.err
    assert project.run("show", run_id, "--json").document["final_response"] == "1: one"


@pytest.mark.slow
def test_a_session_is_found_by_less_than_its_id(project: Project, agent_id: str) -> None:
    assert sent(project, agent_id, "one").code == 0
    assert project.run("send", agent_id[:13], "two").out == "2: two\n"
    if project.is_alone:
        assert project.run("send", "three", "--last").out == "3: three\n"
        assert project.run("session", "show", "--last", "--json").document["agent_id"] == agent_id
    assert project.run("records", agent_id[:13], "--json").document[0]["agent_id"] == agent_id
    shown = project.run("show", agent_id[:13])
    assert agent_id in shown.out, "what takes runs and sessions finds it, too"
    refused = project.run("export", agent_id[:13])
    assert refused.code == 2
    assert f"{agent_id} is a session of agent 'clerk', not a run: use `holdfast session show" in refused.err


@pytest.mark.slow
def test_a_run_is_found_by_less_than_its_id(project: Project) -> None:
    run_id = run_of(project, "one")
    for given in (run_id[:8], *(("clerk", "--last") if project.is_alone else ())):
        assert project.run("show", given, "--json").document["execution_id"] == run_id
        assert project.run("tree", given, "--json").document["execution_id"] == run_id
    assert project.run("record", run_id[:13], "--json").document["execution_id"] == run_id
    nobody = project.run("show", "nobody")
    assert (nobody.code, nobody.out) == (5, "")
    assert "no run or session has an id that begins with 'nobody' or an agent of that name" in nobody.err
