"""The health endpoint over real sockets: what it answers, and what a hostile or broken client can cost it."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Mapping

import pytest

from holdfast.core.base.errors import InvalidInput, PortTaken
from holdfast.server import health_endpoint
from holdfast.server.health_endpoint import CONNECTIONS_MAX, REQUEST_BYTES_MAX, HealthEndpoint, health_address
from tests.telemetry.scraping import free_port

ANSWER_SECONDS = 60
"""How long a test waits for what must come."""

PROBLEMS = {"storage": "cannot write probe"}


async def nothing() -> Mapping[str, str]:
    return {}


async def no_storage() -> Mapping[str, str]:
    return PROBLEMS


def endpoint(problems: health_endpoint.Problems = nothing) -> HealthEndpoint:
    return HealthEndpoint(f"127.0.0.1:{free_port()}", problems)


async def answer_to(served: HealthEndpoint, request: bytes) -> bytes:
    """Send these bytes and return all that comes back until the server closes."""
    host, port = served.address.split(":")
    async with asyncio.timeout(ANSWER_SECONDS):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


def split(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers and the body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body


async def get(served: HealthEndpoint, path: str) -> tuple[int, object]:
    status, headers, body = split(await answer_to(served, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()))
    assert int(headers["Content-Length"]) == len(body)
    assert headers["Connection"] == "close"
    return status, json.loads(body)


async def test_a_process_without_a_problem_is_live_and_ready() -> None:
    async with endpoint() as served:
        assert await get(served, "/live") == (200, {"status": "live"})
        assert await get(served, "/ready?verbose") == (200, {"status": "ready"})


async def test_problems_are_named_and_leave_it_live() -> None:
    async with endpoint(no_storage) as served:
        assert await get(served, "/ready") == (503, {"status": "not ready", "problems": PROBLEMS})
        assert await get(served, "/live") == (200, {"status": "live"})


async def test_it_is_live_while_a_check_takes_its_time() -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Mapping[str, str]:
        begun.set()
        await goes_on.wait()
        return {}

    async with endpoint(slow) as served:
        ready = asyncio.create_task(get(served, "/ready"))
        await begun.wait()
        assert await get(served, "/live") == (200, {"status": "live"})
        goes_on.set()
        assert (await ready)[0] == 200


async def test_a_head_request_has_the_status_and_no_body() -> None:
    async with endpoint(no_storage) as served:
        status, headers, body = split(await answer_to(served, b"HEAD /ready HTTP/1.1\r\n\r\n"))
    assert (status, body) == (503, b"")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /live HTTP/1.1\r\nContent-Length: 3\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /live/../ready HTTP/1.1\r\n\r\n", 404),
        (b"GET /live\r\n\r\n", 400),
        (b"\xff\x00 nonsense\r\n\r\n", 400),
        (b"GET /live SMTP\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nX: " + b"x" * 2 * REQUEST_BYTES_MAX, 431),
    ],
)
async def test_what_is_no_request_for_health_is_refused(request_bytes: bytes, status: int) -> None:
    async with endpoint() as served:
        answered, headers, _ = split(await answer_to(served, request_bytes))
    assert answered == status
    assert ("Allow" in headers) == (status == 405)


async def test_a_client_that_sends_no_whole_request_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_endpoint, "REQUEST_SECONDS_MAX", 0.05)
    async with endpoint() as served:
        assert split(await answer_to(served, b"GET /li"))[0] == 408


async def test_silent_connections_keep_no_probe_out_and_end_with_the_endpoint() -> None:
    async with endpoint() as served:
        host, port = served.address.split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS_MAX)]
        for _ in range(3):
            assert await get(served, "/live") == (200, {"status": "live"})
        async with asyncio.timeout(ANSWER_SECONDS):
            assert await silent[0][0].read() == b""  # the oldest made room
        assert not silent[-1][0].at_eof()
    async with asyncio.timeout(ANSWER_SECONDS):
        assert await asyncio.gather(*(reader.read() for reader, _ in silent)) == [b""] * len(silent)
    for _, writer in silent:
        writer.close()


async def test_connections_that_come_in_one_moment_end_the_oldest_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_endpoint, "REQUEST_SECONDS_MAX", 600.0)
    async with endpoint() as served:
        host, port = served.address.split(":")
        at_once = [socket.create_connection((host, int(port))) for _ in range(3 * CONNECTIONS_MAX)]  # not yet accepted
        streams = [await asyncio.open_connection(sock=each) for each in at_once]
        try:
            assert await get(served, "/live") == (200, {"status": "live"})
            async with asyncio.timeout(ANSWER_SECONDS):
                ended = [await reader.read() for reader, _ in streams[: 2 * CONNECTIONS_MAX]]
            assert ended == [b""] * (2 * CONNECTIONS_MAX)
        finally:
            for _, writer in streams:
                writer.close()


@pytest.mark.parametrize(
    ("option", "environment", "address"),
    [
        (None, {}, None),
        ("8086", {"HOLDFAST_HEALTH": "0.0.0.0:1"}, "127.0.0.1:8086"),
        (None, {"HOLDFAST_HEALTH": "[::]:8086"}, "[::]:8086"),
    ],
)
def test_the_address_is_a_port_or_host_and_port(
    option: str | None, environment: dict[str, str], address: str | None
) -> None:
    assert health_address(option, environment) == address


@pytest.mark.parametrize("option", ["nonsense", "example.com:80", "127.0.0.1:0"])
def test_what_is_no_address_is_refused(option: str) -> None:
    with pytest.raises(InvalidInput, match=r"the health address is .*; give HOST:PORT .* like 127.0.0.1:8086"):
        health_address(option, {})


async def test_an_address_that_is_taken_or_not_ours_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PortTaken, match=rf"{address} is taken by another program; .*--health or HOLDFAST_HEALTH"):
            await HealthEndpoint(address, nothing).__aenter__()
    with pytest.raises(InvalidInput, match=r"192\.0\.2\.1:8086 cannot be used"):
        await HealthEndpoint("192.0.2.1:8086", nothing).__aenter__()


async def test_a_port_that_needs_privileges_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "error while attempting to bind on address: permission denied")

    monkeypatch.setattr(asyncio, "start_server", refuse)  # who runs the tests may have them
    with pytest.raises(InvalidInput, match="Permission denied; choose a port from 1024 on"):
        await HealthEndpoint("127.0.0.1:80", nothing).__aenter__()
