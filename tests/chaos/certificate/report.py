"""The certificate's table, for the terminal and as Markdown. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.certificate.scene import Scene
from tests.chaos.certificate.stage import Fault
from tests.chaos.certificate.trial import Outcome

COMMAND: Final = "python -m tests.chaos.certificate"


@dataclass
class Cell:
    """What was seen of one scene under one fault."""

    begun: int = 0
    runs: int = 0
    hits: list[int] = field(default_factory=list[int])
    late: int = 0
    unknown: int = 0
    failed: int = 0

    def note(self, outcome: Outcome) -> None:
        """Count a trial."""
        self.runs += 1
        self.hits += outcome.hits
        self.late += outcome.late
        self.unknown += outcome.unknown
        self.failed += bool(outcome.problems)

    @property
    def text(self) -> str:
        """The cell as a table has it: strikes that met a run, at how many different events."""
        return f"{len(self.hits)} / {len(set(self.hits))}" + (f", {self.failed} FAILED" if self.failed else "")


@dataclass
class Table:
    """All cells, and how many events an undisturbed run of each scene has."""

    scenes: Sequence[Scene]
    faults: Sequence[Fault]
    events: dict[str, int] = field(default_factory=dict[str, int])
    cells: dict[tuple[str, Fault], Cell] = field(default_factory=dict[tuple[str, Fault], Cell])
    left_out: int = 0
    """Strikes that were meant and not tried: time was up."""

    def cell(self, scene: str, fault: Fault) -> Cell:
        """Return a cell."""
        return self.cells.setdefault((scene, fault), Cell())

    @property
    def empty(self) -> list[str]:
        """The cells in which no fault has met a run: they show nothing."""
        names = (scene.name for scene in self.scenes)
        return [f"{name} under {fault}" for name in names for fault in self.faults if not self.cell(name, fault).hits]

    def rows(self) -> list[list[str]]:
        """Return the table with its heading and its sums."""
        rows = [["scenario", "events", *self.faults]]
        for scene in self.scenes:
            cells = (self.cell(scene.name, fault).text for fault in self.faults)
            rows.append([scene.name, str(self.events.get(scene.name, 0)), *cells])
        rows.append(["in all", str(sum(self.events.values())), *map(self._sum, self.faults)])
        return rows

    def _sum(self, fault: Fault) -> str:
        hits = [self.cell(scene.name, fault).hits for scene in self.scenes]
        return f"{sum(map(len, hits)):,} / {sum(len(set(each)) for each in hits)}"

    def total(self, figure: Callable[[Cell], int]) -> int:
        """Return the sum of a figure over all cells."""
        return sum(map(figure, self.cells.values()))


def plain(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as a terminal shows them."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)


def markdown(table: Table, figures: Mapping[str, str]) -> str:
    """Return the table and the figures as Markdown."""
    head, *rows = table.rows()
    lines = [_row(head), "|---|" + "---:|" * (len(head) - 1), *(_row(row) for row in rows), ""]
    lines += [f"* {name}: {value}" for name, value in figures.items()]
    return "\n".join([*lines, ""])


def repeating(outcome: Outcome, seed: int) -> str:
    """Return the command that repeats a trial."""
    aims = ",".join(map(str, outcome.aims))
    per_run = f" --per-run {len(outcome.aims)}" if len(outcome.aims) > 1 else ""
    fault = f" --faults {outcome.fault} --at {aims}" if outcome.fault else " --faults worker --at 1"
    return f"{COMMAND} --scenarios {outcome.scene}{fault} --seed {seed}{per_run}"


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"
