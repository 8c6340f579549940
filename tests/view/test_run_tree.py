"""The tree of a run as a client reads it: under way and ended, deep and broad, with what each run has done."""

from __future__ import annotations

import asyncio
import json
from time import monotonic
from typing import Any

import pytest

from holdfast.client import Holdfast
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.base.errors import ExecutionNotFound, InvalidInput
from holdfast.testing.script import Reply, calls, say, turn_number
from holdfast.view import run_tree
from holdfast.view.run_tree import to_dict, tree
from holdfast.view.run_view import RunView
from tests.serving import Serve
from tests.workflows.test_trees import DEEP, TOP, hanging, look, nested, never_answered, spawn

pytestmark = pytest.mark.temporal


Shape = tuple[str, str, int | None, int, list[Any]]


def size(found: RunView) -> int:
    """Return how many runs the tree has, itself among them."""
    return 1 + sum(map(size, found.children))


def shape(found: RunView) -> Shape:
    below = [shape(each) for each in found.children]
    return (found.agent, found.status, found.step_count, found.usage.total_tokens, below)


async def listed(client: Holdfast, execution_id: str, runs: int) -> RunView:
    """Return the tree once it has so many runs: the server lists one a moment after it has begun."""
    until = monotonic() + 20
    while size(found := await tree(client, execution_id)) != runs and monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return found


@pytest.mark.slow
async def test_the_tree_of_an_ended_run_has_what_each_run_used(serve: Serve) -> None:
    async with serve(nested, [look]) as served:
        execution_id = await served.client.start(TOP, "go", subagents=DEEP)
        state = await served.client.result(execution_id)
        found = await listed(served.client, execution_id, 7)
        below = await tree(served.client, found.children[0].execution_id)
    leaf: Shape = ("leaf", "completed", 2, 240, [])
    middle: Shape = ("middle", "completed", 2, 720, [leaf, leaf])
    assert shape(found) == ("top", "completed", 2, 1_680, [middle, middle])
    assert (size(found), found.usage, found.cost) == (7, state.usage, state.cost)
    assert {each.execution_id for each in found.children} == {
        named_id(execution_id, call_name(1, place)) for place in range(2)
    }
    assert found.seconds is not None
    assert all(each.seconds is not None and 0 < each.seconds <= found.seconds for each in found.children)
    assert shape(below) == middle
    assert json.loads(json.dumps(to_dict(found)))["children"][1]["children"][0]["usage"]["total_tokens"] == 240


@pytest.mark.slow
async def test_the_tree_of_a_run_under_way_shows_how_far_each_is(serve: Serve) -> None:
    async with serve(never_answered, [look]) as served:
        execution_id, _ = await hanging(served, served.client)
        found = await listed(served.client, execution_id, 7)
        await served.client.stop(execution_id, "enough")
        await served.client.result(execution_id)
        stopped = await tree(served.client, execution_id)
    leaf: Shape = ("leaf", "in_progress", 0, 0, [])
    middle: Shape = ("middle", "in_progress", 0, 120, [leaf, leaf])
    assert shape(found) == ("top", "in_progress", 0, 120, [middle, middle])
    assert (stopped.status, stopped.why, size(stopped)) == ("stopped", "enough", 7)
    assert {each.status for each in stopped.children} == {"stopped"}


async def test_a_failed_subagent_stands_in_the_tree_with_its_reason(serve: Serve) -> None:
    def turn(request: dict[str, Any]) -> Reply:
        if request["messages"][0]["content"] == "middle":
            return Reply(status=400, text="not like this")
        return calls(spawn("a task", "middle")) if turn_number(request) == 0 else say("done without")

    async with serve(turn) as served:
        execution_id = await served.client.start(TOP, "go", subagents=DEEP)
        await served.client.result(execution_id)
        found = await listed(served.client, execution_id, 2)
    (child,) = found.children
    assert (found.status, child.status) == ("completed", "failed")
    assert "not like this" in child.why


@pytest.mark.slow
async def test_a_large_tree_is_cut_and_says_where(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tree, "TREE_RUNS_MAX", 4)
    async with serve(nested, [look]) as served:
        execution_id = await served.client.start(TOP, "go", subagents=DEEP)
        await served.client.result(execution_id)
        found = await listed(served.client, execution_id, 4)
    assert size(found) == 4
    assert any(each.more for each in (found, *found.children))


async def test_a_run_that_is_not_there_has_no_tree(serve: Serve) -> None:
    async with serve(nested, [look]) as served:
        with pytest.raises(ExecutionNotFound):
            await tree(served.client, named_id(served.client.settings.task_queue.removeprefix("test-"), "nobody"))
        with pytest.raises(InvalidInput):
            await tree(served.client, "x' OR '1'='1")
