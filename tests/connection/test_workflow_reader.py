"""How long who reads a workflow waits: for a worker without limit, for a server that is silent not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.workflow_queries import queried
from holdfast.connection import workflow_reader
from holdfast.connection.event_page_cache import ClosedRuns
from holdfast.connection.event_page_reader import Reader
from holdfast.connection.workflow_reader import WorkflowReader
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.wire.contracts import EventsPage

SILENT = RPCError("Timeout expired", RPCStatusCode.CANCELLED, b"")
"""As the SDK tells that a request's time is over, whether the server or only its worker has not answered."""
UNPOLLED = RPCError("no poller seen for task queue recently", RPCStatusCode.FAILED_PRECONDITION, b"")
AWAY = RPCError("tcp connect error", RPCStatusCode.UNAVAILABLE, b"")


class Server:
    """Answers each query as `told` says, one after the other, and with `described` whoever asks about a workflow."""

    namespace, id, run_id = "default", "one", None

    def __init__(self, told: Iterator[RPCError | str], described: RPCError | WorkflowExecutionInfo | None) -> None:
        self._told, self._described = told, described
        self.workflow_service = SimpleNamespace(describe_workflow_execution=self._describe)

    def get_workflow_handle(self, *_: object, **__: object) -> Server:
        return self

    async def query(self, *_: object, **__: object) -> str:
        answer = next(self._told)
        if isinstance(answer, RPCError):
            raise answer
        return answer

    async def _describe(self, *_: object, **__: object) -> SimpleNamespace:
        if isinstance(self._described, RPCError):
            raise self._described
        return SimpleNamespace(workflow_execution_info=self._described or WorkflowExecutionInfo())


def reader(*told: RPCError | str, described: RPCError | None = None) -> WorkflowReader:
    """Return what reads from a server which says this, and then the last of it again and again."""

    def answers() -> Iterator[RPCError | str]:
        yield from told
        while True:
            yield told[-1]

    return WorkflowReader(cast("Any", Server(answers(), described)), "run")


@pytest.fixture(autouse=True)
def _short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_reader, "SILENCE_SECONDS_MAX", 0.3)
    monkeypatch.setattr(workflow_reader, "AGAIN_SECONDS", 0.05)


async def test_a_server_that_is_silent_is_not_taken_for_an_absent_worker_without_end() -> None:
    async with asyncio.timeout(30):
        with pytest.raises(ServerUnavailable, match="the Temporal server says cancelled: Timeout expired"):
            await reader(SILENT, described=SILENT).answer("events", None, str)


@pytest.mark.parametrize("absent", [SILENT, UNPOLLED])
async def test_a_worker_is_waited_for_longer_than_a_server(absent: RPCError) -> None:
    assert await reader(*[absent] * 20, "events").answer("events", None, str) == "events"


@pytest.mark.parametrize("absent", [SILENT, UNPOLLED])
async def test_a_server_that_answers_for_an_absent_worker_is_not_away(absent: RPCError) -> None:
    """It was away for a moment before that worker was, and is again after it."""
    assert await reader(AWAY, *[absent] * 20, AWAY, "events").answer("events", None, str) == "events"


async def test_who_has_waited_for_a_server_does_not_wait_for_it_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it says that the server is away, a watch looks whether the run has failed."""
    monkeypatch.setattr(workflow_reader, "SILENCE_SECONDS_MAX", 120.0)
    watched = Reader(cast("Any", Server(iter(()), AWAY)), "run", ClosedRuns[EventsPage](), EventsPage)
    async with asyncio.timeout(30):
        assert not await watched.ended_badly()


async def test_a_worker_is_not_blamed_where_the_server_is_silent_too() -> None:
    server = cast("Any", Server(iter([SILENT, SILENT]), SILENT))
    with pytest.raises(
        ServerUnavailable, match=r"no worker answers for run one; the server is too busy, or away \("
    ) as told:
        await queried(server, server, "state", None, str, "queue")
    assert "holdfast worker" not in str(told.value)


async def test_a_run_that_is_paused_has_not_ended() -> None:
    paused = WorkflowExecutionInfo(status=WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED)
    server = cast("Any", Server(iter([SILENT, SILENT, "events"]), paused))
    watched = Reader(server, "run", ClosedRuns[EventsPage](), EventsPage)
    assert not await watched.is_closed("run")
    assert await watched.answer("events", None, str, ended_seconds_max=0.0) == "events"
