"""What the compose files promise, read as text: no daemon needed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.envconfig import ClientConfig

from holdfast.server.health_endpoint import HealthEndpoint
from holdfast.server.worker_health import CHECK_SECONDS_MAX
from tests.telemetry.scraping import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
TEMPORAL = Path(sys.executable).with_name("temporal")
MODEL = "stand-in/compose.model.yaml"  # comes on top of compose.yaml
FILES = ("compose.yaml", "compose.worker.yaml", MODEL)
CREDENTIALS = "/run/credentials"


def services(name: str) -> dict[str, dict[str, Any]]:
    """Return a file's services, with what they extend."""
    path = DEPLOY / name
    found: dict[str, dict[str, Any]] = {}
    for service, written in yaml.safe_load(path.read_text())["services"].items():
        base: dict[str, Any] = services("compose.yaml").get(service, {}) if name == MODEL else {}
        if extended := written.get("extends"):
            base = services(str((path.parent / extended["file"]).resolve().relative_to(DEPLOY)))[extended["service"]]
        environment = {**base.get("environment", {}), **written.get("environment", {})}
        found[service] = {**base, **written, "environment": environment}
    return found


EVERY_SERVICE = [
    pytest.param(service, id=f"{file}:{name}") for file in FILES for name, service in services(file).items()
]


@pytest.mark.parametrize("service", EVERY_SERVICE)
def test_every_service_is_locked_down_and_bounded(service: dict[str, Any]) -> None:
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])  # noqa: S108 - the container's own
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    assert not service.get("privileged")


@pytest.mark.parametrize("service", EVERY_SERVICE)
def test_every_port_is_bound_to_loopback(service: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


@pytest.mark.parametrize("service", EVERY_SERVICE)
def test_secrets_come_from_files(service: dict[str, Any]) -> None:
    suspects = [name for name in service.get("environment", {}) if re.search(r"KEY|PASSWORD|PWD|TOKEN|SECRET", name)]
    assert all(name.endswith(("_FILE", "_PATH")) for name in suspects)


@pytest.mark.parametrize("file", FILES)
def test_everything_of_ours_that_runs_shares_one_place_for_large_data(file: str) -> None:
    ours = [each for each in services(file).values() if "HOLDFAST_STORAGE" in each.get("environment", {})]
    assert ours
    volumes = {"objects:/var/lib/holdfast", "{'type': 'volume', 'source': 'objects', 'target': '/var/lib/holdfast'}"}
    for service in ours:
        assert "file:///var/lib/holdfast/objects" in service["environment"]["HOLDFAST_STORAGE"]
        assert volumes & {str(volume) for volume in service["volumes"]}
    declares = "compose.yaml" if file == MODEL else file
    assert "objects" in yaml.safe_load((DEPLOY / declares).read_text())["volumes"]


@pytest.mark.parametrize("service", ["worker", "temporal-namespace"])
def test_a_secured_server_is_reached_with_the_files_of_a_folder(service: str, tmp_path: Path) -> None:
    written = services("compose.worker.yaml")[service]
    assert f"${{CREDENTIALS:-./secrets/credentials}}:{CREDENTIALS}:ro" in written["volumes"]
    (tmp_path / "temporal.toml").write_text('[profile.agents]\napi_key = "in-a-file"\n')
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).write_text(name)
    given = {
        "TEMPORAL_ADDRESS": "temporal.example.org:7233",
        "TEMPORAL_CONFIG_FILE": str(tmp_path / "temporal.toml"),
        "TEMPORAL_PROFILE": "agents",
        "TEMPORAL_TLS": "true",
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(tmp_path / "ca.crt"),
        "TEMPORAL_TLS_SERVER_NAME": "frontend",
        "TEMPORAL_TLS_CLIENT_CERT_PATH": str(tmp_path / "tls.crt"),
        "TEMPORAL_TLS_CLIENT_KEY_PATH": str(tmp_path / "tls.key"),
    }
    passed = {name: value for name, value in given.items() if written["environment"].get(name, "") is None}
    configured = ClientConfig.load_client_connect_config(override_env_vars=passed)
    tls = configured.get("tls")
    assert not isinstance(tls, bool)
    assert tls is not None
    found = (tls.server_root_ca_cert, tls.domain, tls.client_cert, tls.client_private_key)
    assert found == (b"ca.crt", "frontend", b"tls.crt", b"tls.key")
    assert (configured.get("target_host"), configured.get("api_key")) == (given["TEMPORAL_ADDRESS"], "in-a-file")


@pytest.mark.parametrize("service", ["worker", "temporal-namespace"])
def test_the_server_of_compose_is_reached_without_what_another_one_asks_for(service: str) -> None:
    written = services("compose.yaml")[service]["environment"]
    callers = {name: "/of/the/caller" for name in written if name.startswith("TEMPORAL_")}
    environment = {**callers, **{name: value for name, value in written.items() if value is not None}}
    configured = ClientConfig.load_client_connect_config(override_env_vars=environment)
    assert (configured.get("target_host"), configured.get("tls")) == ("temporal:7233", False)
    assert configured.get("api_key") is None


def test_the_variables_that_are_passed_on_are_told_of_and_none_is_needed() -> None:
    page = (DEPLOY / "README.md").read_text()
    written = services("compose.worker.yaml")["worker"]["environment"]
    passed = {name for name, value in written.items() if value is None}
    assert passed >= {"HOLDFAST_MODELS", "HOLDFAST_ENCRYPTION_KEY_FILE", "AWS_REGION", "AWS_ENDPOINT_URL"}
    assert {name for name in passed if f"`{name}`" not in page} == set()
    assert set(re.findall(r"\$\{(\w+):?\?", (DEPLOY / "compose.worker.yaml").read_text())) == set()


@pytest.mark.parametrize("keys", [["an-id", "a/key+"], []], ids=["with keys", "without the file"])
def test_aws_keys_reach_the_worker_from_their_file_alone(keys: list[str], tmp_path: Path) -> None:
    shell, option, script, name = services("compose.worker.yaml")["worker"]["entrypoint"]
    assert CREDENTIALS in script
    (tmp_path / "holdfast").write_text('#!/bin/sh\necho "$# $1 $2 ${AWS_ACCESS_KEY_ID-} ${AWS_SECRET_ACCESS_KEY-}"\n')
    (tmp_path / "holdfast").chmod(0o755)
    if keys:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        lines = [f"{name}='{key}'\n" for name, key in zip(names, keys, strict=True)]
        (tmp_path / "aws.env").write_text("".join(lines))
    command = [shell, option, script.replace("$$", "$").replace(CREDENTIALS, str(tmp_path)), name, "storage", "gc"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["2", "storage", "gc", *keys]


@pytest.mark.parametrize(("problems", "code"), [({}, 0), ({"storage": "away"}, 1)])
async def test_the_workers_check_asks_the_endpoint_that_the_worker_serves(problems: dict[str, str], code: int) -> None:
    async def found() -> dict[str, str]:
        return problems

    worker = services("compose.worker.yaml")["worker"]
    kind, program, *arguments = worker["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    assert worker["environment"]["HOLDFAST_HEALTH"] == "127.0.0.1:8086"
    port = str(free_port())
    assert "8086" in arguments[-1]
    command = [sys.executable, *(each.replace("8086", port) for each in arguments)]
    async with HealthEndpoint(f"127.0.0.1:{port}", found):
        ended = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, timeout=60
        )
    assert (ended.returncode, ended.stderr) == (code, "")
    assert json.loads(ended.stdout).get("problems", {}) == problems
    assert int(worker["healthcheck"]["timeout"].rstrip("s")) > CHECK_SECONDS_MAX


def test_the_workers_check_says_in_one_line_that_nothing_answers_yet() -> None:
    _, _, *arguments = services("compose.worker.yaml")["worker"]["healthcheck"]["test"]
    command = [sys.executable, *(each.replace("8086", str(free_port())) for each in arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")
    [line] = ended.stderr.splitlines()
    assert "refused" in line


def test_what_lives_on_is_restarted_and_what_runs_once_is_not() -> None:
    restarts = {name: service["restart"] for name, service in services("compose.yaml").items()}
    assert restarts == {
        "postgresql": "unless-stopped",
        "temporal": "unless-stopped",
        "temporal-ui": "unless-stopped",
        "worker": "unless-stopped",
        "prometheus": "unless-stopped",
        "grafana": "unless-stopped",
        "temporal-schema": "no",
        "temporal-namespace": "no",
    }


def test_the_official_server_is_the_version_that_our_tests_run_against() -> None:
    version = subprocess.run([TEMPORAL, "--version"], capture_output=True, text=True, check=True).stdout
    locked = re.search(r"Server (\S+), UI (\S+)\)", version)
    text = (DEPLOY / "compose.yaml").read_text()
    assert locked
    assert set(re.findall(r"TEMPORAL_VERSION:-([\d.]+)", text)) == {locked[1]}
    assert set(re.findall(r"TEMPORAL_UI_VERSION:-([\d.]+)", text)) == {locked[2]}


def test_the_stand_ins_are_of_the_versions_that_they_stand_for() -> None:
    written = dict(re.findall(r"^(\w+)=(\S+)$", (DEPLOY / "stand-in" / "versions.env").read_text(), re.MULTILINE))
    assert all(version.endswith("-stand-in") for version in written.values())
    named = dict(re.findall(r"\$\{(\w+_VERSION):-([\w.-]+)\}", (DEPLOY / "compose.yaml").read_text()))
    for name in ("TEMPORAL_VERSION", "TEMPORAL_UI_VERSION"):
        assert written[name] == f"{named[name]}-stand-in"


def test_the_version_of_postgresql_is_the_one_that_the_stand_in_has_been_tested_with() -> None:
    [named] = re.findall(r"POSTGRES_VERSION:-(\d+)", (DEPLOY / "compose.yaml").read_text())
    stand_in = (DEPLOY / "stand-in" / "versions.env").read_text()
    assert re.findall(r"^POSTGRES_VERSION=(\d+)", stand_in, re.MULTILINE) == [named]
    page = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    section = " ".join(page.partition("### PostgreSQL's version\n")[2].partition("\n#")[0].split())
    assert f"PostgreSQL {named}, as `deploy/compose.yaml` starts it" in section
