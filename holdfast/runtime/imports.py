"""Imports Python modules and objects that are named on a command line or in the environment."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.conversation.error_records import error_record

OURS: Final = frozenset({"activities", "holdfast", "worker", "workers", "workflows"})

LIBRARIES: Final = frozenset(
    {
        *(
            "aiohttp",
            "anthropic",
            "anyio",
            "cryptography",
            "docker",
            "genai_prices",
            "google",
            "httpx",
            "httpx2",
            "jsonschema",
            "mcp",
        ),
        *("mcp_types", "obstore", "openai", "openapi_pydantic", "opentelemetry", "prompt_toolkit", "pydantic"),
        *("pydantic_core", "referencing", "rich", "temporalio", "textual", "typer", "typing_extensions", "yaml"),
        *("pydantic_ai", "pydantic_monty", "requests", "starlette", "uvicorn", "zstandard"),
    }
)
"""What Holdfast imports, some of it late; `tests/test_architecture.py` compares."""

TAKEN: Final = sys.stdlib_module_names | OURS | LIBRARIES
"""Modules that one of the current folder never replaces."""


class _FolderFinder:
    """Finds one top-level module in a folder, before the path is searched; a folder without `__init__.py` is none."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = folder
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where the module lies, for Python's import."""
        del path, target
        if fullname != self._name or fullname in TAKEN:
            return None
        spec = PathFinder.find_spec(fullname, [self._folder])
        return spec if spec is not None and spec.loader is not None else None


def imported_module(name: str) -> ModuleType:
    """Return the module of that name: the current folder's if it has one that is not TAKEN. Raises InvalidInput.

    What the module itself imports is searched there last: a user's `email.py` does not take the place of Python's.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    finder = _FolderFinder(here, name.partition(".")[0])
    sys.meta_path.insert(0, finder)
    try:
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
    finally:
        sys.meta_path.remove(finder)


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
