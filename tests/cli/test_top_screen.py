"""The screen of `holdfast top`, driven by keys, before real runs on a real server."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from holdfast.cli.screens import top_screen
from holdfast.cli.screens.top_prompts import Question
from holdfast.cli.screens.top_screen import Rows, TopScreen
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.base.call_digest import call_digest, short_digest
from holdfast.core.conversation.steps import Outcome
from holdfast.core.tools.tools import tool
from holdfast.server.embedded import EmbeddedServer
from holdfast.server.ports import choose_ports
from holdfast.testing.script import Reply, call, say
from holdfast.view import server_overview as client_overview
from holdfast.view.server_overview import Overview, overview
from tests.serving import Serve, Served

pytestmark = pytest.mark.temporal

SECONDS_MAX = 90
LOOK_SECONDS = 0.05


@tool
def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


def turns(request: dict[str, Any]) -> Reply:
    """Hang, or pay and say so, as the prompt has it."""
    if request["messages"][-1]["role"] == "tool":
        return say(f"so: {request['messages'][-1]['content']}")
    return say("too late", delay_seconds=600) if "hang" in str(request["messages"][-1]) else call("pay", amount=30)


def payer(name: str) -> AgentDefinition:
    return AgentDefinition(name=name, llm=LLM(model="m"), tools=("pay",), approvals=(ApprovalRule(tools=("pay",)),))


class Screen:
    """The board as somebody in front of it sees it."""

    def __init__(self, board: TopScreen, pilot: Pilot[int]) -> None:
        self.board = board
        self.pilot = pilot

    async def until(self, true: Callable[[], object], what: str = "") -> None:
        deadline = asyncio.get_running_loop().time() + SECONDS_MAX
        while not true():
            assert asyncio.get_running_loop().time() < deadline, (
                f"{what or true}: {self.rows} {self.head} {self.banner}"
            )
            await self.pilot.pause(LOOK_SECONDS)

    async def types(self, text: str) -> None:
        await self.pilot.press(*({" ": "space", "=": "equals_sign", "'": "apostrophe"}.get(key, key) for key in text))

    async def filters(self, before: str, agent: str) -> None:
        """Type a query that is none, see that nothing is lost by it, and then one that finds the agent."""
        typed, agents = self.board.query_one("#filter", Input), self.agents
        await self.pilot.press("slash")
        await self.until(lambda: typed.has_focus)
        assert typed.value == before
        await self.pilot.press("ctrl+u")
        await self.types("nonsense = 3")
        await self.pilot.press("enter")
        await self.until(lambda: "does not understand the query 'nonsense = 3'" in self.banner)
        assert (typed.value, typed.display, self.agents) == ("nonsense = 3", True, agents)
        typed.value = f"HoldfastAgent = '{agent}'"
        await self.pilot.press("enter")
        await self.until(lambda: (typed.display, self.banner) == (False, ""))

    def said(self, where: str) -> str:
        return str(self.board.screen.query_one(where, Static).content)

    @property
    def rows(self) -> list[list[str]]:
        table = self.board.screen_stack[0].query_one("#rows", Rows)
        return [[str(cell) for cell in table.get_row_at(place)] for place in range(table.row_count)]

    @property
    def agents(self) -> list[str]:
        return [row[0] for row in self.rows]

    @property
    def head(self) -> str:
        return str(self.board.screen_stack[0].query_one("#head", Static).content)

    @property
    def banner(self) -> str:
        banner = self.board.screen_stack[0].query_one("#banner", Static)
        return str(banner.content) if banner.display else ""

    @property
    def asks(self) -> bool:
        """Whether a question is asked, and shows what it is about: that comes a moment after it is on the screen."""
        screen = self.board.screen
        return isinstance(screen, Question) and any(
            str(each.content) for each in screen.query("#about").results(Static)
        )


@asynccontextmanager
async def screen(client: Holdfast, query: str = "", list_seconds: float = 0.2) -> AsyncGenerator[Screen]:
    found = await overview(client, query or None)
    board = TopScreen(client, found, query=query, limit=100, list_seconds=list_seconds)
    async with board.run_test(size=(140, 40)) as pilot:
        yield Screen(board, pilot)


async def listed(client: Holdfast, query: str, number: int) -> None:
    """Return once the server lists so many; it does a moment after they have begun."""
    async with asyncio.timeout(SECONDS_MAX):
        while len((await overview(client, query)).rows) != number:  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(LOOK_SECONDS)


async def begun(served: Served, name: str, asked: str, **limits: Any) -> str:  # noqa: ANN401  # a budget's own
    return await served.client.start(payer(name), asked, budget=ExecutionBudget(**limits))


async def test_runs_are_ordered_filtered_and_stopped(serve: Serve) -> None:
    tag = uuid4().hex[:8]
    one, other = f"one-{tag}", f"other-{tag}"
    both = f"HoldfastAgent IN ('{one}', '{other}')"
    async with serve(turns, [pay]) as served:
        first = await begun(served, one, "hang", max_steps=4, max_seconds=600)
        second = await begun(served, other, "hang")
        await listed(served.client, both, 2)
        async with screen(served.client, both) as shown:
            await shown.until(lambda: shown.agents == [other, one], "the latest first")
            await shown.until(lambda: "seconds" in shown.rows[1][6], "what its worker tells")
            assert f"2 under way · by elapsed, rising · only {both}" in shown.head
            await shown.pilot.press("r")
            await shown.until(lambda: shown.agents == [one, other], "turned round")
            await shown.pilot.press("less_than_sign")
            await shown.until(lambda: "by budget, falling" in shown.head)
            assert shown.agents == [one, other], "that of which most is used"

            await shown.pilot.press("enter")
            await shown.until(lambda: f"run {second}" in shown.said("#told"), "the one that was on top is still chosen")
            await shown.pilot.press("up")
            await shown.until(lambda: f"run {first}" in shown.said("#told"))
            assert "0 / 4" in shown.said("#told")
            await shown.until(lambda: "step 1" in shown.said("#told"))
            await shown.pilot.press("escape")
            await shown.filters(both, other)
            await shown.until(lambda: shown.agents == [other])

            await shown.pilot.press("s")
            await shown.until(lambda: shown.asks)
            assert second in shown.said("#about")
            await shown.pilot.press("escape")
            await shown.until(lambda: not shown.asks)
            await shown.pilot.press("s")
            await shown.until(lambda: shown.asks)
            await shown.types("too dear")
            await shown.pilot.press("enter")
            stopped = await asyncio.wait_for(served.client.result(second), SECONDS_MAX)
            await shown.until(lambda: shown.agents == [], "it is not under way any more")
            await shown.pilot.press("q")
        assert shown.board.return_value == 0
        signal_ = stopped.stop_signal
        assert signal_ is not None
        assert (signal_.reason, signal_.message, signal_.source) == ("user_requested", "too dear", "top")
        assert (await served.client.state(first)).status == "in_progress", "the other one goes on"
        await served.client.stop(first)
        await asyncio.wait_for(served.client.result(first), SECONDS_MAX)


@pytest.mark.slow
async def test_calls_that_wait_are_approved_and_denied(serve: Serve) -> None:
    name = f"payer-{uuid4().hex[:8]}"
    query = f"HoldfastAgent = '{name}'"
    async with serve(turns, [pay]) as served:
        first, second = [await begun(served, name, "pay") for _ in range(2)]
        await listed(served.client, f"{query} AND HoldfastWaiting = 'approval'", 2)
        async with screen(served.client, query) as shown:
            await shown.until(lambda: [row[8] for row in shown.rows] == ["1 call", "1 call"])
            assert "2 waiting" in shown.head
            await shown.pilot.resize_terminal(80, 24)
            await shown.until(
                lambda: len(shown.rows[0]) == 9, "no tenant, no parent: what waits is the last to be seen"
            )
            assert [row[8] for row in shown.rows] == ["1 call", "1 call"]
            await shown.pilot.press("down", "a")
            await shown.until(lambda: shown.asks)
            about = shown.said("#about")
            for words in ("pay", '"amount": 30', f"digest {short_digest(call_digest('pay', {'amount': 30}))}", first):
                assert words in about, about
            assert (await served.client.state(first)).waiting_calls, "nothing has been decided yet"
            await shown.pilot.press("enter")
            approved = await asyncio.wait_for(served.client.result(first), SECONDS_MAX)
            await shown.until(lambda: len(shown.rows) == 1)
            await shown.pilot.press("d")
            await shown.until(lambda: shown.asks)
            assert second in shown.said("#about")
            await shown.types("too much")
            await shown.pilot.press("enter")
            denied = await asyncio.wait_for(served.client.result(second), SECONDS_MAX)
            await shown.until(lambda: shown.rows == [])
            await shown.pilot.press("ctrl+c")
        assert shown.board.return_value == 130
    [paid], [kept] = approved.steps[0].tool_executions, denied.steps[0].tool_executions
    assert (paid.result, paid.outcome, kept.outcome) == ("paid 30", Outcome.SUCCEEDED, Outcome.DENIED)
    assert kept.approval is not None
    assert kept.approval.reason == "too much"


@pytest.mark.slow
async def test_a_server_that_goes_away_is_told_of_and_waited_for(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(built, tmp_path / "data")
    ports = choose_ports(0, 0)

    def start() -> EmbeddedServer:
        return EmbeddedServer.start(tmp_path / "data", port=ports.grpc, ui_port=ports.http)

    server = await asyncio.to_thread(start)
    try:
        client = await Holdfast.connect(Settings(address=server.address.address, task_queue="away", data_dir=tmp_path))
        execution_id = await client.start(payer("left"), "pay")
        await listed(client, "HoldfastAgent = 'left'", 1)
        async with screen(client) as shown:
            await shown.until(lambda: shown.rows)
            await shown.until(lambda: "no answer" in shown.rows[0][6], "no worker polls its task queue")
            monkeypatch.setattr(client_overview, "LIST_SECONDS_MAX", 2)
            os.kill(server.address.pid, signal.SIGKILL)
            await asyncio.to_thread(server.stop)
            await shown.until(lambda: "does not answer; trying again" in shown.banner)
            assert shown.agents == ["left"], "what was known is still there"
            server = await asyncio.to_thread(start)
            await shown.until(lambda: not shown.banner)
            assert shown.agents == ["left"]
            await client.temporal.get_workflow_handle(execution_id).terminate()
            await shown.until(lambda: shown.rows == [])
            await shown.pilot.press("q")
    finally:
        await asyncio.to_thread(server.stop)


async def test_an_answer_that_comes_while_the_screen_closes_is_left_alone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards: list[TopScreen] = []
    answered = asyncio.Event()

    async def late(*_: object) -> Overview:
        async with asyncio.timeout(SECONDS_MAX):
            while not boards or boards[0].is_running or boards[0].screen.children:  # noqa: ASYNC110  # nothing tells
                await asyncio.sleep(0)
        answered.set()
        return Overview((), 0)

    async with serve(turns, [pay]) as served:
        monkeypatch.setattr(top_screen, "overview", late)
        async with screen(served.client, "HoldfastAgent = 'nobody'") as shown:
            boards.append(shown.board)
    assert answered.is_set()
