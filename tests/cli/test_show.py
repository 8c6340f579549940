"""`holdfast show` with its views, and `holdfast export`, as processes against one `holdfast dev`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client.watch_events import to_dict
from holdfast.core.agent.state import AgentState
from holdfast.view.report import RunExport
from tests.cli.page import examples
from tests.cli.program import Ended, Project, Running
from tests.cli.test_watch import EVENTS, watched_lines
from tests.sent_files import pdf

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

FORGOTTEN = ("--namespace", "temporal-system")
"""A namespace without our runs: as a server that has forgotten them."""


@pytest.fixture(scope="module")
def done(project: Project, dev: Running) -> str:  # noqa: ARG001  # it serves the run
    """The id of a run that has completed."""
    return str(project.run("run", "assistant", "what is six times seven?", "--json").document["execution_id"])


@pytest.fixture(scope="module")
def agent(project: Project, dev: Running) -> str:  # noqa: ARG001  # it serves the agent
    """The id of an agent that was told something."""
    agent_id = str(uuid4())
    assert project.run("send", agent_id, "multiply", "--agent", "clerk").code == 0
    return agent_id


def lines(ended: Ended) -> list[dict[str, object]]:
    """Return standard output as JSON lines, of a command that went well."""
    assert (ended.code, ended.err) == (0, ""), ended
    return [json.loads(line) for line in ended.out.splitlines()]


# --- show


@pytest.mark.slow
def test_a_transcript_has_every_message_with_its_calls(project: Project, done: str) -> None:
    plain, as_json = project.both("show", done, "--transcript")
    assert (plain.code, plain.err) == (0, "")
    assert [line.split()[0] for line in plain.out.splitlines() if line and not line.startswith(" ")] == [
        *("user", "what", "assistant", "tool", "42", "assistant", "42")
    ]
    assert 'multiply({"a":6,"b":7})' in plain.out
    told = lines(as_json)
    assert [each["role"] for each in told] == ["user", "assistant", "tool", "assistant"]
    assert set(told[0]) == set(examples("holdfast show")[0])


@pytest.mark.slow
def test_a_transcript_cuts_long_texts_and_says_how_to_see_them(project: Project, agent: str) -> None:
    long = "word " * 600
    assert project.run("send", agent, long).code == 0
    cut, full = project.run("show", agent, "--transcript"), project.run("show", agent, "--transcript", "--full")
    assert "characters are left out here" in cut.out
    assert "--full shows all of it" in cut.err
    assert long.strip() in full.out
    assert "left out" not in full.out + full.err
    assert project.run("show", agent, "--full").code == 2


def test_steps_are_a_table_of_calls_times_and_tokens(project: Project, done: str) -> None:
    plain, as_json = project.both("show", done, "--steps")
    assert (plain.code, plain.err) == (0, "")
    heading, first, second, total = plain.out.splitlines()
    assert heading.split() == ["step", "began", "took", "in", "out", "cost", "calls"]
    assert "multiply succeeded" in first
    assert first.split()[-4:-2] == ["multiply", "succeeded"]
    assert second.rstrip().endswith("final answer")
    assert total.startswith("completed, 240 tokens")
    told = lines(as_json)
    assert [(each["number"], each["kind"]) for each in told] == [(1, "tool_execution"), (2, "final_response")]
    assert set(told[0]) == set(examples("holdfast show")[1])


@pytest.mark.slow
def test_events_are_those_that_watch_tells(project: Project, done: str) -> None:
    plain, as_json = project.both("show", done, "--events")
    assert (plain.code, plain.err, as_json.code) == (0, "", 0)
    assert [each.kind for each in watched_lines(as_json.out)] == EVENTS
    assert [line.split()[3] for line in plain.out.splitlines()] == EVENTS
    seen = {to_dict(each)["kind"] for each in watched_lines(project.run("watch", done, "--json").out)}
    assert set(EVENTS) <= seen


def test_debug_tells_a_few_facts(project: Project, done: str) -> None:
    plain, as_json = project.both("show", done, "--debug")
    assert (plain.code, plain.err, as_json.code, as_json.err) == (0, "", 0, "")
    assert as_json.document["status"] == "completed"
    assert plain.out.splitlines()[0].split() == ["status", "completed"]


@pytest.mark.slow
def test_an_agents_id_stands_for_its_run(project: Project, agent: str) -> None:
    assert lines(project.run("show", agent, "--transcript", "--json"))[0]["content"] == "multiply"
    assert project.run("show", agent, "--json").document["agent_id"] == agent, "without a view, it is the session"


@pytest.mark.slow
def test_a_run_that_the_server_has_forgotten_is_told_by_its_record(project: Project, done: str) -> None:
    state = project.run("show", done, "--json").document
    forgotten = project.run("show", done, *FORGOTTEN, "--json")
    assert (forgotten.code, forgotten.document) == (0, state)
    for view in ("--transcript", "--steps", "--debug"):
        here, there = project.run("show", done, view, "--json"), project.run("show", done, view, "--json", *FORGOTTEN)
        assert (there.code, there.out) == (0, here.out)
        assert "read from its record" in there.err
    events = project.run("show", done, "--events", "--json", *FORGOTTEN)
    assert {each.kind for each in watched_lines(events.out)} <= set(EVENTS)
    assert "reconstructed from its state" in events.err


def test_two_views_at_once_are_refused(project: Project, done: str) -> None:
    plain, as_json = project.both("show", done, "--steps", "--events")
    assert (plain.code, plain.out, as_json.code) == (2, "", 2)
    assert plain.err == "error: --steps and --events are different views of a run; choose one of them\n"
    assert as_json.document["error"]["type"] == "InvalidInput"


@pytest.mark.slow
def test_files_of_tools_are_listed_and_written(project: Project, dev: Running) -> None:  # noqa: ARG001  # it serves the run
    ran = project.run("run", "artist", "draw", "--json").document
    id_, folder = str(ran["execution_id"]), project.folder
    listed = project.run("show", id_).out
    assert "attachment 1: chart.svg, image/svg+xml, 7 bytes" in listed
    assert "attachment 2: notes.txt, text/plain, 10 bytes" in listed
    plain = project.run("show", id_, "--attachment", "2", "--out", "notes.txt")
    assert (plain.code, plain.out) == (0, "wrote notes.txt (notes.txt, text/plain, 10 bytes)\n")
    assert (folder / "notes.txt").read_bytes() == b"three bars"
    again = project.run("show", id_, "--attachment", "1", "--out", "notes.txt")
    assert (again.code, (folder / "notes.txt").read_bytes()) == (7, b"three bars")
    forced = project.run("show", id_, "--attachment", "1", "--out", "notes.txt", "--force", "--json").document
    assert (forced["name"], forced["file"], forced["size"]) == ("chart.svg", "notes.txt", 7)
    assert (folder / "notes.txt").read_bytes() == b"a chart"
    exported = project.run("export", id_).document
    assert [each["name"] for each in exported["steps"][0]["calls"][0]["attachments"]] == ["chart.svg", "notes.txt"]
    assert "[attached: chart.svg, image/svg+xml, 7 bytes]" in project.run("export", id_, "--format", "html").out


@pytest.mark.slow
def test_files_of_messages_come_before_those_of_tools(project: Project) -> None:
    paper = pdf(1)
    (project.folder / "paper.pdf").write_bytes(paper)
    ran = project.run("run", "artist", "draw", "--attach", "paper.pdf", "--json").document
    id_ = str(ran["execution_id"])
    listed = re.findall(r"attachment (\d+): ([\w.]+)", project.run("show", id_).out)
    assert listed == [("1", "paper.pdf"), ("2", "chart.svg"), ("3", "notes.txt")]
    for place, options in (("here.pdf", ()), ("there.pdf", FORGOTTEN)):
        assert project.run("show", id_, "--attachment", "1", "--out", place, *options).code == 0
        assert (project.folder / place).read_bytes() == paper
    tools = project.run("show", id_, "--attachment", "3", "--out", "last.txt", "--json").document
    assert tools["name"] == "notes.txt"


def test_a_file_that_is_not_there_and_options_that_do_not_fit_are_refused(project: Project, done: str) -> None:
    none = project.run("show", done, "--attachment", "1", "--out", "x")
    assert (
        none.code,
        "has no attachment 1: none came with its messages, and its tools have attached none" in none.err,
    ) == (2, True)
    assert "add --out FILE" in project.run("show", done, "--attachment", "1").err
    assert "choose one of them" in project.run("show", done, "--attachment", "1", "--out", "x", "--steps").err
    assert "work only with --attachment" in project.run("show", done, "--out", "x").err


# --- export


def test_an_exported_run_is_whole(project: Project, done: str) -> None:
    told = project.run("export", done)
    assert (told.code, told.err) == (0, "")
    document = RunExport.model_validate_json(told.out)
    assert (document.summary.agent, document.summary.answer, document.summary.step_count) == ("assistant", "42", 2)
    assert [each["kind"] for each in document.events] == EVENTS
    assert AgentState.from_dict(document.state).final_response == "42"
    assert set(json.loads(told.out)) == set(examples("holdfast export")[0])


@pytest.mark.slow
def test_the_files_name_says_what_is_written_and_nothing_is_overwritten(
    project: Project, done: str, tmp_path: Path
) -> None:
    page, report, data = (tmp_path / name for name in ("run.html", "run.md", "run.json"))
    for file, begins in ((page, "<!DOCTYPE html>"), (report, "# Run of assistant"), (data, "{")):
        ended = project.run("export", done, "-o", str(file), "--json")
        assert ended.document == {
            "execution_id": done,
            "format": {"html": "html", "md": "markdown", "json": "json"}[file.suffix[1:]],
            "file": str(file),
            "bytes": file.stat().st_size,
        }
        assert set(ended.document) == set(examples("holdfast export")[1])
        assert file.read_text(encoding="utf-8").startswith(begins)
    before = page.read_text(encoding="utf-8")
    plain, as_json = project.both("export", done, "--output", str(page))
    assert (plain.code, as_json.code, as_json.document["error"]["type"]) == (7, 7, "Conflict")
    assert "--force" in plain.err
    assert page.read_text(encoding="utf-8") == before
    forced = project.run("export", done, "-o", str(page), "--force", "--format", "markdown")
    assert (forced.code, forced.out.startswith(f"wrote {page} (")) == (0, True)
    os.mkfifo(page.with_suffix(".fifo"))
    (page.parent / "link.md").symlink_to(page)
    assert project.run("export", done, "-o", str(page.with_suffix(".fifo")), "--force").code == 2, "no file"
    assert page.with_suffix(".fifo").is_fifo()
    assert project.run("export", done, "-o", str(page.parent / "link.md"), "--force").code == 0
    assert (page.parent / "link.md").is_symlink(), "what a link leads to is written"
    assert page.read_text(encoding="utf-8").startswith("# Run")
    there = sorted(each.name for each in tmp_path.iterdir())
    assert there == ["link.md", "run.fifo", "run.html", "run.json", "run.md"], "nothing beside them"


@pytest.mark.slow
def test_where_nothing_can_be_written_is_told_before_anybody_is_asked(project: Project, tmp_path: Path) -> None:
    nobody = str(uuid4())
    for options, words in (
        (("-o", str(tmp_path / "nowhere" / "run.html")), "there is no folder"),
        (("-o", str(tmp_path)), "is a folder"),
        (("-o", str(tmp_path / "run.pdf")), "--format"),
        (("--format", "html", "--json"), "both need standard output"),
        (("--format", "pdf"), "--format"),
    ):
        ended = project.run("export", nobody, *options)
        assert ended.code == 2, ended
        assert words in ended.err + ended.out
    assert project.run("export", nobody, "-o", str(tmp_path / "run.html")).code == 5
    assert [*tmp_path.iterdir()] == []
