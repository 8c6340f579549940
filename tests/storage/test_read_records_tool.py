"""The tool by which an agent looks at its earlier executions: its own alone, in bounded pieces, for who asks for it."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from activities.records import whose
from holdfast import AgentDefinition, tool
from holdfast.client import Settings
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.base.truncation import RECORDS_TOOL
from holdfast.core.tools.tool_context import ToolContext
from holdfast.runtime.tool_runner import run_tool
from holdfast.storage.data_converter import converter, records_of
from holdfast.storage.object_store import Objects
from holdfast.storage.read_records_tool import CAPABILITY, RECORD_SHOWN_CHARS_MAX, RecordTools
from holdfast.storage.records import Records
from holdfast.testing.script import Call, calls, say
from tests.serving import served
from tests.storage.keeping import Kept
from tests.workflows.chats import Chat

CONTEXT = ToolContext(str(uuid4()), "key", attempt=1)


@tool
def greet() -> str:
    """Greet."""
    return "hello"


def reading_of(agent: Kept) -> RecordTools:
    """Return the tool as a run of that agent has it."""

    async def asked(execution_id: str) -> str:
        assert execution_id == CONTEXT.execution_id
        return agent.agent_id

    return RecordTools(agent.records, asked)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(Objects(tmp_path.as_uri()))


async def test_an_agent_lists_its_own_records_and_reads_one(records: Records) -> None:
    agent, other = Kept(records), Kept(records)
    first = await agent.turn("what is there?", "a letter", "the letter of May", steps=2)
    await agent.turn("and now?", "nothing")
    foreign = await other.turn("a secret question", "a secret answer")
    made = reading_of(agent).tool()
    listed = (await run_tool(made, {}, CONTEXT)).text
    assert listed.index("and now?") < listed.index("what is there?"), "the newest first"
    assert first.execution_id in listed
    assert "secret" not in listed
    read = (await run_tool(made, {"execution_id": first.execution_id}, CONTEXT)).text
    for said in ("asked: what is there?", "answered: a letter", 'called add({"a":1}): the letter of May', "step 3"):
        assert said in read
    for odd in (foreign.execution_id, str(uuid4()), "../../etc/passwd"):
        with pytest.raises(InvalidArguments, match="is none of your records; call read_records without"):
            await run_tool(made, {"execution_id": odd}, CONTEXT)
    with pytest.raises(InvalidArguments, match="has 3 steps"):
        await run_tool(made, {"execution_id": first.execution_id, "from_step": 4}, CONTEXT)


async def test_an_agent_without_records_is_told_so(records: Records) -> None:
    assert "no records yet" in (await run_tool(reading_of(Kept(records)).tool(), {}, CONTEXT)).text


async def test_a_long_execution_is_read_piece_by_piece(records: Records) -> None:
    agent = Kept(records)
    record = await agent.turn("q" * 5_000, "a" * 5_000, "r" * 5_000, steps=60)
    made = reading_of(agent).tool()
    seen, step, pieces = list[int](), 1, 0
    while step <= record.step_count:
        asked = {"execution_id": record.execution_id, "from_step": step, "limit": 100}
        text = (await run_tool(made, asked, CONTEXT)).text
        assert len(text) < RECORD_SHOWN_CHARS_MAX + 1_000
        shown = [int(line.removeprefix("step ")) for line in text.splitlines() if line.startswith("step ")]
        seen, step, pieces = [*seen, *shown], shown[-1] + 1, pieces + 1
        assert (f"from_step={step}" in text) is (step <= record.step_count)
    assert seen == list(range(1, 62))
    assert pieces > 1
    for _ in range(30):
        await agent.turn("q" * 5_000, "a" * 5_000)
    assert len((await run_tool(made, {"limit": 100}, CONTEXT)).text) < RECORD_SHOWN_CHARS_MAX + 1_000


def test_only_an_agent_that_asks_for_it_gets_the_tool(records: Records) -> None:
    toolset = reading_of(Kept(records)).with_records_tool(Toolset(tools=(greet,)))

    def gets(agent: AgentDefinition) -> bool:
        return RECORDS_TOOL in toolset.equip(agent).tools

    assert not gets(AgentDefinition(name="a", tools="all"))
    assert not gets(AgentDefinition(name="a", tools=("greet",)))
    assert gets(AgentDefinition(name="a", tools=("greet", RECORDS_TOOL)))
    assert gets(AgentDefinition(name="a", tools="all", capabilities=(CAPABILITY,)))
    with pytest.raises(InvalidInput):
        tool(name=RECORDS_TOOL)(greet.function)


@pytest.mark.temporal
async def test_another_agents_records_are_not_there(settings: Settings, tmp_path: Path) -> None:
    agent = AgentDefinition(name="rememberer", tools="all", capabilities=(CAPABILITY,))
    toolset = RecordTools(records_of(converter(settings.storage_place, None)), whose).with_records_tool(
        Toolset(tools=(greet,))
    )
    script = [calls(Call(RECORDS_TOOL, {})), say("nothing")]
    async with served(settings, tmp_path / "ledger.jsonl", script, toolset) as each:
        await each.client.run(agent, "another agent's question")
        state = await Chat(each.client, agent).ask("what did you say?")
    result = state.steps[0].tool_executions[0].result
    assert result is not None
    assert "no records yet" in result, "another agent's are not its own"


@pytest.mark.slow
@pytest.mark.temporal
async def test_in_a_later_execution_an_agent_finds_the_earlier_one(settings: Settings, tmp_path: Path) -> None:
    agent = AgentDefinition(name="rememberer", tools="all", capabilities=(CAPABILITY,))
    toolset = RecordTools(records_of(converter(settings.storage_place, None)), whose).with_records_tool(
        Toolset(tools=(greet,))
    )
    script = [say("the blue one"), calls(Call(RECORDS_TOOL, {})), say("I said: the blue one")]
    async with served(settings, tmp_path / "ledger.jsonl", script, toolset) as each:
        chat = Chat(each.client, agent)
        await chat.ask("which one?")
        state = await chat.ask("what did you say?")
    result = state.steps[0].tool_executions[0].result
    assert result is not None
    assert "asked: which one?\nanswered: the blue one" in result
