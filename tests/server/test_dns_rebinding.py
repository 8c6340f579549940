"""What a web page could do to a server of ours: forged Host, forged Origin, text/plain, at each port that it opens."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from holdfast.connection.data_directory import ServerAddress
from holdfast.server.doctor import server_findings
from holdfast.server.doctor.dns_rebinding import ExposedPort, open_doors
from holdfast.server.doctor.findings import Level
from holdfast.server.ports import choose_ports

pytestmark = [
    pytest.mark.temporal,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc"),
]

FORGED = "evil.example"
ATTACK = "WebPageAttack"
BODY = json.dumps({"workflowType": {"name": ATTACK}, "taskQueue": {"name": "nobody"}})


def listening(address: ServerAddress) -> set[tuple[str, int]]:
    """Each place at which the server listens, and the one at which whoever started it does: the gateway's."""
    sockets: set[str] = set()
    for link in Path(f"/proc/{address.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(link.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    own = [row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    gateway = ("127.0.0.1", int(address.ui.rpartition(":")[2]))
    return {gateway} | {
        (".".join(str(byte) for byte in reversed(bytes.fromhex(host))), int(port, 16)) for host, port in own
    }


def ask(
    place: tuple[str, int], method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, str, list[str]]:
    """Return the status, 0 where this is no HTTP, the text, and the cookies."""
    connection = http.client.HTTPConnection(*place, timeout=5)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(connection):
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
            return answer.status, text, answer.headers.get_all("Set-Cookie") or []
        except (OSError, http.client.HTTPException):
            return 0, "", []


def attack(place: tuple[str, int], workflow: str, **headers: str) -> int:
    """Start a workflow as a page would that has first read the cookie it was given."""
    *_, cookies = ask(place, "GET", "/api/v1/settings", **headers)
    token = next((each.partition("=")[2].partition(";")[0] for each in cookies if each.startswith("_csrf=")), "")
    known = {"Cookie": f"_csrf={token}", "X_CSRF_TOKEN": token} if token else {}
    return ask(place, "POST", f"/api/v1/namespaces/default/workflows/{workflow}", BODY, **headers, **known)[0]


async def attacks(temporal_address: str) -> int:
    """How many workflows an attack has started; those of the tests' own are terminated."""
    client = await TemporalClient.connect(temporal_address)
    return (await client.count_workflows(f"WorkflowType = {ATTACK!r} AND ExecutionStatus != 'Terminated'")).count


async def test_no_port_takes_a_call_under_a_forged_name_or_from_a_forged_origin(temporal_server: ServerAddress) -> None:
    ui = int(temporal_server.ui.rpartition(":")[2])
    places = listening(temporal_server)
    hidden = {place for place in places if place[0] != "127.0.0.1"}
    reachable = places - hidden
    assert {int(temporal_server.address.rpartition(":")[2]), ui} < {port for _, port in reachable}
    assert len(hidden) == 1, "the Web UI's own server, at an address that a page cannot guess"
    for host, port in sorted(reachable):
        forged = {"Host": f"{FORGED}:{port}"}
        for number, headers in enumerate(
            (
                {**forged, "Origin": f"http://{FORGED}:{port}", "Content_Type": "text/plain"},
                {**forged, "Content_Type": "application/json"},
                {"Host": f"127.0.0.1:{port}", "Origin": f"http://{FORGED}", "Content_Type": "text/plain"},
                {"Host": f"127.0.0.1:{port}", "Origin": "null", "Content_Type": "text/plain"},
            )
        ):
            status = attack((host, port), f"attack-{port}-{number}", **headers)
            assert status in {0, 403, 404, 405}, (port, headers)
            status, text, _ = ask((host, port), "GET", "/api/v1/namespaces/default", **headers)
            assert status in {0, 403, 404}, (port, headers)
            assert "namespaceInfo" not in text
    assert await attacks(temporal_server.address) == 0


async def test_the_attack_is_one_where_the_web_uis_own_server_is_reached(temporal_server: ServerAddress) -> None:
    (hidden,) = (place for place in listening(temporal_server) if place[0] != "127.0.0.1")
    forged = {"Host": f"{FORGED}:8233", "Origin": f"http://{FORGED}:8233", "Content_Type": "text/plain"}
    assert attack(hidden, "rebound", **forged) == 200, "what the gateway keeps out works no more: is it needed?"
    client = await TemporalClient.connect(temporal_server.address)
    await client.get_workflow_handle("rebound").terminate()


async def test_the_web_ui_itself_goes_on_working(temporal_server: ServerAddress) -> None:
    ui = int(temporal_server.ui.rpartition(":")[2])
    own = {"Host": f"localhost:{ui}", "Origin": f"http://localhost:{ui}", "Content_Type": "application/json"}
    status, text, _ = ask(("127.0.0.1", ui), "GET", "/", Host=f"127.0.0.1:{ui}")
    assert (status, "<!doctype html>" in text) == (200, True)
    assert attack(("127.0.0.1", ui), "a-start-of-the-ui", **own) == 200
    client = await TemporalClient.connect(temporal_server.address)
    await client.get_workflow_handle("a-start-of-the-ui").terminate()


def test_the_doctor_finds_nothing_open_at_our_own_server(temporal_server: ServerAddress) -> None:
    assert open_doors(temporal_server.address, "default") == ()
    assert server_findings.web_access(()).level is Level.OK


@pytest.mark.slow
def test_the_doctor_tells_of_a_server_that_leaves_its_api_open(plain_server: str) -> None:
    (door,) = open_doors(plain_server, "default")
    assert not door.web_ui
    finding = server_findings.web_access((door, ExposedPort("127.0.0.1", 8233, web_ui=True)))
    assert finding.level is Level.WARNING
    assert f"127.0.0.1:{door.port} (HTTP API), 127.0.0.1:8233 (Web UI)" in finding.result
    assert "frontend.httpAllowedHosts" in finding.remedy
    assert "proxy" in finding.remedy


@pytest.mark.parametrize("said", [b"5", b"null", b"{}", b"<html>"])
def test_another_service_at_a_usual_port_is_no_open_door(said: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        assert open_doors(f"127.0.0.1:{other.server_port}", "default") == ()
        other.shutdown()


def test_a_port_whose_neighbour_would_be_none_is_looked_at() -> None:
    assert open_doors("127.0.0.1:65535", "default") == ()


def test_where_nobody_listens_nothing_is_open() -> None:
    assert open_doors(f"127.0.0.1:{choose_ports(0, 0).grpc}", "default") == ()
