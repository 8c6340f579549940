"""The loopback ports of an embedded server: choosing free ones, and the error for one in use."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
from dataclasses import dataclass
from typing import Final

from holdfast.core.base.errors import InvalidInput, PortTaken

HOST: Final = "127.0.0.1"
"""The server has no authentication, so it listens on loopback only."""
PORT_MAX: Final = 65_535
IN_USE: Final = "address already in use"
"""How the server's log calls a port it could not have."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one server listens: Temporal's protocol, the Web UI, and the HTTP API through which we ask it.

    The API answers under `http_name` alone, which is drawn for each start: it takes calls of any content type from any
    origin, so a web page that knew the name could start and approve runs.
    """

    grpc: int
    ui: int
    http: int
    http_name: str


def check_ports(port: int, ui_port: int) -> None:
    """Raise `InvalidInput` for numbers that are no pair of ports."""
    for number, flag in ((port, "--port"), (ui_port, "--ui-port")):
        if not 0 <= number <= PORT_MAX:
            raise InvalidInput(f"{flag} is {number}; a port is 1 to {PORT_MAX}, or 0 for any free one")
    if port == ui_port != 0:
        raise InvalidInput(f"--port and --ui-port are both {port}; they need two different ports")


def refuse_taken(port: int, flag: str) -> None:
    """Raise `PortTaken` when another program listens there, `InvalidInput` when we may not."""
    with socket.socket() as probe:
        # As the server does; without it a port used a minute ago still looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise port_taken(port, flag) from error
            raise InvalidInput(f"{flag} {port} cannot be used: {error.strerror}") from error


def port_taken(port: int, flag: str) -> PortTaken:
    """Return the error that names the port and the option that changes it."""
    problem = f"port {port} on {HOST} is taken by another program"
    return PortTaken(f"{problem}; stop it or choose another one with {flag} (`--port 0 --ui-port 0`: any free ones)")


def names_port(line: str, port: int) -> bool:
    """Whether the server's log line is about this port (never for 0, any free port)."""
    return port != 0 and f":{port}:" in line


def choose_ports(port: int, ui_port: int) -> Ports:
    """Put a free port in each place that holds 0, and draw the API's name."""
    with contextlib.ExitStack() as opened:
        free: list[int] = []
        for _ in range(3):  # open together, so that no number comes twice
            probe = opened.enter_context(socket.socket())
            probe.bind((HOST, 0))
            free.append(probe.getsockname()[1])
    return Ports(port or free[0], ui_port or free[1], free[2], f"{secrets.token_hex(16)}.invalid")
