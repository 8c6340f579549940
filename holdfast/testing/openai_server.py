"""A fake OpenAI-compatible HTTP server that plays a script; it must not hold any knowledge of agents or of Temporal.

    async with FakeOpenAI([call("add", a=1, b=2), say("3")]) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0)

It refuses what the real API (or another provider behind the same API) would refuse, because its purpose is to catch
the caller's bugs. As a process of its own, which outlives the worker under test:

    python -m holdfast.testing.openai_server --script my_tests.scripts:research --port 8123 --ledger ledger.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import importlib
import json
import signal
import socket
import struct
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast

from holdfast.core.base.errors import HoldfastError, InvalidInput, MissingPart, PortTaken
from holdfast.core.base.extras import install_command
from holdfast.testing.holds import SECONDS_MAX
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_wire_format import OPENAI_WIRE
from holdfast.testing.script import Attempts, Reply, Script, Scripts, choose_turn, conversation_key, turn_number
from holdfast.testing.wire_format import Refusal, WireFormat

try:
    from aiohttp import web
except ImportError as problem:
    raise MissingPart(
        f"The fake OpenAI server needs the package aiohttp; run: {install_command('testing')}."
    ) from problem

HOST = "127.0.0.1"
REQUESTS_MAX = 1_000  # records kept; the oldest go first
REQUEST_BYTES_MAX = 64 * 1024 * 1024
BODY_AT_ONCE_BYTES_MAX = 64 * 1024
CONNECTIONS_WAITING_MAX = 1_024
SHUTDOWN_SECONDS = 0.2  # how long a client that does not read may delay the end
ACCEPT_TURNS = 5  # of the event loop; it takes three from accepting a connection to telling aiohttp of it
THREAD_START_SECONDS = 60
SECRET_HEADERS = frozenset({"authorization", "api-key", "x-api-key", "cookie"})

Outcome: TypeAlias = Literal["pending", "answered", "disconnected-by-client", "disconnected-by-server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes out for one request; `key` names the model call in the ledger, where it is one.

    `live` is a body that comes into being while it is sent, in place of `pieces`.
    """

    turn: Reply
    pieces: tuple[bytes, ...]
    streamed: bool = False
    model: str = ""
    key: str = ""
    refused: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])
    live: AsyncIterator[bytes] | None = None


def _parts(answer: Answer) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the pieces before the turn's fault, and those after it."""
    turn = answer.turn
    before, after = answer.pieces[: turn.pieces_max or 0], answer.pieces[turn.pieces_max or 0 :]
    if turn.hang or turn.disconnect or turn.reset:
        return before, ()
    if turn.then is not None:
        return before, (turn.then,)
    if turn.pieces_max is None or turn.hold is not None:
        return before, after
    return before[:-1], before[-1:]


def _writes(pieces: Sequence[bytes], size: int | None) -> tuple[bytes, ...]:
    """Return what is written at once, piece by piece or cut smaller."""
    if size is None:
        return tuple(pieces)
    return tuple(piece[start : start + size] for piece in pieces for start in range(0, len(piece), size))


def _hold_back_the_end(body: bytes) -> tuple[bytes, ...]:
    # A body that does not fit into the socket's buffer is not delivered when it is written, only when it is read.
    return (body,) if len(body) < BODY_AT_ONCE_BYTES_MAX else (body[:-1], body[-1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request as the server saw it; times are `time.monotonic()` of the server's process."""

    number: int
    """Counts the server's requests from 0."""
    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name; secrets read `redacted`."""
    raw: bytes
    started_at: float
    client_port: int
    """Where it came from: requests of one connection share it."""
    ended_at: float | None = None
    outcome: Outcome = "pending"
    status: int | None = None
    """The status of the answer, also of one that could not be delivered."""
    disconnected_at: float | None = None
    """When the client's disconnect was noticed."""

    @property
    def body(self) -> dict[str, Any]:
        """The body, which must have been JSON."""
        return cast("dict[str, Any]", json.loads(self.raw))


class FakeOpenAI:
    """The server, on 127.0.0.1. Enter it to start it; it answers until it is left.

    Everything but `FakeOpenAI.in_thread` belongs into a running event loop. `port` 0 takes a free one. With a
    `ledger`, every model call is noted there: `started`, then `finished`, `failed` (a scripted error status),
    `disconnected` (by the client) or `dropped` (by the server); a request the API would refuse is only `refused`.
    With an `api_key`, other keys get 401. Fields that providers behind this API want back, such as `reasoning_content`,
    are taken from messages once an answer had them, and refused before, as OpenAI's own API refuses them.
    """

    WIRE: ClassVar[WireFormat] = OPENAI_WIRE
    """The API that it speaks."""

    def __init__(
        self, script: Scripts, *, port: int = 0, ledger: Path | None = None, api_key: str | None = None
    ) -> None:
        self._scripts: Mapping[str, Script] | None = script if isinstance(script, Mapping) else None
        self._script = cast("Script", script)  # plays for every model where there is no mapping
        self._port = port
        self._ledger = None if ledger is None else Ledger(ledger)
        self._api_key = api_key
        self._records = OrderedDict[int, RequestRecord]()
        self._requests_count = 0
        self._attempts = Attempts()
        self._sent_fields = frozenset[str]()
        self._closing = asyncio.Event()
        self._changed = asyncio.Event()
        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # Without handler cancellation a client that goes away is noticed only by the next write.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)

    async def __aenter__(self) -> Self:
        try:
            self._listening = socket.create_server((HOST, self._port))
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                raise PortTaken(f"Port {self._port} is taken by another program; choose another one.") from problem
            raise
        self._port = self._listening.getsockname()[1]
        await self._runner.setup()
        await web.SockSite(self._runner, self._listening, backlog=CONNECTIONS_WAITING_MAX).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()  # wakes the turns that hang or wait, so that leaving takes no time
        if self._listening.fileno() != -1:
            # asyncio leaves a connection open for ever that it accepts as its server closes: accept none, then close
            asyncio.get_running_loop().remove_reader(self._listening)
            for _turn in range(ACCEPT_TURNS):
                await asyncio.sleep(0)
        await self._runner.cleanup()

    @classmethod
    @contextmanager
    def in_thread(
        cls, script: Scripts, *, port: int = 0, ledger: Path | None = None, api_key: str | None = None
    ) -> Generator[Self]:
        """Serve from a thread with its own event loop, for programs without one."""
        started = Future[tuple[Self, asyncio.AbstractEventLoop, asyncio.Event]]()

        async def serve() -> None:
            stop = asyncio.Event()
            try:
                async with cls(script, port=port, ledger=ledger, api_key=api_key) as server:
                    started.set_result((server, asyncio.get_running_loop(), stop))
                    await stop.wait()
            except (HoldfastError, OSError) as problem:
                started.set_exception(problem)

        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="fake-openai", daemon=True)
        thread.start()
        server, loop, stop = started.result(THREAD_START_SECONDS)
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    @property
    def base_url(self) -> str:
        """What the API's client takes as `base_url`; it stays known when the server has ended."""
        if self._port == 0:
            raise InvalidInput("The fake server has no port yet; enter it first: `async with server:`.")
        return f"http://{HOST}:{self._port}{self.WIRE.base_path}"

    @property
    def requests(self) -> tuple[RequestRecord, ...]:
        """The latest `REQUESTS_MAX` requests, in the order of their arrival."""
        return tuple(self._records.values())

    def begin_again(self) -> None:
        """Play the `failures` of every turn anew, as for conversations that it has not seen yet."""
        self._attempts = Attempts()

    async def until(self, met: Callable[[tuple[RequestRecord, ...]], bool], seconds_max: float = SECONDS_MAX) -> None:
        """Wait until `met(self.requests)` is true; TimeoutError after `seconds_max`."""
        async with asyncio.timeout(seconds_max):
            while not met(self.requests):
                self._changed.clear()
                await self._changed.wait()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        number, raw = await self._receive(request)
        answer = self._answer(request, raw)
        if answer.key:
            self._note(answer, "started")
        response: web.StreamResponse = web.Response()
        outcome: Outcome = "disconnected-by-client"  # unless sending comes to its end
        try:
            response, outcome = await self._send(request, number, answer)
        except ConnectionError:
            pass  # the client went away while it was written to; aiohttp drops the empty response
        finally:
            if outcome != "answered":
                self._finish(number, answer, outcome)
        return response

    async def _receive(self, request: web.Request) -> tuple[int, bytes]:
        try:
            raw = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raw = b""  # refused by `_answer`, which sees the length in the headers
        number = self._requests_count
        self._requests_count += 1
        self._records[number] = RequestRecord(
            number=number,
            method=request.method,
            path=request.path,
            headers={
                name.lower(): "redacted" if name.lower() in SECRET_HEADERS else value
                for name, value in request.headers.items()
            },
            raw=raw,
            started_at=time.monotonic(),
            client_port=_client_port(request),
        )
        if len(self._records) > REQUESTS_MAX:
            self._records.popitem(last=False)
        self._changed.set()
        return number, raw

    def _answer(self, request: web.Request, raw: bytes) -> Answer:
        problem = self.WIRE.headers_problem(request.headers, self._api_key)
        if problem is not None:
            return self._refuse(problem)
        if (request.content_length or 0) > REQUEST_BYTES_MAX:
            return self._refuse(Refusal(f"The request is larger than {REQUEST_BYTES_MAX} bytes.", status=413))
        match request.method, request.path:
            case "POST", self.WIRE.path:
                body = self.WIRE.read_request(request.content_type, raw, self._sent_fields)
                return self._refuse(body) if isinstance(body, Refusal) else self._play(body)
            case "GET", "/v1/models":
                names = ("scripted",) if self._scripts is None else tuple(self._scripts)
                return Answer(turn=Reply(), pieces=(json.dumps(self.WIRE.model_list(names)).encode(),))
            case method, path:
                return self._refuse(Refusal(f"Invalid URL ({method} {path}).", code="unknown_url", status=404))

    def _refuse(self, refusal: Refusal) -> Answer:
        detail = {"status": refusal.status, "message": refusal.message}
        body = self.WIRE.error_body(refusal)
        return Answer(turn=Reply(status=refusal.status), pieces=(body,), refused=True, detail=detail)

    def _play(self, body: dict[str, Any]) -> Answer:
        model: str = body["model"]
        script = self._script if self._scripts is None else self._scripts.get(model)
        if script is None:
            message = f"The model '{model}' does not exist or you do not have access to it."
            return self._refuse(Refusal(message, "model", "model_not_found", status=404))
        key = conversation_key(body)
        try:
            turn = self._attempts.played(choose_turn(script, body), key)
            pieces = self.WIRE.answer_pieces(turn, body)
            self._sent_fields |= self.WIRE.fields_sent(pieces)
        except Exception as problem:  # noqa: BLE001 - a script is the caller's code; 400 ends the run instead of a retry
            return self._refuse(Refusal(f"The script raised {type(problem).__name__}: {problem}."))
        prompt, completion = turn.usage or (None, None)
        detail = {
            "turn": turn_number(body),
            "status": turn.status,
            "prompt_tokens": prompt,
            "completion_tokens": completion,
        }
        streamed = body.get("stream") is True and turn.status < HTTPStatus.BAD_REQUEST
        return Answer(turn=turn, pieces=pieces, streamed=streamed, model=model, key=key, detail=detail)

    async def _send(self, request: web.Request, number: int, answer: Answer) -> tuple[web.StreamResponse, Outcome]:
        if answer.live is not None:
            return await self._send_live(request, number, answer, answer.live)
        turn = answer.turn
        at_once = turn.pieces_max is None  # whether a fault takes the place of the whole answer
        breaks = turn.disconnect or turn.reset
        await self._pause(turn.delay_seconds)
        if at_once:
            await self._wait(turn)
        if self._closing.is_set() or (at_once and breaks):
            return self._drop(request, web.Response(), reset=turn.reset)
        content_type = "text/event-stream" if answer.streamed else "application/json"
        headers = {"content-type": content_type, **{name.lower(): value for name, value in turn.headers.items()}}
        response = web.StreamResponse(status=turn.status, headers=headers)
        before, after = _parts(answer)
        if at_once and len(after) == 1:
            response.content_length = len(after[0])
            after = _hold_back_the_end(after[0])
        await response.prepare(request)
        await self._write(response, before, turn)
        if not at_once:
            await self._wait(turn)
        if self._closing.is_set() or breaks:
            return self._drop(request, response, reset=turn.reset)
        after = _writes(after, turn.write_bytes)
        await self._write(response, after[:-1], turn)
        # Noted before the last byte leaves: whoever has the whole answer also finds it in the records.
        self._finish(number, answer, "answered")
        for piece in after[-1:]:
            await response.write(piece)
        await response.write_eof()
        return response, "answered"

    async def _send_live(
        self, request: web.Request, number: int, answer: Answer, pieces: AsyncIterator[bytes]
    ) -> tuple[web.StreamResponse, Outcome]:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        async for piece in pieces:
            await response.write(piece)
        if self._closing.is_set() or answer.turn.disconnect or answer.turn.reset:
            return self._drop(request, response, reset=answer.turn.reset)
        self._finish(number, answer, "answered")
        await response.write_eof()
        return response, "answered"

    async def _write(self, response: web.StreamResponse, pieces: Sequence[bytes], turn: Reply) -> None:
        for piece in _writes(pieces, turn.write_bytes):
            await response.write(piece)
            await self._pause(turn.piece_seconds)

    async def _wait(self, turn: Reply) -> None:
        """Hang, or wait until the test lets the answer go, but not longer than the server runs."""
        if turn.hang:
            await self._pause(None)
        if turn.hold is None:
            return
        closing, released = asyncio.ensure_future(self._closing.wait()), asyncio.ensure_future(turn.hold.stand())
        try:
            await asyncio.wait((closing, released), return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
            released.cancel()
        if released.done():
            released.result()  # an error that the test let it go with ends the connection

    def _drop(
        self, request: web.Request, response: web.StreamResponse, *, reset: bool
    ) -> tuple[web.StreamResponse, Outcome]:
        if request.transport is not None and reset:
            linger: socket.socket = request.transport.get_extra_info("socket")
            linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no good-bye
            request.transport.abort()
        elif request.transport is not None:
            request.transport.close()
        return response, "disconnected-by-server"

    async def _pause(self, seconds: float | None) -> None:
        """Wait, for ever with None, but not longer than the server runs."""
        if seconds == 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def _finish(self, number: int, answer: Answer, outcome: Outcome) -> None:
        now = time.monotonic()
        if outcome == "disconnected-by-client" and self._closing.is_set():
            outcome = "disconnected-by-server"
        if number in self._records:
            self._records[number] = replace(
                self._records[number],
                ended_at=now,
                outcome=outcome,
                status=answer.turn.status,
                disconnected_at=now if outcome == "disconnected-by-client" else None,
            )
        self._changed.set()
        if answer.refused:
            self._note(answer, "refused")
        elif answer.key and outcome == "answered":
            self._note(answer, "failed" if answer.turn.status >= HTTPStatus.BAD_REQUEST else "finished")
        elif answer.key:
            self._note(answer, "disconnected" if outcome == "disconnected-by-client" else "dropped")

    def _note(self, answer: Answer, phase: str) -> None:
        if self._ledger is not None:
            self._ledger.append("model", answer.model, phase, key=answer.key, detail=answer.detail)


def _client_port(request: web.Request) -> int:
    peer: tuple[str, int] | None = request.get_extra_info("peername")
    return 0 if peer is None else peer[1]  # it can be gone already


def load_script(place: str) -> Scripts:
    """Return the script at `module:attribute`; `InvalidInput` where there is none."""
    module, _, attribute = place.partition(":")
    try:
        script: Scripts = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        raise InvalidInput(f"There is no script at '{place}' ({problem}); name one as module:attribute.") from problem
    return script


async def serve(server: FakeOpenAI) -> None:
    """Serve until SIGTERM or SIGINT, after one line on stdout: the base URL."""
    stop = asyncio.Event()
    for signal_ in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_, stop.set)
    async with server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        await stop.wait()


async def _main(arguments: argparse.Namespace, server: type[FakeOpenAI]) -> None:
    script = load_script(arguments.script)
    await serve(server(script, port=arguments.port, ledger=arguments.ledger, api_key=arguments.api_key))


def main(server: type[FakeOpenAI] = FakeOpenAI) -> int:
    """Run the command line and return its exit code."""
    started = sys.modules["__main__"].__spec__  # `server.__module__` is `__main__` where its own file was started
    parser = argparse.ArgumentParser(
        prog=f"python -m {started.name if started else server.__module__}",
        description=f"Plays a script at an address of its own on {HOST} (POST {server.WIRE.path}), which it prints.",
    )
    parser.add_argument("--script", required=True, help="module:attribute of a script, or of a mapping by model name")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--ledger", type=Path, help="a JSON lines file to which every model call is appended")
    parser.add_argument("--api-key", help="the only key that is accepted; any without this option")
    try:
        asyncio.run(_main(parser.parse_args(), server))
    except HoldfastError as problem:
        sys.stderr.write(f"{problem}\n")
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
