"""Executions in-process leave the records that those on Temporal do, in a folder or in a store of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import StorageFailed
from holdfast.core.wire.record_store import ExecutionStore
from holdfast.core.wire.records import ExecutionRecord
from holdfast.local import LocalDriver
from holdfast.storage.records import Records
from holdfast.testing.script import Call, Reply, calls, say
from holdfast.testing.scripted_model import ScriptedModel
from tests.local.test_driver import add

CLERK = AgentDefinition(name="clerk", tools=("add",), capabilities=("records",))


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records.in_folder(tmp_path / "records")


def plays(request: dict[str, Any]) -> Reply:
    """Say what is said to the last question, and to each answer of a tool behind it."""
    messages = request["messages"]
    last = max(place for place, each in enumerate(messages) if each["role"] == "user")
    look, spawn = Call("read_records", {}), Call("spawn", {"agent": "helper", "task": "look"})
    said = {
        "What is 1 + 2?": (calls(Call("add", {"a": 1, "b": 2})), say("3")),
        "What is new?": (say("a letter came"),),
        "And before?": (calls(look), calls(spawn), say("that was it")),
        "look": (calls(look), say("nothing")),
        "long": (calls(Call("add", {"a": 1, "b": 2})), say("x" * 3_000)),
    }
    turns = said.get(messages[last]["content"][:20].rstrip("y"), (say("you asked before"),))
    return turns[(len(messages) - last) // 2]


def driver_of(records: ExecutionStore, definition: AgentDefinition = CLERK) -> LocalDriver:
    helper = AgentDefinition(name="helper", capabilities=("records",))
    return LocalDriver(definition, model=ScriptedModel(plays), tools=[add], agents=[helper], records=records)


async def test_every_execution_leaves_its_record_and_the_agent_goes_on_from_any(records: Records) -> None:
    driver = driver_of(records)
    first = await driver.execute("What is 1 + 2?")
    second = await driver.execute("And?", state=first)
    newest, oldest = await records.by_agent(first.agent_id)
    assert (oldest.execution_id, newest.execution_id) == (first.running.execution_id, second.running.execution_id)
    assert (oldest.agent, oldest.number, oldest.task, oldest.answer) == ("clerk", 1, "What is 1 + 2?", "3")
    assert (oldest.status, oldest.step_count, oldest.usage) == (ExecutionStatus.COMPLETED, 2, first.usage)
    assert (newest.number, newest.task, newest.answer) == (2, "And?", "you asked before")
    assert await records.state_of(newest) == second
    assert not any("record" in each for each in second.warnings)
    restored = await records.state_of(oldest)
    assert restored == first
    again = await driver.execute("Or?", state=restored)
    assert [each.text for each in again.messages if each.role == "user"] == ["What is 1 + 2?", "Or?"]


async def test_an_agent_reads_its_own_records_and_a_subagent_its_own(records: Records, tmp_path: Path) -> None:
    driver = driver_of(records, AgentDefinition(name="boss", capabilities=("records",), subagents=("helper",)))
    first = await driver.execute("What is new?")
    second = await driver.execute("And before?", state=first)
    [mine], [spawned] = (step.tool_executions for step in second.steps[:2])
    assert "asked: What is new?\nanswered: a letter came" in mine.answer.text
    assert spawned.result == "nothing"
    others = [each.name for each in (tmp_path / "records" / "agents").iterdir() if each.name != first.agent_id]
    [own] = await records.by_agent(others[0])
    assert (len(others), own.agent, own.parent_agent_id, own.answer) == (1, "helper", first.agent_id, "nothing")
    state = await records.state_of(own)
    assert state.steps[0].tool_executions[0].answer.text.startswith("There are no records yet")


class Broken(Records):
    """A store that fails."""

    async def write_execution(self, state: AgentState, *, agent: str, task: str) -> ExecutionRecord:  # noqa: ARG002
        raise OSError("the disk has gone")

    async def by_agent(self, agent_id: str, limit: int = 20) -> list[ExecutionRecord]:  # noqa: ARG002
        raise StorageFailed("gone")


async def test_a_store_that_fails_harms_no_execution_and_is_told(tmp_path: Path) -> None:
    state = await driver_of(Broken.in_folder(tmp_path)).execute("look")
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "nothing")
    assert state.warnings[-1:] == ("no record was kept: OSError: the disk has gone",)
    assert state.steps[0].tool_executions[0].answer.text.endswith("gone")


async def test_a_long_conversation_is_written_once(records: Records, tmp_path: Path) -> None:
    driver = driver_of(records)
    state: AgentState | None = None
    sizes: list[int] = []
    for _ in range(20):
        state = await driver.execute("long" + "y" * 3_000, state=state)
        sizes.append(sum(each.stat().st_size for each in (tmp_path / "records").rglob("*") if each.is_file()))
    assert sizes[-1] - sizes[-11] < 2 * (sizes[9] - sizes[0]), "what is written grows linearly"
