"""What kustomize makes of deploy/kubernetes: needs its program, and no cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from holdfast.connection.deployment_version import DeploymentVersion, version_from
from tests.deploy.manifests import KUBERNETES, Document, check_restricted, check_schema, documents
from tests.deploy.running import run

pytestmark = pytest.mark.deploy

INSTALL = "go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"

OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: agents
resources: [{base}]
components: [{components}]
"""
COMPONENTS = ("storage-gc", "temporal-tls", "temporal-api-key", "storage-volume", "keda")
BUILDS = KUBERNETES / "overlays" / "build"
SHARED = {"Namespace", "NetworkPolicy", "ServiceAccount", "TriggerAuthentication"}
"""The kinds of what builds share: removing a build must not remove them."""


@pytest.fixture(scope="module")
def kustomize() -> str:
    """The program: that of the path, or where Go installs it."""
    found = shutil.which("kustomize", path=f"{os.environ['PATH']}{os.pathsep}{Path.home() / 'go' / 'bin'}")
    if found is None:
        pytest.skip(f"kustomize is not installed: {INSTALL}")
    return found


def built(kustomize: str, folder: Path) -> list[Document]:
    return documents(run(kustomize, "build", str(folder)))


def of_kind(found: list[Document], kind: str) -> list[Document]:
    return [each for each in found if each["kind"] == kind]


def container(deployment: Mapping[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1
    return containers[0]


@pytest.mark.parametrize("folder", ["base", "overlays/example"])
def test_what_is_built_fits_the_schemas_and_has_no_secret(kustomize: str, folder: str) -> None:
    found = built(kustomize, KUBERNETES / folder)
    for document in found:
        check_schema(document)
    assert not of_kind(found, "Secret")
    [namespace] = of_kind(found, "Namespace")
    placed = {each["metadata"].get("namespace") for each in found if each["kind"] != "Namespace"}
    assert placed == {namespace["metadata"]["name"]}
    [deployment] = of_kind(found, "Deployment")
    check_restricted(deployment["spec"]["template"]["spec"])
    maps = {each["metadata"]["name"] for each in of_kind(found, "ConfigMap")}
    used = {container(deployment)["envFrom"][0]["configMapRef"]["name"]}
    used |= {
        each["configMap"]["name"] for each in deployment["spec"]["template"]["spec"]["volumes"] if "configMap" in each
    }
    assert used == maps, "a changed setting must replace the pods"


def test_the_example_changes_what_it_says(kustomize: str) -> None:
    found = built(kustomize, KUBERNETES / "overlays" / "example")
    [deployment], [scaled] = of_kind(found, "Deployment"), of_kind(found, "ScaledObject")
    assert container(deployment)["image"] == "registry.example.com/agents/worker:1.4.0"
    assert "replicas" not in deployment["spec"], "KEDA decides"
    assert container(deployment)["resources"]["limits"]["memory"] == "4Gi"
    [settings] = [each["data"] for each in of_kind(found, "ConfigMap") if "TEMPORAL_ADDRESS" in each["data"]]
    assert settings["TEMPORAL_ADDRESS"] == "temporal.example.org:7233"
    assert settings["HOLDFAST_TASK_QUEUE"] == "holdfast"  # of the base
    [authentication] = of_kind(found, "TriggerAuthentication")
    name = authentication["metadata"]["name"]
    assert [each["authenticationRef"]["name"] for each in scaled["spec"]["triggers"]] == [name, name]


@pytest.mark.parametrize("components", [*([name] for name in COMPONENTS), COMPONENTS], ids="+".join)
def test_each_component_goes_with_the_base_and_with_all_others(
    kustomize: str, components: list[str], tmp_path: Path
) -> None:
    found = composed(kustomize, tmp_path, KUBERNETES / "base", components)
    for document in found:
        check_schema(document)
    [deployment] = of_kind(found, "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    check_restricted(spec)
    volumes, mounts = {each["name"] for each in spec["volumes"]}, container(deployment)["volumeMounts"]
    assert {each["name"] for each in mounts} == volumes
    assert {each["name"] for each in container(deployment)["volumeMounts"]} >= {"keys", "models", "tmp"}


def collection(found: list[Document]) -> dict[str, Any]:
    """Return the pod of the collection of the storage."""
    [job] = of_kind(found, "CronJob")
    pod: dict[str, Any] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return pod


def composed(kustomize: str, folder: Path, base: Path, components: Sequence[str], more: str = "") -> list[Document]:
    """Build an overlay in `folder` of a base and components, with `more` in its kustomization."""
    above = Path(os.path.relpath(KUBERNETES, folder))
    named = ", ".join(str(above / "components" / name) for name in components)
    text = OVERLAY.format(base=above / base.relative_to(KUBERNETES), components=named)
    (folder / "kustomization.yaml").write_text(text + more)
    return built(kustomize, folder)


@pytest.mark.parametrize("component", ["temporal-tls", "temporal-api-key", "storage-volume"])
def test_a_collection_reaches_server_and_storage_as_the_workers_do(
    kustomize: str, component: str, tmp_path: Path
) -> None:
    found = composed(kustomize, tmp_path, KUBERNETES / "base", ["storage-gc", component])
    pod, [deployment] = collection(found), of_kind(found, "Deployment")
    check_restricted(pod)
    [collecting], working = pod["containers"], container(deployment)
    assert collecting["envFrom"] == working["envFrom"]
    added = [each for each in collecting["env"] if each["name"] != "HOLDFAST_DATA_DIR"]
    assert added
    assert added == working["env"]
    mounts = [each for each in working["volumeMounts"] if each["name"] != "models"]
    assert sorted(collecting["volumeMounts"], key=str) == sorted(mounts, key=str)
    assert {each["name"] for each in pod["volumes"]} == {each["name"] for each in mounts}


def test_the_newest_build_can_collect(kustomize: str, tmp_path: Path) -> None:
    copied = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, copied)
    newest = copied / BUILDS.relative_to(KUBERNETES) / "v2"
    alone = built(kustomize, newest)
    with (newest / "kustomization.yaml").open("a", encoding="utf-8") as file:
        file.write("components: [../../../components/storage-gc, ../../../components/temporal-tls]\n")
    found = built(kustomize, newest)
    [deployment] = of_kind(found, "Deployment")
    assert [deployment] == of_kind(alone, "Deployment"), "its certificates are there once"
    [collecting] = collection(found)["containers"]
    assert collecting["image"] == container(deployment)["image"] == "registry.example.com/agents/worker:v2"
    assert collecting["envFrom"] == container(deployment)["envFrom"]
    assert {each["name"] for each in container(deployment)["env"]} < {each["name"] for each in collecting["env"]}


@pytest.mark.parametrize("build", ["v1", "v2"])
def test_a_build_has_its_own_workers_settings_budget_and_scaler(kustomize: str, build: str) -> None:
    found = built(kustomize, BUILDS / build)
    for document in found:
        check_schema(document)
        assert document["metadata"]["namespace"] == "agents"
    assert not {each["kind"] for each in found} & SHARED
    [deployment], [budget] = of_kind(found, "Deployment"), of_kind(found, "PodDisruptionBudget")
    check_restricted(deployment["spec"]["template"]["spec"])
    assert container(deployment)["image"] == f"registry.example.com/agents/worker:{build}"
    [(name, given)] = [
        (each["metadata"]["name"], each["data"])
        for each in of_kind(found, "ConfigMap")
        if "HOLDFAST_MODEL" in each["data"]
    ]
    assert container(deployment)["envFrom"] == [{"configMapRef": {"name": name}}]
    version = DeploymentVersion("holdfast", build)
    assert version_from(given["HOLDFAST_TASK_QUEUE"], environment=given) == version
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == build
    [spread] = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    for selector in (deployment["spec"]["selector"], budget["spec"]["selector"], spread["labelSelector"]):
        assert selector["matchLabels"]["app.kubernetes.io/version"] == build
        assert selector["matchLabels"].items() <= labels.items()
    [scaled] = of_kind(found, "ScaledObject")
    assert scaled["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    for trigger in scaled["spec"]["triggers"]:
        said = trigger["metadata"]
        named = (said["workerDeploymentNameFromEnv"], said["workerDeploymentBuildIdFromEnv"])
        assert [given[variable] for variable in named] == [version.deployment, version.build_id]


def test_builds_side_by_side_share_what_is_around_them_alone(kustomize: str) -> None:
    found, builds = built(kustomize, BUILDS), [built(kustomize, BUILDS / build) for build in ("v1", "v2")]
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(names) == len(set(names))
    assert {kind for kind, _ in names} >= SHARED
    own = [each for each in found if each["kind"] not in SHARED]
    assert sorted(own, key=str) == sorted(chain(*builds), key=str)
    [account] = of_kind(found, "ServiceAccount")
    [reaching] = [each for each in of_kind(found, "NetworkPolicy") if each["spec"]["podSelector"]]
    for deployment in of_kind(found, "Deployment"):
        assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert reaching["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
