"""`holdfast setup`: what a namespace needs before runs and sessions can be listed by more than their ids."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.markup import escape

from holdfast.cli.busy_indicator import busy
from holdfast.cli.options import AsJson, with_server
from holdfast.cli.screens import output
from holdfast.connection.settings import Settings
from holdfast.core.base.errors import Conflict, HoldfastError, ServerUnavailable
from holdfast.core.base.safe_text import printable

if TYPE_CHECKING:
    from temporalio.client import Client as TemporalClient

    from holdfast.connection.search_attribute_check import Attribute

NOT_AS_IT_SHOULD_BE: Final = 14
"""The exit code of `setup --check` and of `doctor` for what they have found."""

PATIENCE_SECONDS: Final = 1.0
"""How long the server may take before we say what we wait for."""

STATES: Final = {
    "there": "[green]was there[/green]",
    "registered": "[green]registered[/green]",
    "missing": "[yellow]missing[/yellow]",
    "other_type": "[red]is there with another type[/red]",
    "no_room": "[red]no room for it[/red]",
    "refused": "[red]refused[/red]",
}
"""How a line tells what there is of an attribute."""


@with_server()
def setup(
    *,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; the exit code tells: 0, or 14.")] = False,
    create_namespace: Annotated[
        bool, typer.Option("--create-namespace", help="Make the namespace, too, where it is not there.")
    ] = False,
    retention: Annotated[
        str,
        typer.Option(help="How long a namespace made here keeps runs that have ended: 30d, 72h.", metavar="TIME"),
    ] = "30d",
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Register with a Temporal server what runs are listed by; doing it again does no harm."""
    from holdfast.server.namespaces import retention_of

    keeps = retention_of(retention)
    setting_up = _set_up(
        settings, check=check, keeps=keeps if create_namespace and not check else None, as_json=as_json
    )
    raise typer.Exit(asyncio.run(setting_up))


async def _set_up(settings: Settings, *, check: bool, keeps: timedelta | None, as_json: bool) -> int:
    from holdfast.connection.search_attribute_check import complete
    from holdfast.connection.search_attribute_setup import attributes, register
    from holdfast.connection.temporal_client import connect
    from holdfast.server.namespaces import create

    with busy("setting up the server"):
        temporal = await connect(settings, namespace_there=keeps is None)
        created = keeps is not None and await create(temporal, keeps)
        found = await attributes(temporal)
        if not check:
            found = await register(temporal, found)
    if not as_json:
        _show(found, temporal.namespace, created=created, check=check)
    problem = await _problem(temporal, found, check=check)
    if as_json:
        told = _told(found, temporal.namespace, created=created)
        output.as_json(told if problem is None else {**told, "error": problem.to_dict()})
    elif problem is not None and not check:
        raise problem
    elif not complete(found):
        output.hint("`holdfast setup` registers what is missing; until then runs are started without any of these")
    if problem is None:
        return 0
    return NOT_AS_IT_SHOULD_BE if check else problem.exit_code


async def _problem(temporal: TemporalClient, found: tuple[Attribute, ...], *, check: bool) -> HoldfastError | None:
    """Return what keeps the attributes from being used, after the server's caches have had their time."""
    from holdfast.connection.search_attribute_check import Registration, complete, remedies, told_of
    from holdfast.connection.search_attribute_setup import TAKEN_SECONDS_MAX, taken

    if not complete(found):
        todo = remedies(found, temporal.namespace)
        kind = ServerUnavailable if any(each.state is Registration.REFUSED for each in found) else Conflict
        return kind(f"{told_of(found)}; {todo[0] if todo else 'run `holdfast setup`'}")
    if check:
        return None
    waiting = asyncio.get_running_loop().call_later(
        PATIENCE_SECONDS, output.hint, "waiting for the server to take them"
    )
    try:
        if await taken(temporal):
            return None
    finally:
        waiting.cancel()
    text = f"the server does not take queries for them after {TAKEN_SECONDS_MAX:g} s"
    return ServerUnavailable(f"{text}; its caches may need longer: run the same command again")


def _show(found: tuple[Attribute, ...], namespace: str, *, created: bool, check: bool) -> None:
    from holdfast.connection.search_attribute_check import remedies

    screen = output.console()
    made = "made" if created else "namespace"
    screen.print(f"{made} [bold]{escape(printable(namespace))}[/bold]")
    for each in found:
        screen.print(f"  {each.name:<20}{each.kind:<10}{STATES[each.state]}")
    for line in remedies(found, namespace)[0 if check else 1 :]:  # else the first one is told with the error
        screen.print(escape(printable(line)))


def _told(found: tuple[Attribute, ...], namespace: str, *, created: bool) -> dict[str, Any]:
    from holdfast.connection.search_attribute_check import complete, remedies

    return {
        "namespace": namespace,
        "created": created,
        "ready": complete(found),
        "attributes": [
            {"name": each.name, "type": each.kind, "state": each.state, "found": each.found} for each in found
        ],
        "remedies": list(remedies(found, namespace)),
    }
