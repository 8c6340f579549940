"""What a person is told whom a TLS server refuses, or whose own certificate, key and variables are wrong: real ones."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.client import Settings
from holdfast.connection.temporal_client import connect
from holdfast.core.base.errors import ServerUnavailable, ServerUnreachable
from tests.cluster.credentials import Authority, Pair

PAIR = "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH"
EXPIRED = timedelta(days=-2)

OURS = {
    "TEMPORAL_TLS": "true",
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH": "ours/ca.pem",
    "TEMPORAL_TLS_CLIENT_CERT_PATH": "ours/client.pem",
    "TEMPORAL_TLS_CLIENT_KEY_PATH": "ours/client.key",
}
"""What a client should have; the files are below the test's folder."""

NONE = dict.fromkeys(OURS)
NO_CERTIFICATE = {"TEMPORAL_TLS_CLIENT_CERT_PATH": None, "TEMPORAL_TLS_CLIENT_KEY_PATH": None}


@dataclass(frozen=True, slots=True)
class Case:
    """What is set otherwise, what is said then, and whether waiting for the server can help."""

    changes: dict[str, str | None]
    remedy: str
    server: str | None = "server"
    waits: bool = True


CASES = {
    "an expired certificate of the server": Case({}, "the server's certificate has expired", server="expired"),
    "another authority": Case(
        {"TEMPORAL_TLS_SERVER_CA_CERT_PATH": "other/ca.pem"}, "set TEMPORAL_TLS_SERVER_CA_CERT_PATH"
    ),
    "an authority's file without one": Case(
        {"TEMPORAL_TLS_SERVER_CA_CERT_PATH": "garbage"}, "set TEMPORAL_TLS_SERVER_CA_CERT_PATH"
    ),
    "no authority": Case({"TEMPORAL_TLS_SERVER_CA_CERT_PATH": None}, "set TEMPORAL_TLS_SERVER_CA_CERT_PATH"),
    "another name": Case({"TEMPORAL_TLS_SERVER_NAME": "elsewhere.test"}, "set TEMPORAL_TLS_SERVER_NAME"),
    "a missing key file": Case(
        {"TEMPORAL_TLS_CLIENT_KEY_PATH": "nowhere"},
        "TEMPORAL_TLS_CLIENT_KEY_PATH is '{folder}/nowhere': No such file or directory",
        waits=False,
    ),
    "a missing certificate": Case(
        {"TEMPORAL_TLS_CLIENT_CERT_PATH": "nowhere"}, "TEMPORAL_TLS_CLIENT_CERT_PATH is '", waits=False
    ),
    "a folder for an authority": Case(
        {"TEMPORAL_TLS_SERVER_CA_CERT_PATH": "ours"},
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH is '{folder}/ours': Is a directory",
        waits=False,
    ),
    "a key that is none": Case(
        {"TEMPORAL_TLS_CLIENT_KEY_PATH": "garbage"}, "check TEMPORAL_TLS_CLIENT_KEY_PATH", waits=False
    ),
    "a certificate that is none": Case(
        {"TEMPORAL_TLS_CLIENT_CERT_PATH": "garbage"}, "check TEMPORAL_TLS_CLIENT_CERT_PATH", waits=False
    ),
    "another certificate's key": Case(
        {"TEMPORAL_TLS_CLIENT_KEY_PATH": "ours/server.key"}, f"not that of its certificate; check {PAIR}", waits=False
    ),
    "a certificate without a key": Case({"TEMPORAL_TLS_CLIENT_KEY_PATH": None}, f"set {PAIR}", waits=False),
    "an expired certificate": Case(
        {"TEMPORAL_TLS_CLIENT_CERT_PATH": "ours/expired.pem", "TEMPORAL_TLS_CLIENT_KEY_PATH": "ours/expired.key"},
        f"heck {PAIR}",
    ),
    "a stranger's certificate": Case(
        {"TEMPORAL_TLS_CLIENT_CERT_PATH": "other/client.pem", "TEMPORAL_TLS_CLIENT_KEY_PATH": "other/client.key"},
        f"heck {PAIR}",
    ),
    "no certificate": Case(NO_CERTIFICATE, f"set {PAIR}"),
    "no TLS": Case(NONE, "set TEMPORAL_TLS=true"),
    "TLS to a server without": Case({}, "set TEMPORAL_TLS=false", server=None),
    "a key to a server without TLS": Case({**NONE, "TEMPORAL_API_KEY": "key"}, "set TEMPORAL_TLS=false", server=None),
}


@asynccontextmanager
async def listening(folder: Path, certificate: str | None) -> AsyncGenerator[str]:
    """A server that wants a certificate of everybody and then is silent; or one without TLS, which hangs up."""
    context = None
    if certificate is not None:
        pair = Pair(folder / f"ours/{certificate}.pem", folder / f"ours/{certificate}.key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        context.load_verify_locations(folder / "ours/ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read(100)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    ours, other = Authority(folder / "ours"), Authority(folder / "other")
    for name in ("server", "client"):
        ours.pair(name)
    ours.pair("expired", EXPIRED)
    other.pair("client")
    (folder / "garbage").write_text("neither a key nor a certificate\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("case", CASES)
async def test_who_is_not_connected_is_told_which_variable_to_mend(
    case: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = CASES[case]
    for name in [each for each in os.environ if each.startswith("TEMPORAL_")]:
        monkeypatch.delenv(name)
    for name, value in {**OURS, **chosen.changes}.items():
        if value is not None:
            monkeypatch.setenv(name, str(folder / value) if name.endswith("_PATH") else value)
    async with listening(folder, chosen.server) as address:
        with pytest.raises(ServerUnavailable) as refused:
            await connect(Settings(address=address, data_dir=tmp_path))
    assert chosen.remedy.format(folder=folder) in str(refused.value)
    assert isinstance(refused.value, ServerUnreachable) is chosen.waits
