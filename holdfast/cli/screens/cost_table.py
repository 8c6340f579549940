"""Prints what a run or a session has cost. Asks nothing and decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.markup import escape

from holdfast.cli.screens.listing_table import Column, print_listing
from holdfast.cli.screens.output import console, hint, tables
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.amounts import ESTIMATED, counted, dollars, server_calls_note, short_dollars

if TYPE_CHECKING:
    from holdfast.core.base.usage import Usage
    from holdfast.view.cost_report import CostLine, CostReport

COLUMNS: Final = (
    Column("agent", least=8),
    Column("model", least=12),
    Column("calls", rank=4, right=True),
    Column("input", rank=1, right=True),
    Column("cached", rank=1, right=True),
    Column("cache write", rank=3, right=True),
    Column("output", rank=1, right=True),
    Column("reasoning", rank=2, right=True),
    Column("US dollars", right=True),
)


def show(report: CostReport) -> None:
    """Print a line for each agent and model, one for each model where there are several, and the total."""
    rows = [_row(each) for each in report.lines]
    models = report.models
    if 1 < len(models) < len(report.lines):
        rows += [_row(each, "all agents") for each in models]
    figure = short_dollars(report.cost, report.unpriced)
    rows.append(_cells("total", "", str(sum(each.calls for each in report.lines)), report.usage, figure))
    print_listing(tables(), COLUMNS, rows)
    console().print(f"[dim]{escape(printable(_sum(report)))}[/dim]")
    if ran := server_calls_note(report.server_tool_calls):
        hint(f"the providers ran tools of their own, at the prices of llm.server_tools: {ran}")
    if report.running:
        hint(f"{counted(report.running, 'subagent')} under way: what they use counts once they have ended")
    if report.more:
        hint("there are more runs than this; older or further ones are not shown one by one")


def _row(line: CostLine, agent: str = "") -> list[str]:
    figure = short_dollars(line.cost, (line.model,) if line.unpriced else ())
    return _cells(agent or line.agent, line.model, str(line.calls), line.usage, figure)


def _cells(agent: str, model: str, calls: str, usage: Usage, figure: str) -> list[str]:
    estimated = ESTIMATED if usage.estimated_tokens else ""
    counts = (usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.output_tokens)
    shown = [f"{count:,}" if count else "-" for count in (*counts, usage.reasoning_tokens)]
    names = [escape(printable(name)) or "-" for name in (agent, model)]
    return [*names, calls, f"{estimated}{shown[0]}", *shown[1:], figure]


def _sum(report: CostReport) -> str:
    total = f"{counted(report.executions, 'run')}, {report.usage.total_tokens:,} tokens"
    return f"{total}, {dollars(report.cost, report.unpriced)}"
