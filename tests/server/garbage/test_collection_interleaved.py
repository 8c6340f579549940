"""Whatever happens between the steps of garbage collections, nothing that is referred to is ever lost.

Writers write, refer to what they have written up to REFER_HOURS_MAX later, pass references on, record them, read; runs
go after their retention; collections run beside all of it and beside each other. Only the single operations of the
store are replaced (`stepped_store`): any of them waits until hypothesis lets it happen.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from temporalio.api.common.v1 import Payload

from holdfast.server.garbage.collection import TRASH_HOURS, UNUSED_HOURS_MIN, Collection, Rules
from holdfast.server.garbage.mark_file import MarkFile
from holdfast.server.garbage.references import ReferenceReader, digests_in
from holdfast.server.garbage.store_sources import StoreSource
from holdfast.storage.object_store import in_trash
from tests.server.garbage.stepped_store import SteppedObjects, Steps

HOUR = 3600.0
REFER_HOURS_MAX = UNUSED_HOURS_MIN - 24 - 1
"""A writer refers to what it has written, or goes away, within this: the rest of the least grace."""

RETENTION_HOURS = 24.0
"""How long a run stays after it has passed a reference on: Temporal's least retention."""

FOLDERS = ("payloads", "attachments")

CONTENTS = 3
"""So few contents exist that writers write the same again and again."""

SPINS = 6
"""How often the loop turns for a task to go on to where it waits."""

NO_STEPS = 10_000
"""More steps than anything takes."""


def content(number: int, *, names: bytes = b"") -> bytes:
    """The bytes of an object: its number, or another's digest."""
    text = json.dumps({"names": names.hex()} if names else {"number": number})
    return Payload(metadata={"encoding": b"json/plain"}, data=text.encode()).SerializeToString()


def digest(data: bytes) -> bytes:
    return sha256(Payload.FromString(data).data).digest()


def name_of(folder: str, data: bytes) -> str:
    digits = digest(data).hex()
    return f"{folder}/{digits[:2]}/{digits}"


@dataclass
class Run:
    """What a run's history refers to: names of objects."""

    names: set[str] = field(default_factory=set[str])
    passed_on_at: float = 0.0


class Runs:
    """The server's histories, as a source of a collection: listed first, then read one after the other."""

    def __init__(self, steps: Steps) -> None:
        self.runs: dict[int, Run] = {}
        self._steps = steps

    async def mark(self, marks: MarkFile, *, again: bool) -> None:
        del again
        for number in list(self.runs):
            await self._steps.turn()
            if number in self.runs:
                marks.mark({bytes.fromhex(name.rpartition("/")[2]) for name in self.runs[number].names})


class World(RuleBasedStateMachine):
    """Runs, writers, readers and collections around one store."""

    @initialize(in_one_step=st.booleans(), seeds=st.lists(st.integers(0, 2**16), max_size=6))
    def begin(self, in_one_step: bool, seeds: list[int]) -> None:  # noqa: FBT001  # a rule's arguments
        """Begin with objects of some age, in the trash or not, with a run that refers to them or without."""
        self.loop = asyncio.new_event_loop()
        self.steps = Steps()
        self.objects = SteppedObjects(self.steps, in_one_step=in_one_step)
        self.server = Runs(self.steps)
        self.folder = tempfile.TemporaryDirectory()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.deadlines: dict[int, float] = {}
        self.recorded: set[str] = set()
        self.numbers = iter(range(NO_STEPS))
        self.collections = 0
        for seed in seeds:
            folder, number, age = FOLDERS[seed % 2], seed // 2 % CONTENTS, (1, 30, 100, 300)[seed // 8 % 4]
            data = content(number)
            name = name_of(folder, data)
            is_used, is_trash = seed // 32 % 4 == 0, seed // 128 % 4 == 0
            self.objects.stored[in_trash(name) if is_trash else name] = (data, self.objects.now - age * HOUR)
            if is_used:
                self.server.runs[next(self.numbers)] = Run({name})

    @rule(folder=st.sampled_from(FOLDERS), number=st.integers(0, CONTENTS - 1))
    def write(self, folder: str, number: int) -> None:
        """A writer writes, and a new run refers to it; an attachment may name another one, which is written first."""
        self._start(self._written(folder, number))

    @precondition(lambda self: self.steps.waiting)
    @rule(number=st.integers(0, 5), times=st.sampled_from([1, 1, 2, 3, 5, 10, 30]))
    def step(self, number: int, times: int) -> None:
        """Let one operation happen, and some more of the same task's, mostly."""
        for _ in range(times):
            if self.steps.waiting:
                self.steps.take(number)
                self._settle()

    @precondition(lambda self: self.steps.waiting)
    @rule(numbers=st.lists(st.integers(0, 5), min_size=1, max_size=20))
    def mixed_steps(self, numbers: list[int]) -> None:
        """Let operations of several tasks happen."""
        for number in numbers:
            self.step(number, 1)

    @rule(times=st.integers(1, 3))
    def collect_now(self, times: int) -> None:
        """Let all that is under way end, and collect, as every night."""
        self._finish()
        for _ in range(times):
            self._start(self._collected())
            self._finish()
            self.objects.now += TRASH_HOURS * HOUR if times > 1 else 0

    @rule(hours=st.sampled_from([1.0, 11.0, 23.0, 30.0, 80.0, 200.0]))
    def later(self, hours: float) -> None:
        """Time goes by, but for no writer more than it may take."""
        latest = min(self.deadlines.values(), default=self.objects.now + hours * HOUR)
        self.objects.now = max(self.objects.now, min(self.objects.now + hours * HOUR, latest))

    @rule()
    def collect(self) -> None:
        """Begin a collection, as another machine would beside the others."""
        if self.collections < 2:
            self._start(self._collected())

    @precondition(lambda self: self.server.runs)
    @rule(source=st.integers(0, 20))
    def pass_on(self, source: int) -> None:
        """The server copies a run's references to a new one, without anybody writing them again."""
        run = self._chosen(source)
        run.passed_on_at = self.objects.now
        self.server.runs[next(self.numbers)] = Run(set(run.names))

    @precondition(lambda self: self.server.runs)
    @rule(source=st.integers(0, 20))
    def record(self, source: int) -> None:
        """What a run refers to in `attachments` is named by a snapshot, which stays for ever."""
        self._start(self._recorded({each for each in self._chosen(source).names if each.startswith("attachments/")}))

    @precondition(lambda self: self.server.runs)
    @rule(source=st.integers(0, 20))
    def read(self, source: int) -> None:
        """A worker reads all that a run refers to."""
        self._start(self._all_read(sorted(self._chosen(source).names)))

    @precondition(lambda self: self.server.runs)
    @rule(source=st.integers(0, 20))
    def forget(self, source: int) -> None:
        """The server deletes a run, a day after it has passed anything on at the earliest."""
        number = sorted(self.server.runs)[source % len(self.server.runs)]
        if self.objects.now - self.server.runs[number].passed_on_at >= RETENTION_HOURS * HOUR:
            del self.server.runs[number]

    @invariant()
    def nothing_is_lost(self) -> None:
        """All that is referred to can be read."""
        if hasattr(self, "server"):
            lost = [name for name in self._in_use() if not {name, in_trash(name)} & self.objects.stored.keys()]
            assert lost == []

    def teardown(self) -> None:
        """Let everything end; then collections delete all that nobody refers to, and nothing else."""
        if not hasattr(self, "server"):
            return
        try:
            self._end()
        finally:
            for task in self.tasks:
                task.cancel()
            if self.tasks:
                self.loop.run_until_complete(asyncio.wait(self.tasks))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
            self.folder.cleanup()

    def _end(self) -> None:
        self._finish()
        self.nothing_is_lost()
        for _ in range(3):
            self.objects.now += (TRASH_HOURS + UNUSED_HOURS_MIN) * HOUR
            self._start(self._collected())
            self._finish()
        left = {each for each in self.objects.stored if each.startswith(("payloads/", "attachments/", "trash/"))}
        # a snapshot that was written after its run had gone names files, too; and an object of the same content stays
        snapshots = [data for name, (data, _) in self.objects.stored.items() if name.startswith("snapshots/")]
        named = {f"attachments/{one.hex()[:2]}/{one.hex()}" for data in snapshots for one in digests_in(data)}
        used = self._in_use(self.recorded | (named & self.objects.stored.keys()))
        assert used <= left
        assert {each.rpartition("/")[2] for each in left} == {each.rpartition("/")[2] for each in used}

    async def _written(self, folder: str, number: int) -> None:
        me = next(self.numbers)
        self.deadlines[me] = self.objects.now + REFER_HOURS_MAX * HOUR
        try:
            data = content(number)
            await self.objects.write(name_of(folder, data), data)
            if folder == "attachments" and number % 2:
                data = content(0, names=digest(data))
                await self.objects.write(name_of(folder, data), data)
            await self.steps.turn()  # on the way to the server
            self.server.runs[me] = Run({name_of(folder, data)})
        finally:
            del self.deadlines[me]

    async def _recorded(self, names: set[str]) -> None:
        for each in sorted(names):
            data = content(0, names=bytes.fromhex(each.rpartition("/")[2]))
            name = name_of("snapshots", data)
            await self.objects.write(name, data)
            if each in self._in_use():  # the run was there until its record was
                self.recorded.add(each)

    async def _all_read(self, names: list[str]) -> None:
        for each in names:
            data = None
            if each in self._in_use():
                try:
                    data = await self.objects.read(each)
                finally:
                    assert data is not None or each not in self._in_use(), each

    async def _collected(self) -> None:
        self.collections += 1
        path = Path(self.folder.name) / f"{next(self.numbers)}.db"
        store = StoreSource(self.objects, ReferenceReader(None), lambda _: None)
        rules = Rules(timedelta(hours=UNUSED_HOURS_MIN))
        with MarkFile(path, "world") as marks:
            await Collection(self.objects, store, [self.server], rules, lambda: self.objects.now).run(
                marks, lambda _: None
            )
        self.collections -= 1

    def _in_use(self, recorded: set[str] | None = None) -> set[str]:
        """The names of all that runs and snapshots refer to, and of what those objects name in turn."""
        named = (self.recorded if recorded is None else recorded).union(
            *(run.names for run in self.server.runs.values())
        )
        for each in list(named):
            data = self.objects.stored.get(each) or self.objects.stored.get(in_trash(each))
            if data is not None and each.startswith("attachments/"):
                digits = [one.hex() for one in digests_in(data[0])]
                named |= {f"attachments/{one[:2]}/{one}" for one in digits}
        return named

    def _chosen(self, number: int) -> Run:
        return self.server.runs[sorted(self.server.runs)[number % len(self.server.runs)]]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(self.loop.create_task(work))
        self._settle()

    def _settle(self) -> None:
        """Let the tasks go on to where they wait; an error of one is an error of the test."""

        async def spin() -> None:
            for _ in range(SPINS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(spin())
        for task in [each for each in self.tasks if each.done()]:
            self.tasks.discard(task)
            task.result()

    def _finish(self) -> None:
        for _ in range(NO_STEPS):
            if not self.tasks:
                return
            if self.steps.waiting:
                self.steps.take(0)
            self._settle()
        raise AssertionError("it does not end")


World.TestCase.settings = settings(
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)
TestWorld = World.TestCase
