"""What a definition says of its workspace: bounded, refused in words, and bringing its tools."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast import AgentDefinition
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.workspace_profile import WorkspaceProfile


def test_a_workspace_brings_its_capability_once() -> None:
    assert AgentDefinition.model_validate({"name": "a", "workspace": {}}).capabilities == ("workspace",)
    named = {"name": "a", "workspace": {"backend": "folder"}, "capabilities": ["mail", "workspace"]}
    assert AgentDefinition.model_validate(named).capabilities == ("mail", "workspace")
    assert AgentDefinition(name="a").capabilities == ()


def test_a_definition_without_one_is_written_as_before() -> None:
    assert "workspace" not in AgentDefinition(name="a").model_dump_json()


@pytest.mark.parametrize(
    "fields",
    [
        {"backend": "vm"},
        {"scope": "world"},
        {"image": "--privileged"},
        {"image": "a b"},
        {"network": "host; rm"},
        {"runtime": "-x"},
        {"memory_mb": 0},
        {"memory_mb": 10**9},
        {"cpus": 0},
        {"pids_max": 1},
        {"file_mb_max": 0},
        {"disk_mb": -1},
        {"files": "latest"},
        {"mounts": ["/"]},
    ],
)
def test_what_a_workspace_cannot_have_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WorkspaceProfile.model_validate(fields)


def test_a_worker_without_the_backend_says_how_it_is_started() -> None:
    definition = AgentDefinition(name="coder", workspace=WorkspaceProfile())
    with pytest.raises(InvalidInput, match=r"needs the backend 'docker'.*it has none.*`--workspace docker`"):
        Toolset().equip(definition)
