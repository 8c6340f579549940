"""The address of an HTTP endpoint that a worker serves: read from an option or a variable, checked, not opened."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from holdfast.core.base.errors import InvalidInput

HOST: Final = "127.0.0.1"
"""The host when only a port is given: loopback, because these endpoints have no authentication."""

ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[0-9.]+|localhost):)?(?P<port>[0-9]{1,5})")
PORT_MAX: Final = 65_535


def endpoint_address(what: str, text: str | None, example: int) -> str | None:
    """Return HOST:PORT of the `what` endpoint; None if `text` is empty. `example` is a port to show in an error.

    Raises InvalidInput for an invalid address: HOST must be a numeric address, not a name, and PORT must not be 0.
    """
    if not text:
        return None
    parts = ADDRESS.fullmatch(text)
    host = (parts["host"] or HOST).replace("localhost", HOST) if parts else ""
    if parts is None or not _is_number(host) or not 1 <= int(parts["port"]) <= PORT_MAX:
        problem = f"the {what} address is {text[:80]!r}"
        raise InvalidInput(f"{problem}; give HOST:PORT with a numeric host, like {HOST}:{example}, or the port alone")
    return f"{host}:{int(parts['port'])}"


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
