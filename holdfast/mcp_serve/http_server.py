"""The server over streamable HTTP on the loopback address: names, origins and a token are checked first."""

from __future__ import annotations

import asyncio
import errno
import hmac
import re
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from holdfast.core.base.errors import InvalidInput, PortTaken
from holdfast.mcp_serve.agent_server import AgentServer
from holdfast.server.ports import HOST

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH: Final = "/mcp"

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""The largest request: a message of 128 KB, metadata, and what a client adds."""

SESSIONS_MAX: Final = 256
"""The most sessions of older clients; the newer protocol has none."""

CONNECTIONS_MAX: Final = 512
"""The most connections; beyond it a client is told to come again (503)."""

START_LOOK_SECONDS: Final = 0.01
"""How often to look whether it listens."""

GRACE_SECONDS: Final = 2
"""How long answers may take when the server ends."""

TOKEN_VARIABLE: Final = "HOLDFAST_MCP_SERVE_TOKEN"  # noqa: S105  # its name

_TOKEN: Final = re.compile(r"[\x21-\x7e]{16,256}")


class _Uvicorn(uvicorn.Server):
    """A uvicorn that leaves the process's signals to the program."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


class _WithToken:
    """An ASGI application that only callers with the token reach."""

    def __init__(self, application: ASGIApp, token: str) -> None:
        self._application = application
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(sent, self._expected):
                headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
        await self._application(scope, receive, send)


def check_token(token: str | None) -> str | None:
    """Return the token that callers must send, if there is one. Raises InvalidInput."""
    if token is not None and _TOKEN.fullmatch(token) is None:
        problem = f"{TOKEN_VARIABLE} has {len(token)} characters"
        raise InvalidInput(f"{problem}; a token is 16 to 256 letters, digits and signs without blanks")
    return token


@asynccontextmanager
async def serving_http(agents: AgentServer, port: int, token: str | None) -> AsyncGenerator[str]:
    """Serve around the block, which gets the URL; port 0 is any free one. Raises PortTaken, InvalidInput."""
    with _bound(port) as listening:
        bound = listening.getsockname()[1]
        names = [f"{name}:{bound}" for name in (HOST, "localhost")]
        security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
        application: ASGIApp = agents.server.streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=BODY_BYTES_MAX,
            max_sessions=SESSIONS_MAX,
            transport_security=security,
        )
        config = uvicorn.Config(
            application if token is None else _WithToken(application, token),
            http="h11",  # httptools, where it is installed, keeps white space around a header's value
            log_config=None,
            access_log=False,
            lifespan="on",
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        server = _Uvicorn(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            while not (server.started or serving.done()):  # noqa: ASYNC110  # uvicorn tells nobody
                await asyncio.sleep(START_LOOK_SECONDS)
            yield f"http://{HOST}:{bound}{PATH}"
        finally:
            agents.leave_runs()
            server.should_exit = True
            await serving


@contextmanager
def _bound(port: int) -> Generator[socket.socket]:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(
                    f"port {port} on {HOST} is taken by another program; choose another with --http"
                ) from None
            raise InvalidInput(f"--http {port} cannot be used: {error.strerror}") from None
        yield listening
