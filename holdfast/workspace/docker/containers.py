"""`Containers`: the containers of workspaces, made where they are missing, renewed, ended and swept up.

Nothing about a container is remembered that Docker does not know: any worker of a host finds it by its name, and a
container ends by itself when nobody renews its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.workspace.docker.container_spec import (
    COMMAND_USER,
    LABEL,
    LABEL_PROFILE,
    LEASE_SECONDS,
    RENEW_SECONDS,
    RUNNER_COMMAND,
    ContainerProfile,
    container_labels,
    container_name,
    container_options,
    host_options,
    ulimits,
    volume_mounts,
)
from holdfast.workspace.docker.engine import DockerEngine, EngineRefused
from holdfast.workspace.docker.exec_stream import ExecStream
from holdfast.workspace.errors import WorkspaceLost, WorkspaceUnavailable

if TYPE_CHECKING:
    from docker import APIClient

ENSURE_SECONDS_MAX: Final = 30.0
"""How long a container may take to be there. Less than a lease: a new one is never swept up before it starts."""

POLL_SECONDS: Final = 0.05
"""How often to look whether a container that ends is gone."""

KILL_SECONDS_MAX: Final = 5.0
"""How long ending a container may take to be confirmed."""

RENEWAL_SECONDS_MAX: Final = 5.0
"""How long one renewal may take; it is repeated after RENEW_SECONDS."""

RENEWAL_SIGNAL: Final = "SIGURG"


class Containers:
    """The containers of one namespace's workspaces at one Docker daemon; `runner` is the source of the runner."""

    def __init__(self, engine: DockerEngine, namespace: str, runner: str) -> None:
        self._engine = engine
        self._namespace = namespace
        self._runner = runner
        self._known: dict[str, tuple[str, str]] = {}  # name: the profile's digest, the container's id

    async def ensure(self, workspace: str, profile: ContainerProfile, tenant: str = "") -> bool:
        """Have the workspace's container run, with a fresh lease, and return whether it is a new one.

        Raises WorkspaceUnavailable where Docker, the image or the runtime is missing, or refuses.
        """
        name = container_name(workspace, self._namespace)
        labels = container_labels(workspace, self._namespace, tenant, profile)
        digest, identity = self._known.get(name, ("", ""))
        if digest == profile.digest and await self._signalled(identity, RENEWAL_SIGNAL):
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
            del self._known[next(iter(self._known))]
        self._known[name] = profile.digest, identity
        return created

    def _reference(self, workspace: str) -> str:
        """Return the container's id, which no later container of that name shares; the name where it is not known."""
        name = container_name(workspace, self._namespace)
        return self._known.get(name, ("", name))[1]

    async def _ensured(self, name: str, labels: Mapping[str, str], profile: ContainerProfile) -> tuple[bool, str]:
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

    async def _create(self, name: str, labels: Mapping[str, str], profile: ContainerProfile) -> str:
        def create(api: APIClient) -> str:
            from docker.types import Ulimit  # noqa: PLC0415  # an extra

            image = api.inspect_image(profile.image)
            host = api.create_host_config(
                **host_options(profile),
                ulimits=[Ulimit(name=each, soft=value, hard=value) for each, value in ulimits(profile).items()],
                mounts=volume_mounts(list((image.get("Config") or {}).get("Volumes") or ())),
            )
            created = api.create_container(
                **container_options(profile, self._runner), name=name, labels=dict(labels), host_config=host
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

    async def renew(self, workspace: str) -> bool:
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
    async def runner(self, workspace: str) -> AsyncGenerator[ExecStream]:
        """Start the runner in the workspace's container and yield its stream; the lease is renewed meanwhile.

        Raises WorkspaceUnavailable where it cannot be started.
        """
        container = self._reference(workspace)
        try:
            stream = await self._engine.execute(container, RUNNER_COMMAND, COMMAND_USER)
        except EngineRefused as error:
            raise WorkspaceUnavailable(f"Docker refused to start a command in the workspace: {error}") from error
        renewing = asyncio.create_task(self._renewed(workspace))
        try:
            yield stream
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await stream.close()

    async def _renewed(self, workspace: str) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(WorkspaceUnavailable):  # the next one may pass; else the container ends, which its user sees
                await self.renew(workspace)

    async def end(self, workspace: str) -> bool:
        """Kill the container with all that runs in it, and return whether that is confirmed, in bounded time."""
        container = self._reference(workspace)
        self._known.pop(container_name(workspace, self._namespace), None)
        with suppress(WorkspaceUnavailable, EngineRefused, TimeoutError):
            async with asyncio.timeout(KILL_SECONDS_MAX):
                await self._remove(container)
                return True
        return False

    async def _remove(self, container: str) -> None:
        """Remove the container, running or not, and wait until its name is free."""
        with suppress(EngineRefused):  # it is gone, or is being removed
            await self._engine.call(lambda api: api.remove_container(container, force=True, v=True))
        while await self._inspected(container) is not None:
            await asyncio.sleep(POLL_SECONDS)

    async def out_of_memory(self, workspace: str) -> bool:
        """Whether a process of the container has been ended for want of memory, as far as Docker tells."""
        with suppress(WorkspaceUnavailable, EngineRefused):
            found = await self._inspected(self._reference(workspace))
            return bool(found and found["State"].get("OOMKilled"))
        return False

    async def lost(self, workspace: str) -> WorkspaceLost:
        """Return the error for a runner whose stream ended without a result: what has become of its container."""
        try:
            found = await self._inspected(self._reference(workspace))
        except (WorkspaceUnavailable, EngineRefused) as error:
            return WorkspaceLost(f"the connection to the container was lost while the command ran: {error}")
        if found is None or found["State"]["Status"] != "running":
            return WorkspaceLost(
                "the container ended while the command ran (out of memory, removed, or its worker was gone for "
                f"{LEASE_SECONDS:g} s); the command may have had its effect, and its files are as last saved"
            )
        if found["State"].get("OOMKilled"):
            return WorkspaceLost("the command's runner was ended for want of memory; the command may have had its effect")
        return WorkspaceLost("the command's runner ended without a result; the command may have had its effect")

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
                await self._engine.call(lambda api, gone=identity: api.remove_container(gone, v=True))
                removed += 1
        return removed


KNOWN_MAX: Final = 10_000
"""The most containers whose profile is remembered, which saves a call of the API per command."""


class _Repeated(Exception):
    """Another worker was quicker: look again."""


def _refusal(error: EngineRefused, profile: ContainerProfile) -> str:
    if error.missing and "image" in error.explanation.lower():
        return (
            f"the image {profile.image!r} is not on the worker's host; get it there with `docker pull {profile.image}`, "
            "or name another in the definition's workspace"
        )
    if "executable file not found" in error.explanation and "python3" in error.explanation:
        return f"the image {profile.image!r} has no python3, which a workspace needs; name an image of Python"
    if "runtime" in error.explanation.lower() and profile.runtime is not None:
        return f"Docker does not start the runtime {profile.runtime!r}: {error}; see `docker info` for those it knows"
    if error.missing and "network" in error.explanation.lower():
        return f"Docker has no network {profile.network!r} on the worker's host: {error}"
    return f"Docker refused to make a container: {error}"
