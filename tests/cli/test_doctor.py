"""`holdfast doctor` with everything in order, and with each part broken in turn: one line each, never a traceback."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client import Settings
from holdfast.core.tools.tools import tool
from holdfast.server.doctor import checks
from holdfast.server.doctor.checks import examine
from holdfast.server.doctor.findings import Finding, Level
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import say
from tests.cli.doctor_findings import PATIENCE_SECONDS, by_check, levels, looked, once_found, once_sound
from tests.cli.page import examples, rows
from tests.cli.program import KEPT, Project, Running, embedded_only
from tests.cli.terminal import terminal
from tests.serving import Serve

pytestmark = pytest.mark.temporal

DOCUMENTED = [row[0] for row in rows("holdfast doctor", 0)]
KEY = "sk-canary-51d2"


@pytest.fixture
def here(tmp_path: Path, plain_server: str) -> Project:
    """A folder without anything of ours, and a plain server."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return Project(tmp_path, {**kept, "TEMPORAL_ADDRESS": plain_server})


@pytest.fixture(scope="module")
def silent() -> Generator[str]:
    """The address of one who lets everybody in and never says anything."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@embedded_only
def test_a_sound_project_is_told_line_by_line(project: Project, dev: Running) -> None:  # noqa: ARG001  # it serves
    as_json = once_sound(lambda: project.run("doctor", "--json"))
    plain = once_sound(lambda: project.run("doctor"))
    lines = by_check(as_json)
    assert levels(lines, "ok") == set(lines), lines
    assert list(lines) == DOCUMENTED
    assert set(as_json.document) == set(examples("holdfast doctor")[0])
    assert set(as_json.document["findings"][0]) == set(examples("holdfast doctor")[0]["findings"][0])
    assert plain.err == ""
    assert [line.split(":")[0].split(maxsplit=1)[1] for line in plain.out.splitlines()] == list(lines)
    assert "embedded server of" in lines["configuration"]["found"]
    assert "for 30 days" in lines["namespace"]["found"]
    assert "all 12 are registered" in lines["search attributes"]["found"]
    assert " on 'holdfast': " in lines["workflow worker"]["found"]
    assert "multiply" in lines["tools"]["found"]
    assert "-waiting-tools'" in lines["tool queues"]["found"]
    assert "'scripted' among them" in lines["model endpoint"]["found"]
    assert "test-key" not in plain.out + as_json.out
    named_to_the_worker_alone = looked(project.where("OPENAI_API_KEY", "OPENAI_BASE_URL"))["model endpoint"]
    assert named_to_the_worker_alone["level"] == "ok"
    assert "the worker reads its own" in named_to_the_worker_alone["found"]


@pytest.mark.slow
def test_a_terminal_is_shown_a_table(project: Project, dev: Running) -> None:  # noqa: ARG001  # it serves
    deadline, code = time.monotonic() + PATIENCE_SECONDS, 14
    shown = ""
    while code and time.monotonic() < deadline:  # a busy machine may give up a check
        with terminal(project, "doctor") as screen:
            code = screen.ended()
        shown = screen.shown
    assert code == 0, shown
    assert "found, and what to do" in shown
    assert "all 12 are registered" in shown


def test_an_agent_whose_tools_the_worker_lacks_is_told_with_the_nearest_name(
    project: Project,
    dev: Running,  # noqa: ARG001  # its worker is asked
    tmp_path: Path,
) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "wrong.md").write_text("---\ntools: [multipli]\n---\nCount.\n")
    lines = looked(project, "--agents", str(tmp_path / "agents"), errors={"tools"})
    assert "names the tool 'multipli', which is not there; did you mean 'multiply'?" in lines["tools"]["found"]


@pytest.mark.slow
def test_a_plain_server_without_a_worker_is_told_with_every_remedy(here: Project) -> None:
    lines = looked(here, errors={"workflow worker", "activity worker"})
    assert levels(lines, "warning") == {"search attributes", "server settings", "web access", "model endpoint"}
    assert lines["search attributes"]["remedy"] == "run `holdfast setup`"
    assert lines["workflow worker"]["remedy"] == "start one with `holdfast worker`"
    assert "frontend.httpAllowedHosts" in lines["web access"]["remedy"]
    assert "WorkerCommandsEnabled" in lines["server settings"]["remedy"]
    assert lines["clock"]["found"] == "within 2 s of the server's"
    assert lines["configuration"]["found"].endswith("the address is from TEMPORAL_ADDRESS")
    assert not (here.folder / ".holdfast").exists(), "looking makes nothing"


@pytest.mark.slow
def test_everything_on_this_machine_can_be_broken_at_once(here: Project) -> None:
    (here.folder / "data").write_text("in the way")
    (here.folder / "objects").write_text("in the way")
    (here.folder / "agents").mkdir()
    (here.folder / "agents" / "bad.md").write_text("---\nmax_stepz: 3\n---\nCount.\n")
    (here.folder / "profile.toml").write_text("[profile.default]\naddress = \n")
    broken = here.where(
        "TEMPORAL_ADDRESS",
        TEMPORAL_CONFIG_FILE=str(here.folder / "profile.toml"),
        HOLDFAST_DATA_DIR=str(here.folder / "data"),
        HOLDFAST_STORAGE=(here.folder / "objects").as_uri(),
        HOLDFAST_ENCRYPTION_KEY_FILE=str(here.folder / "keys"),
        HOLDFAST_TOOL_SLOTS="many",
        OPENAI_BASE_URL="ftp://models",
        OPENAI_API_KEY=KEY,
    )
    wanted = {
        "configuration": "the Temporal configuration cannot be read",
        "server": "the Temporal configuration cannot be read",
        "agents": "max_stepz",
        "model endpoint": "OPENAI_BASE_URL is not an address",
        "data directory": "cannot be written: it is a file",
        "storage": "cannot write probe in file:",
        "encryption": "cannot be read (No such file or directory)",
    }
    lines = looked(broken, errors=set(wanted))
    assert levels(lines, "ok") == {"versions", "mcp servers", "models", "workspaces"}
    assert {check for check, words in wanted.items() if words in lines[check]["found"]} == set(wanted)
    assert KEY not in str(lines)


def test_a_wrong_key_a_missing_namespace_and_a_damaged_database_are_told(here: Project) -> None:
    (here.folder / "data").mkdir()
    (here.folder / "data" / "temporal.db").write_bytes(b"")
    with FakeOpenAI.in_thread([say("no")], api_key="another") as endpoint:
        broken = here.where(
            TEMPORAL_NAMESPACE=f"n-{uuid4()}",
            HOLDFAST_DATA_DIR=str(here.folder / "data"),
            OPENAI_BASE_URL=endpoint.base_url,
            OPENAI_API_KEY=KEY,
        )
        lines = looked(broken, errors={"namespace", "model endpoint", "embedded server"})
    assert "`holdfast setup --create-namespace`" in lines["namespace"]["remedy"]
    assert "check OPENAI_API_KEY" in lines["model endpoint"]["remedy"]
    assert "it is empty (0 bytes)" in lines["embedded server"]["found"]
    assert KEY not in str(lines)


def test_what_hangs_is_given_up_in_time(here: Project, silent: str) -> None:
    hanging = here.where(TEMPORAL_ADDRESS=silent, OPENAI_BASE_URL=f"http://{silent}/v1")
    ended = once_found({"server", "model endpoint"}, lambda: hanging.run("doctor", "--json"))
    lines = by_check(ended)
    assert f"no answer from {silent} within 3.5 s" in lines["server"]["found"]
    assert "no answer within 3" in lines["model endpoint"]["found"]
    assert ended.seconds < 40, "about four seconds, and a busy machine's patience"


def test_a_wrong_address_and_a_wrong_setting_are_told_with_what_decided_them(here: Project) -> None:
    wrong = here.where(HOLDFAST_TOOL_SLOTS="many")
    told = ("doctor", "--json", "--address", "127.0.0.1:1")
    ended = once_found({"configuration", "server"}, lambda: wrong.run(*told))
    lines = by_check(ended)
    assert "the address is from --address" in ended.out
    assert "tool_slots is 'many'" in lines["configuration"]["found"]
    assert lines["configuration"]["remedy"] == "give a whole number"
    assert "Connection refused" in lines["server"]["found"]


@pytest.mark.slow
def test_parts_that_are_not_installed_are_told_with_what_installs_them(here: Project) -> None:
    hide = "import sys; sys.modules.update(temporalio=None, obstore=None, openai=None, cryptography=None); "
    use = "sys.argv[1:] = ['doctor', '--json']; from holdfast.cli.main import main; main()"
    poor = replace(here.where(HOLDFAST_ENCRYPTION_KEY_FILE="keys"), program=Path(sys.executable))
    lines = by_check(once_found({"versions", "encryption"}, lambda: poor.run("-c", hide + use)))
    assert lines["versions"]["remedy"] == "pip install '/path/to/holdfast[temporal,openai]'"
    assert lines["encryption"]["remedy"] == "pip install '/path/to/holdfast[encryption]'"


SLOW = """
import importlib.abc, sys, time

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "mcp":
            time.sleep(5)  # longer than a check may take

sys.meta_path.insert(0, Slow())
sys.argv[1:] = ["doctor", "--json"]
from holdfast.cli.main import main
main()
"""


@pytest.mark.slow
def test_a_package_that_is_slow_to_import_takes_no_checks_time(here: Project) -> None:
    (here.folder / "mcp.yaml").write_text('servers: {gone: {url: "http://127.0.0.1:9/mcp"}}')
    slow = replace(here, program=Path(sys.executable))
    lines = by_check(once_found({"workflow worker", "activity worker"}, lambda: slow.run("-c", SLOW)))
    assert "gone: unreachable" in lines["mcp servers"]["found"]


@tool(task_queue="nobody-serves-this")
def far(number: int) -> int:
    """Count far away."""
    return number


async def test_a_tools_queue_that_nobody_serves_is_told(serve: Serve, settings: Settings, tmp_path: Path) -> None:
    lines: dict[str, Finding] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    async with serve([say("no")], [far]):
        while "tool queues" not in lines and time.monotonic() < deadline:
            found = await examine(replace(settings, data_dir=tmp_path / "data", agents_dir=tmp_path / "none"))
            lines = {each.check: each for each in found}
    assert lines["tools"].level is Level.OK
    assert lines["tool queues"].level is Level.WARNING
    assert "no worker serves 'nobody-serves-this': calls of far wait" in lines["tool queues"].result


async def test_agents_that_cannot_be_read_in_time_keep_no_other_check_from_being_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()

    def hang(_: Path) -> None:  # a folder on a disk that does not answer
        gone.wait(60)

    monkeypatch.setattr(checks, "known_agents", hang)
    found: dict[str, Finding] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while "tools" not in found and time.monotonic() < deadline:  # a busy machine may give up the server's checks
            found = {each.check: each for each in await examine(settings)}
    finally:
        gone.set()
    assert "no answer within" in found["agents"].result
    assert "no answer within" in found["tools"].result
    assert found["server"].level is Level.OK
