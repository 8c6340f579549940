"""Key files, and the codec server, from the command line; Temporal's own program reads through it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from holdfast.connection.data_directory import running_server
from holdfast.core.base.errors import InvalidInput, PayloadRefused, PortTaken
from holdfast.storage.keys import KeyRing
from tests.cli.program import HOLDFAST, Project, embedded_only

TOKEN = "a-token-of-the-tests"  # noqa: S105  # of nothing real
QUESTION = "what is six times seven?"


@pytest.fixture
def here(tmp_path: Path) -> Project:
    """A folder with nothing in it."""
    return Project(tmp_path, {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"})


def test_a_key_file_is_made_once(here: Project) -> None:
    made = here.run("codec-key", "keys", "--id", "first")
    assert (made.code, made.err) == (0, "")
    assert "made keys with the key first" in made.out
    assert f"HOLDFAST_ENCRYPTION_KEY_FILE={here.folder / 'keys'} " in made.out
    again = here.run("codec-key", "keys", "--json")
    assert (again.code, again.document["error"]["type"]) == (InvalidInput.exit_code, "InvalidInput")
    assert "below the others first: docs/encryption.md" in again.document["error"]["message"]
    other = here.run("codec-key", "other", "--json")
    assert set(other.document) == {"file", "id"}
    assert [key.id for key in KeyRing.read(here.folder / "other").keys] == [other.document["id"]]
    assert [key.id for key in KeyRing.read(here.folder / "keys").keys] == ["first"]


@embedded_only
@pytest.mark.slow
@pytest.mark.temporal
def test_an_encrypted_run_is_read_with_the_key_or_through_the_codec_server(own: Project) -> None:
    assert own.run("codec-key", "keys", "--id", "first").code == 0
    sealed = own.where(HOLDFAST_ENCRYPTION_KEY_FILE=str(own.folder / "keys"))
    with sealed.where(HOLDFAST_CODEC_TOKEN=TOKEN).dev("--ui-codec-endpoint", "http://127.0.0.1:8088"):
        assert TOKEN.encode() not in command_lines()
        served = running_server(own.folder / "data")
        assert served is not None
        with urlopen(f"{served.ui}/api/v1/settings", timeout=90) as answer:  # noqa: S310  # our own server's
            assert json.load(answer)["Codec"]["Endpoint"] == f"http://127.0.0.1:8088/{TOKEN}"
        assert not list((own.folder / "data").glob("*.yaml")), "the server has read it"
        ran = sealed.run("run", "assistant", QUESTION, "--json")
        execution_id = ran.document["execution_id"]
        assert ran.document["final_response"] == "42"
        refused = own.run("show", execution_id, "--json")
        assert (refused.code, refused.document["error"]["type"]) == (PayloadRefused.exit_code, "PayloadRefused")
        with sealed.where(HOLDFAST_CODEC_TOKEN=TOKEN).started("codec-server", "--port", "0", "--json") as server:
            told = json.loads(server.heard("url"))
            assert (set(told), told["endpoint"]) == ({"url", "endpoint", "ui_origins"}, None)
            running = running_server(own.folder / "data")
            assert running is not None
            assert running.ui in told["ui_origins"]
            taken = sealed.run("codec-server", "--port", told["url"].rpartition(":")[2], "--json")
            assert (taken.code, taken.document["error"]["type"]) == (PortTaken.exit_code, "PortTaken")
            shown = [
                history(running.address, execution_id, *codec)
                for codec in ((), ("--codec-endpoint", told["url"], "--codec-auth", f"Bearer {TOKEN}"))
            ]
            server.process.send_signal(signal.SIGTERM)
            ended = server.ended()
    assert [QUESTION in each for each in shown] == [False, True]
    assert all("WorkflowExecutionCompleted" in each for each in shown)
    assert (ended.code, ended.err) == (0, "")


def command_lines() -> bytes:
    """What every user of this machine sees of the processes."""
    found: list[bytes] = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(each.read_bytes())
    return b"\n".join(found)


def history(address: str, execution_id: str, *codec: str) -> str:
    """What Temporal's own program shows of a run."""
    program = str(HOLDFAST.with_name("temporal"))
    command = [program, "workflow", "show", "-w", execution_id, "--address", address, *codec]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=90).stdout


@pytest.mark.slow
def test_a_codec_server_draws_a_token_and_tells_what_is_wrong(here: Project) -> None:
    with here.started("codec-server", "--port", "0", "--ui-origin", "http://ui.example:8233") as server:
        told = server.heard("endpoint").split()[-1]
        server.process.send_signal(signal.SIGINT)
        ended = server.ended()
    assert len(told.rpartition("/")[2]) == 32
    assert "for pages of  http://ui.example:8233" in ended.out
    assert "HOLDFAST_ENCRYPTION_KEY_FILE is not set" in ended.err
    assert ended.code == 0
    for words in (("--token-file", "nowhere"), ("--ui-origin", "*")):
        bad = here.run("codec-server", *words)
        assert (bad.code, bad.err.count("\n"), bad.out) == (InvalidInput.exit_code, 1, ""), bad
    dev = here.run("dev", "--ui-codec-endpoint", "127.0.0.1:8088")
    assert (dev.code, "give the codec server's URL" in dev.err) == (InvalidInput.exit_code, True), dev
    shown = here.run("dev", "--ui-codec-endpoint", f"http://127.0.0.1:8088/{TOKEN}")
    assert (shown.code, "the process list" in shown.err, TOKEN in shown.err) == (InvalidInput.exit_code, True, False)
    wrong = here.where(HOLDFAST_ENCRYPTION_KEY_FILE="nowhere").run("list", "--json")
    assert (wrong.code, wrong.document["error"]["type"]) == (InvalidInput.exit_code, "InvalidInput")
