"""`TaskAtServer`: a call that an MCP server made a task of, polled to its end by its id, from any process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Final

from mcp.client import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult, EmptyResult, InputRequiredResult
from pydantic import ValidationError

from holdfast.core.base.errors import HoldfastError
from holdfast.core.conversation.input_requests import InputResponse
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.tools.tool_context import CallReporter
from holdfast.mcp.answers import McpAnswer, answer_of
from holdfast.mcp.connection import McpConnection
from holdfast.mcp.errors import McpCallFailed, McpOutcomeUnknown, McpUnavailable
from holdfast.mcp.pool import SHARED, McpPool
from holdfast.mcp.task_keeper import TaskKeeper
from holdfast.mcp.task_messages import (
    POLL_SECONDS_MAX,
    POLL_SECONDS_MIN,
    CancelTask,
    CreatedTask,
    GetTask,
    TaskParams,
    TaskState,
    UpdateParams,
    UpdateTask,
)

REQUEST_SECONDS_MAX: Final = 30.0
"""How long one request about a task may take: the server has only to look it up."""

SILENT_SECONDS_MAX: Final = 300.0
"""How long a server may answer no poll: it may be started anew, and its tasks may outlast that."""

CANCEL_SECONDS_MAX: Final = 5.0
"""How long a cancelled call waits for the server to take its `tasks/cancel`."""

CANCEL_AGAIN_SECONDS: Final = 0.5
"""The pause before a server that cannot be reached is asked again to cancel a task."""

LAST_LOOK_SECONDS: Final = 1.0
"""How long before a task expires it is looked at, so that a result is not missed."""

Lend = Callable[[], AbstractAsyncContextManager[McpConnection]]
"""Lends a connection to the task's server, opened if need be."""


class TaskAtServer:
    """The task `task_id` of `server`."""

    def __init__(self, server: McpServer, task_id: str, lend: Lend) -> None:
        self._server = server
        self._id = task_id
        self._lend = lend
        self._responses: dict[str, InputResponse] = {}
        self._sent = set[str]()

    async def begun(self, created: CreatedTask, keeper: TaskKeeper, reporter: CallReporter) -> McpAnswer:
        """Have the new task kept, and return its answer, or what it asks a person for (`questions`).

        Raises McpCallFailed when it failed or was cancelled, and McpOutcomeUnknown when the server has lost it, is
        silent for SILENT_SECONDS_MAX, or took longer than the `task_seconds_max` of its entry. Cancelling this cancels
        the task, if `keeper` says that nobody goes on with it.
        """
        try:
            await keeper.keep(self._id)
            wait = created.poll_seconds if created.status == "working" else 0.0
            return await self._polled(0.0, wait, reporter)
        except asyncio.CancelledError:
            await self._end(keeper)
            raise

    async def resumed(
        self,
        age_seconds: float,
        keeper: TaskKeeper,
        reporter: CallReporter,
        responses: Mapping[str, InputResponse] | None = None,
    ) -> McpAnswer:
        """Return the answer of a task that was created `age_seconds` ago. Returns and raises as `begun` does.

        It gets those of the `responses` that it still asks for: an attempt before may have sent them.
        """
        self._responses = dict(responses or {})
        try:
            return await self._polled(age_seconds, 0.0, reporter)
        except asyncio.CancelledError:
            await self._end(keeper)
            raise

    async def cancel(self) -> None:
        """Ask the server to cancel the task, in bounded time; whether it does is its own decision.

        One that cannot be reached is asked again in that time.
        """
        request = CancelTask(params=TaskParams(task_id=self._id))
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS_MAX):
                while True:
                    with suppress(McpUnavailable):
                        async with self._lend() as connection:
                            await connection.ask(
                                lambda session: session.send_request(request, EmptyResult), CANCEL_SECONDS_MAX
                            )
                        return
                    await asyncio.sleep(CANCEL_AGAIN_SECONDS)

    async def _end(self, keeper: TaskKeeper) -> None:
        if await keeper.is_final():
            await self.cancel()

    async def _polled(self, age_seconds: float, wait: float, reporter: CallReporter) -> McpAnswer:
        clock = asyncio.get_running_loop().time
        created_at, heard_at = clock() - age_seconds, clock()
        ends_at = created_at + self._server.task_seconds_max
        expires_at, latest = float("inf"), ""
        while True:
            await asyncio.sleep(max(min(wait, ends_at - clock()), 0.0))
            try:
                connection, state, words = await self._asked()
            except (McpUnavailable, McpCallFailed) as error:
                if clock() > min(heard_at + SILENT_SECONDS_MAX, expires_at):
                    raise self._unknown(f"the server does not answer any more: {error.message}") from None
                wait = min(2 * max(wait, POLL_SECONDS_MIN), POLL_SECONDS_MAX)
            else:
                heard_at = clock()
                if (answer := await self._answer(connection, state, words)) is not None:
                    return answer
                if state is not None and words != latest:
                    latest = words
                    reporter.progress(words or f"the task is {state.status}", None)
                wait, expires_at = next_poll(state, created_at, clock())
            if clock() >= ends_at:
                await self.cancel()
                raise self._unknown(f"it took longer than {self._server.task_seconds_max:g} s and was cancelled")

    async def _asked(self) -> tuple[McpConnection, TaskState | None, str]:
        """Return the task's state, none if the server does not know it, and what it says of it in words.

        The connection that was asked is for what hides its credentials.
        """

        async def get(session: ClientSession) -> TaskState | None:
            try:
                return await session.send_request(GetTask(params=TaskParams(task_id=self._id)), TaskState)
            except MCPError as error:
                if error.error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                    return None
                raise

        async with self._lend() as connection:
            state = await connection.ask(get, REQUEST_SECONDS_MAX)
            words = "" if state is None else (state.error.message if state.error else state.status_message) or ""
            return connection, state, connection.redacted(words) if words else ""

    async def _answer(self, connection: McpConnection, state: TaskState | None, words: str) -> McpAnswer | None:
        """Return the answer of a completed task, none of one that goes on. Raises for one that ended otherwise."""
        if state is None:
            raise self._unknown("the server does not know it any more")
        match state.status:
            case "working":
                return None
            case "input_required":
                return await self._asks(connection, state)
            case "failed":
                raise McpCallFailed(f"{self._named} failed: {words or 'it says no more'}")
            case "cancelled":
                why = f": {words}" if words else ""
                raise McpCallFailed(f"{self._named} was cancelled by the server, perhaps with part of it done{why}")
            case "completed":
                try:
                    result = CallToolResult.model_validate(state.result, by_name=False)
                except ValidationError:
                    raise self._unknown("it is complete, but its result is no answer of the protocol") from None
                return connection.without_secrets(answer_of(result))

    async def _asks(self, connection: McpConnection, state: TaskState) -> McpAnswer | None:
        """Send the answers that the task waits for, or return what a person has to be asked.

        Raises McpCallFailed, after it has cancelled the task, for what no person can be asked.
        """
        asked = state.input_requests or {}
        if due := {key: each for key, each in self._responses.items() if key in asked and key not in self._sent}:
            await self._send(due)
            return None
        new = {key: each for key, each in asked.items() if key not in self._responses}
        if not new:
            return None
        fields = {"resultType": "input_required", "inputRequests": new}
        try:
            questions = connection.questions(InputRequiredResult.model_validate(fields, by_name=False), self._named)
        except (ValidationError, McpCallFailed) as error:
            await self.cancel()
            why = f": {error.message}" if isinstance(error, McpCallFailed) else ""
            text = f"{self._named} asks for something that cannot be given, and was cancelled{why}"
            raise McpCallFailed(text) from None
        return McpAnswer(questions.text, questions=replace(questions, task=self._id))

    async def _send(self, responses: Mapping[str, InputResponse]) -> None:
        results = {key: each.model_dump(mode="json", exclude_none=True) for key, each in responses.items()}
        request = UpdateTask(params=UpdateParams(task_id=self._id, input_responses=results))
        with suppress(McpUnavailable, McpCallFailed):  # the next poll shows whether it still asks
            async with self._lend() as connection:
                await connection.ask(lambda session: session.send_request(request, EmptyResult), REQUEST_SECONDS_MAX)
            self._sent |= responses.keys()

    @property
    def _named(self) -> str:
        return f"the task of the MCP server {self._server.name!r}"

    def _unknown(self, why: str) -> McpOutcomeUnknown:
        return McpOutcomeUnknown(f"{self._named}: {why}")


def task_of(
    pool: McpPool, server: McpServer, task_id: str, execution_id: str = SHARED, tenant: str = ""
) -> TaskAtServer:
    """Return the server's task with that id, reached over the pool's connections."""
    return TaskAtServer(server, task_id, lambda: pool.connection(server, execution_id, tenant))


def next_poll(state: TaskState | None, created_at: float, now: float) -> tuple[float, float]:
    """Return how long to wait, and when the task expires: after that a silent server has lost it.

    One that says that it works has not: the time to live binds the server to keep a task, not to drop it.
    """
    if state is None or state.ttl_ms is None:
        return POLL_SECONDS_MIN if state is None else state.poll_seconds, float("inf")
    expires_at = created_at + state.ttl_ms / 1000
    if now >= expires_at:
        return state.poll_seconds, expires_at
    return max(min(state.poll_seconds, expires_at - LAST_LOOK_SECONDS - now), POLL_SECONDS_MIN), expires_at
