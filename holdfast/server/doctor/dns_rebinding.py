"""Whether a web page could drive a Temporal server: its HTTP ports, asked under a name that is not theirs.

A page whose name is made to resolve to a server's address (DNS rebinding) sends its own name as Host and in its origin.
A port that answers all the same lets every page that somebody on this machine opens start, stop and approve runs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from holdfast.server.ports import HOST, PORT_MAX

FORGED: Final = "holdfast.invalid"
"""A name that belongs to nobody (RFC 2606)."""

HTTP_API_PORT: Final = 7243
WEB_UI_PORTS: Final = (8080, 8233)
"""Where servers have these by default."""

ASK_SECONDS_MAX: Final = 1.0
PORTS_MAX: Final = 32
ANSWER_BYTES_MAX: Final = 64 * 1024

LISTENING: Final = "0A"
LOOPBACK: Final = frozenset({HOST, "localhost", "::1"})
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class ExposedPort:
    """A port that hands out the server's API to any page; `web_ui` where it is the Web UI's."""

    host: str
    port: int
    web_ui: bool


def open_doors(address: str, namespace: str) -> tuple[ExposedPort, ...]:
    """Return the server's HTTP ports that answer under a forged name; blocking, about a second at most.

    Looked at are the ports of the process that listens at `address` (on Linux, where it is ours to see), and the usual
    ones of its host.
    """
    parts = urlsplit(f"//{address}")
    host, port = parts.hostname or HOST, parts.port or 0
    places: set[tuple[str, int]] = {(host, each) for each in (HTTP_API_PORT, min(port + 1000, PORT_MAX), *WEB_UI_PORTS)}
    if host in LOOPBACK:
        places |= set(_beside(port))
    chosen = sorted(places)[:PORTS_MAX]

    def ask(place: tuple[str, int]) -> ExposedPort | None:
        return _opened(*place, namespace)

    with ThreadPoolExecutor(len(chosen)) as threads:
        doors = threads.map(ask, chosen)
    return tuple(door for door in doors if door is not None)


def _opened(host: str, port: int, namespace: str) -> ExposedPort | None:
    connection = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS_MAX)
    headers = {"Host": f"{FORGED}:{port}", "Origin": f"http://{FORGED}:{port}"}
    with contextlib.closing(connection), contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        connection.request("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}", headers=headers)
        answer = connection.getresponse()
        document: object = json.loads(answer.read(ANSWER_BYTES_MAX))
        if answer.status == http.client.OK and isinstance(document, dict) and "namespaceInfo" in document:
            return ExposedPort(host, port, "_csrf" in answer.headers.get("Set-Cookie", ""))
    return None


def _beside(port: int) -> Iterator[tuple[str, int]]:
    """Yield where else the process listens that listens on this port of ours; nothing where that cannot be seen."""
    with contextlib.suppress(OSError):
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        inodes = {row[9]: _place(row[1]) for row in rows if row[3] == LISTENING}
        own = {inode for inode, place in inodes.items() if place[1] == port}
        for process in Path("/proc").glob("[0-9]*"):
            sockets = _sockets(process)
            if sockets & own:
                # Of loopback a page knows this address alone; ours hides the Web UI's server behind another one.
                yield from (place for inode in sockets & set(inodes) if (place := inodes[inode])[0] == HOST)


def _place(local: str) -> tuple[str, int]:
    """Return an address of /proc/net/tcp as others write it; 0.0.0.0 is asked at 127.0.0.1."""
    address, _, port = local.partition(":")
    host = ".".join(str(byte) for byte in reversed(bytes.fromhex(address)))
    return HOST if host == "0.0.0.0" else host, int(port, 16)  # noqa: S104  # compared, not bound


def _sockets(process: Path) -> set[str]:
    inodes: set[str] = set()
    with contextlib.suppress(OSError):  # another user's, or it has ended
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                match = _SOCKET.fullmatch(str(descriptor.readlink()))
                inodes |= {match.group(1)} if match else set()
    return inodes
