"""`holdfast waiting | approve | deny | edit` as processes: a person decides about a call that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from uuid import uuid4

import pytest

from holdfast.client import Client, Settings
from holdfast.core.digests import call_digest, short_digest
from holdfast.core.state import AgentState
from tests.client.cli.page import examples, keys
from tests.client.cli.program import Ended, Project

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

SECONDS_MAX = 20
LOOKS_MAX = 20

DIGEST = call_digest("multiply", {"a": 6, "b": 7})
"""Of the call that the example's model asks for."""


@pytest.fixture
def client(project: Project) -> Client:
    settings = Settings(data_dir=project.folder / "data", agents_dir=project.folder / "agents")
    return asyncio.run(Client.connect(settings))


@pytest.fixture
def waiting(client: Client) -> Generator[str]:
    """The id of a run that waits for a person."""

    async def started() -> str:
        execution_id = await client.start("careful", "what is six times seven?")
        async with asyncio.timeout(SECONDS_MAX):
            async for state in client.follow(execution_id):
                if state.waiting_calls:
                    break
        return execution_id

    execution_id = asyncio.run(started())
    yield execution_id
    asyncio.run(client.stop(execution_id))


def end_of(client: Client, execution_id: str) -> AgentState:
    return asyncio.run(asyncio.wait_for(client.result(execution_id), SECONDS_MAX))


def test_show_tells_what_waits_and_how_to_decide(project: Project, waiting: str) -> None:
    shown = project.run("show", waiting)
    assert f"multiply waits for approval: holdfast approve {waiting} " in shown.out
    assert f"--digest {short_digest(DIGEST)}" in shown.out


def test_an_approved_call_runs(project: Project, client: Client, waiting: str) -> None:
    ended = project.run("approve", waiting, "--by", "ann")
    assert (ended.code, ended.err) == (0, "")
    state = end_of(client, waiting)
    assert [each.result for each in state.steps[0].tool_executions] == ["42"]
    shown = project.run("show", waiting)
    assert "approved by ann at " in shown.out
    assert f"(digest {short_digest(DIGEST)})" in shown.out


def test_a_call_can_be_approved_by_the_digest_that_was_looked_at_and_by_no_other(
    project: Project, client: Client, waiting: str
) -> None:
    other = call_digest("multiply", {"a": 6, "b": 8})
    for digest, code, said in (
        (other, 7, "it is not the one that you looked at"),
        (DIGEST[:11], 2, "at least 12"),
        ("x" * 12, 2, "12"),
    ):
        refused = project.run("approve", waiting, "--digest", digest)
        assert (refused.code, said in refused.err) == (code, True), refused.err
    assert len(asyncio.run(client.state(waiting)).waiting_calls) == 1
    ended = project.run("approve", waiting, "--digest", short_digest(DIGEST).upper(), "--json")
    assert (ended.code, ended.document["digest"], ended.document["taken"]) == (0, DIGEST, True)
    assert keys(ended.document) == keys(examples("holdfast approve")[0])
    assert [each.result for each in end_of(client, waiting).steps[0].tool_executions] == ["42"]


def test_what_waits_is_listed_over_all_runs(project: Project, client: Client, waiting: str) -> None:
    listed = until_listed(project, waiting)
    (example,) = examples("holdfast waiting")
    assert keys(listed.document) == keys(example)
    (found,) = (each for each in listed.document["calls"] if each["execution_id"] == waiting)
    assert keys(found) == keys(example["calls"][0])
    assert (found["agent"], found["tool"], found["digest"]) == ("careful", "multiply", DIGEST)
    table = project.run("waiting")
    assert (table.code, waiting in table.out, short_digest(DIGEST) in table.out) == (0, True, True)
    runs = project.run("list", "--waiting", "--json").document
    assert [each["execution_id"] for each in runs].count(waiting) == 1
    project.run("deny", waiting)
    end_of(client, waiting)
    assert project.run("waiting", "--limit", "0").code == 2


def until_listed(project: Project, execution_id: str) -> Ended:
    """The listing once it has the run's call: the server learns of it a moment later."""
    for _ in range(LOOKS_MAX):
        listed = project.run("waiting", "--json")
        if any(each["execution_id"] == execution_id for each in listed.document["calls"]):
            return listed
    raise AssertionError(f"{execution_id} was never listed")


def test_a_call_can_be_approved_with_other_arguments(project: Project, client: Client, waiting: str) -> None:
    ended = project.run("edit", waiting, "--arguments", '{"a": 2, "b": 2}', "--json")
    assert keys(ended.document) == keys(examples("holdfast edit")[0])
    assert (ended.code, ended.document["decision"], ended.document["taken"]) == (0, "edit", True)
    assert [each.result for each in end_of(client, waiting).steps[0].tool_executions] == ["4"]


def test_a_denied_call_does_not_run_and_the_model_is_told_why(project: Project, client: Client, waiting: str) -> None:
    ended = project.run("deny", waiting, "--reason", "not today", "--by", "ann")
    assert ended.code == 0
    (execution,) = end_of(client, waiting).steps[0].tool_executions
    assert (execution.outcome, "denied by ann: not today" in execution.answer.text) == ("denied", True)


def test_what_cannot_be_decided_is_refused_with_what_waits(project: Project, client: Client, waiting: str) -> None:
    (call,) = asyncio.run(client.state(waiting)).waiting_calls
    wrong = project.run("approve", waiting, "call_of_another_step")
    assert wrong.code == 7
    assert f"{call.call.id} (multiply)" in wrong.err
    for edit in ("[1]", "{", '{"a": NaN}', "[" * 100_000):
        assert project.run("edit", waiting, "--arguments", edit).code == 2, edit[:20]
    project.run("deny", waiting)
    end_of(client, waiting)
    late = project.run("approve", waiting)
    assert (late.code, late.err) == (7, f"error: nothing waits; run {waiting} has ended (completed)\n")


def test_the_id_of_an_agent_means_the_run_that_it_has_under_way(project: Project) -> None:
    agent_id = str(uuid4())
    assert project.run("send", agent_id, "multiply", "--agent", "warden", "--no-wait").code == 0
    run_id = until_asked(project, agent_id)
    ended = project.run("approve", agent_id, "--json")
    assert (ended.code, ended.document["execution_id"], ended.document["taken"]) == (0, run_id, True)
    assert project.run("send", agent_id, "thank you").code == 0
    late = project.run("approve", agent_id)
    assert (late.code, late.err) == (7, f"error: nothing waits; agent {agent_id} has no run under way (idle)\n")


def until_asked(project: Project, agent_id: str) -> str:
    """The run of the agent's that waits for a person, once it does."""
    for _ in range(LOOKS_MAX):
        for each in project.run("waiting", "--json").document["calls"]:
            if each["agent_id"] == agent_id:
                return str(each["execution_id"])
    raise AssertionError(f"no call of {agent_id} was ever listed")
