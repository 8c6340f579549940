"""What trees of processes use, read from Linux's /proc: processor time, ended children's too, and memory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessFacts(NamedTuple):
    """A process's parent, and the processor seconds of itself and of its children that have ended."""

    parent: int
    seconds: float


def parsed(stat: str) -> ProcessFacts:
    """Read a line of /proc/PID/stat; the name in it may hold spaces and brackets."""
    words = stat.rpartition(")")[2].split()
    ticks = sum(map(int, words[11:15]))  # utime, stime, cutime, cstime: fields 14 to 17 of proc(5)
    return ProcessFacts(int(words[1]), ticks / TICKS)


def processes(proc: Path = PROC) -> dict[int, ProcessFacts]:
    """Return all processes by their ids."""
    found: dict[int, ProcessFacts] = {}
    for folder in proc.glob("[0-9]*"):
        try:
            found[int(folder.name)] = parsed((folder / "stat").read_text(encoding="utf-8", errors="replace"))
        except OSError:  # it has ended
            continue
    return found


def tree(root: int, all_of_them: Mapping[int, ProcessFacts]) -> list[int]:
    """Return a process and all below it."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid, facts in all_of_them.items():
        children[facts.parent].append(pid)
    members: list[int] = []
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        members.append(pid)
        waiting += children[pid]
    return members


def cpu_seconds_of(roots: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """Return the processor seconds that each role's trees have used so far."""
    everything = processes()
    return {
        role: sum(everything[pid].seconds for root in pids for pid in tree(root, everything) if pid in everything)
        for role, pids in roots.items()
    }


def load_average() -> float:
    """Return the machine's load of the last minute."""
    return os.getloadavg()[0]
