"""The doctor's look at workspaces: whether a daemon of this machine has what agents' containers need."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from holdfast.connection.settings import Settings
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.extras import install_command
from holdfast.core.tools.workspace_profile import DEFAULT_IMAGE, WORKSPACE, WorkspaceProfile
from holdfast.server.doctor.check_runner import Agents, shared
from holdfast.server.doctor.findings import Finding, fine, from_error, warned, wrong
from holdfast.workspace.backend import WorkspaceUnavailable
from holdfast.workspace.docker.engine import DockerEngine, EngineRefused

WORKSPACES: Final = "workspaces"

DOCKER: Final = "docker"

ANSWER_SECONDS: Final = 2.5
"""How long Docker may take for one answer."""

IMAGES_MAX: Final = 5
"""So many images are looked for."""

ELSEWHERE: Final = "a worker elsewhere has its own"


async def examine_workspaces(settings: Settings, agents: Awaitable[Agents]) -> list[Finding]:
    """Return whether Docker answers here and has the images, where a worker of this environment or an agent needs it.

    Where HOLDFAST_WORKSPACES does not name it, workers may be on another machine: then nothing is an error.
    """
    profiles = await _profiles(agents)
    images = [each.image for each in profiles if each.backend == DOCKER]
    named = DOCKER in settings.workspaces
    given = ", ".join(settings.workspaces)
    if not named and (not images or settings.workspace_queue):
        served = f"their tools are served on {settings.workspace_queue!r}" if settings.workspace_queue else ""
        found = ", ".join(filter(None, (given, served)))
        return [fine(WORKSPACES, found or "no backend is named, and no agent needs Docker")]
    finding = await _docker(list(dict.fromkeys(images)) or [DEFAULT_IMAGE], needed=bool(images))
    if named or not finding.remedy:
        return [finding]
    return [warned(WORKSPACES, finding.result, f"{finding.remedy}; {ELSEWHERE}")]


async def _profiles(agents: Awaitable[Agents]) -> list[WorkspaceProfile]:
    try:
        definitions = await shared(agents)
    except HoldfastError:  # told by its own check
        return []
    return [each.workspace or WorkspaceProfile() for each in definitions.values() if WORKSPACE in each.capabilities]


async def _docker(images: Sequence[str], *, needed: bool) -> Finding:
    """Return what Docker has of the images; `needed` says whether an agent names them."""
    if find_spec("docker") is None:
        return wrong(WORKSPACES, "the package `docker` is not installed", install_command("docker"))
    await asyncio.to_thread(import_module, "docker")  # its import is no part of Docker's answer
    engine = DockerEngine(os.environ.get("DOCKER_HOST"))
    try:
        absent = [image for image in images[:IMAGES_MAX] if not await _has(engine, image)]
    except WorkspaceUnavailable as error:
        return from_error(WORKSPACES, error)
    except EngineRefused as error:
        return wrong(WORKSPACES, f"Docker at {engine.host} refuses: {error}", "see `docker info` on this machine")
    finally:
        engine.close()
    if absent:
        result = f"Docker at {engine.host} has no image {absent[0]!r}"
        return (wrong if needed else warned)(WORKSPACES, result, f"get it with `docker pull {absent[0]}`")
    return fine(WORKSPACES, f"Docker at {engine.host} has {', '.join(map(repr, images[:IMAGES_MAX]))}")


async def _has(engine: DockerEngine, image: str) -> bool:
    try:
        await engine.call(lambda api: api.inspect_image(image), ANSWER_SECONDS)
    except EngineRefused as error:
        if error.missing:
            return False
        raise
    return True
