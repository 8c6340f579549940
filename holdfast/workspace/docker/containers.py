"""`Containers`: the containers of workspaces, made where they are missing, renewed, ended and swept up.

Nothing that is remembered of a container is relied on: any worker of a host finds it by its name, and a
container ends by itself when nobody renews its lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from holdfast.core.tools.workspace_profile import WorkspaceProfile
from holdfast.workspace.backend import Workspace, WorkspaceLost, WorkspaceUnavailable
from holdfast.workspace.docker.container_spec import (
    COMMAND_USER,
    LABEL,
    LABEL_PROFILE,
    LEASE_SECONDS,
    PROGRAM_COMMAND,
    RENEW_SECONDS,
    container_labels,
    container_name,
    container_options,
    host_options,
    ulimits,
    volume_mounts,
)
from holdfast.workspace.docker.engine import APIClient, DockerEngine, EngineRefused
from holdfast.workspace.docker.exec_stream import ExecStream

ENSURE_SECONDS_MAX: Final = 30.0
"""How long a container may take to be there. Less than a lease: a new one is never swept up before it starts."""

POLL_SECONDS: Final = 0.05
"""How often to look whether a container that ends is gone."""

KILL_SECONDS_MAX: Final = 5.0
"""How long ending a container may take to be confirmed."""

RENEWAL_SECONDS_MAX: Final = 5.0
"""How long one renewal may take; it is repeated after RENEW_SECONDS."""

RENEWAL_SIGNAL: Final = "SIGURG"

UNKNOWN_EFFECT: Final = "it may have had its effect; its files are as last saved"


class Containers:
    """The containers of one namespace's workspaces at one Docker daemon."""

    def __init__(self, engine: DockerEngine, namespace: str) -> None:
        self._engine = engine
        self._namespace = namespace
        self._known: dict[str, _ContainerLease] = {}

    async def ensure(self, workspace: Workspace) -> bool:
        """Have the workspace's container run, with a fresh lease, and return whether it is a new one.

        One that was seen to run within RENEWED_SECONDS_MAX is taken to run; `program` refuses where it does not.

        Raises WorkspaceUnavailable where Docker, the image or the runtime is missing, or refuses.
        """
        profile = workspace.profile
        name = container_name(workspace.id, self._namespace)
        labels = container_labels(workspace, self._namespace)
        known = self._known.get(name)
        if known is not None and known.profile == labels[LABEL_PROFILE] and await self._renew_if_due(known):
            return False
        try:
            async with asyncio.timeout(ENSURE_SECONDS_MAX):
                created, identity = await self._ensured(name, labels, profile)
        except TimeoutError:
            raise WorkspaceUnavailable(
                f"the container {name} was not there within {ENSURE_SECONDS_MAX:g} s; see `docker ps -a` on the "
                "worker's host"
            ) from None
        except EngineRefused as error:
            raise WorkspaceUnavailable(_refusal(error, profile)) from error
        while len(self._known) >= KNOWN_MAX:
            self._known.pop(next(iter(self._known)), None)
        self._known[name] = _ContainerLease(labels[LABEL_PROFILE], identity, time.monotonic())
        return created

    async def _renew_if_due(self, known: _ContainerLease) -> bool:
        """Renew the lease unless that was done within RENEWED_SECONDS_MAX; return whether the container still runs."""
        if time.monotonic() - known.renewed < RENEWED_SECONDS_MAX:
            return True
        if not await self._signalled(known.identity, RENEWAL_SIGNAL):
            return False
        known.renewed = time.monotonic()
        return True

    def _reference(self, workspace: Workspace) -> str:
        """Return the container's id, which no later container of that name shares; the name where it is not known."""
        name = container_name(workspace.id, self._namespace)
        known = self._known.get(name)
        return name if known is None else known.identity

    async def _ensured(self, name: str, labels: Mapping[str, str], profile: WorkspaceProfile) -> tuple[bool, str]:
        """Make and start the container unless it runs; what another worker does to it meanwhile only repeats this."""
        while True:
            with suppress(_Repeated):
                found = await self._inspected(name)
                if found is None:
                    identity = await self._create(name, labels, profile)
                    await self._start(identity)
                    return True, identity
                identity, status = str(found["Id"]), str(found["State"]["Status"])
                if found["Config"]["Labels"].get(LABEL_PROFILE) == labels[LABEL_PROFILE]:
                    if status == "created":
                        await self._start(identity)
                        return True, identity
                    if status == "running" and await self._signalled(identity, RENEWAL_SIGNAL):
                        return False, identity
                await self._remove(identity)
            await asyncio.sleep(POLL_SECONDS)

    async def _inspected(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._engine.call(lambda api: api.inspect_container(name))
        except EngineRefused as error:
            if error.missing:
                return None
            raise

    async def _create(self, name: str, labels: Mapping[str, str], profile: WorkspaceProfile) -> str:
        def create(api: APIClient) -> str:
            from docker.types import Ulimit  # noqa: PLC0415  # an extra

            config: dict[str, Any] = api.inspect_image(profile.image)["Config"] or {}
            volumes: dict[str, Any] = config.get("Volumes") or {}
            host = api.create_host_config(
                **host_options(profile),
                ulimits=[Ulimit(name=each, soft=value, hard=value) for each, value in ulimits(profile).items()],
                mounts=volume_mounts(list(volumes)),
            )
            created = api.create_container(
                **container_options(profile), name=name, labels=dict(labels), host_config=host
            )
            return str(created["Id"])

        try:
            return await self._engine.call(create)
        except EngineRefused as error:
            if error.conflict:  # another worker has made it, or it is being removed
                raise _Repeated from error
            raise

    async def _start(self, identity: str) -> None:
        try:
            await self._engine.call(lambda api: api.start(identity))
        except EngineRefused as error:
            if error.missing and "No such container" in error.explanation:  # swept up, or ended by another worker
                raise _Repeated from error
            await self._remove(identity)
            raise

    async def renew(self, workspace: Workspace) -> bool:
        """Renew the lease and return whether the container still runs. Raises WorkspaceUnavailable."""
        return await self._signalled(self._reference(workspace), RENEWAL_SIGNAL)

    async def _signalled(self, container: str, signal: str, seconds: float = RENEWAL_SECONDS_MAX) -> bool:
        try:
            await self._engine.call(lambda api: api.kill(container, signal), seconds)
        except EngineRefused as error:
            if error.missing or error.conflict:
                return False
            raise WorkspaceUnavailable(f"Docker refused to signal the container {container}: {error}") from error
        return True

    @asynccontextmanager
    async def program(self, workspace: Workspace) -> AsyncGenerator[ExecStream]:
        """Start the program in the workspace's container and yield its stream; the lease is renewed meanwhile.

        Raises WorkspaceUnavailable where it cannot be started.
        """
        container = self._reference(workspace)
        try:
            stream = await self._engine.execute(container, PROGRAM_COMMAND, COMMAND_USER)
        except EngineRefused as error:
            self._known.pop(container_name(workspace.id, self._namespace), None)
            raise WorkspaceUnavailable(f"Docker refused to start a command in the workspace: {error}") from error
        renewing = asyncio.create_task(self._renewed(workspace))
        try:
            yield stream
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await stream.close()

    async def _renewed(self, workspace: Workspace) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(WorkspaceUnavailable):  # the next one may pass; else the container ends, which its user sees
                await self.renew(workspace)

    async def end(self, workspace: Workspace) -> bool:
        """Kill the container with all that runs in it, and return whether that is confirmed, in bounded time."""
        container = self._reference(workspace)
        self._known.pop(container_name(workspace.id, self._namespace), None)
        return await self._ended(container)

    async def _ended(self, container: str) -> bool:
        with suppress(WorkspaceUnavailable, EngineRefused, TimeoutError):
            async with asyncio.timeout(KILL_SECONDS_MAX):
                await self._remove(container)
                return True
        return False

    async def _remove(self, container: str) -> None:
        """Remove the container, running or not, and wait until its name is free."""
        with suppress(EngineRefused):  # it is gone, or is being removed
            await self._engine.call(lambda api: api.remove_container(container, force=True, v=True))
        while await self._inspected(container) is not None:  # noqa: ASYNC110  # Docker tells of it to nobody
            await asyncio.sleep(POLL_SECONDS)

    async def loss(self, workspace: Workspace, complaint: str) -> WorkspaceLost:
        """Return the error for a program that ended without an answer: what has become of it and its container.

        A container that still runs is ended: its memory may be full of files, so that no program starts in it again.
        """
        container = self._reference(workspace)
        self._known.pop(container_name(workspace.id, self._namespace), None)
        try:
            found = await self._inspected(container)
        except (WorkspaceUnavailable, EngineRefused) as error:
            return WorkspaceLost(f"the connection to the workspace broke meanwhile ({error}); {UNKNOWN_EFFECT}")
        if found is None or found["State"]["Status"] != "running":
            return WorkspaceLost(f"the workspace's container ended meanwhile; {UNKNOWN_EFFECT}")
        await self._ended(container)
        reason = (
            complaint or f"it was killed, perhaps by needing more than {workspace.profile.memory_mb} MB, files included"
        )
        return WorkspaceLost(f"what ran in the workspace ended without an answer ({reason}); {UNKNOWN_EFFECT}")

    async def sweep(self) -> int:
        """Remove containers of ours that do not run and never will, and return how many they were.

        One that runs is never touched: it ends by itself. Neither is one that a worker may be about to start. Raises
        WorkspaceUnavailable, EngineRefused.
        """

        def listed(api: APIClient) -> tuple[datetime, list[str]]:
            now = datetime.fromisoformat(str(api.info()["SystemTime"])[:19]).replace(tzinfo=UTC)
            filters = {"label": LABEL, "status": ["created", "exited", "dead"]}
            return now, [each["Id"] for each in api.containers(all=True, filters=filters)]

        now, identities = await self._engine.call(listed)
        removed = 0
        for identity in identities:
            found = await self._inspected(identity)
            if found is None or found["State"]["Status"] not in {"created", "exited", "dead"}:
                continue
            created = datetime.fromisoformat(found["Created"][:19]).replace(tzinfo=UTC)
            if now - created < timedelta(seconds=LEASE_SECONDS):
                continue
            with suppress(EngineRefused):  # another worker sweeps, too
                await self._engine.call(partial(_remove_ended, identity))
                removed += 1
        return removed


KNOWN_MAX: Final = 10_000
"""The most containers that are remembered, which saves one or two calls of the API per command."""

RENEWED_SECONDS_MAX: Final = 5.0
"""A lease that was renewed so lately is not renewed again for the next command."""


@dataclass
class _ContainerLease:
    """A container as this worker saw it last: its profile's digest, its id, and when its lease was renewed."""

    profile: str
    identity: str
    renewed: float


def _remove_ended(identity: str, api: APIClient) -> None:
    api.remove_container(identity, v=True)


class _Repeated(Exception):
    """Another worker was quicker: look again."""


def _refusal(error: EngineRefused, profile: WorkspaceProfile) -> str:
    if error.missing and "image" in error.explanation.lower():
        return (
            f"the image {profile.image!r} is not on the worker's host; get it with `docker pull {profile.image}`, "
            "or name another in the definition's workspace"
        )
    if "executable file not found" in error.explanation and "python3" in error.explanation:
        return f"the image {profile.image!r} has no python3, which a workspace needs; name an image of Python"
    if "runtime" in error.explanation.lower() and profile.runtime is not None:
        return f"Docker does not start the runtime {profile.runtime!r}: {error}; see `docker info` for those it knows"
    if error.missing and "network" in error.explanation.lower():
        return f"Docker has no network {profile.network!r} on the worker's host: {error}"
    return f"Docker refused to make a container: {error}"
