"""`StdioServer`: an MCP server that a command starts, spoken to over its stdin and stdout.

The SDK's own transport reads lines of any length, and lets the server write into our stderr as it likes.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

from holdfast.core.base.safe_text import printable
from holdfast.mcp.http_client import BODY_BYTES_MAX
from holdfast.runtime.subprocesses import signal_group

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams

StreamT = TypeVar("StreamT", asyncio.StreamReader, asyncio.StreamWriter)

CHUNK_BYTES: Final = 64 * 1024

LOG_LINE_CHARS_MAX: Final = 2_000
"""How much of a line that a server writes to its stderr is shown."""

LOG_LINES_MAX: Final = 500
"""The most lines of one server that are shown within LOG_SECONDS; of more, only their number."""

LOG_SECONDS: Final = 60.0
"""The span of time that LOG_LINES_MAX counts for."""

FLUSH_SECONDS_MAX: Final = 0.5
"""How long what was sent may take to be written before the server is ended: a cancel should still reach it."""

EXIT_SECONDS_MAX: Final = 1.5
"""How long a server may take to end after its stdin was closed, and again after SIGTERM. Then it is killed."""

POLL_SECONDS: Final = 0.01
"""How often to look whether the process has ended."""


class ServerLog:
    """What a server writes to its stderr: each line with the server's name, bounded, as `redacted` returns it."""

    def __init__(self, server: str, out: TextIO, redacted: Callable[[str], str]) -> None:
        self._label = f"[mcp {server}]"
        self._out = out
        self.redacted: Final = redacted
        self._window_ends = 0.0
        self._shown = 0
        self._left_out = 0

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Show the lines of `stream` until it ends."""
        clock = asyncio.get_running_loop().time
        line = b""
        while chunk := await stream.read(CHUNK_BYTES):
            *complete, last = chunk.split(b"\n")
            for each in complete:
                self._show(line + each, clock())
                line = b""
            line = (line + last)[: 4 * LOG_LINE_CHARS_MAX]
        if line:
            self._show(line, clock())
        self._note_left_out()

    def _show(self, line: bytes, now: float) -> None:
        if now >= self._window_ends:
            self._note_left_out()
            self._window_ends, self._shown = now + LOG_SECONDS, 0
        if self._shown >= LOG_LINES_MAX:
            self._left_out += 1
            return
        self._shown += 1
        self.write(line.decode("utf-8", "replace"))

    def _note_left_out(self) -> None:
        if self._left_out:
            self.write(f"({self._left_out:,} more lines within {LOG_SECONDS:g} s are left out)")
            self._left_out = 0

    def write(self, text: str) -> None:
        """Write one line; an output that is gone costs the server nothing."""
        with suppress(OSError, ValueError):
            shown = printable(self.redacted(text.rstrip())[:LOG_LINE_CHARS_MAX])
            self._out.write(f"{self._label} {shown}\n")
            self._out.flush()


class StdioServer:
    """The process of a server: `streams` starts it, and ends it with all that it has started.

    `on_end` is called when it can take no more messages, with the reason as far as it is known; with "" where it is
    still looked for, and then once more.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        log: ServerLog,
        on_end: Callable[[str], None],
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._log = log
        self._on_end = on_end

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[TransportStreams]:
        """Start the server and yield the stream of its messages and the one of messages to it, as the SDK takes them.

        Raises OSError, ValueError.
        """
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=get_default_environment() | dict(self._env),
            cwd=self._cwd,
            start_new_session=True,
        )
        read_writer, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, write_reader = anyio.create_memory_object_stream[SessionMessage](0)
        writing = asyncio.create_task(self._write(process, write_reader, read_writer))
        reading = asyncio.create_task(self._read(process, read_writer))
        logging = asyncio.create_task(self._log.follow(_piped(process.stderr)))
        try:
            yield read_stream, write_stream
        finally:
            read_stream.close()
            write_stream.close()
            try:
                # a cancelled scope of anyio's would cancel each wait in here
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([writing], timeout=FLUSH_SECONDS_MAX)
                    await _ended(process)
                    await asyncio.wait([logging], timeout=FLUSH_SECONDS_MAX)
            finally:
                _signal(process, signal.SIGKILL)  # also those that it has started and left behind
                read_writer.close()
                write_reader.close()
                try:
                    with anyio.CancelScope(shield=True):
                        await _exits(process)  # where the wait above was cut off, its end is still to come
                finally:  # not before: closing polls the process, and asyncio would miss the end that this sees
                    with suppress(Exception):
                        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  # else one that fled holds its pipes
                with anyio.CancelScope(shield=True):
                    await _cancelled(writing, reading, logging)

    async def _read(self, process: Process, read_writer: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass on the messages, a line each, until the server ends or writes a line that is too long."""
        stdout = _piped(process.stdout)
        why = ""
        try:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                line = bytearray()
                while chunk := await stdout.read(CHUNK_BYTES):
                    *complete, last = chunk.split(b"\n")
                    for each in complete:
                        line += each
                        await self._pass_on(bytes(line), read_writer)
                        line.clear()
                    line += last
                    if len(line) > BODY_BYTES_MAX:
                        why = f"it has written a line of more than {BODY_BYTES_MAX:,} bytes"
                        break
        finally:
            self._on_end(why or await _exit_of(process) or "it has closed its stdout")
            read_writer.close()
        while await stdout.read(CHUNK_BYTES):  # so that it can write, read, and end
            pass

    async def _pass_on(self, line: bytes, read_writer: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        if not line.strip():
            return
        try:
            message = _message_of(line)
        except (ValueError, RecursionError):
            start = self._log.redacted(line[:LOG_LINE_CHARS_MAX].decode("utf-8", "replace"))
            self._log.write(f"(on its stdout, which is for messages of the protocol alone) {start[:200]}")
            return
        await read_writer.send(SessionMessage(message))

    async def _write(
        self,
        process: Process,
        write_reader: MemoryObjectReceiveStream[SessionMessage],
        read_writer: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        """Write the messages to the server's stdin, a line each, until the SDK sends no more."""
        stdin = _piped(process.stdin)
        try:
            async for each in write_reader:
                line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(f"{line}\n".encode())
                await stdin.drain()
        except OSError:  # it no longer reads: nobody may wait for its answers
            self._on_end("")
            self._on_end(await _exit_of(process) or "it no longer reads its stdin")
            read_writer.close()
        finally:
            stdin.close()


def _message_of(line: bytes) -> JSONRPCMessage:
    """Return the message; half a pair of surrogates, as JavaScript leaves of a cut emoji, becomes "?".

    Raises ValueError, RecursionError.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        whole = json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace")
        return jsonrpc_message_adapter.validate_json(whole, by_name=False)


async def _ended(process: Process) -> None:
    """Wait for the process to end by itself, then by SIGTERM, then by SIGKILL; each in bounded time."""
    _piped(process.stdin).close()
    for step in (None, signal.SIGTERM, signal.SIGKILL):
        if step is not None:
            _signal(process, step)
        if await _exits(process):
            return


def _piped(stream: StreamT | None) -> StreamT:
    if stream is None:  # only without the PIPE that `streams` asks for
        raise ValueError("the process has no pipe")
    return stream


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _exit_of(process: Process) -> str:
    """Return how the process has ended, or ends within EXIT_SECONDS_MAX; nothing where it goes on."""
    if not await _exits(process):
        return ""
    return f"it has ended with code {process.returncode} (its stderr is in the worker's, after [mcp ...])"


async def _exits(process: Process) -> bool:
    """Return whether the process ends within EXIT_SECONDS_MAX; `wait` would wait for its pipes, which others hold."""
    with suppress(TimeoutError):
        async with asyncio.timeout(EXIT_SECONDS_MAX):
            while process.returncode is None:  # noqa: ASYNC110  # asyncio tells of it only with the pipes
                await asyncio.sleep(POLL_SECONDS)
    return process.returncode is not None


def _signal(process: Process, number: signal.Signals) -> None:
    """Send the signal to all processes of the server's group."""
    signal_group(process.pid, number, reaped=process.returncode is not None)
