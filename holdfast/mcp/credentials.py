"""`Credentials`: what a server is told in the name of a tenant. Read where the process runs, and stored nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.mcp_servers import NESTED_TENANT, REFERENCE, TENANT, TENANT_NAME, McpServer

if TYPE_CHECKING:  # an extra
    from holdfast.mcp.oauth import OAuthGrant

SECRET_BYTES_MAX: Final = 64 * 1024
"""The longest file that `${file:...}` names: a token or a key."""

SECRETS_MAX: Final = 256
"""How many values are kept out of errors and logs; of more, those that were read last."""

SECRET_CHARS_MIN: Final = 4
"""Shorter values are no secrets: replacing each `1` would make errors unreadable."""

CUT_CHARS_MIN: Final = 8
"""So much of a secret's beginning is taken from the end of a text, which was cut there."""


class Credentials:
    """The values of a server's references for one tenant, and the OAuth grant by which it is called, if there is one.

    Variables come from `environment`, files are read anew each time, so that a rotated token counts. What was read is
    taken out of texts by `redacted`.
    """

    def __init__(self, server: McpServer, environment: Mapping[str, str], tenant: str = "") -> None:
        self._server = server
        self._environment = environment
        self._tenant = tenant
        self._secrets: dict[str, None] = {}
        self.grant: Final = None if server.oauth is None else self._grant_of(server)

    def _grant_of(self, server: McpServer) -> OAuthGrant:
        from holdfast.mcp.oauth import OAuthGrant  # noqa: PLC0415  # an extra

        return OAuthGrant(server, self.resolved, self.hide)

    def resolved(self, text: str) -> str:
        """Return `text` with what its references stand for.

        Raises InvalidInput for a variable that is not set, a file that cannot be read, and a missing tenant.
        """
        if TENANT in text:
            text = text.replace(TENANT, self._tenant_in(text))
        return REFERENCE.sub(lambda match: self._file(match[1]) if match[1] else self._variable(match[2]), text)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request as they are now, but for an OAuth token. Raises InvalidInput."""
        return {name: self._header(name, value) for name, value in self._server.headers.items()}

    async def check(self) -> None:
        """Raise what would keep a request from being sent: InvalidInput, McpUnavailable."""
        self.headers()
        if self.grant is not None:
            await self.grant.token()

    @property
    def is_renewed(self) -> bool:
        """Whether another try may bring others: they are read from a file, or granted by OAuth."""
        files = any(match[1] for value in self._server.headers.values() for match in REFERENCE.finditer(value))
        return files or self.grant is not None

    def hide(self, secret: str) -> None:
        """Keep `secret` out of errors and logs from now on."""
        for spelling in (secret, secret.strip()):
            if len(spelling) >= SECRET_CHARS_MIN:
                self._secrets.pop(spelling, None)
                self._secrets[spelling] = None
        while len(self._secrets) > SECRETS_MAX:
            self._secrets.pop(next(iter(self._secrets)))

    def redacted(self, text: str) -> str:
        """Return the text without the values that were read; at its end also without one that was cut."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = _without_cut(text.replace(secret, "***"), secret)
        return text

    def _header(self, name: str, value: str) -> str:
        resolved = self.resolved(value)
        if not resolved.isprintable():
            problem = f"{self._named}: the header {name!r} would hold a line end or a control character"
            raise InvalidInput(f"{problem}; look at what its references stand for")
        return resolved

    def _tenant_in(self, text: str) -> str:
        if not self._tenant:
            raise InvalidInput(f"{self._named} has credentials for each tenant; start the run with a tenant")
        if not TENANT_NAME.fullmatch(self._tenant):
            problem = f"{self._named} cannot be used for the tenant {self._tenant!r}"
            raise InvalidInput(f"{problem}: in credentials its name may have letters, digits, `_`, `.` and `-` alone")
        if NESTED_TENANT.search(text) and not self._tenant.replace("_", "a").isalnum():
            problem = f"{self._named} has its tenants' tokens in variables, and {self._tenant!r} fits into no variable"
            raise InvalidInput(f"{problem}; keep them in files: ${{file:/secrets/${{tenant}}/token}}")
        return self._tenant

    def _variable(self, name: str) -> str:
        if name not in self._environment:
            raise InvalidInput(not_set(name, self._server.name))
        self.hide(self._environment[name])
        return self._environment[name]

    def _file(self, path: str) -> str:
        try:
            with Path(path).open("rb") as file:
                data = file.read(SECRET_BYTES_MAX + 1)
            text = data.decode().strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            raise InvalidInput(f"{self._named} needs the file {path!r}, which cannot be read: {why}") from None
        if len(data) > SECRET_BYTES_MAX:
            problem = f"{self._named}: the file {path!r} has more than {SECRET_BYTES_MAX:,} bytes"
            raise InvalidInput(f"{problem}; no token is that long")
        self.hide(text)
        return text

    @property
    def _named(self) -> str:
        return f"the MCP server {self._server.name!r}"


def _without_cut(text: str, secret: str) -> str:
    """Return the text without a secret's beginning at its end."""
    at = text.find(secret[:CUT_CHARS_MIN], max(0, len(text) - len(secret) + 1)) if len(secret) > CUT_CHARS_MIN else -1
    while at >= 0:
        if secret.startswith(text[at:]):
            return f"{text[:at]}***"
        at = text.find(secret[:CUT_CHARS_MIN], at + 1)
    return text


def not_set(variable: str, server: str) -> str:
    """Return what is wrong where `server` needs a variable that is not set, and the remedy."""
    problem = f"the MCP server {server!r} needs the variable {variable}, which is not set"
    return f"{problem}; set it where the worker (or `holdfast mcp`) is started"
