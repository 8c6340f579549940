"""`holdfast top` without a screen: once as a table, as JSON, into a pipe; and what is wrong, told before any screen."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from holdfast.client import Holdfast
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.view.server_overview import overview
from tests.cli.page import examples
from tests.cli.program import Project

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

SECONDS_MAX = 90


async def at_work(client: Holdfast, agent_id: str) -> tuple[str, str]:
    """Have an agent's run and one with a subagent under way, and listed; return their ids."""
    execution_id = await client.start("desk", "multiply", budget=ExecutionBudget(max_seconds=600))
    agent = client.agent(agent_id, "clerk")
    await agent.send("slow")
    of_agent = (await agent.view()).running_id or ""
    async with asyncio.timeout(SECONDS_MAX):
        while True:  # the server lists a run a moment after it has begun
            found = {each.id: each for each in (await overview(client, below(execution_id, agent_id))).rows}
            if len(found) == len(("desk", "its writer", "the session", "its run")) and found[execution_id].waiting:
                return execution_id, of_agent
            await asyncio.sleep(0.1)


def below(*ids: str) -> str:
    """The query for these and what they have begun."""
    named = ", ".join(f"'{each}', '{session_workflow_id(each)}'" for each in ids)
    return f"WorkflowId IN ({named}) OR HoldfastParent IN ({named})"


async def ended(client: Holdfast, execution_id: str, agent_id: str) -> None:
    await client.stop(execution_id)
    await client.agent(agent_id).close(stop=True)


@pytest.mark.slow
def test_top_prints_once_what_is_under_way(project: Project) -> None:
    client, agent_id = asyncio.run(Holdfast.connect(project.settings)), str(uuid4())
    execution_id, of_agent = asyncio.run(at_work(client, agent_id))
    plain, as_json = project.both("top", "--query", below(execution_id, agent_id))
    asyncio.run(ended(client, execution_id, agent_id))

    assert (plain.code, plain.err, plain.out.count("\n")) == (0, "", 5)
    assert "\x1b" not in plain.out, "no colours into a pipe"
    [line] = [each for each in plain.out.splitlines() if execution_id in each]
    assert line.split()[0] == "desk"
    assert "seconds" in line
    assert line.rstrip().endswith("1 call   -       -")
    assert "session running" in plain.out

    rows = {each["id"]: each for each in as_json.document}
    row, [example] = rows[execution_id], examples("holdfast top")[0]
    assert row.keys() == example.keys()
    assert row["budget"][0].keys() == example["budget"][0].keys()
    assert (row["kind"], row["agent"], row["waiting"], row["steps"], row["tokens"]) == ("run", "desk", 1, 1, 240)
    assert [each["limit"] for each in row["budget"]] == ["seconds"]
    assert (row["parent"], row["unread"]) == (None, None)
    assert (rows[agent_id]["kind"], rows[agent_id]["status"]) == ("session", "running")
    assert {each["agent"]: each["parent"] for each in rows.values() if each["parent"]} == {
        "clerk": agent_id,
        "writer": execution_id,
    }
    assert rows[of_agent]["kind"] == "run"


def test_top_says_that_nothing_is_under_way(project: Project) -> None:
    plain, as_json = project.both("top", "--query", "HoldfastAgent = 'nobody'")
    assert (plain.code, plain.out, as_json.document) == (0, "", [])
    assert "nothing is under way" in plain.err


@pytest.mark.slow
def test_what_is_wrong_is_told_before_any_screen(project: Project) -> None:
    plain, as_json = project.both("top", "--query", "nonsense = 3")
    assert (plain.code, plain.out, as_json.code) == (2, "", 2)
    assert "does not understand the query 'nonsense = 3'" in plain.err
    assert "such as HoldfastAgent = 'clerk'" in plain.err, "one that finds runs, too"
    assert as_json.document["error"]["type"] == "InvalidInput"
    assert project.run("top", "--limit", "0").code == 2
    assert project.run("top", "--address", "127.0.0.1:1").code == 6
