"""A failed test runs once more where the machine's host had taken the processors away.

A guest sees that as stolen time. Tests allow for a busy machine, by seconds; no limit of theirs allows for one that
stands still for a minute, and a product that waited so long would be wrong. A plugin that `tests/conftest.py` loads.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

STAT = Path("/proc/stat")
"""Its first line: the time of all processors since the start, by use. None where there is no Linux."""
STOLEN = 7
"""Which of its numbers the stolen time is (`man 5 proc_stat`)."""
SHARE_MAX = 0.25
"""The share of a test's time that may be stolen before its failure says nothing."""


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """What the processors had done at one moment, in clock ticks."""

    stolen: int
    total: int

    @classmethod
    def now(cls) -> ProcessorTime:
        """What they have done so far; nothing where the system does not say."""
        if not STAT.exists():
            return cls(0, 0)
        with STAT.open() as lines:
            ticks = [int(number) for number in next(lines).split()[1:9]]
        return cls(ticks[STOLEN], sum(ticks))

    def stolen_since(self, earlier: ProcessorTime) -> float:
        """The share of the time since then that was stolen, 0 to 1."""
        return (self.stolen - earlier.stolen) / max(self.total - earlier.total, 1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Function, nextitem: pytest.Item | None) -> bool:
    """Run a test as pytest does, and once more if it failed in stolen time."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    before = ProcessorTime.now()
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    share = ProcessorTime.now().stolen_since(before)
    failures = [report for report in reports if report.failed]
    if failures and share > SHARE_MAX:
        told = "\n".join(str(report.longrepr) for report in failures)
        print(
            f"\n{told}\nonce more: {item.nodeid}: {share:.0%} of its time was stolen", file=sys.__stderr__, flush=True
        )
        item._initrequest()  # pyright: ignore[reportPrivateUsage]  # pytest has no public way
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
