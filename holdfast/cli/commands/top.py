"""`holdfast top`: all agents at work on a server, as a live screen, or once as a table or JSON."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.busy_indicator import ASKING, busy
from holdfast.cli.command_context import connected
from holdfast.cli.options import AsJson, Limit, with_server
from holdfast.cli.screens import output
from holdfast.cli.screens.listing_table import print_listing
from holdfast.connection.settings import Settings
from holdfast.core.base.bounds import TOP_ROWS
from holdfast.core.base.errors import MissingPart
from holdfast.core.base.extras import install_command

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.view.server_overview import Overview

NOTHING: str = 'nothing is under way; start a run with: holdfast run AGENT "question"'


@with_server()
def top(
    *,
    query: Annotated[
        str, typer.Option(help="Only what this visibility query matches, such as HoldfastAgent = 'clerk'.")
    ] = "",
    limit: Limit = TOP_ROWS,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit, as in a pipe.")] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Show all agents at work; stop runs and decide about calls there. q quits."""
    raise typer.Exit(asyncio.run(_top(settings, query, limit, once=once, as_json=as_json)))


async def _top(settings: Settings, query: str, limit: int, *, once: bool, as_json: bool) -> int:
    with busy(ASKING):
        client = await connected(settings)
        from holdfast.view.server_overview import overview

        first = await overview(client, query or None, limit)  # what is wrong with the query is told before any screen
    if once or as_json or not _is_terminal():
        await _print(client, first, as_json=as_json)
        return 0
    return await _show(client, first, query, limit)


async def _show(client: Holdfast, first: Overview, query: str, limit: int) -> int:
    if find_spec("textual") is None:
        raise MissingPart(
            f"the screen of `top` needs textual, which is not installed: {install_command('temporal')}; "
            "`holdfast top --once` does without"
        )
    from holdfast.cli.screens.top_screen import INTERRUPTED, TopScreen
    from holdfast.cli.terminal_restore import put_back

    board = TopScreen(client, first, query=query, limit=limit)
    with put_back():
        code = await board.run_async()
    if code is not None:
        return code
    return INTERRUPTED if board.return_code is None else board.return_code  # none: it was cancelled, by a signal


async def _print(client: Holdfast, listing: Overview, *, as_json: bool) -> None:
    from holdfast.cli.screens.progress_bars import glyphs_of
    from holdfast.cli.screens.top_columns import COLUMNS, FIRST, as_data, ordered
    from holdfast.view.server_overview import rows

    now = datetime.now(UTC)
    with busy("asking the workers"):
        table_rows = ordered(await rows(client, listing.rows), FIRST, now)
    if as_json:
        output.as_json([as_data(each, now) for each in table_rows])
        return
    if not table_rows:
        output.hint(NOTHING)
        return
    screen, lines = output.tables(), list[list[str]]()
    for row in table_rows:
        cells = {each.name: each.text(row, now, glyphs_of(screen)) for each in COLUMNS}
        cells["id"].plain = row.listed.id
        lines.append([each.markup for each in cells.values()])
    print_listing(screen, COLUMNS, lines)
    if listing.in_all > len(table_rows):
        output.hint(f"{listing.in_all - len(table_rows):,} more are under way: --limit, or --query")


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not output.console().is_dumb_terminal
