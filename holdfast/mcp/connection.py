"""`McpConnection`: one connection to an MCP server, in both eras of the protocol. Repeats no call.

The SDK's connection is a scope that one task has to enter and leave, so a task of ours owns it; calls come from any
task of the same event loop, and cancelling one cancels it at the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TextIO, TypeVar, cast

import mcp
from anyio import CancelScope
from mcp.client import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, CallToolResult, Implementation, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError

from holdfast import __version__
from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.base.safe_text import clamped, printable
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.wire.mcp_contracts import McpInputs
from holdfast.mcp.answers import McpAnswer, answer_of
from holdfast.mcp.credentials import Credentials
from holdfast.mcp.elicitation import (
    ServerQuestions,
    UnansweredQuestions,
    protocol_responses,
    questions_of,
    unanswered_text,
)
from holdfast.mcp.errors import McpAccessRefused, McpCallFailed, McpOutcomeUnknown, McpUnavailable
from holdfast.mcp.http_client import ACCESS_REFUSED, BODY_BYTES_MAX, REQUEST_META, STATUS_TEXT, Fate, http_client
from holdfast.mcp.server_requests import bounded
from holdfast.mcp.stdio import ServerLog, StdioServer
from holdfast.mcp.task_messages import CreatedTask, TasksExtension

if TYPE_CHECKING:
    from mcp.client import Transport

LOGGER: Final = logging.getLogger("holdfast.mcp")

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a server may take to end; after that its process is killed."""

SDK_LOGGERS: Final = ("client", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher", "mcp.shared.dispatcher")
"""The loggers of the SDK's client; the first is its session's."""

SDK_FOLDER: Final = os.path.join(os.path.dirname(os.path.abspath(mcp.__file__)), "")  # noqa: PTH100, PTH118, PTH120  # as records name it

PLACE_CHARS_MAX: Final = 80
"""How much of a server's address, or command, stands in an error: the cause comes behind it."""

LOST: Final = (
    (CONNECTION_CLOSED, "Connection closed"),
    (CONNECTION_CLOSED, "SSE stream "),
    (PARSE_ERROR, "Failed to parse SSE message"),
)
"""The codes, and the beginnings of the texts, that the SDK itself gives a request whose answer never came, or not
whole: servers use the codes, too."""

T = TypeVar("T")


class OnProgress(Protocol):
    """Takes what a server reports of a call: how far it is, of how much, and a text."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Take one report."""
        ...


OnTask = Callable[[CreatedTask], Awaitable[McpAnswer]]
"""Goes on with the task that a server made of a call, and returns its answer."""


class McpConnection:
    """A connection to `server`: `async with` opens it, and closes it in bounded time.

    `environment` has the values of the variables that the server's entry refers to, and `credentials` what it may share
    with other connections; by default, no tenant's. What a server started by a command writes to its stderr goes to
    `log`.
    """

    def __init__(
        self, server: McpServer, environment: Mapping[str, str], log: TextIO, credentials: Credentials | None = None
    ) -> None:
        self.server: Final = server
        for name in SDK_LOGGERS:
            logging.getLogger(name).addFilter(_is_worth_logging)
        self._credentials = credentials or Credentials(server, environment)
        self._log = log
        self._closing = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._scope = CancelScope()
        self._client: Client | None = None
        self.process: Final = secrets.token_hex(8) if server.command and not server.stateless else ""
        """An id of the server's process, where a command starts one that can remember something."""
        self._ended = False
        self._ended_why = ""
        self._fates: dict[str, Fate] = {}
        self._mirrored: dict[str, dict[str, str]] = {}
        self._unanswered = UnansweredQuestions()

    async def __aenter__(self) -> Self:
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(opened), name=f"mcp {self.server.name}")
        try:
            async with asyncio.timeout(self.server.start_timeout_seconds):
                either: set[asyncio.Future[Any]] = {opened, self._owner}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.__aexit__()
            why = f"it has not answered within {self.server.start_timeout_seconds:g} s (start_timeout_seconds)"
            raise self._unavailable(why) from None
        except asyncio.CancelledError:
            await self.__aexit__()
            raise
        if not opened.done():
            error = self._owner.exception()
            if isinstance(error, InvalidInput | McpUnavailable):  # of ours: a variable that is not set, no token
                raise error
            why = self._ended_why or (self._text(error) if error else "it ended at once")
            raise (self._access_refused(why) if _is_access_refusal(error) else self._unavailable(why)) from None
        self._client = opened.result()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._closing.set()
        if self._owner is None:
            return
        if self._client is None:  # it is still being opened, which nobody waits for any more
            # cancelling the task itself would keep the SDK from ending the process
            self._scope.cancel()
        _, late = await asyncio.wait([self._owner], timeout=CLOSE_SECONDS_MAX)
        for task in late:
            task.cancel()
            await asyncio.wait([task], timeout=CLOSE_SECONDS_MAX)
        if self._owner.done() and not self._owner.cancelled() and (error := self._owner.exception()):
            LOGGER.debug("MCP server %s: the connection ended with %s", self.server.name, self._text(error))

    @property
    def open(self) -> bool:
        """Whether calls can be made: it was opened, and the connection has not ended by itself."""
        return self._client is not None and not self._ended and self._owner is not None and not self._owner.done()

    @property
    def is_shareable(self) -> bool:
        """Whether calls of several executions may share it: what the server remembers is not the connection's."""
        return self.server.url is None or self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def client(self) -> Client:
        """The SDK's client, for what this class does not wrap. Raises McpUnavailable when it is not open."""
        if self._client is None or not self.open:
            raise self._unavailable("the connection has ended")
        return self._client

    async def ask(self, request: Callable[[ClientSession], Awaitable[T]], seconds_max: float) -> T:
        """Return the answer to a request that has no effect. Raises McpUnavailable, McpCallFailed."""
        session = self.client.session
        await self._credentials.check()
        try:
            async with asyncio.timeout(seconds_max):
                return await self._or_lost(self._unless_refused(request(session)))
        except TimeoutError:
            raise self._unavailable(f"it has not answered within {seconds_max:g} s") from None
        except McpOutcomeUnknown as error:
            raise self._unavailable(f"it {error.message.removeprefix(f'{self._named()} ')}") from None

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        meta: Mapping[str, JsonValue] | None = None,
        seconds_max: float | None = None,
        on_progress: OnProgress | None = None,
        inputs: McpInputs | None = None,
        on_task: OnTask | None = None,
        parameters: Mapping[str, JsonValue] | None = None,
    ) -> McpAnswer:
        """Call a tool, once, and return its answer, or what its server asks a person for first (`questions`).

        `inputs` goes on with a call whose server has asked. `meta` goes into the request's `_meta`. Cancelling this
        cancels the call at the server. A task that the server makes of it is answered by `on_task`, in its own time
        (`mcp.tasks`). Arguments that the tool's schema `parameters` marks for headers go there, too: the SDK sends
        only those of tools that this very connection has listed. Raises McpUnavailable when nothing was sent,
        McpCallFailed for an error of the server's, and McpOutcomeUnknown.
        """
        session = self.client.session
        await self._credentials.check()
        limit = self.server.timeout_seconds if seconds_max is None else seconds_max
        token = secrets.token_hex(16)
        doing = session.call_tool(
            tool,
            dict(arguments),
            progress_callback=on_progress,
            input_responses=protocol_responses(inputs.responses) if inputs else None,
            request_state=inputs.request_state if inputs else None,
            meta=cast("Any", {**(meta or {}), REQUEST_META: token}),  # a TypedDict of open keys
            allow_input_required=True,
            allow_claimed=True,
        )
        unanswered = self._unanswered.begin()
        if parameters is not None and self.client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._mirrored[token] = mcp_param_headers(x_mcp_header_map(parameters), arguments)
        try:
            async with asyncio.timeout(limit):
                result = await self._or_lost(doing)
        except TimeoutError:
            raise McpOutcomeUnknown(f"{self._named(tool)} took longer than {limit:g} s and was cancelled") from None
        except (McpOutcomeUnknown, McpCallFailed) as error:
            raise self._judged(error, self._fates.get(token)) from None
        finally:
            self._fates.pop(token, None)
            self._mirrored.pop(token, None)
            self._unanswered.end(unanswered)
        if isinstance(result, InputRequiredResult):
            questions = self.questions(result, self._named(tool))
            return McpAnswer(questions.text, questions=questions)
        if isinstance(result, CreatedTask) and on_task is not None:
            return await on_task(result)
        if not isinstance(result, CallToolResult):
            raise McpCallFailed(f"{self._named(tool)} asks for something besides the call, which is not supported yet")
        answer = self.without_secrets(replace(answer_of(result), process=self.process))
        return answer.with_note(self._credentials.redacted(unanswered_text(unanswered))) if unanswered else answer

    def _judged(self, error: HoldfastError, fate: Fate | None) -> HoldfastError:
        """Return the error of a call in the light of what became of its request over HTTP."""
        if fate == "unsent":
            return self._unavailable("nothing answers there any more")
        if fate == "session ended":
            self._ended = True
            return self._unavailable("it has ended our session")
        if fate == "broken":
            return McpOutcomeUnknown(f"{self._named()} broke the connection")
        if fate == "too large":
            return McpOutcomeUnknown(f"{self._named()} answered more than {BODY_BYTES_MAX:,} bytes")
        if fate == "unclear" and isinstance(error, McpCallFailed):
            return McpOutcomeUnknown(f"{error.message}: what it answered says nothing of the call")
        return error

    async def _or_lost(self, doing: Awaitable[T]) -> T:
        """Return what `doing` does, and tell the server's errors from lost answers."""
        try:
            return await doing
        except MCPError as error:
            if any(error.error.code == code and error.error.message.startswith(begins) for code, begins in LOST):
                why = self._ended_why or self._text(error)
                raise McpOutcomeUnknown(f"{self._named()} broke the connection: {why}") from None
            text = self._text(error)
            code = "" if text.startswith(STATUS_TEXT) else f" (code {error.error.code})"
            raise McpCallFailed(f"{self._named()}: {text}{code}") from None
        except ValidationError as error:
            text = f"{self._named()} answered what is no answer of the protocol: {self._text(error)}"
            raise McpOutcomeUnknown(text) from None
        except (OSError, ExceptionGroup, RuntimeError) as error:
            raise McpOutcomeUnknown(f"{self._named()} broke the connection: {self._text(error)}") from None

    async def _unless_refused(self, doing: Awaitable[T]) -> T:
        """Return what `doing` does. Raises McpUnavailable where the server refuses our credentials."""
        try:
            return await doing
        except MCPError as error:
            if _is_access_refusal(error):
                raise self._access_refused(self._text(error)) from None
            raise

    async def _own(self, opened: asyncio.Future[Client]) -> None:
        """Open the connection, keep it until it is to be closed, and close it: all in this task."""
        with self._scope:
            await self._held(opened)

    async def _held(self, opened: asyncio.Future[Client]) -> None:
        async with AsyncExitStack() as scope:
            transport = await scope.enter_async_context(self._transport())
            client = Client(
                transport,
                client_info=Implementation(name="holdfast", version=__version__),
                cache=None,  # whoever lists wants what the server offers now
                extensions=(TasksExtension(),),
                message_handler=_dropped,
                elicitation_callback=self._unanswered.cancel,
            )
            await scope.enter_async_context(client)
            # The SDK checks an answer against its schema after the effect and raises; worse, it lists all tools for
            # that (python-sdk#1702). The answer is what counts, so we check it ourselves (`mcp.answers`).
            client.session.validate_tool_result = _unchecked  # type: ignore[method-assign]
            if not opened.done():
                opened.set_result(client)
            await self._closing.wait()

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Transport]:
        server = self.server
        if server.url is not None:
            await self._credentials.check()
            async with http_client(self._credentials, self._fates, self._mirrored) as http:
                url = self._credentials.resolved(server.url)
                spoken = streamable_http_client(url, http_client=http, max_sse_event_size=BODY_BYTES_MAX)
                yield bounded(spoken, self._note_end)
            return
        command, *arguments = (self._credentials.resolved(each) for each in server.command)
        environment = {name: self._credentials.resolved(value) for name, value in server.env.items()}
        cwd = self._credentials.resolved(server.cwd) if server.cwd else None
        log = ServerLog(server.name, self._log, self._credentials.redacted)
        process = StdioServer([command, *arguments], environment, cwd, log, self._note_end)
        yield bounded(process.streams(), self._note_end)

    def _note_end(self, why: str) -> None:
        self._ended = True
        self._ended_why = self._ended_why or why

    def _text(self, error: BaseException) -> str:
        """Return an error's text, redacted; of a group, its first's."""
        error = _first(error)
        text = ""
        with suppress(Exception):
            # pydantic's own text shows the input, cut: what is left of a secret would not be recognised
            text = problems_text(error, "the answer") if isinstance(error, ValidationError) else str(error)
        return self.redacted(text or type(error).__name__)

    def questions(self, result: InputRequiredResult, asker: str) -> ServerQuestions:
        """Return what `asker` asks a person for, without the values that the credentials read. Raises McpCallFailed."""
        return questions_of(result, asker, self._credentials.redacted)

    def without_secrets(self, answer: McpAnswer) -> McpAnswer:
        """Return the answer; an error without the values that the credentials read: servers say what they refuse."""
        return replace(answer, text=self._credentials.redacted(answer.text)) if answer.is_error else answer

    def redacted(self, text: str) -> str:
        """Return a server's text in one line, bounded, without the values that its credentials read."""
        text = self._credentials.redacted(text)
        return " ".join(clamped(printable(text), ERROR_CHARS_MAX).split())

    def _named(self, tool: str | None = None) -> str:
        return f"the MCP server {self.server.name!r}" + (f", tool {tool!r}" if tool else "")

    def _unavailable(self, why: str) -> McpUnavailable:
        return McpUnavailable(self._unusable_text(why))

    def _access_refused(self, why: str) -> McpUnavailable:
        kind = McpUnavailable if self._credentials.is_renewed else McpAccessRefused
        return kind(self._unusable_text(why))

    def _unusable_text(self, why: str) -> str:
        place = printable(self.server.place)[:PLACE_CHARS_MAX]
        return f"{self._named()} ({place}) cannot be used: {why}"


def _first(error: BaseException) -> BaseException:
    """Return an error, or the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _is_access_refusal(error: BaseException | None) -> bool:
    first = None if error is None else _first(error)
    return isinstance(first, MCPError) and first.error.data == ACCESS_REFUSED


async def _unchecked(name: str, result: CallToolResult) -> None:  # the SDK's signature
    """Stand in for the SDK's check of an answer."""


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether a record is not the SDK's, or somebody debugs that.

    The SDK logs a traceback for each thing that it cannot read: servers decide how many those are and what is in them.
    Errors and the logger `holdfast.mcp` tell what matters.
    """
    return not record.pathname.startswith(SDK_FOLDER) or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


async def _dropped(message: Any) -> None:  # noqa: ANN401  # the SDK's union of everything a server can send
    """Take what a server sends unasked: its log, its announcements. A flood of them costs nothing but time."""
