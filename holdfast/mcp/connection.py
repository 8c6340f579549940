"""`McpConnection`: one connection to an MCP server, in both eras of the protocol. Repeats no call.

The SDK's connection is a scope that one task has to enter and leave, so a task of ours owns it; calls come from any
task of the same event loop, and cancelling one cancels it at the server.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TextIO, TypeVar, cast

from anyio import CancelScope
from mcp.client import Client, ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, CallToolResult, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError

from holdfast import __version__
from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.base.safe_text import clamped, printable
from holdfast.core.tools.mcp_servers import VARIABLE, McpServer
from holdfast.mcp.answers import McpAnswer, answer_of
from holdfast.mcp.errors import McpCallFailed, McpOutcomeUnknown, McpUnavailable
from holdfast.mcp.http_client import BODY_BYTES_MAX, REQUEST_META, Fate, http_client
from holdfast.mcp.server_file import resolved_text

if TYPE_CHECKING:
    from types import TracebackType

    from mcp.client import Transport
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

LOGGER: Final = logging.getLogger("holdfast.mcp")

# it prints a traceback with a piece of each line that it cannot read
logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)

CONNECT_SECONDS_MAX: Final = 30.0
"""How long a server may take to start and to say what it is: `npx` fetches a package in that time."""

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a server may take to end; after that its process is killed."""

LOST: Final = (CONNECTION_CLOSED, "Connection closed")
"""The code and the text that the SDK itself gives a request whose answer never came: servers use the code, too."""

T = TypeVar("T")


class OnProgress(Protocol):
    """Takes what a server reports of a call: how far it is, of how much, and a text."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Take one report."""
        ...


class McpConnection:
    """A connection to `server`: `async with` opens it, and closes it in bounded time.

    `environment` has the values of the variables that the server's entry refers to. What a server started by a command
    writes to its stderr goes to `log`.
    """

    def __init__(self, server: McpServer, environment: Mapping[str, str], log: TextIO) -> None:
        self.server: Final = server
        self._environment = environment
        self._log = log
        self._closing = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._scope = CancelScope()
        self._client: Client | None = None
        self._ended = False
        self._fates: dict[str, Fate] = {}
        self._secrets: set[str] = set()

    async def __aenter__(self) -> Self:
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(opened), name=f"mcp {self.server.name}")
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                either: set[asyncio.Future[Any]] = {opened, self._owner}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.__aexit__()
            raise self._unavailable(f"it has not answered within {CONNECT_SECONDS_MAX:g} s") from None
        except asyncio.CancelledError:
            await self.__aexit__()
            raise
        if not opened.done():
            error = self._owner.exception()
            if isinstance(error, InvalidInput):  # of ours: a variable that is not set
                raise error
            raise self._unavailable(self._text(error) if error else "it ended at once") from None
        self._client = opened.result()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._closing.set()
        if self._owner is None:
            return
        if (
            self._client is None
        ):  # it still starts; cancelling the task itself would keep the SDK from ending the process
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
        try:
            async with asyncio.timeout(seconds_max):
                return await self._or_lost(request(session))
        except TimeoutError:
            raise self._unavailable(f"it has not answered within {seconds_max:g} s") from None
        except McpOutcomeUnknown as error:
            raise self._unavailable(error.message) from None

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        meta: Mapping[str, JsonValue] | None = None,
        seconds_max: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> McpAnswer:
        """Call a tool, once, and return its answer; a server that needs a person's answer for it is refused.

        `meta` goes into the request's `_meta`. Cancelling this cancels the call at the server. Raises McpUnavailable
        when nothing was sent, McpCallFailed for an error of the server's, and McpOutcomeUnknown.
        """
        session = self.client.session
        limit = self.server.timeout_seconds if seconds_max is None else seconds_max
        token = secrets.token_hex(16)
        doing = session.call_tool(
            tool,
            dict(arguments),
            progress_callback=on_progress,
            meta=cast("Any", {**(meta or {}), REQUEST_META: token}),  # a TypedDict of open keys
            allow_input_required=True,
            allow_claimed=True,
        )
        try:
            async with asyncio.timeout(limit):
                result = await self._or_lost(doing)
        except TimeoutError:
            raise McpOutcomeUnknown(f"{self._named(tool)} took longer than {limit:g} s and was cancelled") from None
        except (McpOutcomeUnknown, McpCallFailed) as error:
            raise self._judged(error, self._fates.get(token)) from None
        finally:
            self._fates.pop(token, None)
        if not isinstance(result, CallToolResult):
            raise McpCallFailed(f"{self._named(tool)} asks for something besides the call, which is not supported yet")
        return answer_of(result)

    def _judged(self, error: HoldfastError, fate: Fate | None) -> HoldfastError:
        """Return the error of a call in the light of what became of its request over HTTP."""
        if fate == "unsent":
            return self._unavailable("nothing answers there any more")
        if fate == "session ended":
            self._ended = True
            return self._unavailable("it has ended our session")
        if fate == "unclear" and isinstance(error, McpCallFailed):
            return McpOutcomeUnknown(f"{error.message}: what it answered says nothing of the call")
        return error

    async def _or_lost(self, doing: Awaitable[T]) -> T:
        """Return what `doing` does, and tell the server's errors from lost answers."""
        try:
            return await doing
        except MCPError as error:
            if (error.error.code, error.error.message) == LOST:
                raise McpOutcomeUnknown(f"{self._named()} broke the connection: {self._text(error)}") from None
            raise McpCallFailed(f"{self._named()}: {self._text(error)} (code {error.error.code})") from None
        except ValidationError as error:
            text = f"{self._named()} answered what is no answer of the protocol: {self._text(error)}"
            raise McpOutcomeUnknown(text) from None
        except (OSError, ExceptionGroup, RuntimeError) as error:
            raise McpOutcomeUnknown(f"{self._named()} broke the connection: {self._text(error)}") from None

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
                cache=None,
                message_handler=_dropped,
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
            headers = {name: self._header(name, value) for name, value in server.headers.items()}
            async with http_client(headers, self._fates) as http:
                url = self._resolved(server.url)
                yield streamable_http_client(url, http_client=http, max_sse_event_size=BODY_BYTES_MAX)
            return
        command, *arguments = (self._resolved(each) for each in server.command)
        environment = {name: self._resolved(value) for name, value in server.env.items()}
        started = StdioServerParameters(
            command=command, args=arguments, env=environment, cwd=self._resolved(server.cwd) if server.cwd else None
        )
        yield self._watched(stdio_client(started, errlog=self._log))

    @asynccontextmanager
    async def _watched(self, transport: Transport) -> AsyncGenerator[TransportStreams]:
        """Note when the server ends: a call that comes later has not been sent."""
        async with transport as (read, write):
            yield _WatchedStream(read, self._note_end), write

    def _note_end(self) -> None:
        self._ended = True

    def _header(self, name: str, value: str) -> str:
        resolved = self._resolved(value)
        if not resolved.isprintable():
            problem = f"{self._named()}: the header {name!r} would hold a line end or a control character"
            raise InvalidInput(f"{problem}; look at the variables that it names")
        return resolved

    def _resolved(self, text: str) -> str:
        self._secrets |= {self._environment[name] for name in VARIABLE.findall(text) if self._environment.get(name)}
        return resolved_text(text, self._environment, self.server.name)

    def _text(self, error: BaseException) -> str:
        """Return an error's text in one line, bounded, without the values of variables; of a group, its first's."""
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        text = ""
        with suppress(Exception):
            text = str(error)
        spellings = {spelling for value in self._secrets for spelling in (value, value.strip()) if spelling}
        for spelling in sorted(spellings, key=len, reverse=True):
            text = text.replace(spelling, "***")
        return " ".join(clamped(printable(text or type(error).__name__), ERROR_CHARS_MAX).split())

    def _named(self, tool: str | None = None) -> str:
        return f"the MCP server {self.server.name!r}" + (f", tool {tool!r}" if tool else "")

    def _unavailable(self, why: str) -> McpUnavailable:
        return McpUnavailable(f"{self._named()} ({printable(self.server.place)[:200]}) cannot be used: {why}")


class _WatchedStream:
    """A stream of messages that says when it has ended."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


async def _unchecked(name: str, result: CallToolResult) -> None:  # the SDK's signature
    """Stand in for the SDK's check of an answer."""


async def _dropped(message: Any) -> None:  # noqa: ANN401  # the SDK's union of everything a server can send
    """Take what a server sends unasked: its log, its announcements. A flood of them costs nothing but time."""
