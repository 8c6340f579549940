"""What kustomize makes of deploy/kubernetes: needs its program, and no cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import KUBERNETES, Document, check_restricted, check_schema, documents
from tests.deploy.running import run

pytestmark = pytest.mark.deploy

INSTALL = "go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"

OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{base}]
components: [{components}]
"""
COMPONENTS = ("temporal-tls", "temporal-api-key", "storage-volume", "keda")


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
    above = Path(os.path.relpath(KUBERNETES, tmp_path))
    named = ", ".join(str(above / "components" / name) for name in components)
    (tmp_path / "kustomization.yaml").write_text(OVERLAY.format(base=above / "base", components=named))
    found = built(kustomize, tmp_path)
    for document in found:
        check_schema(document)
    [deployment] = of_kind(found, "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    check_restricted(spec)
    volumes, mounts = {each["name"] for each in spec["volumes"]}, container(deployment)["volumeMounts"]
    assert {each["name"] for each in mounts} == volumes
    assert {each["name"] for each in container(deployment)["volumeMounts"]} >= {"keys", "models", "tmp"}
