"""A production server that wants a certificate and claims of everybody: who may do what, and what others are told."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import HoldfastError, ServerUnavailable
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import call, say
from tests.chaos.processes import worker
from tests.cluster.cluster import Cluster, Security, cluster
from tests.cluster.credentials import Authority
from tests.workflows.chats import Chat, texts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

WORKS = ("default:write",)
"""What a worker and its clients may do with; `holdfast setup` and `doctor` need the operator's part as well."""

OPERATES = ("default:admin", "temporal-system:admin")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    folder = tmp_path_factory.mktemp("secured")
    with cluster(folder, security=Security.made(folder)) as running:
        asyncio.run(running.until_ready())
        yield running


@pytest.fixture
def settings(secured: Cluster, tmp_path: Path) -> Settings:
    storage = (tmp_path / "objects").as_uri()
    return Settings(address=secured.address, task_queue=f"test-{uuid4()}", storage=storage, data_dir=tmp_path)


def allow(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *permissions: str) -> None:
    """Give this process, and workers that it starts, a certificate and these claims."""
    assert cluster.security is not None
    for name, value in cluster.security.of_client(*permissions).items():
        monkeypatch.setenv(name, value)


def holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=dict(os.environ))


async def test_a_worker_and_a_client_need_to_write_in_their_namespace_and_no_more(
    settings: Settings, secured: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, secured, *OPERATES)
    ready = await asyncio.to_thread(holdfast, "setup", "--create-namespace", "--address", settings.address or "")
    assert ready.returncode == 0, ready.stderr
    allow(monkeypatch, secured, *WORKS)
    script = [call("note", text="one"), say("noted")]
    async with FakeOpenAI(script) as endpoint, worker(settings, endpoint, tmp_path / "tools.jsonl"):
        client = await Holdfast.connect(settings)
        chat = Chat(client, AgentDefinition(name="clerk", tools=("note",)))
        state = await chat.ask("go")
        assert texts(state)[-1] == ("assistant", "noted")
        looked = await asyncio.to_thread(
            holdfast, "doctor", "--address", settings.address or "", "--task-queue", settings.task_queue
        )
    assert "ok      workflow worker" in looked.stdout, looked.stdout + looked.stderr


async def test_who_may_only_read_starts_nothing_and_is_told_so(
    settings: Settings, secured: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, secured, "default:read")
    client = await Holdfast.connect(settings)
    with pytest.raises(HoldfastError, match="unauthorized"):
        await client.start(AgentDefinition(name="clerk"), "go")


REFUSED: dict[str, tuple[dict[str, str | None], str]] = {
    "no key": ({"TEMPORAL_API_KEY": None}, "check TEMPORAL_NAMESPACE and TEMPORAL_API_KEY"),
    "a key of nobody": ({"TEMPORAL_API_KEY": "nobody"}, "the server refuses the credentials; check TEMPORAL_API_KEY"),
    "no certificate": (
        {"TEMPORAL_TLS_CLIENT_CERT_PATH": None, "TEMPORAL_TLS_CLIENT_KEY_PATH": None},
        "the server asks for a client certificate; set TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH",
    ),
    "a stranger's certificate": (
        {"TEMPORAL_TLS_CLIENT_CERT_PATH": "client.pem", "TEMPORAL_TLS_CLIENT_KEY_PATH": "client.key"},
        "the server does not trust the authority of the client certificate",
    ),
    "no authority": ({"TEMPORAL_TLS_SERVER_CA_CERT_PATH": None}, "set TEMPORAL_TLS_SERVER_CA_CERT_PATH"),
    "another authority": ({"TEMPORAL_TLS_SERVER_CA_CERT_PATH": "ca.pem"}, "set TEMPORAL_TLS_SERVER_CA_CERT_PATH"),
    "another name": ({"TEMPORAL_TLS_SERVER_NAME": "elsewhere.test"}, "set TEMPORAL_TLS_SERVER_NAME"),
}
"""What is set otherwise than it should be (a file name: one of a stranger's), and what to do about it."""


@pytest.mark.parametrize("case", REFUSED)
async def test_who_is_refused_is_told_which_setting_to_mend(
    case: str, settings: Settings, secured: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Authority(tmp_path / "stranger").pair("client")
    allow(monkeypatch, secured, *WORKS)
    changes, remedy = REFUSED[case]
    for name, value in changes.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            stranger = tmp_path / "stranger" / value
            monkeypatch.setenv(name, str(stranger) if stranger.exists() else value)
    with pytest.raises(ServerUnavailable) as refused:
        await Holdfast.connect(settings)
    assert remedy in str(refused.value)


async def test_who_speaks_no_tls_is_asked_whether_the_server_wants_it(settings: Settings) -> None:
    with pytest.raises(ServerUnavailable, match="does the server want TLS"):
        await Holdfast.connect(settings)
