"""The scripted model answers about any folder and any question, by what the tools really say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.repo_detective import recording, tools
from examples.repo_detective.reading import first_file, listing, searches
from examples.repo_detective.scripted_model import SIGNED, script
from examples.repo_detective.stage import AGENTS
from examples.repo_detective.tools import list_files, read_file, search_text
from holdfast.client.definition_files import load_definition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.steps import Outcome
from holdfast.local import LocalDriver
from holdfast.testing.scripted_model import ScriptedModel


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty folder that the tools are set to."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.setenv(tools.FOLDER, str(place))
    for name in (recording.LEDGER, recording.PAUSE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("examples.repo_detective.scripted_model.DELAY_SECONDS", 0)
    return place


async def answered(question: str, before: AgentState | None = None) -> AgentState:
    definition = load_definition(AGENTS / "repo_detective.md")
    driver = LocalDriver(definition, model=ScriptedModel(script), tools=[list_files, read_file, search_text])
    state = await driver.execute(question, state=before)
    assert state.status is ExecutionStatus.COMPLETED
    assert state.final_response.endswith(SIGNED)
    return state


def called(state: AgentState) -> list[list[str]]:
    return [[call.name for call in step.requested_tool_calls] for step in state.steps]


def project(place: Path) -> None:
    (place / "README.md").write_text("# Winder\n\nWinder winds clocks every morning.\n")
    (place / "src").mkdir()
    (place / "src" / "spring.py").write_text("import time\n\n\nclass MainSpring:\n    '''Keeps the force.'''\n")
    (place / "tests").mkdir()
    (place / "tests" / "test_spring.py").write_text("class TestMainSpring:\n    '''Tests it.'''\n")


async def test_the_answer_quotes_what_was_found_with_file_and_line(place: Path) -> None:
    project(place)
    state = await answered("What is this, and where is the main spring?")
    assert called(state) == [["list_files"], ["search_text"] * 3 + ["read_file"], ["read_file"], []]
    answer = state.final_response
    assert '"Winder winds clocks every morning." (README.md:3)' in answer
    assert 'src/spring.py:4  "class MainSpring:"' in answer
    assert "src/spring.py says there:\n  4: class MainSpring:" in answer
    assert "scripted model" in answer


async def test_usage_looks_like_a_real_models(place: Path) -> None:
    project(place)
    inputs = [step.usage.input_tokens for step in (await answered("main spring?")).steps]
    assert inputs == sorted(inputs)
    assert inputs[0] > 0


@pytest.mark.usefixtures("place")
async def test_about_an_empty_folder_it_says_that_there_is_nothing() -> None:
    state = await answered("What is this?")
    assert called(state) == [["list_files"], []]
    assert "0 files in project match" in state.final_response


async def test_about_a_missing_folder_it_tells_the_tools_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tools.FOLDER, str(place / "missing"))
    state = await answered("What is this?")
    assert "cannot be opened: No such file or directory" in state.final_response


@pytest.mark.parametrize(
    "question", ["?", "Where?", "zzz qqq", "Wo ist die Feder?", "这个项目是什么", "x" * 20_000, "😀", "a\nb\tc", "[(*"]
)
async def test_any_question_gets_an_answer(place: Path, question: str) -> None:
    project(place)
    state = await answered(question)
    assert "README.md:1" in state.final_response
    asked = [run.outcome for step in state.steps for run in step.tool_executions]
    assert set(asked) == {Outcome.SUCCEEDED}


async def test_words_that_are_nowhere_are_reported_as_not_found(place: Path) -> None:
    project(place)
    state = await answered("Where is the gearbox?")
    assert 'I searched for "gearbox" and found nothing.' in state.final_response
    assert len(state.steps) == 3


async def test_a_file_that_the_question_names_is_read_first(place: Path) -> None:
    project(place)
    state = await answered("What does spring.py hold?")
    assert "src/spring.py begins like this" in state.final_response


async def test_a_folder_of_binary_files_gets_the_tools_error(place: Path) -> None:
    (place / "a.bin").write_bytes(bytes(100))
    state = await answered("What is this?")
    assert (
        "One call failed: read_file: Error (InvalidInput): a.bin is a binary file (100 bytes)" in state.final_response
    )


async def test_a_second_question_in_one_conversation_starts_anew(place: Path) -> None:
    project(place)
    first = await answered("main spring?")
    state = await answered("gearbox?", first)
    assert called(state)[0] == ["list_files"]
    assert '"gearbox"' in state.final_response


async def test_the_same_request_gets_the_same_turn(place: Path) -> None:
    project(place)
    messages = [{"role": "user", "content": "main spring?"}]
    first = script({"messages": messages, "model": "m"})
    assert first == script(json.loads(json.dumps({"messages": messages, "model": "another"})))
    assert [call.name for call in first.calls] == ["list_files"]


def test_two_words_that_belong_together_are_searched_for_joined_and_apart() -> None:
    assert searches("What does this project do, and where is the agent loop?") == ["agentloop", "agent loop", "agent"]
    assert searches("Where is it?") == []


def test_a_readme_is_read_before_anything_else() -> None:
    listed = "4 files match:\na.lock (9 bytes)\ndocs/readme.txt (5 bytes)\nmain.py (7 bytes)\nREADME.md (0 bytes)"
    assert first_file(listing(listed), "?") == "docs/readme.txt"
