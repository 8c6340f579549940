"""How a deployment's builds are shown. Asks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.markup import escape

from holdfast.cli.screens import output
from holdfast.cli.screens.listing_table import Column, print_listing
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.amounts import moment

if TYPE_CHECKING:
    from holdfast.server.deployments.versions import Build, Deployment

COLUMNS: Final = (
    Column("build", least=12),
    Column("status"),
    Column("since", rank=2),
    Column("workers", rank=1, right=True),
    Column("runs", right=True),
    Column("sessions", right=True),
)

COLOURS: Final = {"current": "green", "ramping": "cyan", "draining": "yellow"}


def print_deployment(there: Deployment) -> None:
    """Print the builds, and what to do where none is current."""
    output.say(f"deployment {there.name}: {there.current or 'no build'} is current")
    print_listing(output.tables(), COLUMNS, [_row(each) for each in there.builds])
    if there.current is None:
        output.hint("its workers get nothing until a build is current: holdfast deploy promote BUILD_ID")


def drain_line(build: Build) -> str:
    """Return what a build still waits for, on one line."""
    if not build.runs and not build.sessions:
        return f"{build.build_id}: nothing is open; the server has not looked again yet"
    served = "" if build.workers else ", and no worker serves them"
    return f"{build.build_id}: {build.open_text}{served}"


def _row(build: Build) -> tuple[str, ...]:
    share = "" if build.percent is None else f" {build.percent:g} %"
    colour = COLOURS.get(build.status, "dim")
    return (
        escape(printable(build.build_id)),
        f"[{colour}]{build.status}{share}[/{colour}]",
        moment(build.since) if build.since else "",
        *("-" if each is None else f"{each:,}" for each in (build.workers, build.runs, build.sessions)),
    )
