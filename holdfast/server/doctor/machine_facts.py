"""Facts about this machine: installed packages, the data directory, its embedded server, agents, keys."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from holdfast import __version__
from holdfast.connection.data_directory import DataDirectory
from holdfast.core.agent.agent import agents_in
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.resources import resources_for
from holdfast.runtime.imports import imported_module
from holdfast.server.doctor.machine_findings import DataFacts, Parts
from holdfast.server.server_process import serves

T = TypeVar("T")


def check_resources(modules: Iterable[str]) -> None:
    """Raise InvalidInput where a tool of the modules takes a resource that they do not give, as a worker would."""
    imported = [imported_module(name) for name in modules]
    toolset = Toolset.of_modules(imported).joined(*(agent.toolset for agent in agents_in(imported)))
    resources_for(toolset.takers, toolset.resources)


async def apart(function: Callable[[], T]) -> T:
    """Return what a function gives that may block for ever: it has a thread of its own, which nobody waits for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def hand_over(result: T | None, error: Exception | None) -> None:
        if not future.done():
            future.set_exception(error) if error else future.set_result(result)  # type: ignore[arg-type]  # one is there

    def run() -> None:
        result, failed = None, None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001  # whoever awaits it gets it
            failed = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(hand_over, result, failed)

    threading.Thread(target=run, name="doctor", daemon=True).start()
    return await future


def parts(needed: Iterable[str]) -> Parts:
    """Return which Python is here, and which of the packages that are `needed` beyond the base install."""
    python = ".".join(str(number) for number in sys.version_info[:3])
    return Parts(__version__, python, {package: _version(package) for package in (*needed, "pydantic")})


def data_facts(path: Path) -> DataFacts:
    """Return what the data directory is like; writes nothing that stays."""
    directory = DataDirectory.at(path)
    nearest = next(each for each in (directory.path, *directory.path.parents) if os.path.lexists(each))
    there = nearest == directory.path
    facts = DataFacts(str(directory.path), there, _unusable(nearest), shutil.disk_usage(nearest).free)
    return _with_server(facts, directory) if there and directory.path.is_dir() else facts


def creation_problem(folder: Path) -> str | None:
    """Return why a folder that is not there cannot be created; none where it can. Writes nothing that stays."""
    nearest = next(each for each in folder.absolute().parents if os.path.lexists(each))
    problem = _unusable(nearest)
    return problem and f"{nearest}: {problem}"


def _with_server(facts: DataFacts, directory: DataDirectory) -> DataFacts:
    try:
        if not directory.locked():
            if not directory.has_database():
                return facts
            directory.check_database()
            return replace(facts, database_bytes=directory.database.stat().st_size)
    except (InvalidInput, OSError) as error:
        return replace(facts, damage=str(error))
    address = directory.read_address()
    answers = address is not None and serves(urlsplit(address.ui).port or 0)
    return replace(facts, locked_by=directory.holder(), address=address, answers=answers)


def _unusable(folder: Path) -> str | None:
    """Return why nothing can be written into the folder; none where it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"probe")
            probe.flush()
    except OSError as error:
        return "it is a file" if not folder.is_dir() else error.strerror or str(error)
    return None


def _version(package: str) -> str | None:
    if find_spec(package) is None:
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
