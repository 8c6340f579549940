"""Pages fetched from a real server on loopback, and every address that must not be reached."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast import Toolset
from holdfast.capabilities.html_text import LINKS_CHARS_MAX, readable
from holdfast.capabilities.web_pages import REDIRECTS_MAX, fetch_url
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.steps import ToolExecution
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say
from tests.serving import Serve

READER = AgentDefinition(name="reader", capabilities=("fetch_url",))

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Site:
    """A web server on loopback that answers with `answer`, and every request that it got."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[web.BaseRequest] = []
        self.answer: Callable[[web.BaseRequest], web.StreamResponse] = lambda _: web.Response(text="plain")

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        return self.answer(request)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def site(tls: ssl.SSLContext | None = None) -> AsyncGenerator[Site]:
    served = Site()
    runner = web.ServerRunner(web.Server(served.handle))
    await runner.setup()
    try:
        at = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await at.start()
        served.port = runner.addresses[0][1]
        yield served
    finally:
        await runner.cleanup()


async def fetched(toolset: Toolset, url: str) -> ToolExecution:
    model = ScriptedModel([call("fetch_url", url=url), say("done")])
    driver = LocalDriver(READER, model=model, tools=toolset.tools, capabilities=toolset.capabilities)
    state = await driver.execute("Read it.")
    return state.steps[0].tool_executions[0]


def inside(served: Site, **options: Any) -> Toolset:  # noqa: ANN401  # of any type
    return fetch_url([served.host], allow_private=True, **options)


def refused(execution: ToolExecution) -> str:
    assert execution.error is not None, execution.answer.text
    assert execution.error.type == "FetchRefused"
    return execution.error.message


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Have every name resolve to the `answers` in turn, the last one for ever, and return the names asked for."""
    asked: list[str] = []
    left = list(answers)

    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        address = left.pop(0) if len(left) > 1 else left[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


# --- what is read


async def test_a_page_becomes_its_title_text_and_links() -> None:
    page = """<html><head><title>The &amp; title</title><style>p {}</style></head><body><h1>Top</h1>
      <p>One <a href="/next">next</a>.<script>alert("<p>no</p>")</script><ul><li>a<li>b</ul><pre>x
  y</pre></body></html>"""
    async with site() as served:
        served.answer = lambda _: web.Response(text=page, content_type="text/html")
        execution = await fetched(inside(served), f"http://{served.host}/a?b=c#d")
        (request,) = served.requests
    url = f"http://{served.host}"
    assert (
        execution.answer.text == f"{url}/a?b=c\nThe & title\n\n# Top\n\nOne [next]({url}/next).\n\n- a\n- b\n\nx\n  y"
    )
    assert request.path_qs == "/a?b=c"
    assert request.headers["Host"] == served.host
    assert not {"Cookie", "Authorization"} & request.headers.keys()


async def test_json_is_read_and_a_picture_is_not() -> None:
    async with site() as served:
        served.answer = lambda _: web.json_response({"a": 1})
        assert (await fetched(inside(served), f"http://{served.host}/")).answer.text.endswith('\n\n{"a": 1}')
        served.answer = lambda _: web.Response(body=b"\x89PNG", content_type="image/png")
        execution = await fetched(inside(served), f"http://{served.host}/")
    assert execution.error is not None
    assert "content of type 'image/png'; only text, HTML, JSON and XML are read" in execution.error.message


async def test_what_is_too_long_is_cut_and_a_compressed_answer_is_refused() -> None:
    async with site() as served:
        served.answer = lambda _: web.Response(text="x" * 5_000)
        text = (await fetched(inside(served, bytes_max=1_000), f"http://{served.host}/")).answer.text
        assert text.endswith("x\n[cut off after 1,000 bytes]")
        assert text.count("x") == 1_000
        served.answer = lambda _: web.Response(body=b"bomb", headers={"Content-Encoding": "gzip"})
        execution = await fetched(inside(served), f"http://{served.host}/")
    assert execution.error is not None
    assert "compressed" in execution.error.message


async def test_a_status_of_failure_is_an_error_with_the_beginning_of_what_it_says() -> None:
    async with site() as served:
        served.answer = lambda _: web.Response(status=404, text="no such page " * 100)
        execution = await fetched(inside(served), f"http://{served.host}/")
    assert execution.error is not None
    assert execution.error.type == "FetchFailed"
    assert ": 404 Not Found. no such page" in execution.error.message


async def test_a_server_that_never_ends_its_answer_is_left_in_time() -> None:
    async def endless(reader: Any, writer: Any) -> None:  # noqa: ANN401  # asyncio's
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nx")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        toolset = fetch_url([f"127.0.0.1:{port}"], allow_private=True, seconds_max=0.5)
        execution = await fetched(toolset, f"http://127.0.0.1:{port}/")
    assert execution.error is not None
    assert execution.error.message == "no whole answer came within 0.5 s"


# --- what is refused


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "168.63.129.16"),
        *("0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "192.0.2.1", "198.18.0.1"),  # noqa: S104  # refused
        *("[::1]", "[::]", "[fe80::1]", "[fd00:ec2::254]", "[ff02::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
        *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]", "[2001:0:0:0:0:0:0:1]"),
    ],
)
async def test_an_address_outside_the_public_internet_is_refused(host: str) -> None:
    assert "is not on the public internet" in refused(await fetched(fetch_url(["*"]), f"http://{host}/"))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://2130706433/", "unusual spelling"),
        ("http://0x7f000001/", "unusual spelling"),
        ("http://0x7f.1/", "unusual spelling"),
        ("http://0177.0.0.1/", "unusual spelling"),
        ("http://127.1/", "unusual spelling"),
        ("http://127.0.0.1./", "not on the public internet"),
        ("http://docs.example.com@127.0.0.1/", "a user name"),
        ("http://user:pw@docs.example.com/", "a user name"),
        ("http://127.0.0.1%2f@docs.example.com/", "a user name"),
        ("http://docs%2eexample.com/", "an encoded host"),
        ("http://[fe80::1%25eth0]/", "an encoded host"),
        ("http://docs.example.com\\@127.0.0.1/", "backslashes"),
        ("http://docs.example.com\n/", "ASCII"),
        ("http://①②⑦.⓪.⓪.①/", "ASCII"),
        ("http://[::1/", "is no address"),
        ("http://docs.example.com:99999/", "is no address"),
        ("http:///x", "is no host name"),
        ("file:///etc/passwd", "only http and https"),
        ("gopher://docs.example.com/", "only http and https"),
        ("docs.example.com", "only http and https"),
        ("https://docs.example.com/" + "x" * 5_000, "at most 4,096"),
        ("https://docs.example.com:8443/", "is not allowed here"),
        ("https://example.com/", "is not allowed here"),
        ("https://evildocs.example.com/", "is not allowed here"),
        ("https://docs.example.com.evil.net/", "is not allowed here"),
        ("https://example.org/", "is not allowed here"),
    ],
)
async def test_an_address_is_refused_for(url: str, why: str) -> None:
    toolset = fetch_url(["docs.example.com", "*.example.org", "127.0.0.1", "127.1", "0177.0.0.1"])
    assert why in refused(await fetched(toolset, url))


async def test_a_name_that_resolves_to_a_private_address_is_refused_and_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site() as served:
        resolving(monkeypatch, "127.0.0.1")
        toolset = fetch_url([f"*.example.org:{served.port}"])
        message = refused(await fetched(toolset, f"http://a.example.org:{served.port}/"))
    assert message == "the host 'a.example.org' is not on the public internet"
    assert served.requests == []


def looks_public(address: object) -> bool:
    return str(address) == "240.0.0.1"


async def test_a_name_that_changes_its_address_after_the_check_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site() as served:
        asked = resolving(monkeypatch, "240.0.0.1", "127.0.0.1")
        monkeypatch.setattr("holdfast.capabilities.web_pages.is_public", looks_public)
        toolset = fetch_url([f"rebind.example.org:{served.port}"], seconds_max=5)
        execution = await fetched(toolset, f"http://rebind.example.org:{served.port}/")
    assert execution.error is not None
    assert asked[0] == "rebind.example.org"
    assert served.requests == []  # a second look would have led here


async def test_each_redirect_is_checked_and_they_are_counted() -> None:
    async with site() as served, site() as inner:
        served.answer = lambda _: web.Response(status=302, headers={"Location": f"http://{inner.host}/secret"})
        assert f"the host '{inner.host}' is not allowed here" in refused(
            await fetched(inside(served), f"http://{served.host}/")
        )
        served.answer = lambda _: web.Response(status=302, headers={"Location": "file:///etc/passwd"})
        assert "only http and https" in refused(await fetched(inside(served), f"http://{served.host}/"))
        served.requests.clear()
        served.answer = lambda _: web.Response(status=302, headers={"Location": "/on", "Set-Cookie": "a=b"})
        assert "leads on more than 5 times" in refused(await fetched(inside(served), f"http://{served.host}/"))
        assert len(served.requests) == REDIRECTS_MAX + 1
        assert not any("Cookie" in each.headers for each in served.requests)
        served.answer = lambda request: (
            web.Response(text="there")
            if request.path == "/on"
            else web.Response(status=307, headers={"Location": "on"})
        )
        assert (await fetched(inside(served), f"http://{served.host}/")).answer.text.endswith("/on\n\nthere")
    assert inner.requests == []


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site() as served, site() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.host}")
        monkeypatch.setenv("ALL_PROXY", f"http://{proxy.host}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert (await fetched(inside(served), f"http://{served.host}/")).answer.text.endswith("plain")
    assert proxy.requests == []


# --- TLS


def certificate(name: str, folder: Path) -> ssl.SSLContext:
    """Return a server's context with a certificate of its own for `name`, written to `folder`/ca.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context


async def test_the_certificate_is_checked_against_the_name_although_the_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tls = certificate("docs.example.org", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with site(tls) as served:
        toolset = fetch_url([f"*.example.org:{served.port}"], allow_private=True)
        resolving(monkeypatch, "127.0.0.1")
        good = await fetched(toolset, f"https://docs.example.org:{served.port}/")
        bad = await fetched(toolset, f"https://other.example.org:{served.port}/")
    assert good.answer.text.endswith("plain")
    assert served.requests[0].headers["Host"] == f"docs.example.org:{served.port}"
    assert bad.error is not None
    assert bad.error.type == "HostUnreachable"
    assert len(served.requests) == 1


# --- its settings


@pytest.mark.parametrize("hosts", [[], ["https://a.example.com"], ["a b"], ["a/b"], ["user@a"], ["**.a"], ["x"] * 201])
def test_an_allow_list_is_required_and_holds_hosts_alone(hosts: list[str]) -> None:
    with pytest.raises(InvalidInput, match="fetch_url"):
        fetch_url(hosts)


def test_bounds_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidInput, match="up to 16,000,000 bytes and 300 s are possible"):
        fetch_url(["*"], bytes_max=10**9)


@pytest.mark.parametrize(
    "piece",
    [
        *("<a", "<!--", "<![", "<!", "</", "<a b='", "&", "<?", "<script>", "<title>", "<a href=a>", "&#9", "<a '>'"),
        *("<script></scrip", "<title></title>", "<pre>\n", '<a " '),
    ],
)
def test_a_hostile_page_takes_no_longer_than_its_size_allows(piece: str) -> None:
    start = time.process_time()
    readable(piece * (1_000_000 // len(piece)), "https://example.org/")
    assert time.process_time() - start < 10  # `html.parser` takes hours


@pytest.mark.parametrize("piece", ["x", "x ", "x="])
def test_a_hostile_tag_takes_no_longer_than_its_size_allows(piece: str) -> None:
    start = time.process_time()
    readable(f"<a {piece * (1_000_000 // len(piece))}>", "https://example.org/")
    assert time.process_time() - start < 10


@pytest.mark.parametrize("encoding", ["punycode", "idna", "undefined", "unicode_escape", "x-unknown"])
async def test_a_page_in_no_encoding_of_the_web_is_read_as_utf_8(encoding: str) -> None:
    async with site() as served:
        headers = {"Content-Type": f"text/plain; charset={encoding}"}
        served.answer = lambda _: web.Response(body=b"caf\xc3\xa9-" * 10_000, headers=headers)
        text = (await fetched(inside(served), f"http://{served.host}/")).answer.text
    assert text.partition("\n\n")[2].startswith("caf\xe9-caf")


@pytest.mark.temporal
async def test_on_temporal_a_page_is_fetched_by_the_worker_and_a_private_one_is_not(serve: Serve) -> None:
    async with site() as served:
        toolset = inside(served)
        script = [
            call("fetch_url", url=f"http://{served.host}/"),
            call("fetch_url", url="http://127.0.0.1/"),
            say("done"),
        ]
        async with serve(script, offer=toolset) as worker:
            result = await worker.client.run(READER, "Read it.")
    first, second = (step.tool_executions[0] for step in result.state.steps[:2])
    assert first.answer.text == f"http://{served.host}/\n\nplain"
    assert "is not allowed here" in refused(second)


def test_links_of_a_long_address_make_no_page_many_times_as_long() -> None:
    base = f"https://example.org/{'a' * 1_900}/"
    _, text = readable("<a href=x>y</a>" * 20_000, base)
    assert text.startswith(f"[y]({base}x)[y]({base}x)")
    assert len(text) < 2 * LINKS_CHARS_MAX
    _, text = readable("<a href=x>y</a>", f"https://example.org/{'a' * 4_000}/")
    assert text == "y"
