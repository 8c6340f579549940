"""What the files of deploy/kubernetes promise, read as text: no cluster, no kustomize."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from temporalio.envconfig import ClientConfig
from typer.testing import CliRunner

import worker
from holdfast.cli.main import app
from holdfast.connection.settings import Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.wire.contracts import waiting_queue
from holdfast.models.route_file import read_routes
from holdfast.runtime.open_resources import CLOSE_SECONDS_MAX
from holdfast.server.worker_health import CHECK_SECONDS_MAX
from tests.deploy.manifests import (
    KUBERNETES,
    Document,
    check_restricted,
    check_schema,
    documents,
    is_secret,
    kustomizations,
    named_files,
    settings,
)

ROOT = KUBERNETES.parents[1]
KUSTOMIZATIONS = dict(kustomizations())
RESOURCES = [
    pytest.param(document, id=f"{folder.name}/{name}:{document['kind']}:{document['metadata']['name']}")
    for folder, kustomization in KUSTOMIZATIONS.items()
    for name in kustomization.get("resources", ())
    if (folder / name).is_file()
    for document in documents((folder / name).read_text())
]


def resource(path: str, kind: str = "") -> Document:
    """Return the document of a file, or the last one of that kind."""
    return [each for each in documents((KUBERNETES / path).read_text()) if kind in ("", each["kind"])][-1]


def pod() -> dict[str, Any]:
    template: dict[str, Any] = resource("base/worker/worker.yaml")["spec"]["template"]
    return template


def container() -> dict[str, Any]:
    containers: list[dict[str, Any]] = pod()["spec"]["containers"]
    assert len(containers) == 1
    return containers[0]


@pytest.mark.parametrize("document", RESOURCES)
def test_every_resource_fits_its_schema(document: Document) -> None:
    check_schema(document)


def test_a_resource_with_an_unknown_field_would_be_noticed() -> None:
    wrong = resource("base/worker/worker.yaml")
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 60
    with pytest.raises(Exception, match="terminationGracePeriod"):
        check_schema(wrong)


def test_every_file_is_named_by_a_kustomization_and_every_name_is_a_file() -> None:
    named = set[Path]()
    for folder, kustomization in KUSTOMIZATIONS.items():
        for name in named_files(kustomization):
            path = (folder / name).resolve()
            assert path.exists(), f"{folder}/kustomization.yaml names {name}"
            assert path.is_relative_to(KUBERNETES)
            named.add(path)
    there = {path.resolve() for path in KUBERNETES.rglob("*") if path.is_file()}
    own = {folder / "kustomization.yaml" for folder in KUSTOMIZATIONS}
    assert there - own == {path for path in named if path.is_file()}


def test_pods_are_restricted_and_run_as_the_user_of_the_image() -> None:
    spec = pod()["spec"]
    check_restricted(spec)
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    user = f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}"
    assert f"\nUSER {user}\n" in dockerfile
    assert '\nENTRYPOINT ["holdfast"]\n' in dockerfile  # the container's arguments are that program's
    labels = resource("base/namespace/namespace.yaml")["metadata"]["labels"]
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "audit", "warn")} == {"restricted"}
    assert resource("base/namespace/service-account.yaml")["metadata"]["name"] == spec["serviceAccountName"]


def test_the_policies_are_about_the_pods_of_the_workers() -> None:
    labels, deployment = pod()["metadata"]["labels"], resource("base/worker/worker.yaml")
    policy, budget = resource("base/namespace/network-policy.yaml"), resource("base/worker/disruption-budget.yaml")
    for selector in (deployment["spec"]["selector"], policy["spec"]["podSelector"], budget["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()
    assert budget["spec"]["maxUnavailable"] < deployment["spec"]["replicas"]
    deny = documents((KUBERNETES / "base" / "namespace" / "network-policy.yaml").read_text())[0]
    assert deny["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    [ingress] = policy["spec"]["ingress"]
    assert ingress["from"], "metrics are not for everybody"
    assert [each["port"] for each in ingress["ports"]] == ["metrics"]
    ports = {each["port"] for rule in policy["spec"]["egress"] for each in rule["ports"]}
    address = settings("base/worker/settings.env")["TEMPORAL_ADDRESS"]
    assert ports == {53, 443, int(address.rpartition(":")[2])}
    outside = [{to["ipBlock"]["cidr"] for to in rule["to"] if "ipBlock" in to} for rule in policy["spec"]["egress"]]
    assert outside == [set(), {"0.0.0.0/0", "::/0"}, {"0.0.0.0/0", "::/0"}], "server and models by IPv4 and IPv6"


def served(monkeypatch: pytest.MonkeyPatch) -> tuple[str | None, str | None, Settings, WorkerSettings]:
    """Give our own program the container's arguments; return what the worker would serve, as it reads them."""
    commands, runs = list[list[str]](), list[tuple[str | None, Any]]()

    async def kept(address: str | None, serving: Any) -> None:  # noqa: ANN401  # a partial
        runs.append((address, serving))

    def replaced(_path: str, command: list[str], _environment: dict[str, str]) -> None:
        commands.append(command)

    monkeypatch.setattr(os, "execve", replaced)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    for name, value in settings("base/worker/settings.env").items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, container()["args"])
    assert result.exit_code == 0, result.output
    [command] = commands
    monkeypatch.setattr(worker, "_with_health", kept)
    assert worker.main(command[command.index("worker") + 1 :]) == 0
    [(address, serving)] = runs
    told, serving_settings, options = serving.args
    return address, options.metrics, told, serving_settings


def test_our_own_program_takes_the_arguments_and_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    health, metrics, told, serving = served(monkeypatch)
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    assert (health, metrics) == (f"0.0.0.0:{ports['health']}", f"0.0.0.0:{ports['metrics']}")
    assert told.modules == ("my_tools",)
    mounts = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert str(told.models_file) == f"{mounts['models']}/models.yaml"
    assert told.storage == settings("base/worker/settings.env")["HOLDFAST_STORAGE"]
    # what bounds the end of a worker (worker.py), and a resource of the tools besides
    longest = serving.grace_seconds + worker.STUBBORN_SECONDS + CLOSE_SECONDS_MAX
    assert longest < pod()["spec"]["terminationGracePeriodSeconds"]


def test_probes_ask_the_health_endpoint_and_wait_longer_than_its_checks() -> None:
    probes = {name: probe for name, probe in container().items() if name.endswith("Probe")}
    assert {name: (probe["httpGet"]["path"], probe["httpGet"]["port"]) for name, probe in probes.items()} == {
        "startupProbe": ("/live", "health"),
        "livenessProbe": ("/live", "health"),
        "readinessProbe": ("/ready", "health"),
    }
    assert all(probe["timeoutSeconds"] > CHECK_SECONDS_MAX for probe in probes.values())
    liveness = probes["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60, "a tool may hold the lock for a while"


@pytest.mark.parametrize("name", ["base/worker", "overlays/example", "overlays/build/workers"])
def test_settings_are_variables_that_there_are_and_no_secrets(name: str) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    keys = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}["keys"]
    for variable, value in settings(f"{name}/settings.env").items():
        assert f"`{variable}`" in page
        assert not is_secret(variable)
        assert not variable.endswith("_FILE") or value.startswith(f"{keys}/")


@pytest.mark.parametrize("name", ["base/worker", "overlays/example"])
def test_models_are_routes_whose_keys_are_in_files(name: str) -> None:
    path = KUBERNETES / name / "models.yaml"
    assert read_routes(path)
    assert "variable:" not in path.read_text()


def test_the_certificates_are_where_the_sdk_looks_for_them(tmp_path: Path) -> None:
    [patched] = resource("components/temporal-tls/worker.yaml")["spec"]["template"]["spec"]["containers"]
    [mount] = patched["volumeMounts"]
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_text(name)
    environment = {each["name"]: each["value"].replace(mount["mountPath"], str(tmp_path)) for each in patched["env"]}
    tls = ClientConfig.load_client_connect_config(disable_file=True, override_env_vars=environment).get("tls")
    assert not isinstance(tls, bool)
    assert tls is not None
    found = (tls.client_cert, tls.client_private_key, tls.server_root_ca_cert)
    assert found == (b"tls.crt", b"tls.key", b"ca.crt")


def test_the_api_key_is_read_from_its_file(tmp_path: Path) -> None:
    [patched] = resource("components/temporal-api-key/worker.yaml")["spec"]["template"]["spec"]["containers"]
    [variable] = patched["env"]
    text = (KUBERNETES / "components" / "temporal-api-key" / "kustomization.yaml").read_text()
    (tmp_path / "temporal.toml").write_text("\n".join(re.findall(r"^#   (.+)$", text, re.MULTILINE)))
    place = variable["value"].replace(patched["volumeMounts"][0]["mountPath"], str(tmp_path))
    environment = {**settings("base/worker/settings.env"), variable["name"]: place}
    configured = ClientConfig.load_client_connect_config(override_env_vars=environment)
    assert (configured.get("api_key"), configured.get("tls")) == ("...", True)
    assert configured.get("target_host") == environment["TEMPORAL_ADDRESS"]


def test_workers_are_scaled_by_the_queues_that_they_poll() -> None:
    scaled = resource("components/keda/scaled-object.yaml")["spec"]
    assert scaled["scaleTargetRef"]["name"] == resource("base/worker/worker.yaml")["metadata"]["name"]
    variables = settings("base/worker/settings.env")
    queue = variables["HOLDFAST_TASK_QUEUE"]
    assert [each["metadata"]["taskQueue"] for each in scaled["triggers"]] == [queue, waiting_queue(queue)]
    for each in scaled["triggers"]:
        assert {value for name, value in each["metadata"].items() if name.endswith("FromEnv")} <= variables.keys()


def test_a_collection_is_no_worker_and_runs_our_own_command_with_their_settings_and_keys() -> None:
    job = resource("components/storage-gc/cron-job.yaml")["spec"]["jobTemplate"]["spec"]["template"]
    check_restricted(job["spec"])
    [collecting] = job["spec"]["containers"]
    shown = CliRunner().invoke(app, [*collecting["args"], "--help"])
    assert shown.exit_code == 0, shown.output
    assert (collecting["image"], collecting["envFrom"]) == (container()["image"], container()["envFrom"])
    mounted = {each["name"]: each["mountPath"] for each in collecting["volumeMounts"]}
    assert mounted["keys"] == {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}["keys"]
    assert {each["name"]: each["value"] for each in collecting["env"]} == {"HOLDFAST_DATA_DIR": mounted["tmp"]}
    labels = job["metadata"]["labels"]
    policy, budget = resource("base/namespace/network-policy.yaml"), resource("base/worker/disruption-budget.yaml")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    for selector in (resource("base/worker/worker.yaml")["spec"]["selector"], budget["spec"]["selector"]):
        assert not selector["matchLabels"].items() <= labels.items()
