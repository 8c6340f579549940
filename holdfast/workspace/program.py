"""The program that a backend starts in a workspace: the modules of `inside`, as one argument of Python."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Final

PACKAGE: Final = "holdfast.workspace.inside"

MODULES: Final = ("frames", "paths", "processes", "commands", "file_operations", "search", "snapshots", "main")

ARGUMENT_BYTES_MAX: Final = 128 * 1024
"""The longest argument that Linux passes to a program (MAX_ARG_STRLEN)."""

_START: Final = """\
import sys
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.util import spec_from_loader

SOURCES = {sources}


class Loader(InspectLoader):
    def get_source(self, name):
        return SOURCES[name]


class Finder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            return spec_from_loader(name, Loader(), is_package=not SOURCES[name])


sys.meta_path.insert(0, Finder())
from {package}.main import main

sys.exit(main(sys.argv[1:]))
"""


def sources() -> list[tuple[str, str]]:
    """Return the names and texts of the program's modules, for a backend that can install them."""
    folder = files(PACKAGE)
    return [(f"{PACKAGE}.{name}", (folder / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]


@cache
def program() -> str:
    """Return the source, for `python3 -I -S -c SOURCE ROOT RUNTIME`."""
    parts = PACKAGE.split(".")
    packages = {".".join(parts[: length + 1]): "" for length in range(len(parts))}
    return _START.format(sources=json.dumps({**packages, **dict(sources())}), package=PACKAGE)
