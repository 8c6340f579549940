"""`collect_garbage`: a collection of a client's store, after a check that all who use it are known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client as TemporalClient

from holdfast.connection.data_directory import DataDirectory
from holdfast.core.base.errors import Conflict, InvalidInput
from holdfast.server.garbage.collection import Collection, Report, Rules, working_file
from holdfast.server.garbage.mark_file import MarkFile
from holdfast.server.garbage.references import ReferenceReader
from holdfast.server.garbage.registration import StoreUser, living, registered, store_user
from holdfast.server.garbage.store_sources import StoreSource
from holdfast.server.garbage.temporal_sources import TemporalSource
from holdfast.storage.data_converter import records_of
from holdfast.storage.object_store import Objects


@dataclass(frozen=True, slots=True)
class StoreUsers:
    """Who else uses the store: further `namespaces` of the same server, and ids of namespaces that are `gone`."""

    namespaces: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


async def collect_garbage(
    temporal: TemporalClient,
    objects: Objects,
    data_dir: Path,
    rules: Rules,
    users: StoreUsers | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Report, tuple[StoreUser, ...]]:
    """Collect garbage, and return the report and the namespaces whose runs were read.

    `objects` is the store of the client's workers; `data_dir` has the file from which an interrupted collection is
    resumed; `progress` is called with what is being done. Raises Conflict where others use the store or another
    collection is at work, InvalidInput where no worker has registered, ServerUnavailable, StorageFailed and
    PayloadRefused.
    """
    reading = await _users_of(temporal, objects, users or StoreUsers())
    directory = DataDirectory.at(data_dir)
    await asyncio.to_thread(directory.prepare)
    lines = _Lines(progress)
    reader = ReferenceReader(records_of(temporal.data_converter).codec)
    store = StoreSource(objects, reader, lines.add)
    sources = [TemporalSource(temporal, each, reader, lines.add_run) for each in reading]
    collection_id = " ".join((objects.url, *sorted(each.id for each in reading)))
    with MarkFile(working_file(directory.path), collection_id) as marks:
        report = await Collection(objects, store, sources, rules).run(marks, lines.begin)
        report.runs_read = lines.runs
        marks.remove()
    return report, reading


async def _users_of(temporal: TemporalClient, objects: Objects, users: StoreUsers) -> tuple[StoreUser, ...]:
    """Return the namespaces to read. Raises InvalidInput, Conflict."""
    own = await store_user(temporal)
    further = [await store_user(temporal, each) for each in users.namespaces]
    reading = tuple({each.id: each for each in (own, *further)}.values())
    for id_ in users.gone:
        if (there := await living(temporal, id_)) is not None:
            problem = f"the namespace {there.namespace!r} of {there.address} (id {id_}) is not gone"
            raise Conflict(f"{problem}, and its runs would lose their data; read it with --with-namespace")
    registrations = {each.id: each for each in await registered(objects)}
    for each in reading:
        if each.id not in registrations:
            problem = f"no worker of the namespace {each.namespace!r} on {each.address} has registered in {objects.url}"
            remedy = "each worker does so at its start: restart them, or is HOLDFAST_STORAGE another's?"
            raise InvalidInput(f"{problem}; {remedy}")
    others = [each for id_, each in registrations.items() if id_ not in {*(one.id for one in reading), *users.gone}]
    if others:
        raise Conflict(_in_use_too(objects, others))
    return reading


def _in_use_too(objects: Objects, others: Iterable[StoreUser]) -> str:
    named = ", ".join(f"{each.namespace!r} on {each.address} (id {each.id})" for each in others)
    return (
        f"{objects.url} is used by further namespaces, whose runs would lose their data: {named}; add those of this "
        "server with --with-namespace NAME, and leave out what is gone for good with --without-namespace ID; a store "
        "that two servers use cannot be collected"
    )


class _Lines:
    """The progress as lines."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.runs = 0
        self._progress = progress
        self._phase, self._count = "", 0

    def begin(self, phase: str) -> None:
        """Show what begins now."""
        self._phase, self._count = phase, 0
        self._progress(phase)

    def add(self, count: int) -> None:
        """Show how far it is."""
        self._count += count
        self._progress(f"{self._phase}: {self._count:,}")

    def add_run(self, count: int) -> None:
        """Show how far it is with the runs."""
        self.runs += count
        self.add(count)
