"""How a worker's build and deployment are named, by options and variables."""

from __future__ import annotations

import pytest

from holdfast.connection.deployment_version import DeploymentVersion, deployment_name, version_from
from holdfast.core.base.errors import InvalidInput
from holdfast.server.worker_process import embedded_worker_environment

VARIABLES = {"HOLDFAST_BUILD_ID": "v1", "HOLDFAST_DEPLOYMENT": "agents"}


def test_a_worker_without_a_build_id_has_no_version() -> None:
    assert version_from("queue", environment={}) is None
    assert version_from("queue", environment={"HOLDFAST_DEPLOYMENT": "agents"}) is None
    with pytest.raises(InvalidInput, match="'agents' needs a build; give --build-id or HOLDFAST_BUILD_ID"):
        version_from("queue", deployment="agents", environment={})


def test_the_deployment_is_the_task_queues_unless_it_is_named_and_options_win() -> None:
    assert version_from("queue", "v1", environment={}) == DeploymentVersion("queue", "v1")
    assert version_from("queue", environment=VARIABLES) == DeploymentVersion("agents", "v1")
    assert version_from("queue", "v2", "other", environment=VARIABLES) == DeploymentVersion("other", "v2")
    assert deployment_name("queue", environment=VARIABLES) == "agents"


@pytest.mark.parametrize("build", ["1.4.0", "2026-11-27_1", "9f8c1d2", "1.0+linux"])
def test_versions_commits_and_dates_are_builds(build: str) -> None:
    assert DeploymentVersion("queue", build).searched_as == f"queue:{build}"


@pytest.mark.parametrize("build", [" ", "v 1", "v:1", "'v1", ".v1", "__unversioned__", "v" * 129, "v1\n"])
def test_what_the_server_or_a_query_would_not_take_is_no_build(build: str) -> None:
    with pytest.raises(InvalidInput, match=r"the build id .* cannot be used; give up to 128 letters"):
        DeploymentVersion("queue", build)


@pytest.mark.parametrize("name", ["a.b", "a:b", "a b", "_a", "q" * 201])
def test_a_task_queue_whose_name_is_no_deployments_asks_for_one(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"a deployment cannot be called .*; give --deployment up to 200 letters"):
        version_from(name, "v1", environment={})


def test_the_worker_of_dev_has_no_build_whatever_the_environment_says() -> None:
    assert VARIABLES.keys().isdisjoint(embedded_worker_environment(VARIABLES))
