"""Asking real endpoints for their models: good ones, broken ones, and ones that would like to have the key."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import gaierror
from typing import ClassVar
from urllib.error import URLError

import pytest

from holdfast.models.endpoint import ProviderSettings
from holdfast.server.doctor.endpoint_facts import ask, cause
from holdfast.server.doctor.machine_findings import EndpointFacts
from holdfast.testing.openai_server import FakeOpenAI

KEY = "sk-canary-7f3a"


class Handler(BaseHTTPRequestHandler):
    """Answers by the first word of the path; keeps what it was asked."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        body = {
            "page": b"<html>hello</html>",
            "echo": json.dumps({"error": {"message": f"no such key: {KEY}"}}).encode(),
            "deep": b"[" * 200_000,
            "stolen": json.dumps({"data": [{"id": "stolen"}]}).encode(),
        }.get(self.path.split("/")[1], b"")
        status = {"echo": 401, "away": 302}.get(self.path.split("/")[1], 200)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/stolen/models")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        pass


@pytest.fixture(scope="module")
def server() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@contextmanager
def silent() -> Generator[str]:
    """The address of one who lets everybody in and never says anything."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


def asked(url: str, key: str | None = KEY) -> EndpointFacts:
    return ask(ProviderSettings(base_url=url, api_key=key, model="scripted"))


def test_a_good_endpoint_lists_its_models_and_a_wrong_key_is_told() -> None:
    with FakeOpenAI.in_thread([], api_key=KEY) as endpoint:
        good, bad, none = asked(endpoint.base_url), asked(endpoint.base_url, "sk-other"), asked(endpoint.base_url, None)
    assert (good.status, good.models, good.broken) == (200, ("scripted",), None)
    assert (bad.status, bad.models, bad.has_key) == (401, None, True)
    assert bad.words == "Incorrect API key provided."
    assert (none.status, none.has_key) == (401, False)


def test_the_key_is_shown_nowhere_and_given_to_nobody_else(server: str) -> None:
    echoed, away = asked(f"{server}/echo"), asked(f"{server}/away")
    assert (echoed.status, echoed.words) == (401, "no such key: [secret]")
    assert KEY not in repr(echoed)
    assert (away.status, away.models) == (302, None)
    paths = [path for path, _ in Handler.asked]
    assert "/away/models" in paths
    assert not [path for path in paths if path.startswith("/stolen")]


@pytest.mark.parametrize("path", ["page", "nothing", "deep"])
def test_an_answer_that_is_no_list_is_no_list(server: str, path: str) -> None:
    facts = asked(f"{server}/{path}")
    assert (facts.status, facts.models, facts.broken) == (200, None, None)


def test_who_is_not_there_or_says_nothing_is_told_so() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    assert asked(nobody).broken == "the connection is refused"
    with silent() as url:
        assert asked(url).broken == "no answer within 3 s"
    assert cause(URLError(gaierror(-3, "no name")), ProviderSettings()) == "its name cannot be resolved"


def test_an_address_with_a_user_in_it_is_asked_without(server: str) -> None:
    before = len(Handler.asked)
    facts = asked(server.replace("http://", "http://ada:hunter2@") + "/page?token=canary")
    assert facts.status == 200
    assert Handler.asked[before][0] == "/page/models?token=canary"
    assert "hunter2" not in repr(facts)
    assert "canary" not in repr(facts)
