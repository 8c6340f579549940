"""The Docker daemon, the image and the commands that the tests of this folder use; it must not judge them."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from docker import APIClient

from holdfast.core.tools.workspace_profile import WorkspaceProfile
from holdfast.workspace.backend import Workspace, WorkspaceBackend
from holdfast.workspace.docker.container_spec import COMMAND_USER, LABEL_NAMESPACE
from holdfast.workspace.docker.engine import SOCKET_DEFAULT
from holdfast.workspace.inside.frames import OUTPUT, RESULT, request_bytes
from holdfast.workspace.inside.snapshots import EMPTY

HOST = os.environ.get("DOCKER_HOST", SOCKET_DEFAULT)
IMAGES = ("python:3.13-slim", "python:3.13-slim-trixie", "holdfast-stand-in/python:3.13-slim-trixie")

FRAME_HEADER = struct.Struct(">cI")


def client() -> Any:
    """Return a client of the tests' own. Raises docker.errors.DockerException where no daemon answers."""
    return APIClient(base_url=HOST, version="auto", timeout=60)


def profile(image: str, **more: Any) -> WorkspaceProfile:
    small = {"image": image, "memory_mb": 256, "disk_mb": 32, "file_mb_max": 16, "pids_max": 64}
    return WorkspaceProfile.model_validate({**small, **more})


def workspace(image: str, name: str = "ws", **more: Any) -> Workspace:
    return Workspace(id=name, tenant="acme", profile=profile(image, **more))


@dataclass(frozen=True, slots=True)
class Ran:
    """What the program answered."""

    output: bytes
    result: dict[str, Any]


def run_request(shell: str, call: str = "call", timeout: float = 120.0, **more: Any) -> bytes:
    header = {"op": "run", "shell": shell, "call": call, "timeout": timeout, "execution": "x", "files": EMPTY, **more}
    return request_bytes(header)


def kill_request(call: str = "call") -> bytes:
    return request_bytes({"op": "kill", "call": call})


async def run(backend: WorkspaceBackend, place: Workspace, shell: str, **more: Any) -> Ran:
    """Run a shell command in the workspace to its end."""
    received = b""
    async with aclosing(backend.execute(place, [run_request(shell, **more)])) as pieces:
        async for piece in pieces:
            received += piece
    return parsed(received)


def parsed(received: bytes) -> Ran:
    output, at = b"", 0
    while at < len(received):
        kind, size = FRAME_HEADER.unpack_from(received, at)
        data = received[at + FRAME_HEADER.size : at + FRAME_HEADER.size + size]
        at += FRAME_HEADER.size + size
        if kind == OUTPUT:
            output += data
        if kind == RESULT:
            return Ran(output, json.loads(data))
    raise AssertionError(f"no result in {received[-200:]!r}")


class Daemon:
    """The daemon as the tests look at it: the containers of one namespace alone, or those that `label` chooses."""

    def __init__(self, api: Any, namespace: str, label: str = "") -> None:
        self.api = api
        self.namespace = namespace
        self._label = label or f"{LABEL_NAMESPACE}={namespace}"

    def containers(self, *, all_states: bool = False) -> list[dict[str, Any]]:
        return list(self.api.containers(all=all_states, filters={"label": self._label}))

    def names(self, *, all_states: bool = False) -> list[str]:
        return sorted(name.lstrip("/") for each in self.containers(all_states=all_states) for name in each["Names"])

    def only(self) -> str:
        [container] = self.containers()
        return str(container["Id"])

    def commands(self) -> list[str]:
        """Return the command lines of the workload's processes in the one container, seen from the host."""
        top = self.api.top(self.only(), ps_args="-eo pid,uid,args")
        user = COMMAND_USER.partition(":")[0]
        return [" ".join(line[2:]) for line in top["Processes"] if line[1] == user]

    def inside(self, command: Sequence[str], user: str = COMMAND_USER) -> str:
        """Run a program in the one container by `docker exec` alone, without the program of the workspace."""
        created = self.api.exec_create(self.only(), list(command), user=user)
        return bytes(self.api.exec_start(created["Id"])).decode("utf-8", "replace")

    def clear(self) -> None:
        for each in self.containers(all_states=True):
            try:
                self.api.remove_container(each["Id"], force=True, v=True)
            except Exception:  # noqa: BLE001, S112  # it may be going by itself
                continue
