"""How long `holdfast run` waits for a server that is away, and for a worker that is at the end of a run: no server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace

import pytest
from temporalio.service import RPCError, RPCStatusCode
from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from holdfast.client import Holdfast, Settings
from holdfast.client.watch_events import Watched
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ServerUnavailable
from holdfast.testing.builders import a_state, assistant, user

TOLD: Sequence[Watched] = ()
AWAY = ServerUnavailable("the Temporal server says unavailable: it is away")


class Client:
    """A connection whose watch gives up once the result was asked for, or ends well; each result asked for is next."""

    address = "127.0.0.1:1"

    def __init__(self, *results: ServerUnavailable | AgentState, told: bool) -> None:
        self.settings, self.asked = Settings(), 0
        service = SimpleNamespace(describe_task_queue=self._silent)
        self.temporal = SimpleNamespace(namespace="default", workflow_service=service)
        self._results, self._told = list(results), told
        self._asked = asyncio.Event()

    async def _silent(self, *_: object, **__: object) -> None:
        raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")

    async def start(self, *_: object, **options: object) -> object:
        return options["execution_id"]

    async def result(self, _: str) -> AgentState:
        result = self._results[self.asked]
        self.asked += 1
        self._asked.set()
        if isinstance(result, ServerUnavailable):
            raise result
        return result

    async def watch(self, _: str) -> AsyncGenerator[Watched, None]:
        async with asyncio.timeout(5):  # with one after the other nobody asks before this has ended
            await self._asked.wait()
        if not self._told:
            raise AWAY
        for each in TOLD:
            yield each


def ran(monkeypatch: pytest.MonkeyPatch, client: Client) -> Result:
    async def connect(_: Settings) -> Client:
        return client

    monkeypatch.setattr(Holdfast, "connect", connect)
    return CliRunner().invoke(app, ["run", "clerk", "go"])


def test_a_server_that_is_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(AWAY, told=False)
    ended = ran(monkeypatch, client)
    assert (ended.exception, client.asked) == (AWAY, 1), ended.output


def test_the_end_of_a_run_is_told_that_no_worker_can_lead_up_to(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = ran(monkeypatch, Client(a_state(conversation=[user(), assistant()]), told=False))
    assert (ended.exit_code, "completed" in ended.output) == (0, True), ended.output


def test_a_worker_that_was_away_at_the_end_alone_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(AWAY, a_state(conversation=[user(), assistant()]), told=True)
    ended = ran(monkeypatch, client)
    assert (ended.exit_code, client.asked) == (0, 2), ended.output
