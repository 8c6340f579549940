"""A malicious command in a workspace, and what it is refused. docs/workspace.md sums it up."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from holdfast.workspace.docker.docker_backend import DockerBackend
from tests.docker.daemon import Daemon, workspace

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

INTRUDER = Path(__file__).with_name("intruder.py")
PORT = 8123
MARK = "holdfast-process-of-the-host"

REFUSALS = {"EPERM", "EACCES", "EROFS", "ENOENT", "ESRCH", "ENETUNREACH", "ENXIO", "ENODEV"}
"""Errors that mean: not for you, or not there. EINVAL and EFAULT would mean that the kernel looked at the arguments."""

Attempt = dict[str, Any]


@pytest.fixture
def neighbour(api: Any, bridge: str, image: str) -> Generator[str]:
    """The address of another container, on Docker's own network, that answers on PORT."""
    serve = f"import http.server as h; h.HTTPServer(('', {PORT}), h.BaseHTTPRequestHandler).serve_forever()"
    host = api.create_host_config(network_mode=bridge, auto_remove=True)
    container = api.create_container(image, command=["python3", "-c", serve], host_config=host)["Id"]
    api.start(container)
    address = api.inspect_container(container)["NetworkSettings"]["Networks"][bridge]["IPAddress"]
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((address, PORT), timeout=5).close()
            break
        except OSError:
            assert time.monotonic() < until, "the other container never answered"
            time.sleep(0.1)
    yield address
    api.remove_container(container, force=True)


@pytest.fixture
def host_process() -> Generator[None]:
    process = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(600)  # {MARK}"])
    yield
    process.kill()
    process.wait()


def attempts_of(output: str) -> list[Attempt]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@pytest.mark.usefixtures("host_process")
async def test_a_malicious_command_is_refused_all_that_it_tries(
    backend: DockerBackend,
    daemon: Daemon,
    image: str,
    neighbour: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-worker")
    (tmp_path / "secret").write_text("of the host")
    await backend.ensure(workspace(image))
    arguments = ["python3", "-I", "-c", INTRUDER.read_text(), str(tmp_path / "secret"), neighbour, str(PORT), MARK]
    output = await asyncio.to_thread(daemon.inside, arguments)
    attempts = attempts_of(output)
    with capsys.disabled():
        print("\n" + table(attempts))
    assert len(attempts) > 60, output
    assert [each for each in attempts if not each["refused"]] == []
    assert [each for each in attempts if each["error"] not in REFUSALS] == []
    assert (await asyncio.to_thread(daemon.inside, ["cat", "/workspace/none"])).startswith("cat:"), "it lives"


@pytest.mark.usefixtures("host_process")
def test_the_same_attempts_succeed_where_nothing_is_taken_away(
    api: Any, image: str, neighbour: str, tmp_path: Path
) -> None:
    """The attempts are real: with capabilities, without seccomp, with Docker's network they get through."""
    host = api.create_host_config(
        auto_remove=True,
        network_mode="bridge",
        cap_add=["SYS_ADMIN", "SYS_PTRACE", "SYSLOG", "MKNOD", "NET_RAW"],
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        binds=[f"{tmp_path}:{tmp_path}:ro"],
    )
    (tmp_path / "secret").write_text("of the host")
    command = ["python3", "-I", "-c", INTRUDER.read_text(), str(tmp_path / "secret"), neighbour, str(PORT), MARK]
    container = api.create_container(
        image, command=["sleep", "600"], environment={"OPENAI_API_KEY": "x"}, host_config=host
    )["Id"]
    api.start(container)
    try:
        started = api.exec_create(container, command)
        output = bytes(api.exec_start(started["Id"])).decode()
    finally:
        api.remove_container(container, force=True)
    attempts = attempts_of(output)
    assert len(attempts) > 60, output
    succeeded = {each["attempt"] for each in attempts if not each["refused"]}
    missing = {
        *("read a file of the host", "read /etc/shadow", "write to /etc/passwd", "put a file into /usr/bin"),
        *("make a device node", "mount a tmpfs", "make a user namespace", "make a mount namespace", "chroot"),
        *("become root by setuid(0)", "run without seccomp", "have an effective capability", "read the kernel's log"),
        *("reach another container", "open a raw socket", "open a packet socket"),
        *("read the worker's environment", "change the host name", "have a capability left to gain"),
    } - succeeded
    assert missing == set(), [each for each in attempts if each["attempt"] in missing]


def table(attempts: list[Attempt]) -> str:
    """Return the attempts as a Markdown table, a line per area."""
    lines = ["| area | refused attempts (answer) |", "|---|---|"]
    for area in dict.fromkeys(each["area"] for each in attempts):
        cells = [f"{each['attempt']} ({each['error'] or 'ALLOWED'})" for each in attempts if each["area"] == area]
        lines.append(f"| {area} | {'; '.join(cells)} |")
    return "\n".join(lines)
