"""Python modules and objects that a person names on a command line or in the environment."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.conversation.error_records import error_record


def imported_module(name: str) -> ModuleType:
    """Return the module of that name; what the current folder holds is found last. Raises InvalidInput."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # last, so that a user's `email.py` does not take the place of Python's
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


def module_and_name(place: str, what: str) -> tuple[str, str]:
    """Return both parts of MODULE:NAME; imports nothing. Raises InvalidInput where one is missing."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise InvalidInput(f"'python:{place[:200]}' names no {what}; write python:MODULE:NAME")
    return module, name


def imported_object(place: str, what: str) -> object:
    """Return the object at MODULE:NAME; errors say that it is to be `what`. Raises InvalidInput."""
    module, name = module_and_name(place, what)
    found = imported_module(module)
    if not hasattr(found, name):
        raise InvalidInput(f"the {what} python:{place[:200]} is not there: the module {module!r} has no {name!r}")
    value: object = getattr(found, name)
    return value
