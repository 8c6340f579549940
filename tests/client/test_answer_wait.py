"""What who waits for an answer is told where the session is deleted, or the server away for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.answer_wait import PAUSES_SECONDS, AnswerWait
from holdfast.client.sessions.poll import SessionNews, news_from_now
from holdfast.connection.workflow_reader import WorkflowReader
from holdfast.core.base.errors import ExecutionNotFound, SessionRefused
from holdfast.core.wire.session_contracts import Receipt
from holdfast.core.wire.workflow_ids import session_workflow_id

AGENT = "6f1c2d3e-4b5a-4978-8695-a4b3c2d1e0f9"
SESSION = session_workflow_id(AGENT)
WAITING = Receipt(message_id="one", state="waiting")
GONE = RPCError("workflow not found for ID", RPCStatusCode.NOT_FOUND, b"")
AWAY = RPCError("tcp connect error", RPCStatusCode.UNAVAILABLE, b"")


class Server:
    """Has a session in which a message waits, until it has been asked for it so often: then it is deleted."""

    id = SESSION
    namespace = "default"
    current_page: Sequence[HistoryEvent] = ()

    def __init__(self, asked_max: int, *, status: str = "RUNNING", results: Sequence[object] = ()) -> None:
        self._left = asked_max
        self._results = [*results]
        self._status = WorkflowExecutionStatus.Value(f"WORKFLOW_EXECUTION_STATUS_{status}")
        self.workflow_service = SimpleNamespace(describe_workflow_execution=self._describe)

    def get_workflow_handle(self, *_: object, **__: object) -> Server:
        return self

    def fetch_history_events(self, **_: object) -> Server:
        return self

    async def fetch_next_page(self) -> None:
        self._left = 0
        raise GONE

    async def query(self, *_: object, **__: object) -> Receipt:
        if not self._left:
            raise GONE
        self._left -= 1
        return WAITING

    async def result(self, **_: object) -> object:
        result = self._results.pop(0)
        if isinstance(result, RPCError):
            raise result
        return result

    async def _describe(self, *_: object, **__: object) -> SimpleNamespace:
        if not self._left:
            raise GONE
        execution = WorkflowExecution(workflow_id=SESSION, run_id="run")
        return SimpleNamespace(workflow_execution_info=WorkflowExecutionInfo(execution=execution, status=self._status))


@pytest.mark.parametrize("asked_max", [0, 1, len(PAUSES_SECONDS), len(PAUSES_SECONDS) + 1, 100])
async def test_who_waits_for_a_session_that_is_deleted_is_told(asked_max: int) -> None:
    """Whatever it does just then: looks once more, begins to follow the session's history, or follows it."""
    waiting = AnswerWait(
        cast("Any", SimpleNamespace(temporal=Server(asked_max))), cast("Any", SimpleNamespace(id=SESSION))
    )
    async with asyncio.timeout(30):
        with pytest.raises(SessionRefused, match=f"the session of agent {AGENT} does not know the message 'one'"):
            await waiting.execution_of(WAITING)


async def test_a_session_that_is_not_there_is_not_called_a_run() -> None:
    told = rf"no session {AGENT} on this server; a message starts one"
    with pytest.raises(ExecutionNotFound, match=told):
        await WorkflowReader(cast("Any", Server(0)), SESSION).info()
    news = await news_from_now(cast("Any", Server(1)), SESSION)
    assert not isinstance(news, str)
    with pytest.raises(ExecutionNotFound, match=told):
        await news.news()


async def test_how_a_session_has_left_is_asked_again_where_the_server_is_away() -> None:
    server = Server(1, status="COMPLETED", results=[AWAY, SimpleNamespace(status="closed")])
    assert await news_from_now(cast("Any", server), SESSION) == "closed"


async def test_a_session_that_is_paused_was_not_ended_from_outside() -> None:
    assert isinstance(await news_from_now(cast("Any", Server(1, status="PAUSED")), SESSION), SessionNews)
