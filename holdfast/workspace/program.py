"""The source of the program that a backend starts in a workspace: the modules of `inside`, as one argument of Python."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Final

PACKAGE: Final = "holdfast.workspace.inside"

MODULES: Final = ("frames", "paths", "processes", "commands", "file_operations", "search", "snapshots", "main")
"""The program's modules, each behind those that it imports."""

ARGUMENT_BYTES_MAX: Final = 128 * 1024
"""The longest argument that Linux passes to a program (MAX_ARG_STRLEN)."""

_START: Final = """\
import sys, types
for name, source in {sources}:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
sys.exit(sys.modules[{main!r}].main(sys.argv[1:]))
"""


def sources() -> list[tuple[str, str]]:
    """Return the names and texts of the program's modules, for a backend that can install them."""
    folder = files(PACKAGE)
    return [(f"{PACKAGE}.{name}", (folder / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]


@cache
def program() -> str:
    """Return the source, for `python3 -I -S -c SOURCE ROOT RUNTIME`."""
    return _START.format(sources=json.dumps(sources()), main=f"{PACKAGE}.main")
