"""`holdfast top` without a screen: once as a table, as JSON, into a pipe; and what is wrong, told before any screen."""

from __future__ import annotations

import json
import time
from uuid import uuid4

import pytest

from tests.client.cli.page import examples
from tests.client.cli.program import Ended, Project, start_id

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

SECONDS_MAX = 20


def shows(project: Project, *words: str) -> Ended:
    """Return what `top` prints once it has these words: the server lists a run a moment after it has begun."""
    deadline = time.monotonic() + SECONDS_MAX
    while not all(each in (ended := project.run("top")).out for each in words):
        assert time.monotonic() < deadline, ended
    return ended


def test_top_prints_its_table_once_into_a_pipe(project: Project) -> None:
    agent_id = str(uuid4())
    execution_id = start_id(project, "desk", "--max-seconds", "600")
    assert project.run("send", agent_id, "slow", "--agent", "clerk", "--no-wait").code == 0
    ended = shows(project, execution_id, agent_id, "session running", "1 call", "writer")
    assert (ended.code, ended.err) == (0, "")
    [line] = [each for each in ended.out.splitlines() if execution_id in each]
    assert line.split()[0] == "desk"
    assert "seconds" in line
    assert "\x1b" not in ended.out, "no colours into a pipe"

    once, as_json = project.both("top", "--once", "--query", f"WorkflowId = '{execution_id}'")
    assert (once.code, as_json.code, once.out.count("\n")) == (0, 0, 2)
    [row] = as_json.document
    [example] = examples("holdfast top")[0]
    assert row.keys() == example.keys()
    assert row["budget"][0].keys() == example["budget"][0].keys()
    assert (row["id"], row["kind"], row["agent"], row["waiting"]) == (execution_id, "run", "desk", 1)
    assert (row["steps"], row["tokens"], row["parent"], row["unread"]) == (1, 240, None, None)
    assert [each["limit"] for each in row["budget"]] == ["seconds"]
    parents = f"HoldfastParent IN ('{agent_id}', '{execution_id}')"
    children = json.loads(project.run("top", "--json", "--query", parents).out)
    assert {(each["agent"], each["parent"]) for each in children} == {("clerk", agent_id), ("writer", execution_id)}
    for each in (execution_id, agent_id):
        project.run("stop", each)


def test_top_says_that_nothing_is_under_way(project: Project) -> None:
    plain, as_json = project.both("top", "--query", "HoldfastAgent = 'nobody'")
    assert (plain.code, plain.out, as_json.document) == (0, "", [])
    assert "nothing is under way" in plain.err


def test_what_is_wrong_is_told_before_any_screen(project: Project) -> None:
    plain, as_json = project.both("top", "--query", "nonsense = 3")
    assert (plain.code, plain.out, as_json.code) == (2, "", 2)
    assert "does not understand the query 'nonsense = 3'" in plain.err
    assert as_json.document["error"]["type"] == "InvalidInput"
    assert project.run("top", "--limit", "0").code == 2
    assert project.run("top", "--address", "127.0.0.1:1").code == 6
