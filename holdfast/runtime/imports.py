"""Imports Python modules and objects that are named on a command line or in the environment."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Final

from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.conversation.error_records import error_record

TAKEN: Final = sys.stdlib_module_names | {"activities", "holdfast", "worker", "workers", "workflows"}
"""Modules that one of the current folder never replaces: Python's and ours."""


def imported_module(name: str) -> ModuleType:
    """Return the module of that name: that of the current folder, if it has one. Raises InvalidInput.

    What the module itself imports is searched there last: a user's `email.py` does not take the place of Python's.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        _import_from(here, name.partition(".")[0])
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = f"{name!r}" if error.name == name else f"{name!r}: it needs {error.name!r}"
        raise InvalidInput(f"cannot import {missing}, which is not found from {here}") from None
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:
        record = error_record(error, name)
        text = " ".join(f"{record.type}: {record.message}".split())
        raise InvalidInput(f"cannot import {name!r}: {text}") from error


def _import_from(folder: str, name: str) -> None:
    """Import a module that lies in `folder`, whatever else the path has of that name."""
    if name in sys.modules or name in TAKEN:
        return
    spec = PathFinder.find_spec(name, [folder])
    if spec is None or spec.loader is None or spec.origin is None:
        return
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def module_and_name(place: str, what: str) -> tuple[str, str]:
    """Return both parts of MODULE:NAME; imports nothing. Raises InvalidInput where one is missing."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise InvalidInput(f"'python:{place[:200]}' names no {what}; write python:MODULE:NAME")
    return module, name


def imported_object(place: str, what: str) -> object:
    """Return the object at MODULE:NAME; errors call it a `what`. Raises InvalidInput."""
    module, name = module_and_name(place, what)
    loaded = imported_module(module)
    if not hasattr(loaded, name):
        raise InvalidInput(f"the {what} python:{place[:200]} is not there: the module {module!r} has no {name!r}")
    value: object = getattr(loaded, name)
    return value
