"""`OAuthGrant`: the access token for one MCP server and tenant, asked for just in time, by one task at a time."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import httpx2

from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.mcp_servers import McpOAuth, McpServer
from holdfast.mcp.errors import McpUnavailable
from holdfast.runtime.trusted_certificates import trusted_certificates

ANSWER_SECONDS_MAX: Final = 15.0
"""How long the token's endpoint may take."""

ANSWER_BYTES_MAX: Final = 64 * 1024
"""The largest answer of a token endpoint that is read, and the largest file with a refresh token."""

EARLY_SECONDS: Final = 30.0
"""So long before its end a token is renewed, or at half its time if that is shorter: a request takes time, too."""

LIFE_SECONDS: Final = 300.0
"""How long a token counts whose endpoint does not say; one that ends earlier is renewed after a 401."""

LIFE_SECONDS_MAX: Final = 1e9
"""No token lives longer: an endpoint that says so says nothing."""

LOCK_SECONDS_MAX: Final = 30.0
"""How long another process of this machine may hold the refresh token."""

POLL_SECONDS: Final = 0.05
"""How often to look whether the refresh token is free."""

REFUSED: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
"""What an endpoint answers to a client or a grant that it does not take: no retry mends it."""

_ERROR: Final = re.compile(r"[a-z_]{1,40}")
"""The codes of RFC 6749 (5.2) and its extensions; anything else is not shown, because it could be a secret."""


class OAuthGrant:
    """Access tokens by client credentials, or by the refresh token in a file, which is replaced when it is rotated.

    Callers share one: a token is asked for once, however many need it. Values come from `resolve`; what is secret goes
    to `hide`. Use it within one event loop.
    """

    def __init__(self, server: McpServer, resolve: Callable[[str], str], hide: Callable[[str], None]) -> None:
        if server.oauth is None:
            raise ValueError("the server has no `oauth`")
        self._oauth: McpOAuth = server.oauth
        self._url = server.url or ""
        self._named = f"the MCP server {server.name!r}"
        self._resolve = resolve
        self._hide = hide
        self._renewing: asyncio.Task[str] | None = None
        self._token = ""
        self._renew_at = 0.0

    async def token(self) -> str:
        """Return a token that is good for a request now. Raises InvalidInput, McpUnavailable."""
        if self._is_renewing or not self._token or asyncio.get_running_loop().time() >= self._renew_at:
            return await self._renewed()
        return self._token

    async def after_refusal(self, refused: str) -> str:
        """Return another token than the one that the server has just refused. Raises InvalidInput, McpUnavailable."""
        return await self._renewed() if self._is_renewing or self._token == refused else self._token

    async def settled(self) -> None:
        """Return when no token is being asked for any more."""
        if self._renewing is not None:
            await asyncio.wait([self._renewing])

    @property
    def _is_renewing(self) -> bool:
        return self._renewing is not None and not self._renewing.done()

    async def _renewed(self) -> str:
        """Return the token of one renewal for all who need it.

        It goes on when a caller is cancelled: the refresh token may be used up, and only the answer has the next one.
        """
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(), name=f"token for {self._named}")
            self._renewing.add_done_callback(_read_error)
        return await asyncio.shield(self._renewing)

    async def _renew(self) -> str:
        self._token = ""
        oauth = self._oauth
        form = {"grant_type": "client_credentials"}
        if oauth.scope is not None:
            form["scope"] = self._resolve(oauth.scope)
        if oauth.audience is not None:
            form["audience"] = self._resolve(oauth.audience)
        if resource := _address(self._resolve(self._url)) if oauth.resource is None else self._resolve(oauth.resource):
            form["resource"] = resource
        if oauth.refresh_token_file is None:
            await self._ask(form)
            return self._token
        path = Path(self._resolve(oauth.refresh_token_file))
        async with self._locked(path):
            refresh = self._stored(path)
            self._hide(refresh)
            rotated = await self._ask({**form, "grant_type": "refresh_token", "refresh_token": refresh})
            if rotated and rotated != refresh:
                self._hide(rotated)
                self._store(path, rotated)
        return self._token

    async def _ask(self, form: dict[str, str]) -> str:
        """Ask for a token by `form` and keep it; return the refresh token that came with it, if one did."""
        oauth = self._oauth
        client_id = self._resolve(oauth.client_id)
        secret = self._resolve(oauth.client_secret) if oauth.client_secret is not None else None
        auth: httpx2.BasicAuth | None = None
        if secret is None or oauth.client_auth == "post":
            form = {**form, "client_id": client_id, **({} if secret is None else {"client_secret": secret})}
        else:
            auth = httpx2.BasicAuth(client_id, secret)
        begun_at = asyncio.get_running_loop().time()
        answer = await self._posted(self._resolve(oauth.token_url), form, auth)
        token, seconds, rotated = answer.get("access_token"), answer.get("expires_in"), answer.get("refresh_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token or not token:
            raise self._unavailable("its token endpoint has answered without an access token")
        self._hide(token)
        life = float(seconds) if isinstance(seconds, int | float) and 0 < seconds < LIFE_SECONDS_MAX else LIFE_SECONDS
        self._token, self._renew_at = token, begun_at + max(life - EARLY_SECONDS, life / 2)
        return rotated if isinstance(rotated, str) else ""

    async def _posted(self, url: str, form: dict[str, str], auth: httpx2.BasicAuth | None) -> dict[str, object]:
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS_MAX),
                httpx2.AsyncClient(timeout=ANSWER_SECONDS_MAX, verify=trusted_certificates()) as client,
                client.stream("POST", url, data=form, auth=auth, headers={"Accept-Encoding": "identity"}) as response,
            ):
                body = b""
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > ANSWER_BYTES_MAX:
                        raise self._unavailable(f"its token endpoint has answered more than {ANSWER_BYTES_MAX:,} bytes")
        except TimeoutError:
            why = f"its token endpoint has not answered within {ANSWER_SECONDS_MAX:g} s"
            raise self._unavailable(why) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unavailable(f"its token endpoint cannot be reached: {type(error).__name__}") from None
        answer = _object(body)
        if response.status_code == HTTPStatus.OK:
            return answer
        code = answer.get("error")
        shown = f" ({code})" if isinstance(code, str) and _ERROR.fullmatch(code) else ""
        why = f"its token endpoint has answered {response.status_code}{shown}"
        if response.status_code in REFUSED:
            raise InvalidInput(f"{self._named}: {why}; look at its `oauth` in mcp.yaml, and at what that refers to")
        raise self._unavailable(why)

    @asynccontextmanager
    async def _locked(self, path: Path) -> AsyncGenerator[None]:
        """Keep other processes of this machine from using the refresh token at the same time: it may count once."""
        try:
            lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unusable(path, error) from None
        try:
            try:
                async with asyncio.timeout(LOCK_SECONDS_MAX):
                    while not _flocked(lock):  # noqa: ASYNC110  # a lock of a file calls nobody
                        await asyncio.sleep(POLL_SECONDS)
            except TimeoutError:
                why = f"another process has held its refresh token for {LOCK_SECONDS_MAX:g} s"
                raise self._unavailable(why) from None
            yield
        finally:
            os.close(lock)

    def _stored(self, path: Path) -> str:
        try:
            text = path.read_text(encoding="utf-8")[:ANSWER_BYTES_MAX].strip()
        except (OSError, ValueError) as error:
            raise self._unusable(path, error) from None
        if not text:
            raise InvalidInput(f"{self._named}: the refresh token's file {str(path)!r} is empty; write one into it")
        return text

    def _store(self, path: Path, token: str) -> None:
        """Replace the file, whole or not at all, readable for its owner alone."""
        try:
            number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # with mode 0600
            try:
                with os.fdopen(number, "w", encoding="utf-8") as file:
                    file.write(f"{token}\n")
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(path)
            except BaseException:
                with suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise self._unusable(path, error) from None

    def _unusable(self, path: Path, error: OSError | ValueError) -> InvalidInput:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        problem = f"{self._named}: the refresh token's file {str(path)!r} cannot be used: {why}"
        return InvalidInput(f"{problem}; the worker must be able to read it and to write into its folder")

    def _unavailable(self, why: str) -> McpUnavailable:
        return McpUnavailable(f"{self._named} cannot be used: {why}")


def _address(url: str) -> str:
    """Return the address by which a server is known: without what may be secret, a password or a query."""
    parts = urlsplit(url)
    return parts._replace(
        scheme=parts.scheme.lower(), netloc=parts.netloc.rpartition("@")[2].lower(), query="", fragment=""
    ).geturl()


def _object(body: bytes) -> dict[str, object]:
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _read_error(ended: asyncio.Task[str]) -> None:
    """Take the error of a renewal whose callers have all gone, which asyncio would log."""
    if not ended.cancelled():
        ended.exception()


def _flocked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
