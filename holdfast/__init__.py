"""Holdfast runs AI agents as Temporal workflows: a crash loses nothing, a stop stops, a budget holds.

What agents are written with. Where they run has a place of its own: `holdfast.client` (Temporal), `holdfast.local`
(this process), `holdfast.testing` (a scripted model). The events of runs are in `holdfast.core.wire.execution_events`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.api import *  # noqa: F403  # listed there
    from holdfast.api import __all__ as __all__  # given on

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load what `holdfast.api` lists when it is first used: the program `holdfast` takes Ctrl-C before that."""
    api = import_module("holdfast.api")
    if name != "__all__" and name not in api.__all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value: object = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *import_module("holdfast.api").__all__]
