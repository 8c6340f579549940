"""A worker's use of one workspace, ended by SIGKILL at a moment of its choice: `python -m tests.docker.killed_worker`.

Arguments: namespace, workspace id, image, moment. A moment is `before METHOD`, `after METHOD` of Docker's client, or
`under way`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import docker

from holdfast.workspace.docker import containers
from holdfast.workspace.docker.docker_backend import DockerBackend
from tests.docker.daemon import HOST, kill_request, run, workspace


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def armed(moment: str) -> None:
    """Have Docker's client end this process before or after one of its methods."""
    when, _, method = moment.partition(" ")
    original = getattr(docker.APIClient, method)

    def fatal(self: docker.APIClient, *arguments: Any, **more: Any) -> Any:
        if when == "before":
            die()
        try:
            return original(self, *arguments, **more)
        finally:
            die()

    setattr(docker.APIClient, method, fatal)


async def main() -> None:
    namespace, name, image, moment = sys.argv[1:]
    setattr(containers, "RENEW_SECONDS", 0.5)  # noqa: B010  # one moment is that of a renewal; it is a constant
    if moment != "under way":
        armed(moment)
    backend = DockerBackend(namespace, HOST)
    place = workspace(image, name)
    await backend.ensure(place)
    running = asyncio.create_task(run(backend, place, "echo begun > file; sleep 1111"))
    await asyncio.sleep(3)
    if moment == "under way":
        die()
    await backend.kill(place, [kill_request()])
    await running
    await backend.remove(place)
    raise SystemExit(f"the moment {moment!r} never came")


if __name__ == "__main__":
    asyncio.run(main())
