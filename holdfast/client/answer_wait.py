"""Waiting for the answer to a message, by its receipt; absent workers and servers are waited out."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

from temporalio.client import WorkflowHandle

from holdfast.client.runs import Runs
from holdfast.client.sessions.poll import SessionNews, news_from_now
from holdfast.connection.history_poll import until_closed
from holdfast.connection.workflow_reader import WorkflowReader
from holdfast.core.base.errors import ExecutionNotFound, SessionClosed, SessionRefused
from holdfast.core.wire.session_contracts import RECEIPT_QUERY, Receipt
from holdfast.core.wire.workflow_ids import own_id

PAUSES_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2)
"""How long to wait before looking again at what has not changed: a session learns of an execution's end after us.

After that its history is followed, which tells of whatever it does.
"""

BEGUN_SECONDS_MAX: Final = 5.0
"""How long an execution may be unknown to the server that its session has begun."""


class AnswerWait:
    """Waits for what becomes of messages to one session."""

    def __init__(self, client: Runs, session: WorkflowHandle[Any, Any]) -> None:
        self._client = client
        self._session = session
        self._reader = WorkflowReader(client.temporal, session.id)

    async def execution_of(self, receipt: Receipt) -> str:
        """Return the id of the execution in which the message was said, when that has ended.

        Raises SessionRefused when the session knows nothing of the message, SessionClosed when it was closed before the
        message had its turn, ServerUnavailable.
        """
        latest, unchanged = receipt, 0
        news: SessionNews | None = None
        over: SessionRefused | SessionClosed | None = None
        while latest.state != "answered" or latest.execution_id is None:
            awaited = latest.execution_id or latest.running_id
            if news is not None:
                with suppress(ExecutionNotFound):  # deleted: then it knows no message either
                    await news.news()
            elif unchanged:
                await asyncio.sleep(PAUSES_SECONDS[min(unchanged, len(PAUSES_SECONDS)) - 1])
            elif awaited is not None:
                await self._end_of(awaited)
            if unchanged >= len(PAUSES_SECONDS):  # before looking, so that nothing that comes after it is missed
                news, over = await self._news(latest)
            current = await self._receipt(receipt.message_id)
            if current is None:
                return self._gone(latest)
            if over is not None and current == latest:
                raise over
            unchanged = unchanged + 1 if current == latest else 0
            news = news if unchanged else None
            latest = current
        return latest.execution_id

    async def _news(self, latest: Receipt) -> tuple[SessionNews | None, SessionRefused | SessionClosed | None]:
        """Return what tells of all that the session does from now on, or why it does nothing; one away is waited for.

        What has come of the message before its end, it still has to be asked. Neither of one that is not there.
        """
        try:
            run = await news_from_now(self._client.temporal, self._session.id)
        except ExecutionNotFound:
            return None, None
        if isinstance(run, SessionNews):
            return run, None
        problem = f"the session of agent {own_id(self._session.id)} was {run} before the message {latest.message_id!r}"
        if run == "closed":
            return None, SessionClosed(f"{problem} was processed; fork this agent or start another, and send it there")
        return None, SessionRefused(f"{problem} was processed; send it again")

    def _gone(self, last: Receipt) -> str:
        """Return where the message was said when the session does not remember it (any more)."""
        if last.execution_id is not None:
            return last.execution_id
        problem = f"the session of agent {own_id(self._session.id)} does not know the message {last.message_id!r}"
        raise SessionRefused(f"{problem} (any more); see its records for what was answered")

    async def _end_of(self, execution_id: str) -> None:
        """Return when the execution has ended, in whatever way, or is not there any more."""
        gives_up_at = time.monotonic() + BEGUN_SECONDS_MAX
        while True:
            try:
                return await until_closed(self._client.temporal, execution_id)
            except ExecutionNotFound:
                if time.monotonic() > gives_up_at:
                    return None
                await asyncio.sleep(PAUSES_SECONDS[1])

    async def _receipt(self, message_id: str) -> Receipt | None:
        """Return what the session knows of a message, however long nobody is there to ask."""
        with suppress(ExecutionNotFound):  # the server does not keep it for ever
            return await self._reader.answer(RECEIPT_QUERY, message_id, Receipt)
        return None
