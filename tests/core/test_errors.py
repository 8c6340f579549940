"""The error tree: every class survives pickling and JSON, and its exit code is the one the docstring shows."""

from __future__ import annotations

import importlib
import json
import pickle
import re

import pytest

from holdfast.core.base import errors
from holdfast.core.base.errors import ExecutionFailed, HoldfastError


def tree(
    root: type[HoldfastError] = HoldfastError, modules: tuple[str, ...] = (errors.__name__,)
) -> list[type[HoldfastError]]:
    children = (child for child in root.__subclasses__() if child.__module__ in modules)
    return [root, *(each for child in children for each in tree(child, modules))]


@pytest.mark.parametrize("kind", tree())
def test_every_error_survives_pickling(kind: type[HoldfastError]) -> None:
    error = kind("what happened; what to do")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert type(again) is kind
    assert (str(again), again.message, again.to_dict()) == (str(error), error.message, error.to_dict())


@pytest.mark.parametrize("kind", tree())
def test_every_error_becomes_json(kind: type[HoldfastError]) -> None:
    told = json.loads(json.dumps(kind("what happened").to_dict()))
    assert told["type"] == kind.__name__
    assert told["message"] == "what happened"


def test_a_failed_execution_carries_its_state_through_pickling() -> None:
    error = ExecutionFailed("run x failed", {"status": "failed"})
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert again.state == {"status": "failed"}
    assert ExecutionFailed("run x failed").state is None


BESIDE_THE_CORE = (
    "activities.transcript_cache",
    "holdfast.mcp.errors",
    "holdfast.runtime.open_resources",
    "holdfast.runtime.tool_runner",
    "holdfast.runtime.user_code",
    "holdfast.testing.scripted_tools",
    "holdfast.workspace.backend",
    "holdfast.workspace.calls",
)
"""Modules that define errors of their own."""


def test_the_docstring_shows_every_error_with_its_exit_code() -> None:
    for name in BESIDE_THE_CORE:
        importlib.import_module(name)
    shown: dict[str, int] = {}
    code = 0
    for name, number in re.findall(r"[├└]── (\w+) +(\d+)?", errors.__doc__ or ""):
        code = int(number or code)
        shown[name] = code
    there = tree(modules=(errors.__name__, *BESIDE_THE_CORE))[1:]
    assert shown == {kind.__name__: kind.exit_code for kind in there}


def test_each_kind_of_failure_has_its_own_exit_code() -> None:
    codes = [kind.exit_code for kind in HoldfastError.__subclasses__() if kind.__module__ == errors.__name__]
    assert len(set(codes)) == len(codes)
    assert all(1 < code < 64 for code in codes), "1 is the root's, from 64 on codes have meanings elsewhere"
