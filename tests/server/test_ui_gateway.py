"""What the Web UI's port admits, by the head of a request; the server behind it is `test_web_access`'s."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from holdfast.server import ui_gateway
from holdfast.server.ui_gateway import Refusal, UiGateway, admitted


def head(*lines: str, first: str = "GET /x HTTP/1.1") -> bytes:
    return "\r\n".join((first, *lines, "", "")).encode()


@pytest.mark.parametrize(
    "lines",
    [
        ("Host: 127.0.0.1:8233",),
        ("Host: localhost",),
        ("HOST: LocalHost:9000", "Origin: http://localhost:9000"),
        ("Host: [::1]:8233",),
        ("Host: localhost:9000", "Origin: https://localhost:9000"),
    ],
)
def test_this_machines_own_names_are_admitted_on_any_port(lines: tuple[str, ...]) -> None:
    passed = admitted(head(*lines)).split(b"\r\n")
    assert passed[:-3] == [b"GET /x HTTP/1.1", *(line.encode() for line in lines)]
    assert passed[-3:] == [b"Connection: close", b"", b""]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((), 403),
        (("Host: evil.example:8233",), 403),
        (("Host: localhost.evil.example",), 403),
        (("Host: evil.example@localhost",), 403),
        (("Host: localhost", "Host: evil.example"), 403),
        (("Host: localhost/evil",), 403),
        (("Host: localhost:port",), 403),
        (("Host:",), 403),
        (("Host: localhost", "Origin: http://evil.example"), 403),
        (("Host: localhost", "Origin: null"), 403),
        (("Host: localhost:8233", "Origin: http://localhost:9999"), 403),
        (("Host: localhost", " Origin: folded"), 400),
        (("Host : localhost",), 400),
        (("no header",), 400),
    ],
)
def test_another_name_or_origin_is_refused(lines: tuple[str, ...], status: int) -> None:
    with pytest.raises(Refusal) as caught:
        admitted(head(*lines))
    assert caught.value.status == status


@pytest.mark.parametrize("first", ["GET http://evil.example/ HTTP/1.1", "CONNECT evil.example:1 HTTP/1.1", "GET /"])
def test_what_is_no_request_for_a_path_is_refused(first: str) -> None:
    with pytest.raises(Refusal, match="names no path"):
        admitted(head("Host: localhost", first=first))


def test_what_concerns_one_connection_is_not_passed_on() -> None:
    passed = admitted(head("Host: localhost", "Connection: keep-alive", "Upgrade: websocket", "Cookie: a=b"))
    assert passed == head("Host: localhost", "Cookie: a=b", "Connection: close")


@pytest.fixture
def upstream() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


@pytest.fixture
def gateway(upstream: socket.socket) -> Iterator[UiGateway]:
    opened = UiGateway.bind(0)
    opened.serve(*upstream.getsockname())
    yield opened
    opened.close()


def exchanged(port: int, sent: bytes) -> bytes:
    """All that comes back for these bytes."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_second_request_on_an_admitted_connection_is_not_answered(
    gateway: UiGateway, upstream: socket.socket
) -> None:
    received: list[bytes] = []

    def answer() -> None:
        accepted, _ = upstream.accept()
        with accepted:
            received.append(accepted.recv(65536))
            accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

    server = threading.Thread(target=answer)
    server.start()
    answered = exchanged(gateway.port, head("Host: localhost") + head("Host: evil.example"))
    server.join()
    assert answered.count(b"HTTP/1.1") == 1
    assert b"Connection: close" in received[0], "the server ends the connection with its first answer"


def test_a_server_that_has_gone_and_an_endless_head_are_told(gateway: UiGateway, upstream: socket.socket) -> None:
    upstream.close()
    assert exchanged(gateway.port, head("Host: localhost")).startswith(b"HTTP/1.1 502 ")
    endless = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (2 * ui_gateway.HEAD_BYTES_MAX)
    with socket.create_connection(("127.0.0.1", gateway.port), 10) as connection:
        connection.sendall(endless)
        assert connection.recv(65536).startswith(b"HTTP/1.1 431 ")


def test_a_connection_too_many_is_refused(upstream: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_gateway, "CONNECTIONS_MAX", 1)
    opened = UiGateway.bind(0)
    opened.serve(*upstream.getsockname())
    with (
        socket.create_connection(("127.0.0.1", opened.port), 60),
        socket.create_connection(("127.0.0.1", opened.port), 60) as beyond,
    ):
        assert beyond.recv(65536).startswith(b"HTTP/1.1 503 ")
    opened.close()


def test_a_closed_gateway_gives_its_port_back(upstream: socket.socket) -> None:
    opened = UiGateway.bind(0)
    opened.serve(*upstream.getsockname())
    opened.close()
    with socket.create_server(("127.0.0.1", opened.port)):
        pass
