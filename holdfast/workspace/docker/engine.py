"""`DockerEngine`: Docker's API as coroutines. Each call has a deadline, in a bounded number of threads."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.core.base.errors import MissingPart
from holdfast.core.base.extras import install_command
from holdfast.core.base.safe_text import printable
from holdfast.workspace.backend import WorkspaceUnavailable
from holdfast.workspace.docker.exec_stream import ExecStream

ResultT = TypeVar("ResultT")

APIClient: TypeAlias = Any
"""`docker.APIClient`. Its stubs leave many types out, which strict checks refuse."""

ENGINE_SECONDS_MAX: Final = 20.0
"""How long one call of the API may take. A thread whose caller has gone ends by then, too."""

CONNECT_SECONDS_MAX: Final = 5.0
"""How long the daemon may take to say its version, before the first call."""

PROBE_VERSION: Final = "1.24"
"""Names no version to the daemon: its own is asked for, and used from then on."""

ENGINE_CALLS_MAX: Final = 32
"""The most API calls at once, a thread each. A command that runs holds none: its stream belongs to the event loop."""

SOCKET_DEFAULT: Final = "unix:///var/run/docker.sock"

EXPLANATION_CHARS_MAX: Final = 300


class EngineRefused(Exception):
    """Docker answered with an error of `status`; `.missing` is true where container, image or exec are not there."""

    def __init__(self, status: int, explanation: str) -> None:
        super().__init__(f"{explanation} ({status})")
        self.status = status
        self.explanation = explanation

    @property
    def missing(self) -> bool:
        """Whether Docker does not know what was named."""
        return self.status == HTTP_MISSING

    @property
    def conflict(self) -> bool:
        """Whether its state forbids what was asked: a name is taken, a container does not run."""
        return self.status == HTTP_CONFLICT


HTTP_MISSING: Final = 404
HTTP_CONFLICT: Final = 409


class DockerEngine:
    """One Docker daemon, at `host` (as in DOCKER_HOST). The connection is made with the first call."""

    def __init__(self, host: str | None = None) -> None:
        self.host: Final = host or SOCKET_DEFAULT
        self._threads = ThreadPoolExecutor(ENGINE_CALLS_MAX, thread_name_prefix="holdfast-docker")
        self._api: APIClient | None = None
        self._connecting = threading.Lock()
        self._failed_at = 0.0

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._api is not None:
            self._api.close()

    async def call(self, function: Callable[[APIClient], ResultT], seconds: float = ENGINE_SECONDS_MAX) -> ResultT:
        """Return what `function` returns, called with the client in a thread.

        Raises EngineRefused where Docker answers with an error, and WorkspaceUnavailable where it does not answer
        within `seconds`.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                return await loop.run_in_executor(self._threads, self._called, function)
        except TimeoutError:
            raise WorkspaceUnavailable(
                f"Docker at {self.host} has not answered within {seconds:g} s; see `docker info` on the worker's host"
            ) from None

    def _called(self, function: Callable[[APIClient], ResultT]) -> ResultT:
        docker, requests = _libraries()
        try:
            return function(self._client())
        except docker.errors.APIError as error:
            status = error.response.status_code if error.response is not None else 0
            explanation = printable(str(error.explanation or error))[:EXPLANATION_CHARS_MAX]
            raise EngineRefused(status, explanation) from error
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise WorkspaceUnavailable(
                f"Docker does not answer at {self.host} ({printable(str(error))[:EXPLANATION_CHARS_MAX]}); start it, "
                "or set DOCKER_HOST for the worker"
            ) from error

    def _client(self) -> APIClient:
        """Return the client, connected once. Those who wait for a connection that fails fail with it."""
        docker, _ = _libraries()
        asked = time.monotonic()
        with self._connecting:
            if self._api is None:
                if asked < self._failed_at:
                    raise OSError("it has just failed to answer")
                try:
                    self._reach()
                    with closing(docker.APIClient(self.host, PROBE_VERSION, timeout=CONNECT_SECONDS_MAX)) as probe:
                        version = probe.version(api_version=False)["ApiVersion"]
                except BaseException:
                    self._failed_at = time.monotonic()
                    raise
                self._api = docker.APIClient(self.host, version, timeout=ENGINE_SECONDS_MAX)
            return self._api

    def _reach(self) -> None:
        """Raise OSError where nothing listens; the library would leave its socket open."""
        scheme, _, path = self.host.partition("://")
        if scheme == "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
                attempt.settimeout(CONNECT_SECONDS_MAX)
                attempt.connect(path)

    async def execute(self, container: str, command: Sequence[str], user: str) -> ExecStream:
        """Start `command` in the container and return its streams. Raises EngineRefused, WorkspaceUnavailable."""

        def start(api: APIClient) -> tuple[str, socket.socket]:
            created = api.exec_create(container, list(command), stdin=True, user=user)
            return created["Id"], _duplicate(api.exec_start(created["Id"], socket=True))

        loop = asyncio.get_running_loop()
        starting = loop.run_in_executor(self._threads, self._called, start)
        try:
            async with asyncio.timeout(ENGINE_SECONDS_MAX):
                identity, connection = await asyncio.shield(starting)
        except BaseException as error:
            starting.add_done_callback(_close_late)
            if isinstance(error, TimeoutError):
                raise WorkspaceUnavailable(
                    f"Docker at {self.host} has not started a command within {ENGINE_SECONDS_MAX:g} s"
                ) from None
            raise
        return await ExecStream.open(identity, connection)


def _duplicate(opened: Any) -> socket.socket:  # noqa: ANN401  # a SocketIO of http.client's, or an SSL socket
    """Return a socket of our own; the library's is closed with its response."""
    inner = getattr(opened, "_sock", opened)
    if not isinstance(inner, socket.socket) or hasattr(inner, "context"):
        raise OSError("commands need a plain socket: a unix:// or tcp:// address without TLS")
    copy = inner.dup()
    opened.close()
    inner.close()
    return copy


def _close_late(starting: asyncio.Future[tuple[str, socket.socket]]) -> None:
    """Close a stream that nobody waits for any more; its command sees the end of its input."""
    if starting.cancelled() or starting.exception() is not None:
        return
    _, connection = starting.result()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _libraries() -> tuple[Any, Any]:
    try:
        import docker  # noqa: PLC0415  # 0.15 s, and an extra
        import requests  # noqa: PLC0415
    except ImportError as error:
        problem = "workspaces in containers need the package `docker`, which is not installed"
        raise MissingPart(f"{problem}: {install_command('docker')}") from error
    return docker, requests
