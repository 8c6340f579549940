"""Agents written in Python: taken as they are, or by name from imported modules, to a typed answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent
from holdfast.client import Holdfast, Settings
from holdfast.client.definition_files import find_agent, known_agents
from holdfast.core.base.errors import AnswerInvalid, DefinitionInvalid, InvalidInput, UnknownAgent
from holdfast.local import LocalDriver
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, call, say
from holdfast.testing.scripted_model import ScriptedModel
from tests.chaos.processes import worker
from tests.client.imported_agents import Ticket, clerk, find_order, porter

MODULE = "tests.client.imported_agents"
ANSWER = Ticket(order=17, state="on its way")


def on_duty(request: dict[str, Any]) -> Reply:
    """Look the order up, then answer with a ticket."""
    if request["messages"][-1]["role"] == "tool":
        return say(ANSWER.model_dump_json())
    return call("find_order", number=17)


@pytest.fixture
def importing(settings: Settings, tmp_path: Path) -> Settings:
    return replace(settings, modules=(MODULE,), agents_dir=tmp_path / "agents")


@pytest.mark.slow
@pytest.mark.temporal
async def test_a_worker_that_imports_a_module_serves_its_agents(importing: Settings, tmp_path: Path) -> None:
    async with (
        FakeOpenAI(on_duty) as endpoint,
        worker(importing, endpoint, tmp_path / "ledger.jsonl", modules=[MODULE]),
    ):
        holdfast = await Holdfast.connect(importing)
        itself = await holdfast.run(clerk, "where is order 17?")
        by_name = await holdfast.run("clerk", "where is order 17?", answers=Ticket)
        untyped = await holdfast.run("clerk", "where is order 17?")
        agent = holdfast.agent(definition=clerk)
        asked = await agent.ask("where is order 17?")
        again = await holdfast.agent(agent.agent_id).ask("and now?", answers=Ticket)
    assert [each.output for each in (itself, by_name, asked, again)] == [ANSWER] * 4
    assert untyped.output == ANSWER.model_dump()
    assert itself.execution_id != by_name.execution_id
    assert itself.state.messages[2].text == "order 17 is on its way"


async def test_a_driver_takes_an_agent_as_it_is() -> None:
    result = await LocalDriver(clerk, model=ScriptedModel(on_duty)).run("where is order 17?")
    assert result.output == ANSWER
    assert result.messages == result.state.messages


async def test_a_run_that_was_stopped_has_no_output() -> None:
    driver = LocalDriver(clerk, model=ScriptedModel([call("find_order", number=17)]))
    result = await driver.run("where?", budget=clerk.definition.budget.model_copy(update={"max_steps": 1}))
    with pytest.raises(AnswerInvalid, match=r"the run was stopped \(steps_limit\) before it had answered; see `state`"):
        result.output  # noqa: B018  # reading it is the test


async def test_an_answer_that_the_provider_cut_short_has_no_output() -> None:
    agent = Agent(name="cut", answers="json_object")
    result = await LocalDriver(agent, model=ScriptedModel([say('{"order": 1', finish_reason="length")])).run("where?")
    with pytest.raises(AnswerInvalid, match="the answer is not usable JSON"):
        result.output  # noqa: B018  # reading it is the test


def test_imported_agents_count_like_those_of_the_folder(importing: Settings) -> None:
    importing.agents_dir.mkdir()
    (importing.agents_dir / "other.md").write_text("hi")
    assert list(known_agents(importing)) == ["other", "porter", "clerk"]
    assert find_agent("porter", importing) == porter.definition
    assert find_agent("other", importing).system_prompt == "hi"
    with pytest.raises(UnknownAgent, match=rf"no agent is called 'clrk' in .*/ and {MODULE}; did you mean 'clerk'"):
        find_agent("clrk", importing)
    with pytest.raises(UnknownAgent, match=r"in .*/; there are: other \(`--import MODULE` adds those of a module\)$"):
        find_agent("clerk", replace(importing, modules=()))


def test_an_agent_of_the_folder_and_another_one_of_its_name_are_refused(importing: Settings) -> None:
    importing.agents_dir.mkdir()
    (importing.agents_dir / "clerk.md").write_text("another one")
    for look in (lambda: known_agents(importing), lambda: find_agent("clerk", importing)):
        with pytest.raises(DefinitionInvalid, match=r"two different agents are called 'clerk': one in .*; rename one"):
            look()


def test_a_module_that_is_not_there_is_named(importing: Settings) -> None:
    with pytest.raises(InvalidInput, match="cannot import 'no_such_module', which is not found from"):
        find_agent("clerk", replace(importing, modules=("no_such_module",)))


def test_the_modules_come_from_the_environment_where_none_are_given() -> None:
    environment = {"HOLDFAST_IMPORT": f" {MODULE}, other,"}
    assert Settings.from_environment(environment).modules == (MODULE, "other")
    assert Settings.from_environment(environment, modules=["mine"]).modules == ("mine",)


def test_a_function_stays_a_function() -> None:
    assert find_order(17) == "order 17 is on its way"
