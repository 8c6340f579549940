"""`DeploymentVersion`: the build of a worker within a Temporal Worker Deployment, and how both are named."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.core.base.errors import InvalidInput

BUILD_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}"
"""What a build may be called: a version number, a commit or an image's tag."""

DEPLOYMENT_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}"
"""What a deployment may be called; Temporal writes a version as DEPLOYMENT:BUILD, or with a dot."""


@dataclass(frozen=True, slots=True)
class DeploymentVersion:
    """One build of a deployment's workers. Raises InvalidInput for names that cannot be used."""

    deployment: str
    build_id: str

    def __post_init__(self) -> None:
        """Refuse names that the server, or a query for its runs, would not take."""
        if re.fullmatch(BUILD_PATTERN, self.build_id) is None:
            allowed = "up to 128 letters, digits and . _ + -, the first a letter or digit"
            raise InvalidInput(f"the build id {self.build_id[:140]!r} cannot be used; give {allowed}")
        if re.fullmatch(DEPLOYMENT_PATTERN, self.deployment) is None:
            allowed = "give --deployment up to 200 letters, digits, _ and -, the first a letter or digit"
            raise InvalidInput(f"a deployment cannot be called {self.deployment[:140]!r}; {allowed}")

    @property
    def searched_as(self) -> str:
        """The value of the search attribute `TemporalWorkerDeploymentVersion` of runs that are pinned to it."""
        return f"{self.deployment}:{self.build_id}"

    def __str__(self) -> str:
        """Return it as people are shown it."""
        return f"build {self.build_id!r} of deployment {self.deployment!r}"


def deployment_name(task_queue: str, named: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the deployment that is meant: `named`, else HOLDFAST_DEPLOYMENT, else the one of the task queue's name."""
    return named or environment.get("HOLDFAST_DEPLOYMENT") or task_queue


def version_from(
    task_queue: str,
    build_id: str | None = None,
    deployment: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> DeploymentVersion | None:
    """Return the version that a worker of `task_queue` is of, none without a build id: then it has no version.

    `build_id` and `deployment` are options, which win over HOLDFAST_BUILD_ID and HOLDFAST_DEPLOYMENT. Raises
    InvalidInput.
    """
    build = build_id or environment.get("HOLDFAST_BUILD_ID")
    if build:
        return DeploymentVersion(deployment_name(task_queue, deployment, environment), build)
    if deployment:
        raise InvalidInput(f"the deployment {deployment[:140]!r} needs a build; give --build-id or HOLDFAST_BUILD_ID")
    return None
