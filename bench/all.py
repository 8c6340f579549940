"""Every benchmark, one after the other, with all their tables: `python -m bench.all`, a quarter of an hour.

Each is a process of its own, so that none pays for what another has left. The JSON goes to `bench/out`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

OUT: Final = Path(__file__).parent / "out"

SHORT: Final[dict[str, tuple[str, ...]]] = {
    "core": (),
    "history": (),
    "loop": ("--rounds", "6", "--concurrent-rounds", "4"),
    "workflow": (),
    "stop": ("--trials", "70"),
    "stream": ("--watchers", "0", "10"),
    "sessions": ("--turns", "100", "--idle", "50", "--rounds", "12"),
}
"""What `make bench` runs."""

WHOLE: Final[dict[str, tuple[str, ...]]] = {
    "core": (),
    "history": (),
    "loop": (),
    "workflow": (),
    "stop": (),
    "stream": (),
    "long": (),
    "sessions": (),
}
"""Every benchmark with its own defaults."""


def run(name: str, arguments: tuple[str, ...]) -> bool:
    """Run one benchmark; return whether it came to its end (a goal that is missed is for its reader to judge)."""
    sys.stdout.write(f"\n=== bench.{name} ===\n")
    sys.stdout.flush()
    began = time.monotonic()
    command = [sys.executable, "-m", f"bench.{name}", *arguments, "--json", str(OUT / f"{name}.json")]
    done = subprocess.run(command, check=False)  # noqa: S603  # our own modules
    has_result = (OUT / f"{name}.json").exists()
    sys.stdout.write(f"bench.{name}: {time.monotonic() - began:.0f} s, exit code {done.returncode}\n")
    return has_result


def main() -> int:
    """Run them all and return 1 when one did not come to its end."""
    parser = argparse.ArgumentParser(prog="bench.all", description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer trials, and nothing that takes minutes")
    parser.add_argument("--only", nargs="+", choices=tuple(WHOLE), default=[], metavar="NAME", help="these alone")
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    chosen = SHORT if options.short else WHOLE
    ended: list[bool] = []
    for name, arguments in chosen.items():
        if not options.only or name in options.only:
            (OUT / f"{name}.json").unlink(missing_ok=True)
            ended.append(run(name, arguments))
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
