"""`holdfast doctor`: checks everything that agents need, and says what to do."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import typer
from rich.markup import escape
from rich.table import Table

from holdfast.cli.busy_indicator import busy
from holdfast.cli.commands.setup import NOT_AS_IT_SHOULD_BE
from holdfast.cli.options import AsJson, with_server
from holdfast.cli.screens import output
from holdfast.connection.settings import Settings
from holdfast.core.base.safe_text import printable

if TYPE_CHECKING:
    from holdfast.server.doctor.findings import Finding

COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}


@with_server("agents_dir", "modules", "task_queue")
def doctor(*, as_json: AsJson = False, settings: Settings) -> None:
    """Check server, workers, agents, model endpoint, data; say what to do. Exit code 14 for an error."""
    from holdfast.server.doctor.checks import examine
    from holdfast.server.doctor.findings import sound

    with busy("checking everything, which can take ten seconds"):
        findings = asyncio.run(examine(settings))
    if as_json:
        output.as_json({"ok": sound(findings), "findings": [_line(each) for each in findings]})
    elif sys.stdout.isatty():
        _table(findings)
    else:
        _lines(findings)
    raise typer.Exit(0 if sound(findings) else NOT_AS_IT_SHOULD_BE)


def _line(finding: Finding) -> dict[str, str]:
    return {"check": finding.check, "level": finding.level, "found": finding.result, "remedy": finding.remedy}


def _lines(findings: list[Finding]) -> None:
    """Print each finding on a line of its own, for programs and files."""
    screen = output.console()
    for each in findings:
        remedy = f"; {each.remedy}" if each.remedy else ""
        screen.print(escape(printable(f"{each.level:<8}{each.check}: {each.result}{remedy}")))


def _table(findings: list[Finding]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("check", style="bold", no_wrap=True)
    table.add_column("found, and what to do")
    for each in findings:
        remedy = f"\n[cyan]{escape(printable(each.remedy))}[/cyan]" if each.remedy else ""
        mark = f"[{COLOURS[each.level]}]{each.level}[/{COLOURS[each.level]}]"
        table.add_row(mark, each.check, escape(printable(each.result)) + remedy)
    output.tables().print(table)
