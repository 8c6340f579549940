"""`bounded`: a transport whose server cannot ask us for more and more that waits to be answered, or list without end.

The SDK begins a task for each request of a server's; one that takes no answers would fill the process's memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from holdfast.mcp.answer_bounds import cut

if TYPE_CHECKING:
    from contextvars import Context

    from mcp.client import Transport
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream

UNANSWERED_MAX: Final = 1_000
"""The most requests of a server's that wait for their answers to be taken; one more ends the connection."""


class _Unanswered:
    """The requests of a server's that were read and whose answers were not taken yet, by their ids."""

    def __init__(self) -> None:
        self._ids: Counter[str] = Counter()
        self._count = 0

    def heard(self, item: SessionMessage | Exception) -> bool:
        """Take what the server says; return whether it may go on."""
        match item:
            case SessionMessage(message=JSONRPCRequest(id=identity)):
                self._ids[str(identity)] += 1
                self._count += 1
            case SessionMessage(message=JSONRPCNotification(method="notifications/cancelled", params=params)):
                self._forget((params or {}).get("requestId"))  # the SDK answers no request that was cancelled
            case _:
                pass
        return self._count <= UNANSWERED_MAX

    def said(self, item: SessionMessage) -> None:
        """Take note of an answer that has gone out."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._forget(item.message.id)

    def _forget(self, identity: object) -> None:
        key = str(identity)
        if key in self._ids:
            self._count -= 1
            self._ids[key] -= 1
            if not self._ids[key]:
                del self._ids[key]


class _Messages:
    """A stream of the SDK's transport, which ends with the one in it."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception] | WriteStream[SessionMessage]) -> None:
        self._stream = stream

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


class _IncomingMessages(_Messages):
    """What the server says, as the SDK reads it."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], unanswered: _Unanswered, on_end: Callable[[str], None]
    ) -> None:
        super().__init__(inner)
        self._inner = inner
        self._unanswered = unanswered
        self._on_end = on_end

    @property
    def last_context(self) -> Context | None:
        """The context in which the last message was sent; the SDK asks for it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return await self._inner.receive()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item = await self._inner.__anext__()
        if not self._unanswered.heard(item):
            self._on_end(f"it has sent more than {UNANSWERED_MAX:,} requests without taking the answers")
            raise StopAsyncIteration
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            cut(item.message.result)
        return item


class _OutgoingMessages(_Messages):
    """Where the SDK writes to the server."""

    def __init__(self, inner: WriteStream[SessionMessage], unanswered: _Unanswered) -> None:
        super().__init__(inner)
        self._inner = inner
        self._unanswered = unanswered

    async def send(self, item: SessionMessage, /) -> None:
        await self._inner.send(item)
        self._unanswered.said(item)


@asynccontextmanager
async def bounded(transport: Transport, on_end: Callable[[str], None]) -> AsyncGenerator[TransportStreams]:
    """Open the transport; `on_end` is told why, when it ends because of UNANSWERED_MAX."""
    async with transport as (heard, said):
        unanswered = _Unanswered()
        yield _IncomingMessages(heard, unanswered, on_end), _OutgoingMessages(said, unanswered)
