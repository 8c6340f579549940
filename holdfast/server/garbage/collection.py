"""`collect`: one garbage collection, from the inventory to the report.

    1. inventory   what is in the folders that can be collected, and in the trash
    2. mark        the histories of all namespaces that use the store, then the store itself, then the histories again
    3. delete      what is not marked and has been in the trash long enough is deleted for good
    4. sweep       what is marked and in the trash alone is written again; what is not marked and old enough moves there

So an object is deleted only when two collections, days apart, have found nothing that refers to it. Until then whoever
reads it finds it (`Objects.read`), which also covers a writer that wrote it again in the very moment it was moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from holdfast.core.base.errors import InvalidInput
from holdfast.server.garbage.mark_file import Listed, MarkFile
from holdfast.server.garbage.store_sources import StoreSource
from holdfast.storage.object_store import COLLECTED, RENEWED_AFTER, Objects, in_trash

UNUSED_HOURS: Final = 72
"""How old an object must be, by default, to be moved to the trash."""

UNUSED_HOURS_MIN: Final = 48
"""The least that can be chosen. A writer leaves an object that is younger than RENEWED_AFTER, a day, as it is: so one
that is referred to from now on can be a day old. The rest is for whoever has written it and refers to it later."""

TRASH_HOURS: Final = 7 * 24
"""How long an object stays in the trash, by default."""

TRASH_HOURS_MIN: Final = 24

CLOCK: Final = "gc/clock"
"""An object that is written to learn the store's time, by a dry run, too: its ages are to be those of a collection."""

CLOCK_SKEW_SECONDS_MAX: Final = 600.0
"""How far the store's clock may be from ours: ages would be wrong, and so would those that workers see."""

NAMES_MAX: Final = 10_000
"""How many names a report has."""

WORKING_FILE: Final = "storage-gc.db"
"""The file in the data directory with which an interrupted collection is resumed."""

assert timedelta(hours=UNUSED_HOURS_MIN) > RENEWED_AFTER  # noqa: S101  # else what was just written could go


@dataclass(frozen=True, slots=True)
class Rules:
    """How old is old enough: to go into the trash, and to be deleted from it. A `dry_run` changes CLOCK alone."""

    unused: timedelta = timedelta(hours=UNUSED_HOURS)
    trash: timedelta = timedelta(hours=TRASH_HOURS)
    dry_run: bool = False

    def __post_init__(self) -> None:
        for what, chosen, least in (
            ("--older-than", self.unused, UNUSED_HOURS_MIN),
            ("--trash", self.trash, TRASH_HOURS_MIN),
        ):
            if chosen < timedelta(hours=least):
                hours = chosen / timedelta(hours=1)
                why = "what is in use, or about to be, could look unused"
                raise InvalidInput(f"{what} is {hours:g} hours, and below {least} {why}; give at least {least}h")


@dataclass(slots=True)
class Count:
    """A number of objects and their bytes."""

    objects: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one more."""
        self.objects += 1
        self.bytes += size


@dataclass(slots=True)
class FolderReport:
    """What became of the objects of a folder."""

    used: Count = field(default_factory=Count)
    """Outside the trash, and referred to."""
    young: Count = field(default_factory=Count)
    """Outside the trash, not referred to, and not old enough."""
    trashed: Count = field(default_factory=Count)
    """Moved to the trash now."""
    restored: Count = field(default_factory=Count)
    """Referred to again, and written again from the trash."""
    waiting: Count = field(default_factory=Count)
    """In the trash, and not there long enough; also copies of what is outside."""
    deleted: Count = field(default_factory=Count)
    """Deleted for good now."""


@dataclass(slots=True)
class Report:
    """What a collection did; in a dry run, what it would have done."""

    dry_run: bool
    resumed: bool = False
    runs_read: int = 0
    """How many executions were read."""
    folders: dict[str, FolderReport] = field(default_factory=lambda: {each: FolderReport() for each in COLLECTED})
    trashed_names: list[str] = field(default_factory=list[str])
    deleted_names: list[str] = field(default_factory=list[str])
    """The names of what was moved, and of what was deleted; at most NAMES_MAX of each."""

    def of(self, name: str) -> FolderReport:
        """Return the report of an object's folder."""
        return self.folders[name.partition("/")[0]]


class Source(Protocol):
    """What refers to objects of the store, from outside of it: a namespace."""

    async def mark(self, marks: MarkFile, *, again: bool) -> None:
        """Mark all that it refers to; `again` for what may have changed since the first time."""
        ...


class Collection:
    """One garbage collection of one store."""

    def __init__(
        self,
        objects: Objects,
        store: StoreSource,
        sources: Sequence[Source],
        rules: Rules,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._objects = objects
        self._store = store
        self._sources = sources
        self._rules = rules

    async def run(self, marks: MarkFile, phase: Callable[[str], None]) -> Report:
        """Collect, and return what was done. `phase` is called with what begins now.

        Raises ServerUnavailable, StorageFailed, and PayloadRefused where an encryption key is missing; before the sweep
        nothing has changed.
        """
        report = Report(self._rules.dry_run, resumed=marks.resumed)
        now = await self._now()
        phase("listing the store")
        await self._store.take_inventory(marks)
        phase("reading runs")
        for source in self._sources:
            await source.mark(marks, again=False)
        phase("reading the store")
        await self._store.mark(marks, files=_has_files(marks))
        phase("reading open and new runs again")
        for source in self._sources:
            await source.mark(marks, again=True)
        phase("following references")
        await self._store.follow(marks)
        # by what the inventory saw, so that a dry run says the same: nothing is deleted that comes into the trash now
        phase("emptying the trash")
        await self._delete(marks, report, (now - self._rules.trash.total_seconds()))
        phase("sweeping")
        await self._restore(marks, report)
        await self._sweep(marks, report, (now - self._rules.unused.total_seconds()))
        return report

    async def _now(self) -> float:
        """Return the store's time: by it its objects' ages count. Raises InvalidInput where ours is another one."""
        before = self._clock()
        await self._objects.replace(CLOCK, b"")
        written = await self._objects.entry(CLOCK)
        theirs = before if written is None else written.written.timestamp()
        apart = max(before - theirs, theirs - self._clock())
        if apart > CLOCK_SKEW_SECONDS_MAX:
            problem = f"the clock of {self._objects.url} and ours differ by {apart:,.0f} s"
            raise InvalidInput(f"{problem}, so the ages of objects are wrong; set the clocks right first")
        return min(before, theirs)

    async def _restore(self, marks: MarkFile, report: Report) -> None:
        for each in marks.objects(marked=True, trash=True):
            if await self._objects.entry(each.name) is None:
                report.of(each.name).restored.add(each.size)
                if not self._rules.dry_run:
                    await self._objects.from_trash(each.name)

    async def _sweep(self, marks: MarkFile, report: Report, before: float) -> None:
        for folder in COLLECTED:
            report.folders[folder].used = Count(*marks.counted(folder, marked=True))
        for each in marks.objects(marked=False, trash=False):
            if await self._is_old(each.name, each, before):
                report.of(each.name).trashed.add(each.size)
                _add(report.trashed_names, each.name)
                if not self._rules.dry_run:
                    await self._objects.to_trash(each.name)
            else:
                report.of(each.name).young.add(each.size)

    async def _delete(self, marks: MarkFile, report: Report, before: float) -> None:
        for marked in (False, True):
            for each in marks.objects(marked=marked, trash=True):
                # a marked one may go where its object was written again: it is a copy
                is_needed = marked and await self._objects.entry(each.name) is None
                if not is_needed and await self._is_old(in_trash(each.name), each, before):
                    report.of(each.name).deleted.add(each.size)
                    _add(report.deleted_names, each.name)
                    if not self._rules.dry_run:
                        await self._objects.empty_trash_of(each.name)
                else:
                    report.of(each.name).waiting.add(each.size)

    async def _is_old(self, name: str, listed: Listed, before: float) -> bool:
        """Return whether the object was old when it was listed, and still is: it may have been written again."""
        if listed.written > before:
            return False
        entry = await self._objects.entry(name)
        return entry is not None and entry.written.timestamp() <= before


def working_file(data_dir: Path) -> Path:
    """Return where an interrupted collection is resumed from."""
    return data_dir / WORKING_FILE


def _has_files(marks: MarkFile) -> bool:
    return marks.has_unmarked("attachments")


def _add(names: list[str], name: str) -> None:
    if len(names) < NAMES_MAX:
        names.append(name)
