"""`holdfast chat` as a process: through pipes, and in a terminal with somebody who types."""

from __future__ import annotations

import asyncio
import json
import re
from uuid import uuid4

import pytest

from holdfast.client import Holdfast
from tests.cli.page import examples, keys
from tests.cli.program import Ended, Project
from tests.cli.terminal import BACKSPACE, CTRL_C, CTRL_D, ENTER, Terminal, terminal
from tests.sent_files import pdf

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

BACK = re.compile(r"holdfast chat --id ([0-9a-f-]{36})")


def id_in(text: str) -> str:
    found = BACK.search(text)
    assert found, text
    return found[1]


def met(screen: Terminal) -> str:
    """Return the agent's id when it is ready to listen."""
    screen.prompts()
    return id_in(screen.shown)


# --- pipes


@pytest.mark.slow
def test_each_line_of_a_pipe_is_a_message_and_its_answer_a_line(project: Project) -> None:
    ended = project.run("chat", "clerk", said="one\n\n  two \n")
    assert (ended.code, ended.out) == (0, "1: one\n2:   two \n")
    again = project.run("chat", "--id", id_in(ended.err), said="three")
    assert (again.code, again.out, id_in(again.err)) == (0, "3: three\n", id_in(ended.err))


@pytest.mark.slow
def test_chat_gives_a_line_of_json_for_each_message(project: Project) -> None:
    ended = project.run("chat", "clerk", "--json", said="one\nmultiply\n")
    told = [json.loads(line) for line in ended.out.splitlines()]
    assert [each["final_response"] for each in told] == ["1: one", "it is 42"]
    assert all(keys(each) == keys(examples("holdfast run")[0]) | {"agent_id", "message_id"} for each in told)
    assert {each["agent_id"] for each in told} == {id_in(ended.err)}


@pytest.mark.slow
def test_metadata_of_a_chat_go_with_each_of_its_messages(project: Project) -> None:
    given = ("--metadata", "customer=c-17", "--metadata", "vip=true")
    ended = project.run("chat", "clerk", "--json", *given, said="one\ntwo\n")
    runs = [json.loads(line)["execution_id"] for line in ended.out.splitlines()]
    for run in runs:
        metadata = project.run("export", run).document["state"]["context"]["metadata"]
        assert (metadata["customer"], metadata["vip"]) == ("c-17", True)
    assert len(runs) == 2
    refused = project.run("chat", "clerk", "--metadata", "agent=me", said="one\n")
    assert (refused.code, refused.out) == (2, "")
    assert "reserved by Holdfast" in refused.err


def files_of(client: Holdfast, agent_id: str) -> list[list[str]]:
    """Return the names of the files that came with each of a person's messages."""
    messages = asyncio.run(client.agent(agent_id).messages())
    return [[file.name for file in each.files] for each in messages if each.role == "user"]


@pytest.mark.slow
def test_a_file_goes_with_the_first_message_of_a_pipe(project: Project, client: Holdfast) -> None:
    (project.folder / "paper.pdf").write_bytes(pdf(2))
    ended = project.run("chat", "clerk", "--attach", "paper.pdf", said="one\ntwo\n")
    assert (ended.code, ended.out.splitlines()[1:]) == (0, ["2: two"]), "the first answer repeats what the model got"
    assert files_of(client, id_in(ended.err)) == [["paper.pdf"], []]
    refused = project.run("chat", "clerk", "--attach", "nothing.pdf", said="one\n")
    assert (refused.code, refused.out) == (2, "")
    assert "nothing.pdf cannot be attached" in refused.err


@pytest.mark.slow
def test_files_are_attached_and_dropped_within_a_conversation(project: Project, client: Holdfast) -> None:
    (project.folder / "paper.pdf").write_bytes(pdf(2))
    (project.folder / "my notes.csv").write_text("a,b\n")
    with terminal(project, "chat", "clerk", "--attach", "paper.pdf") as screen:
        agent_id = met(screen)
        assert "with your next message: paper.pdf, application/pdf" in screen.shown
        screen.types("/attach my notes.csv" + ENTER)
        screen.shows("; my notes.csv, text/csv, 4 bytes")
        screen.prompts()
        screen.types("/attach nothing.pdf" + ENTER)
        screen.shows("not attached: nothing.pdf cannot be attached")
        screen.prompts()
        screen.types("one" + ENTER)
        screen.shows("'text': 'one'")
        screen.shows("120 tokens")
        screen.prompts()
        screen.types("/attach 'my notes.csv' paper.pdf" + ENTER)
        screen.shows("with your next message: my notes.csv, text/csv, 4 bytes; paper.pdf")
        screen.prompts()
        screen.types("/detach" + ENTER)
        screen.shows("no file is attached")
        screen.prompts()
        screen.types("two" + ENTER)
        screen.shows("2: two")
        screen.prompts()
    assert files_of(client, agent_id) == [["paper.pdf", "my notes.csv"], []]


@pytest.mark.slow
def test_a_new_agent_works_for_the_tenant_that_is_named_and_an_existing_one_for_no_other(project: Project) -> None:
    ended = project.run("chat", "clerk", "--json", "--tenant", "acme", said="one\n")
    agent = id_in(ended.err)

    def tenant_of(line: str) -> object:
        run = json.loads(line)["execution_id"]
        return project.run("export", run).document["state"]["execution"].get("tenant", "")

    assert tenant_of(ended.out) == "acme"
    again = project.run("send", agent, "two", "--json", "--tenant", "acme")
    assert tenant_of(again.out) == "acme"
    for other in (
        project.run("send", agent, "three", "--tenant", "others"),
        project.run("chat", "--id", agent, "--tenant", "others", said="three\n"),
    ):
        assert (other.code, other.out) == (2, "")
        assert f"the session of agent {agent} is of the tenant 'acme'" in other.err
    sent = project.run("send", str(uuid4()), "one", "--agent", "clerk", "--json", "--tenant", "others")
    assert tenant_of(sent.out) == "others"


def failed(project: Project, *options: str) -> Ended:
    ended = project.run("chat", "clerk", *options, said="one\nfail\nthree\n")
    assert ended.code == 4
    return ended


@pytest.mark.slow
def test_what_comes_to_no_answer_ends_a_pipe_with_its_exit_code(project: Project) -> None:
    plain = failed(project)
    assert plain.out == "1: one\n", "the third line is not sent"
    assert "no such key" in plain.err.splitlines()[-1]
    last = json.loads(failed(project, "--json").out.splitlines()[-1])
    assert (last["status"], last["error"]["type"]) == ("failed", "ExecutionFailed")


def test_chat_says_which_agent_it_needs(project: Project) -> None:
    plain, as_json = project.both("chat")
    assert (plain.code, as_json.code, as_json.document["error"]["type"]) == (2, 2, "InvalidInput")


# --- a terminal


@pytest.mark.slow
def test_a_conversation_in_a_terminal_goes_on_where_it_was_left(project: Project) -> None:
    with terminal(project, "chat", "clerk") as screen:
        agent_id = met(screen)
        screen.types("one" + ENTER)
        screen.shows("1: one")
        screen.shows("120 tokens")
        screen.prompts()
        screen.types("multiply" + ENTER)
        screen.shows("multiply(a=6, b=7) … ok 42")
        screen.shows("it is 42")
        screen.prompts()
        screen.types(CTRL_D)
        assert screen.ended() == 0
        assert BACK.findall(screen.shown) == [agent_id, agent_id], "how to come back stands at both ends"
    with terminal(project, "chat", "--id", agent_id) as screen:
        screen.shows("> multiply")
        screen.shows("it is 42")
    assert project.run("chat", "--id", agent_id, said="three").out == "3: three\n"


@pytest.mark.slow
def test_a_call_that_waits_is_asked_about_in_place(project: Project) -> None:
    with terminal(project, "chat", "warden") as screen:
        met(screen)
        screen.types("multiply" + ENTER)
        screen.shows("multiply waits for approval")
        screen.shows('"b": 7')
        screen.shows("e(dit):")
        screen.types("what?" + ENTER)
        screen.shows("e(dit):")
        screen.types("e" + ENTER)
        screen.shows('{"a": 6, "b": 7}')
        screen.types(BACKSPACE + ENTER)
        screen.shows("that is not valid JSON")
        screen.shows('{"a": 6, "b": 7')
        screen.types(BACKSPACE + "9}" + ENTER)
        screen.shows("multiply(a=6, b=9) … ok 54")
        screen.prompts()
        screen.types("multiply" + ENTER)
        screen.shows("e(dit):")
        screen.types("n" + ENTER)
        screen.shows("why?")
        screen.types("not today" + ENTER)
        screen.shows("denied by")
        screen.shows("not today")
        screen.prompts()


@pytest.mark.slow
def test_ctrl_c_stops_what_runs_and_what_was_typed_meanwhile_has_its_turn(project: Project) -> None:
    with terminal(project, "chat", "clerk") as screen:
        met(screen)
        screen.types("slow" + ENTER)
        screen.shows("at last at last")
        screen.types("two\n")
        screen.shows("it waits for its turn")
        screen.types(CTRL_C)
        screen.shows("stopping")
        screen.shows("stopped (user_requested")
        screen.shows("2: two")
        screen.prompts()
        screen.types(CTRL_C)
        assert screen.ended() == 130


@pytest.mark.slow
def test_what_one_types_stands_apart_from_what_streams_in(project: Project) -> None:
    with terminal(project, "chat", "clerk") as screen:
        met(screen)
        screen.types("slow" + ENTER)
        screen.shows("at last at last")
        screen.types("tw")
        screen.shows("\n> tw")
        screen.types("x" + BACKSPACE + "o")
        screen.shows("o")
        typed = len(screen.shown)
        assert "at last" not in screen.stays(1), "it waits for the line"
        screen.types(ENTER)
        screen.shows("it waits for its turn")
        screen.shows("at last")
        assert "at last" not in screen.shown[typed : screen.shown.index("it waits for its turn")]
        screen.types("three")
        screen.shows("\n> three")
        screen.types(CTRL_C)  # drops what is typed
        screen.shows("at last")
        screen.types(CTRL_C)
        screen.shows("stopped (user_requested")
        screen.shows("2: two")
        screen.prompts()
        screen.types(CTRL_C)
        assert screen.ended() == 130


@pytest.mark.slow
def test_a_second_ctrl_c_leaves(project: Project) -> None:
    with terminal(project, "chat", "clerk") as screen:
        agent_id = met(screen)
        screen.types("slow" + ENTER)
        screen.shows("at last at last")
        screen.types(CTRL_C)
        screen.shows("stopping")
        screen.types(CTRL_C)
        assert screen.ended() == 130
        assert "Traceback" not in screen.shown
    assert project.run("session", "close", agent_id, "--stop").code == 0


@pytest.mark.slow
def test_a_message_is_refused_while_something_runs_where_that_was_asked_for(project: Project) -> None:
    with terminal(project, "chat", "clerk", "--while-running", "reject") as screen:
        met(screen)
        screen.types("slow" + ENTER)
        screen.shows("at last at last")
        screen.types("two\n")
        screen.shows("not accepted: ")
        screen.types(CTRL_C)
        screen.shows("stopped (user_requested")
        screen.prompts()


@pytest.mark.slow
def test_what_others_say_is_shown_and_leaves_what_is_being_typed(project: Project) -> None:
    with terminal(project, "chat", "clerk") as screen:
        agent_id = met(screen)
        screen.types("two")
        screen.shows("two")
        assert project.run("send", agent_id, "one").out == "1: one\n"
        screen.shows("1: one")
        screen.shows("120 tokens")
        screen.shows("two")
        screen.types(ENTER)
        screen.shows("2: two")
        screen.prompts()
        assert project.run("session", "close", agent_id).code == 0
        screen.shows(f"the session of agent {agent_id} is closed")
        assert screen.ended() == 7


@pytest.mark.slow
def test_a_call_that_somebody_else_decides_about_is_asked_about_no_more(project: Project) -> None:
    with terminal(project, "chat", "warden") as screen:
        met(screen)
        screen.types("multiply" + ENTER)
        screen.shows("e(dit):")
        [call] = [each for each in project.run("waiting", "--json").document["calls"] if each["agent"] == "warden"]
        assert project.run("approve", call["execution_id"], "--by", "ann", "--yes").code == 0
        screen.shows("approve by ann")
        screen.shows("it is 42")
        screen.prompts()


@pytest.mark.slow
def test_a_closed_session_is_not_talked_with(project: Project) -> None:
    agent_id = id_in(project.run("chat", "clerk", said="one").err)
    project.run("session", "close", agent_id)
    ended = project.run("chat", "--id", agent_id, said="")
    assert (ended.code, ended.out) == (7, "")
    assert f"holdfast fork {agent_id}" in ended.err
    assert "to return" not in ended.err
