"""What a command in a workspace's container costs, cold, warm, stopped and restored. `python -m bench.workspace`."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from statistics import median
from typing import Any, Final

from docker import APIClient

from bench.report import Goal, hand_over, quantile, show_goals, show_table
from holdfast.core.tools.workspace_profile import WorkspaceProfile
from holdfast.runtime.process_exit import leave
from holdfast.workspace.backend import Workspace
from holdfast.workspace.docker.container_spec import COMMAND_USER, container_name
from holdfast.workspace.docker.docker_backend import DockerBackend
from holdfast.workspace.docker.engine import SOCKET_DEFAULT
from holdfast.workspace.inside.frames import RESULT, request_bytes
from holdfast.workspace.inside.snapshots import EMPTY

COLD_SECONDS_MAX: Final = 1.5
WARM_SECONDS_MAX: Final = 0.06
STOP_SECONDS_MAX: Final = 0.5
TRIALS: Final = 20
RESTORED_FILES: Final = 500
FILE_BYTES: Final = 4_096
LOOK_SECONDS: Final = 0.002
COMMAND_SECONDS: Final = 120
NAMESPACE: Final = "bench"

EPILOG: Final = """\
  cold       from nothing to the end of `true`: container made and started, program installed, command run
  warm       `true` in a container that is there, lease renewed; `exec`: the same by Docker's API alone (create, start,
             read); `docker exec`: by Docker's program. They alternate; the difference of the medians of `warm` and
             `exec`, the quicker one, is judged
  stop       from the stop to a process list of the container without the command, which ignores SIGTERM
  restored   from nothing to the end of `true`, with 500 files of 4 KB restored before

JSON: {machine, seconds: {what: [seconds]}, goals: [{wanted, measured, met}]}.
"""

Seconds = dict[str, list[float]]


def snapshot(count: int) -> tuple[str, bytes]:
    """Return the digest and the packed parts of a snapshot of so many files."""
    contents = [os.urandom(FILE_BYTES) for _ in range(count)]
    files = [[f"file-{n:04}", 0o644, FILE_BYTES, hashlib.sha256(each).hexdigest()] for n, each in enumerate(contents)]
    manifest = json.dumps({"files": files, "folders": [], "links": []}, separators=(",", ":"), sort_keys=True).encode()
    packed = b"".join(struct.pack(">I", len(each)) + each for each in (manifest, *contents))
    return hashlib.sha256(manifest).hexdigest(), packed


class Stage:
    """One daemon, one image, one workspace."""

    def __init__(self, host: str, image: str) -> None:
        self.host = host
        self.api: Any = APIClient(base_url=host, version="auto", timeout=60)
        self.backend = DockerBackend(NAMESPACE, host)
        self.place = Workspace("bench", "", WorkspaceProfile(image=image, memory_mb=512))
        self.name = container_name(self.place.id, NAMESPACE)

    async def operation(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Carry out one operation and return its result."""
        request = request_bytes({"execution": "bench", "files": EMPTY, "call": "call", **header}, body)
        received = b""
        async with aclosing(self.backend.execute(self.place, [request])) as pieces:
            async for piece in pieces:
                received += piece
        kind, size = struct.unpack_from(">cI", received)
        if kind != RESULT:
            raise ValueError(f"the first frame is a {kind!r}")
        return dict(json.loads(received[5 : 5 + size]))

    async def run(self, shell: str = "true", files: str = EMPTY) -> dict[str, Any]:
        """Run a command as a call does."""
        await self.backend.ensure(self.place)
        return await self.operation({"op": "run", "shell": shell, "timeout": COMMAND_SECONDS, "files": files})

    def exec_by_api(self) -> None:
        """Run `true` by the API alone."""
        created = self.api.exec_create(self.name, ["true"], user=COMMAND_USER, stdin=True)
        opened: Any = self.api.exec_start(created["Id"], socket=True)
        connection = opened._sock  # noqa: SLF001  # as the library's users do
        connection.settimeout(COMMAND_SECONDS)
        while connection.recv(65_536):
            pass
        opened.close()

    def exec_by_program(self) -> None:
        """Run `true` by `docker exec`."""
        command = ("docker", "--host", self.host, "exec", "-i", "--user", COMMAND_USER, self.name, "true")
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)  # noqa: S603

    def runs(self, part: str) -> bool:
        """Whether a process of the container has this on its command line."""
        processes: list[list[str]] = self.api.top(self.name, ps_args="-eo pid,args")["Processes"] or []
        return any(part in each[-1] for each in processes)

    async def stop(self) -> float:
        """Stop a command that ignores SIGTERM; return the seconds until it is in no process list."""
        running = asyncio.create_task(self.run("trap '' TERM; while true; do sleep 77; done"))
        while not await asyncio.to_thread(self.runs, "sleep 77"):  # noqa: ASYNC110  # another process's begin
            await asyncio.sleep(LOOK_SECONDS)
        began = time.monotonic()
        running.cancel()  # as a stopped call does: its input is closed, and a second program ends it
        ending = asyncio.create_task(self.backend.kill(self.place, [request_bytes({"op": "kill", "call": "call"})]))
        while await asyncio.to_thread(self.runs, "sleep 77"):  # noqa: ASYNC110  # another process's end
            await asyncio.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - began
        await asyncio.gather(running, ending, return_exceptions=True)
        return seconds


async def measure(stage: Stage, trials: int) -> Seconds:
    """Return the seconds of all trials, by what was measured."""
    seconds: Seconds = {what: [] for what in ("cold", "restored", "warm", "exec", "docker exec", "stop")}
    digest, packed = snapshot(RESTORED_FILES)

    async def timed(what: str, action: Any) -> None:  # noqa: ANN401
        began = time.monotonic()
        await action()
        seconds[what].append(time.monotonic() - began)

    async def restored() -> None:
        await stage.backend.ensure(stage.place)
        await stage.operation({"op": "restore", "files": digest}, packed)
        result = await stage.run("test $(ls | wc -l) = 500", digest)
        if result["exit_code"] != 0:
            raise ValueError("the files are not there")

    for what, action in (("cold", stage.run), ("restored", restored)):
        for _ in range(max(3, trials // 2)):
            await stage.backend.remove(stage.place)
            await timed(what, action)
    await stage.backend.remove(stage.place)
    await stage.run()
    for _ in range(trials):
        await timed("warm", stage.run)
        await timed("exec", lambda: asyncio.to_thread(stage.exec_by_api))
        await timed("docker exec", lambda: asyncio.to_thread(stage.exec_by_program))
    seconds["stop"] = [await stage.stop() for _ in range(trials)]
    await stage.backend.remove(stage.place)
    await stage.backend.close()
    return seconds


def goals(seconds: Seconds) -> list[Goal]:
    """Judge the medians, of a stop the slowest."""
    cold, stop = median(seconds["cold"]), max(seconds["stop"])
    above = median(seconds["warm"]) - median(seconds["exec"])
    return [
        Goal(f"cold command <= {COLD_SECONDS_MAX:g} s", f"{cold:.2f} s", cold <= COLD_SECONDS_MAX),
        Goal(
            f"warm command <= {1000 * WARM_SECONDS_MAX:g} ms above an exec by the API",
            f"{1000 * above:.0f} ms",
            above <= WARM_SECONDS_MAX,
        ),
        Goal(f"every stop <= {STOP_SECONDS_MAX:g} s", f"{stop:.2f} s", stop <= STOP_SECONDS_MAX),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="bench.workspace", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image", default="python:3.13-slim", help="an image with python3 that is there")
    parser.add_argument(
        "--trials", type=int, default=TRIALS, help=f"of each kind; half of them cold (default {TRIALS})"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    options = parser.parse_args(arguments)
    host = os.environ.get("DOCKER_HOST", SOCKET_DEFAULT)
    seconds = asyncio.run(measure(Stage(host, options.image), options.trials))
    columns = ("", "trials", "min ms", "p50 ms", "p95 ms", "max ms")
    rows = [
        (what, str(len(each)), *(f"{1000 * v:.0f}" for v in (min(each), median(each), quantile(each, 0.95), max(each))))
        for what, each in seconds.items()
    ]
    judged = goals(seconds)
    show_table("A command in a workspace's container", columns, rows)
    show_goals(judged)
    hand_over({"seconds": seconds}, judged, options.json)
    return 0


if __name__ == "__main__":
    leave(main())
