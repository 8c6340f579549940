"""`python -m tests.cluster [COMMAND...]`: a cluster to try things on, until Ctrl-C or until the command ends.

The command's environment names it: TEMPORAL_ADDRESS, and HOLDFAST_TEST_ADDRESS, which makes the tests of the tier
`temporal` run against it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.cluster.cluster import DYNAMIC_CONFIG, Security, cluster


def main() -> int:
    """Run the cluster and return the command's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--shards", type=int, default=16, help="history shards (default: 16)")
    parser.add_argument("--secure", action="store_true", help="with mutual TLS, and claims that an authorizer asks for")
    parser.add_argument(
        "--defaults", action="store_true", help="with the server's own settings, none of deploy/temporal"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-cluster-") as place:
        folder = Path(place)
        security = Security.made(folder) if chosen.secure else None
        dynamic_config = DYNAMIC_CONFIG
        if chosen.defaults:
            dynamic_config = folder / "defaults.yaml"
            dynamic_config.write_text("{}\n", encoding="utf-8")
        with cluster(folder, shards=chosen.shards, security=security, dynamic_config=dynamic_config) as running:
            asyncio.run(running.until_ready())
            told = {"TEMPORAL_ADDRESS": running.address, "HOLDFAST_TEST_ADDRESS": running.address}
            if security is not None:
                told.update(security.of_client("temporal-system:admin", "default:admin"))
            setup = [sys.executable, "-m", "holdfast", "setup", "--create-namespace"]
            subprocess.run(setup, env={**os.environ, **told}, check=True)
            if chosen.command:
                return subprocess.run(chosen.command, env={**os.environ, **told}, check=False).returncode
            for name, value in told.items():
                print(f"export {name}={value}", flush=True)
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
