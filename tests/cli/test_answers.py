"""`holdfast answer`: a person answers what an MCP server asks in the middle of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.state import AgentState
from holdfast.testing.script import call, say
from tests.cli.program import Ended, Project, beside
from tests.cli.terminal import terminal
from tests.mcp.places import asking, noted
from tests.serving import Serve
from tests.workflows.waiting import state_when

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

AGENT = AgentDefinition(name="clerk", mcp=("theatre",))


@dataclass(frozen=True, slots=True)
class Asking:
    """A run whose call waits, and the program beside it."""

    client: Holdfast
    project: Project
    run: str
    ledger: Path

    async def does(self, *words: str) -> Ended:
        return await asyncio.to_thread(self.project.run, *words)

    async def waits_for(self, message: str) -> None:
        def there(state: AgentState) -> bool:
            requests = (each.input_request for each in state.input_calls)
            return message in [request.message for request in requests if request is not None]

        await state_when(self.client, self.run, there)


Starting = Callable[..., AbstractAsyncContextManager[Asking]]


@pytest.fixture
def asked(serve: Serve, settings: Settings, tmp_path: Path) -> Starting:
    @asynccontextmanager
    async def starting(tool: str, message: str, **arguments: object) -> AsyncGenerator[Asking]:
        ledger = tmp_path / "mcp"
        async with serve([call(tool, **arguments), say("done")], mcp={"theatre": asking(ledger)}) as served:
            execution_id = await served.client.start(AGENT, "book")
            run = Asking(served.client, Project(tmp_path, beside(settings)), execution_id, ledger)
            await run.waits_for(message)
            yield run
            await served.client.stop(execution_id)

    return starting


@pytest.mark.slow
async def test_a_form_is_filled_in_with_options(asked: Starting) -> None:
    async with asked("theatre_book", "How many seats for Hamlet?", show="Hamlet") as run:
        shown = await run.does("show", run.run)
        assert "theatre_book waits for an answer" in shown.out
        assert f"holdfast answer {run.run} " in shown.out
        nothing = await run.does("answer", run.run)
        assert (nothing.code, "seats (integer): How many?" in nothing.err) == (2, True)
        assert "--set NAME=VALUE" in nothing.err
        for words, problem in (
            (("--set", "seats=0"), "seats: 0 is less than 1"),
            (("--set", "seats=two"), "'two' is no integer"),
            (("--set", "seat=2"), "did you mean 'seats'?"),
            (("--values", '{"seats": 2, "row": "middle"}'), "'middle' is no option"),
            (("--set", "seats=2", "--decline"), "exclude each other"),
        ):
            refused = await run.does("answer", run.run, *words)
            assert refused.code == 2
            assert problem in refused.err
        other = await run.does("answer", run.run, "--set", "seats=2", "--digest", "0" * 12)
        assert (other.code, "nothing was answered" in other.err) == (7, True)
        done = await run.does("answer", run.run, "--set", "seats=2", "--by", "ann", "--json")
        assert (done.code, done.document["action"], done.document["taken"]) == (0, "accept", True)
        await run.waits_for("Book 2?")
        declined = await run.does("answer", run.run, "--decline")
        assert (declined.code, "decline: theatre_book" in declined.out) == (0, True)
        state = await run.client.result(run.run)
    [execution] = state.steps[0].tool_executions
    assert execution.result == "nothing booked"
    assert next((each.action, each.by) for each in execution.inputs) == ("accept", "ann")


@pytest.mark.slow
async def test_a_terminal_asks_for_one_field_after_another(asked: Starting) -> None:
    def types(project: Project, run: str) -> int:
        with terminal(project, "answer", run) as screen:
            screen.shows("How many seats for Hamlet?")
            screen.shows("seats (integer): How many?:")
            screen.types("ten\r")
            screen.shows("'ten' is no integer")
            screen.shows("seats (integer): How many?:")
            screen.types("3\r")
            screen.shows("row (one of front, back, optional, default front) [front]:")
            screen.types("\r")
            screen.shows("accept: theatre_book")
            return screen.ended()

    async with asked("theatre_book", "How many seats for Hamlet?", show="Hamlet") as run:
        assert await asyncio.to_thread(types, run.project, run.run) == 0
        await run.waits_for("Book 3?")
        listed = await run.does("waiting")
        assert "asks: Book 3?" in listed.out
        assert (await run.does("answer", run.run, "--set", "sure=yes")).code == 0
        await run.client.result(run.run)
    assert [line.rsplit(" ", 1)[0] for line in noted(run.ledger)] == ["asks seats", "asks sure", "booked 3"]


@pytest.mark.slow
async def test_a_link_is_shown_and_opened(asked: Starting) -> None:
    async with asked("theatre_consent", "Allow access") as run:
        refused = await run.does("answer", run.run)
        assert (refused.code, "open https://example.com/consent?id=7" in refused.err) == (2, True)
        refused = await run.does("answer", run.run, "--set", "sure=yes")
        assert (refused.code, "a link takes no values; open https://example.com" in refused.err) == (2, True)
        assert (await run.does("answer", run.run, "--opened")).code == 0
        state = await run.client.result(run.run)
    assert state.steps[0].tool_executions[0].result == "accept"


@pytest.mark.slow
@pytest.mark.parametrize("note_too", [True, False])
async def test_a_form_that_needs_no_values_is_not_accepted_unseen(asked: Starting, *, note_too: bool) -> None:
    async with asked("theatre_agree", "Delete everything?", note_too=note_too) as run:
        refused = await run.does("answer", run.run)
        assert (refused.code, "Delete everything?" in refused.err, "--values '{}'" in refused.err) == (2, True, True)
        refused = await run.does("answer", run.run, "--opened")
        assert (refused.code, "--opened is for links" in refused.err) == (2, True)
        refused = await run.does("approve", run.run, "--yes")
        assert (refused.code, f"with: holdfast answer {run.run} " in refused.err) == (7, True)
        assert noted(run.ledger) == []
        assert (await run.does("answer", run.run, "--values", "{}")).code == 0
        state = await run.client.result(run.run)
    assert state.steps[0].tool_executions[0].result == "{}"


@pytest.mark.slow
async def test_a_terminal_asks_whether_a_form_without_fields_is_accepted(asked: Starting) -> None:
    def types(project: Project, run: str, answer: str) -> int:
        with terminal(project, "answer", run) as screen:
            screen.shows("Delete everything?")
            screen.shows("accept?")
            screen.types(f"{answer}\r")
            return screen.ended()

    async with asked("theatre_agree", "Delete everything?") as run:
        assert await asyncio.to_thread(types, run.project, run.run, "n") == 1
        assert noted(run.ledger) == []
        assert await asyncio.to_thread(types, run.project, run.run, "y") == 0
        await run.client.result(run.run)
    assert noted(run.ledger) == ["agreed"]
