"""The research team: its tools stay in their folder, and the team runs from the CLI as its README says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.research_team import scripted_model
from examples.research_team.tools import FOLDER, NOTE_CHARS_MAX, list_notes, read_note
from holdfast import ExecutionBudget, ExecutionStatus
from holdfast.client.definition_files import load_agents
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel
from holdfast.testing.openai_server import FakeOpenAI
from tests.cli.program import KEPT, READY, Ended, Project, children, linux_only

ROOT = Path(__file__).resolve().parents[2]
TEAM = ROOT / "examples" / "research_team"
QUESTION = "Should the old bridge be repaired?"
USED = 500 + 90 + 900 + 200 + 1_200 + 120 + 400 + 10 + 3 * (100 + 20 + 350 + 30 + 700 + 60)


async def answered(budget: ExecutionBudget | None = None) -> AgentState:
    agents = load_agents(TEAM / "agents")
    model = ScriptedModel(scripted_model.turn)
    driver = LocalDriver(agents["lead"], model=model, tools=[list_notes, read_note], agents=agents.values())
    return await driver.execute(QUESTION, budget=budget)


async def test_the_team_answers_within_one_budget_with_the_notes_that_prove_it() -> None:
    state = await answered()
    assert state.status is ExecutionStatus.COMPLETED
    for note in ("[bridge]", "[traffic]", "[ferry]", "[repairs]"):
        assert note in state.final_response
    assert "no objections" in state.final_response
    assert state.usage.total_tokens == USED


async def test_the_whole_team_ends_when_its_budget_is_used_up() -> None:
    state = await answered(ExecutionBudget(max_tokens=3_000))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TOKEN_LIMIT)
    assert state.usage.total_tokens <= 3_000 + 1_000, "a scripted model says what its script says"


@pytest.mark.parametrize("name", ["../README", "/etc/hostname", "nothing", "", "..", "notes/bridge", "secret"])
def test_no_other_file_can_be_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (tmp_path / "README.md").write_text("not for you")
    (folder / "secret.md").symlink_to(tmp_path / "README.md")
    (folder / "long.md").write_text("x" * 2 * NOTE_CHARS_MAX)
    monkeypatch.setenv(FOLDER, str(folder))
    with pytest.raises(InvalidInput, match="there is no note"):
        read_note(name=name)
    assert len(read_note(name="long")) == NOTE_CHARS_MAX


@asynccontextmanager
async def at_work(folder: Path) -> AsyncGenerator[Project]:
    """Run what the README says: `holdfast dev` in the team's folder, with a script in the model's place."""
    async with FakeOpenAI(scripted_model.turn) as endpoint:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        own = {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": "test-key", "HOLDFAST_MODEL": "scripted"}
        own |= {"HOLDFAST_DATA_DIR": str(folder), "PYTHONPATH": str(ROOT)}
        project = Project(TEAM, {**kept, **own})
        command = ("dev", "--port", "0", "--ui-port", "0", "--import", "examples.research_team.tools")
        with project.started(*command) as dev:
            try:
                await asyncio.to_thread(dev.heard, READY)
                yield project
            finally:
                left = children(dev.pid)
                dev.process.kill()
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@linux_only
@pytest.mark.temporal
@pytest.mark.timeout(300)
async def test_the_team_runs_from_the_command_line(tmp_path: Path) -> None:
    async with at_work(tmp_path / "data") as project:
        ended: Ended = await asyncio.to_thread(project.run, "run", "lead", QUESTION, "--json", seconds_max=90)
    assert ended.code == 0, ended
    assert ended.document["status"] == "completed"
    assert ended.document["usage"]["input_tokens"] + ended.document["usage"]["output_tokens"] == USED
