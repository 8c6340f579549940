"""The files of deploy/kubernetes as the tests of this folder read them: documents, and the schemas they must fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import yaml

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.30", "1.37")
"""The oldest Kubernetes that the files are checked for, and the newest that the schemas know."""

KEDA = "keda.sh/v1alpha1"
TRIGGER_KEYS = frozenset(
    {
        *("endpoint", "endpointFromEnv", "namespace", "namespaceFromEnv", "taskQueue", "taskQueueFromEnv"),
        *("queueTypes", "targetQueueSize", "activationTargetQueueSize", "minConnectTimeout", "tlsServerName"),
        *("workerDeploymentName", "workerDeploymentNameFromEnv"),
        *("workerDeploymentBuildId", "workerDeploymentBuildIdFromEnv"),
    }
)
"""What KEDA's `temporal` trigger takes since 2.17 (a build: 2.20), without what is deprecated; all of it as text."""

AUTHENTICATION = frozenset({"apiKey", "ca", "cert", "key", "keyPassword"})
"""The trigger's parameters that come from secrets."""

Document = dict[str, Any]

RESTRICTED_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
"""What pods of the level `restricted` may mount."""


def documents(text: str) -> list[Document]:
    """Return the documents of a YAML text that are not empty."""
    return [each for each in yaml.safe_load_all(text) if each]


def check_schema(document: Document) -> None:
    """Raise unless the document fits the schema of its kind, without unknown fields; KEDA's kinds have rules below."""
    if document["apiVersion"] == KEDA:
        check_keda(document)
        return
    for version in VERSIONS:
        assert kubernetes_validate.validate(document, version, strict=True) == version


def check_keda(document: Document) -> None:
    """Check the fields of a ScaledObject or a TriggerAuthentication that are used here."""
    spec = document["spec"]
    if document["kind"] == "TriggerAuthentication":
        for each in spec["secretTargetRef"]:
            assert each.keys() == {"parameter", "name", "key"}
            assert each["parameter"] in AUTHENTICATION
        return
    assert document["kind"] == "ScaledObject"
    assert spec.keys() <= {
        *("scaleTargetRef", "pollingInterval", "cooldownPeriod", "minReplicaCount", "maxReplicaCount"),
        *("advanced", "triggers"),
    }
    scaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}}
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", **spec["scaleTargetRef"]}
    counts = {"minReplicas": spec["minReplicaCount"], "maxReplicas": spec["maxReplicaCount"]}
    check_schema({**scaler, "spec": {"scaleTargetRef": target, **counts, "behavior": behavior}})
    for trigger in spec["triggers"]:
        assert trigger["type"] == "temporal"
        assert trigger.keys() <= {"type", "name", "metadata", "authenticationRef", "metricType"}
        assert trigger["metadata"].keys() <= TRIGGER_KEYS
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        assert set(trigger["metadata"]["queueTypes"].split(",")) <= {"workflow", "activity", "nexus"}
        named = {name.removesuffix("FromEnv") for name in trigger["metadata"] if name.startswith("workerDeployment")}
        assert named in (set(), {"workerDeploymentName", "workerDeploymentBuildId"}), "KEDA refuses one alone"


def check_restricted(pod: Mapping[str, Any]) -> None:
    """Raise unless a pod is of the level `restricted` of the Pod Security Standards, and stricter where it can be."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "hostPort" not in str(container.get("ports"))
        assert container["resources"]["limits"]["memory"]
        assert not [each for each in container.get("env", ()) if is_secret(each["name"])]
    for volume in pod["volumes"]:
        assert volume.keys() - {"name"} <= RESTRICTED_VOLUMES


def is_secret(variable: str) -> bool:
    """Return whether a variable of that name would hold a secret itself, instead of the name of a file."""
    words = ("KEY", "TOKEN", "SECRET", "PASSWORD")
    return any(word in variable for word in words) and not variable.endswith(("_FILE", "_PATH"))


def kustomizations() -> Iterator[tuple[Path, Document]]:
    """Yield each kustomization's folder and what it says."""
    for path in sorted(KUBERNETES.rglob("kustomization.yaml")):
        yield path.parent, yaml.safe_load(path.read_text())


def named_files(kustomization: Document) -> Iterator[str]:
    """Yield the files and folders that a kustomization names."""
    yield from kustomization.get("resources", ())
    yield from kustomization.get("components", ())
    yield from kustomization.get("configurations", ())
    yield from (each["path"] for each in kustomization.get("patches", ()) if "path" in each)
    for generator in kustomization.get("configMapGenerator", ()):
        yield from (name.rpartition("=")[2] for name in generator.get("files", ()))
        yield from generator.get("envs", ())


def settings(name: str) -> dict[str, str]:
    """Return the variables of a file of settings."""
    lines = (line for line in (KUBERNETES / name).read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)
