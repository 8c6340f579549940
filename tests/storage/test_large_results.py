"""Results of megabytes through the real server: one effect, a short history, and a reference for their run alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentDefinition, tool
from holdfast.client import Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import TOOL_RESULT_CHARS_MAX
from holdfast.runtime.tool_runner import with_fetch_tool
from holdfast.storage.fetch_result_tool import ResultStore
from holdfast.storage.object_store import objects_at
from holdfast.storage.parts import EncodedParts
from holdfast.testing import Reply, call, say
from holdfast.testing.script import turn_number
from tests.serving import served
from tests.storage.reading import part_of, reads_on
from tests.workflows.histories import history_of, replayed, written

AGENT = AgentDefinition(name="reader", tools="all")
MEGABYTE = 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [1, 2.1, 5, 50])
async def test_a_result_of_megabytes_is_one_effect_a_short_history_and_can_be_read_on_in(
    settings: Settings, tmp_path: Path, megabytes: float
) -> None:
    effects: list[int] = []
    size = int(megabytes * MEGABYTE)

    @tool(attempts_max=3)
    def huge() -> str:
        """Return much."""
        effects.append(1)
        return "".join(f"{number:07}\n" for number in range(size // 8))

    results = ResultStore(EncodedParts(objects_at(settings.storage_place)))
    toolset = with_fetch_tool(Toolset(tools=(huge,)), results)
    async with served(settings, tmp_path / "ledger.jsonl", reads_on(), toolset, results=results) as there:
        execution_id = await there.client.start(AGENT, "read it")
        state = await there.client.result(execution_id)
        history = await history_of(there.client, execution_id)
        await replayed(there.client, execution_id)
    assert effects == [1]
    assert state.status is ExecutionStatus.COMPLETED
    parts = [part_of(each.result) for step in state.steps for each in step.tool_executions]
    text = "".join(part.text for part in parts)
    assert text == "".join(f"{number:07}\n" for number in range(len(text) // 8 + 1))[: len(text)]
    assert len(parts) == 3
    assert parts[0].total == f"{size // 8 * 8:,}"
    assert len(parts[0].text) > TOOL_RESULT_CHARS_MAX - 400
    assert len(written(history.events)) < 350_000, "three parts, each from the tool and to the model, whatever the size"


@pytest.mark.slow
async def test_many_calls_at_once_have_their_references_and_tell_the_truth(settings: Settings, tmp_path: Path) -> None:
    @tool
    def huge(letter: str) -> str:
        """Return much."""
        return letter * MEGABYTE

    def script(request: dict[str, Any]) -> Reply:
        if turn_number(request) > 0:
            return say("done")
        wanted = tuple(each for letter in "abcdefghijklmnop" for each in call("huge", letter=letter).calls)
        return Reply(calls=wanted)

    results = ResultStore(EncodedParts(objects_at(settings.storage_place)))
    toolset = with_fetch_tool(Toolset(tools=(huge,)), results)
    async with served(settings, tmp_path / "ledger.jsonl", script, toolset, results=results) as there:
        state = await there.client.run(AGENT, "all")
    executions = state.state.steps[0].tool_executions
    assert len(executions) == 16
    for each in executions:
        part = part_of(each.result)
        assert part.offset == len(part.text) < TOOL_RESULT_CHARS_MAX // 2, "each has its share of the step"
        read = await results.read(state.execution_id, part.ref, part.offset, 100)
        assert part_of(read).text == str(each.call.arguments["letter"]) * 100


async def test_another_runs_reference_is_refused(settings: Settings, tmp_path: Path) -> None:
    canary = "canary-5d1e "

    @tool
    def huge() -> str:
        """Return much."""
        return canary * 100_000

    refs: list[str] = []

    def script(request: dict[str, Any]) -> Reply:
        if turn_number(request) > 0:
            return say("done")
        if request["messages"][-1]["content"] == "first":
            return call("huge")
        return call("fetch_result", ref=refs[0], offset=0)

    results = ResultStore(EncodedParts(objects_at(settings.storage_place)))
    toolset = with_fetch_tool(Toolset(tools=(huge,)), results)
    async with served(settings, tmp_path / "ledger.jsonl", script, toolset, results=results) as there:
        first = await there.client.run(AGENT, "first")
        assert first.state.last_tool_execution
        refs.append(part_of(first.state.last_tool_execution.result).ref)
        second = await there.client.run(AGENT, "second")
    refused = second.state.last_tool_execution
    assert refused
    assert refused.error
    assert refused.error.type == "InvalidArguments"
    assert "results of other runs cannot be read" in refused.error.message
    assert "canary" not in str(second.state.to_dict())
