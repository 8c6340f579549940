"""A bucket on an S3 server of a test's own: moto's, a process that keeps its objects in memory.

It speaks S3's protocol and is no store: it checks neither keys nor signatures, limits nothing, loses nothing and is
always consistent. What it has beyond S3 is that its objects can be made older.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cluster.processes import Program, environment

VERSION: Final = "5.2.5"
"""Of moto. It brings 180 MB, so it lies beside the built servers and is no dependency."""

NAME: Final = "holdfast"
HOST: Final = "127.0.0.1"
AGED_DAYS: Final = 8
"""How much older `Bucket.age` makes everything: more than a collection asks of unused objects, and of its trash."""

AGED: Final = "aged"
INSTALL_SECONDS_MAX: Final = 600
READY_SECONDS_MAX: Final = 120.0
AGED_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.1

SERVER: Final = f"""
import signal, sys
from datetime import timedelta
from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.server import main

store = get_backend("s3")[DEFAULT_ACCOUNT_ID]["aws"]

def age(*_):
    for key in store.buckets["{NAME}"].keys.values():
        key.last_modified -= timedelta(days={AGED_DAYS})
    print("{AGED}", flush=True)

store.create_bucket("{NAME}", "us-east-1")
signal.signal(signal.SIGUSR1, age)
main(["-H", "{HOST}", "-p", sys.argv[1]])
"""


class Bucket:
    """The running server's one bucket."""

    def __init__(self, program: Program, port: int) -> None:
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "of-the-tests",
            "AWS_SECRET_ACCESS_KEY": "of-nothing-real",
            "AWS_REGION": "us-east-1",
        }
        """What clients and workers have in theirs."""
        self._program = program
        self._port = port

    def url(self, prefix: str) -> str:
        """Return a storage URL."""
        return f"s3://{NAME}/{prefix}"

    def age(self) -> None:
        """Make every object AGED_DAYS older; return once that is so."""
        before = self._aged()
        os.kill(self._program.pid, signal.SIGUSR1)
        until = time.monotonic() + AGED_SECONDS_MAX
        while self._aged() == before:
            assert time.monotonic() < until, self._program.last_words()
            time.sleep(POLL_SECONDS)

    def until_ready(self) -> None:
        """Return once the server answers."""
        until = time.monotonic() + READY_SECONDS_MAX
        while True:
            assert self._program.alive, self._program.last_words()
            try:
                socket.create_connection((HOST, self._port), timeout=1).close()
            except OSError:
                assert time.monotonic() < until, self._program.last_words()
                time.sleep(POLL_SECONDS)
            else:
                return

    def _aged(self) -> int:
        return self._program.log.read_text(errors="replace").splitlines().count(AGED)


@contextmanager
def bucket(folder: Path) -> Generator[Bucket]:
    """Run the server until the block ends; its log is in `folder`."""
    python = _installed()
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    program = Program("s3", [str(python), "-c", SERVER, str(port)], folder / "s3.log", environment())
    try:
        made = Bucket(program, port)
        made.until_ready()
        yield made
    finally:
        program.stop()


def _installed() -> Path:
    """Return a Python that has moto; install it where no earlier run has, outside the tree, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "holdfast" / "moto" / VERSION
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # another name until all is there: an installation that is killed leaves nothing that looks whole
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            _install(Path(place) / "made")
            (Path(place) / "made").rename(folder)
    return folder / "bin" / "python"


def _install(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=INSTALL_SECONDS_MAX)
    uv, python = shutil.which("uv"), str(folder / "bin" / "python")
    install = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    subprocess.run([*install, "--quiet", f"moto[s3,server]=={VERSION}"], check=True, timeout=INSTALL_SECONDS_MAX)
