"""`holdfast waiting | approve | deny | edit` as processes: a person decides about a call that waits."""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import Generator
from uuid import uuid4

import pytest

from holdfast.client import Holdfast
from holdfast.core.agent.state import AgentState
from holdfast.core.base.call_digest import call_digest, short_digest
from tests.cli.page import examples, keys
from tests.cli.program import Ended, Project
from tests.cli.terminal import terminal

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

SECONDS_MAX = 90
LOOKS_MAX = 20

DIGEST = call_digest("multiply", {"a": 6, "b": 7})
"""Of the call that the example's model asks for."""


@pytest.fixture
def waiting(client: Holdfast) -> Generator[str]:
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


def end_of(client: Holdfast, execution_id: str) -> AgentState:
    return asyncio.run(asyncio.wait_for(client.result(execution_id), SECONDS_MAX))


def test_show_tells_what_waits_and_how_to_decide(project: Project, waiting: str) -> None:
    shown = project.run("show", waiting)
    assert 'multiply waits for approval: {"a":6,"b":7}' in shown.out
    assert f"holdfast approve {waiting} " in shown.out
    assert f"--digest {short_digest(DIGEST)}" in shown.out


@pytest.mark.slow
def test_an_approved_call_runs(project: Project, client: Holdfast, waiting: str) -> None:
    ended = project.run("approve", waiting, "--by", "ann", "--yes")
    assert (ended.code, ended.err) == (0, "")
    state = end_of(client, waiting)
    assert [each.result for each in state.steps[0].tool_executions] == ["42"]
    shown = project.run("show", waiting)
    assert "approved by ann at " in shown.out
    assert f"(digest {short_digest(DIGEST)})" in shown.out


def test_a_call_that_nobody_has_looked_at_is_shown_whole_and_not_approved(
    project: Project, client: Holdfast, waiting: str
) -> None:
    for more in ((), ("--json",)):
        refused = project.run("approve", waiting, *more)
        assert (refused.code, '"taken"' in refused.out) == (2, False)
        assert '"a": 6,' in refused.err
        assert f"--digest {short_digest(DIGEST)}, or approve it unseen with --yes" in refused.err + refused.out
    assert len(asyncio.run(client.state(waiting)).waiting_calls) == 1


@pytest.mark.slow
def test_in_a_terminal_the_whole_call_is_shown_and_asked_about(
    project: Project, client: Holdfast, waiting: str
) -> None:
    with terminal(project, "approve", waiting) as screen:
        screen.shows('"b": 7')
        screen.shows("approve this call? [y/N]")
        screen.types("n\r")
        screen.shows("nothing was decided")
        assert screen.ended() == 1
    for leaving in ("\x03", "\x04"):  # Ctrl-C, Ctrl-D
        with terminal(project, "approve", waiting) as screen:
            screen.shows("approve this call? [y/N]")
            screen.leaves(leaving, "nothing was decided")
            assert screen.ended() == 130
    assert len(asyncio.run(client.state(waiting)).waiting_calls) == 1
    with terminal(project, "approve", waiting) as screen:
        screen.shows("approve this call? [y/N]")
        screen.types("y\r")
        screen.shows('approve: multiply({"a":6,"b":7})')
        assert screen.ended() == 0
    assert [each.result for each in end_of(client, waiting).steps[0].tool_executions] == ["42"]


@pytest.mark.slow
def test_what_is_typed_before_the_call_can_be_read_decides_nothing(
    project: Project, client: Holdfast, waiting: str
) -> None:
    with terminal(project, "approve", waiting) as screen:
        screen.types("y\r")
        screen.shows("approve this call? [y/N]")
        screen.types("n\r")
        screen.shows("nothing was decided")
        assert screen.ended() == 1
    assert len(asyncio.run(client.state(waiting)).waiting_calls) == 1


@pytest.mark.slow
def test_a_run_that_the_server_has_ended_is_shown_so(project: Project, client: Holdfast, waiting: str) -> None:
    asyncio.run(client.temporal.get_workflow_handle(waiting).terminate(reason="enough"))
    first, again = project.both("show", waiting)
    assert (first.code, again.code) == (0, 0)
    last = [line for line in first.out.splitlines() if "tokens" in line][-1]
    assert last.startswith("terminated"), first.out
    assert "holdfast approve" not in first.out
    assert again.document["status"] == "terminated"
    assert project.run("show", waiting, "--json").document == again.document, "its clock stands still"


@pytest.mark.slow
@pytest.mark.parametrize("view", ["--transcript", "--steps", "--events", "--debug"])
def test_each_view_of_a_run_that_the_server_has_ended_says_so(
    project: Project, client: Holdfast, waiting: str, view: str
) -> None:
    told = "the server has ended this run"
    assert told not in project.run("show", waiting, view).err
    asyncio.run(client.temporal.get_workflow_handle(waiting).terminate(reason="enough"))
    plain, as_json = project.both("show", waiting, view)
    assert (plain.code, as_json.code) == (0, 0)
    assert f"{told} (terminated): it is shown as it was left" in plain.err
    assert f"{told} (terminated): it is shown as it was left" in as_json.err
    if view == "--steps":
        assert plain.out.splitlines()[-1].startswith("terminated, "), plain.out
        assert project.run("show", waiting, view).out == plain.out, "its clock stands still"
    if view == "--debug":
        assert as_json.document["status"] == "terminated"


@pytest.mark.slow
def test_a_call_can_be_approved_by_the_digest_that_was_looked_at_and_by_no_other(
    project: Project, client: Holdfast, waiting: str
) -> None:
    other = call_digest("multiply", {"a": 6, "b": 8})
    for digest, code, said in (
        (other, 7, "it is not the call that you looked at"),
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


@pytest.mark.slow
def test_what_waits_is_listed_over_all_runs(project: Project, client: Holdfast, waiting: str) -> None:
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


@pytest.mark.slow
def test_show_of_a_run_tells_which_calls_of_its_subagents_wait(project: Project, client: Holdfast) -> None:
    root = asyncio.run(client.start("boss", "multiply"))
    looks = (project.run("show", root) for _ in range(LOOKS_MAX))
    shown = next(each for each in looks if "waits for approval" in each.out)
    assert "boss was asked: multiply" in shown.out
    assert 'multiply of the subagent warden waits for approval: {"a":6,"b":7}' in shown.out
    [below] = project.run("show", root, "--json").document["subagents_waiting"]
    assert (below["agent"], below["digest"]) == ("warden", DIGEST)
    assert f"holdfast approve {below['execution_id']} {below['call_id']} --digest" in shown.out
    refused = project.run("approve", root)
    assert refused.code == 7, refused.err
    assert f"in its subagent {below['execution_id']}: {below['call_id']} (multiply)" in refused.err
    assert project.run("approve", below["execution_id"], below["call_id"], "--digest", DIGEST).code == 0
    assert end_of(client, root).final_response == "so it is"
    assert "subagents_waiting" not in project.run("show", root, "--json").document


@pytest.mark.slow
def test_show_of_a_session_tells_which_calls_wait(project: Project, client: Holdfast) -> None:
    agent_id = str(uuid4())
    assert project.run("send", agent_id, "multiply", "--agent", "careful", "--no-wait").code == 0
    looks = (project.run("session", "show", agent_id) for _ in range(LOOKS_MAX))
    shown = next(each for each in looks if "waits for approval" in each.out)
    [call] = project.run("session", "show", agent_id, "--json").document["calls_waiting"]
    assert "multiply waits for approval" in shown.out
    assert f"holdfast approve {call['execution_id']} {call['call_id']} --digest" in project.run("show", agent_id).out
    assert project.run("deny", agent_id).code == 0
    end_of(client, call["execution_id"])
    assert "calls_waiting" not in project.run("session", "show", agent_id, "--json").document


def until_listed(project: Project, execution_id: str) -> Ended:
    """The listing once it has the run's call: the server learns of it a moment later."""
    for _ in range(LOOKS_MAX):
        listed = project.run("waiting", "--json")
        if any(each["execution_id"] == execution_id for each in listed.document["calls"]):
            return listed
    raise AssertionError(f"{execution_id} was never listed")


def test_a_call_can_be_approved_with_other_arguments(project: Project, client: Holdfast, waiting: str) -> None:
    ended = project.run("edit", waiting, "--arguments", '{"a": 2, "b": 2}', "--json")
    assert keys(ended.document) == keys(examples("holdfast approve")[0])
    assert (ended.code, ended.document["decision"], ended.document["taken"]) == (0, "edit", True)
    assert [each.result for each in end_of(client, waiting).steps[0].tool_executions] == ["4"]


@pytest.mark.slow
@pytest.mark.timeout(240)  # ten processes, one after another
def test_every_view_tells_what_was_asked_what_ran_by_whom_and_when(
    project: Project, client: Holdfast, waiting: str
) -> None:
    assert project.run("edit", waiting, "--arguments", '{"a": 2, "b": 2}', "--by", "ann").code == 0
    end_of(client, waiting)
    told = 'asked with {"a": 6, "b": 7}, runs with {"a": 2, "b": 2}'
    page = project.folder / "page.html"
    assert project.run("export", waiting, "--format", "html", "--output", str(page)).code == 0
    views = {
        "show": project.run("show", waiting).out,
        "transcript": project.run("show", waiting, "--transcript").out,
        "steps": project.run("show", waiting, "--steps").out,
        "events": project.run("show", waiting, "--events").out,
        "markdown": project.run("export", waiting, "--format", "markdown", "-o", "-").out.replace("\\", ""),
        "html": html.unescape(page.read_text(encoding="utf-8")),
    }
    for name, view in views.items():
        flat = " ".join(view.split())
        assert "edited by ann" in flat, name
        assert told in flat, name
    (execution,) = project.run("show", waiting, "--json").document["state"]["execution"]["step_executions"][0]["step"][
        "tool_executions"
    ]
    assert execution["approval"]["asked"] == {"a": 6, "b": 7}
    assert execution["call"]["arguments"] == {"a": 2, "b": 2}
    events = [json.loads(line) for line in project.run("show", waiting, "--events", "--json").out.splitlines()]
    (resolved,) = (each for each in events if each["kind"] == "ApprovalResolved")
    assert (resolved["by"], resolved["asked"], resolved["call"]["arguments"]) == (
        "ann",
        {"a": 6, "b": 7},
        {"a": 2, "b": 2},
    )


@pytest.mark.slow
def test_an_edit_that_breaks_the_tools_schema_is_refused_by_name_and_the_call_waits_on(
    project: Project, client: Holdfast, waiting: str
) -> None:
    for arguments, named in (('{"a": 2, "c": 2}', "b: Field required"), ('{"a": "two", "b": 2}', "a: Input should be")):
        refused = project.run("edit", waiting, "--arguments", arguments)
        assert (refused.code, named in refused.err, "the call is still waiting" in refused.err) == (2, True, True), (
            refused.err
        )
    assert len(asyncio.run(client.state(waiting)).waiting_calls) == 1
    assert project.run("edit", waiting, "--arguments", '{"a": 2, "b": 2}').code == 0
    assert [each.result for each in end_of(client, waiting).steps[0].tool_executions] == ["4"]


def test_a_denied_call_does_not_run_and_the_model_is_told_why(project: Project, client: Holdfast, waiting: str) -> None:
    ended = project.run("deny", waiting, "--reason", "not today", "--by", "ann")
    assert ended.code == 0
    (execution,) = end_of(client, waiting).steps[0].tool_executions
    assert (execution.outcome, "denied by ann: not today" in execution.answer.text) == ("denied", True)


@pytest.mark.slow
def test_what_cannot_be_decided_is_refused_with_what_waits(project: Project, client: Holdfast, waiting: str) -> None:
    (call,) = asyncio.run(client.state(waiting)).waiting_calls
    wrong = project.run("approve", waiting, "call_of_another_step")
    assert wrong.code == 7
    assert f"{call.call.id} (multiply)" in wrong.err
    form = project.run("answer", waiting, "--values", "{}")
    assert (form.code, f"with: holdfast approve {waiting} {call.call.id}" in form.err) == (7, True)
    for edit in ("[1]", "{", '{"a": NaN}', '{"a": 2, "b": 2, "b": 3}', "[" * 100_000):
        assert project.run("edit", waiting, "--arguments", edit).code == 2, edit[:20]
    project.run("deny", waiting)
    end_of(client, waiting)
    late = project.run("approve", waiting)
    assert (late.code, late.err) == (7, f"error: nothing waits; run {waiting} has ended (completed)\n")


@pytest.mark.slow
def test_the_id_of_an_agent_means_the_run_that_it_has_under_way(project: Project) -> None:
    agent_id = str(uuid4())
    assert project.run("send", agent_id, "multiply", "--agent", "warden", "--no-wait").code == 0
    run_id = until_asked(project, agent_id)
    ended = project.run("approve", agent_id, "--json", "--yes")
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


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["plain", "json"])
@pytest.mark.parametrize(
    "command",
    [("run", "careful", "multiply"), ("send", "SESSION", "multiply", "--agent", "warden")],
    ids=["run", "send"],
)
def test_a_command_that_waits_for_a_run_says_that_the_run_waits_for_a_person(
    project: Project, command: tuple[str, ...], options: tuple[str, ...]
) -> None:
    arguments = [str(uuid4()) if each == "SESSION" else each for each in command]
    with project.started(*arguments, *options) as waits:
        said = waits.heard("--digest ")
        line = next(each for each in said.splitlines() if "holdfast approve " in each)
        _, _, rest = line.partition("holdfast approve ")
        assert project.run("approve", *rest.split()).code == 0
        ended = waits.ended()
    assert ended.code == 0
    assert "waits for approval" in ended.err or not options
    if options:
        assert ended.document["status"] == "completed", "standard output stays JSON alone"
