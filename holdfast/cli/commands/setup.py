"""`holdfast setup`: registers the search attributes that runs are listed by, and the rates of routes with limits."""

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
    from holdfast.server.queue_limits import QueueLimit

NOT_AS_IT_SHOULD_BE: Final = 14
"""The exit code of `setup --check` and of `doctor` for what they have found."""

PATIENCE_SECONDS: Final = 1.0
"""How long the server may take before we say what we wait for."""

STATES: Final = {
    "there": "[green]registered before[/green]",
    "registered": "[green]registered[/green]",
    "missing": "[yellow]missing[/yellow]",
    "other_type": "[red]has another type[/red]",
    "no_room": "[red]no free column[/red]",
    "refused": "[red]refused[/red]",
}
"""How a line tells what there is of an attribute."""


@with_server("task_queue")
def setup(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 14 if anything is missing or wrong.")
    ] = False,
    create_namespace: Annotated[
        bool, typer.Option("--create-namespace", help="Create the namespace if it does not exist.")
    ] = False,
    retention: Annotated[
        str,
        typer.Option(help="How long a new namespace keeps ended runs, such as 30d or 72h.", metavar="TIME"),
    ] = "30d",
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Register the search attributes that runs are listed by, and routes' rate limits; repeating it is harmless."""
    from holdfast.server.namespaces import retention_of

    retention_time = retention_of(retention)
    setting_up = _set_up(
        settings,
        check=check,
        retention_time=retention_time if create_namespace and not check else None,
        as_json=as_json,
    )
    raise typer.Exit(asyncio.run(setting_up))


async def _set_up(settings: Settings, *, check: bool, retention_time: timedelta | None, as_json: bool) -> int:
    from holdfast.connection.search_attribute_check import complete
    from holdfast.connection.search_attribute_setup import attributes, register
    from holdfast.connection.temporal_client import connect
    from holdfast.models.rate_limits.route_queues import limits_in
    from holdfast.models.route_file import read_routes
    from holdfast.server.namespaces import create
    from holdfast.server.queue_limits import set_up_limits

    limits = limits_in(read_routes(settings.models_file))
    with busy("setting up the server"):
        temporal = await connect(settings, namespace_there=retention_time is None)
        created = retention_time is not None and await create(temporal, retention_time)
        results = await attributes(temporal)
        if not check:
            results = await register(temporal, results)
    if not as_json:
        _show(results, temporal.namespace, created=created, check=check)
    problem = await _problem(temporal, results, check=check)
    queues: tuple[QueueLimit, ...] = ()
    try:
        queues = await set_up_limits(temporal, settings.task_queue, limits, check=check)
        problem = problem or _wrong_rates(queues)
    except HoldfastError as error:
        problem = problem or error
    if not as_json:
        for each in queues:
            output.console().print(f"  rate limit of {escape(printable(each.line))}")
    if as_json:
        document = _json(results, temporal.namespace, created=created)
        document["rate_limits"] = [each.to_dict() for each in queues]
        output.as_json(document if problem is None else {**document, "error": problem.to_dict()})
    elif problem is not None and not check:
        raise problem
    elif not complete(results):
        output.hint("`holdfast setup` registers the missing ones; until then runs start without search attributes")
    if problem is None:
        return 0
    return NOT_AS_IT_SHOULD_BE if check else problem.exit_code


def _wrong_rates(queues: tuple[QueueLimit, ...]) -> HoldfastError | None:
    """Return what is wrong with the rates after a check."""
    wrong = [each.line for each in queues if not each.is_right]
    return (
        Conflict(f"the server's rates are not those of models.yaml ({'; '.join(wrong)}); run `holdfast setup`")
        if wrong
        else None
    )


async def _problem(temporal: TemporalClient, results: tuple[Attribute, ...], *, check: bool) -> HoldfastError | None:
    """Return what keeps the attributes from being used, after the server's caches have had their time."""
    from holdfast.connection.search_attribute_check import Registration, complete, remedies, shortcomings
    from holdfast.connection.search_attribute_setup import QUERYABLE_SECONDS_MAX, queryable

    if not complete(results):
        todo = remedies(results, temporal.namespace)
        kind = ServerUnavailable if any(each.state is Registration.REFUSED for each in results) else Conflict
        return kind(f"{shortcomings(results)}; {todo[0] if todo else 'run `holdfast setup`'}")
    if check:
        return None
    waiting = asyncio.get_running_loop().call_later(
        PATIENCE_SECONDS, output.hint, "waiting until the server can query them"
    )
    try:
        if await queryable(temporal):
            return None
    finally:
        waiting.cancel()
    text = f"the server cannot query them after {QUERYABLE_SECONDS_MAX:g} s"
    return ServerUnavailable(f"{text}; its caches may need longer: run the same command again")


def _show(results: tuple[Attribute, ...], namespace: str, *, created: bool, check: bool) -> None:
    from holdfast.connection.search_attribute_check import remedies

    screen = output.console()
    label = "created namespace" if created else "namespace"
    screen.print(f"{label} [bold]{escape(printable(namespace))}[/bold]")
    width = max(len(each.name) for each in results) + 1
    for each in results:
        screen.print(f"  {each.name:<{width}}{each.kind:<10}{STATES[each.state]}")
    for line in remedies(results, namespace)[0 if check else 1 :]:  # else the first one is told with the error
        screen.print(escape(printable(line)))


def _json(results: tuple[Attribute, ...], namespace: str, *, created: bool) -> dict[str, Any]:
    from holdfast.connection.search_attribute_check import complete, remedies

    return {
        "namespace": namespace,
        "created": created,
        "ready": complete(results),
        "attributes": [
            {"name": each.name, "type": each.kind, "state": each.state, "found": each.actual_type} for each in results
        ],
        "remedies": list(remedies(results, namespace)),
    }
