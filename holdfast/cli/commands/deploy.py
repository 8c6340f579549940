"""`holdfast deploy ACTION`: which build of the workers gets new runs, and when an old one can end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypeVar

import typer

from holdfast.cli.busy_indicator import BusyIndicator, busy
from holdfast.cli.help_format import Group
from holdfast.cli.options import AsJson, DeploymentName, with_server
from holdfast.cli.screens import deployment_table, output
from holdfast.connection.deployment_version import DeploymentVersion, deployment_name
from holdfast.connection.settings import Settings

if TYPE_CHECKING:
    from temporalio.client import Client as TemporalClient

    from holdfast.server.deployments.versions import Build, Deployment

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 3_600
"""How long `drain` waits by default."""

deploy = typer.Typer(name="deploy", help="Show or change which build of the workers gets new runs.", cls=Group)

BuildId: TypeAlias = Annotated[str, typer.Argument(metavar="BUILD_ID", help="The build, as its workers have it.")]
NoPollers: TypeAlias = Annotated[
    bool, typer.Option("--allow-no-pollers", help="Also a build that no worker serves: its runs wait for one.")
]


@deploy.command()
@with_server("task_queue")
def status(*, deployment: DeploymentName = None, as_json: AsJson = False, settings: Settings) -> None:
    """List the builds: which gets new runs, its workers, and what is open there."""

    async def ask(temporal: TemporalClient) -> Deployment:
        from holdfast.server.deployments import versions

        return await versions.surveyed(temporal, await versions.deployment(temporal, name))

    name = deployment_name(settings.task_queue, deployment)
    there = _asked(settings, "looking at the builds", ask)
    if as_json:
        output.as_json(there.to_dict())
    else:
        deployment_table.print_deployment(there)


@deploy.command()
@with_server("task_queue")
def promote(
    build_id: BuildId,
    *,
    allow_no_pollers: NoPollers = False,
    deployment: DeploymentName = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Give a build all new runs; runs under way stay where they are. Promoting the former one is a rollback."""

    async def ask(temporal: TemporalClient) -> str | None:
        from holdfast.server.deployments.routing import promote

        return await promote(temporal, version, allow_no_pollers=allow_no_pollers)

    version = _version(settings, deployment, build_id)
    before = _asked(settings, f"promoting {build_id}", ask)
    if as_json:
        output.as_json({"deployment": version.deployment, "current": build_id, "before": before})
        return
    output.say(f"{version} is current: new runs begin on it")
    if before is not None and before != build_id:
        from holdfast.connection.queue_routing import promotion

        output.hint(f"before, it was {before}; back: {promotion((version.deployment, before))}")


@deploy.command()
@with_server("task_queue")
def ramp(
    build_id: BuildId,
    percent: Annotated[float, typer.Argument(metavar="PERCENT", help="Its share of new runs, 0 to 100.")],
    *,
    allow_no_pollers: NoPollers = False,
    deployment: DeploymentName = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Give a build a share of new runs, the current one the rest; 0 ends that."""

    async def ask(temporal: TemporalClient) -> None:
        from holdfast.server.deployments.routing import ramp

        await ramp(temporal, version, percent, allow_no_pollers=allow_no_pollers)

    version = _version(settings, deployment, build_id)
    _asked(settings, f"ramping {build_id}", ask)
    if as_json:
        output.as_json({"deployment": version.deployment, "build_id": build_id, "percent": percent})
        return
    output.say(f"{version} gets {percent:g} % of new runs" if percent else f"{version} gets no new runs")


@deploy.command()
@with_server("task_queue")
def drain(
    build_id: BuildId,
    *,
    timeout: Annotated[
        int, typer.Option(min=0, help="How many seconds to wait; exit code 7 after that.", metavar="SECONDS")
    ] = TIMEOUT_SECONDS,
    deployment: DeploymentName = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Wait until nothing is open on a build, so that its workers can end; idle sessions move to the current one."""
    version = _version(settings, deployment, build_id)
    last = list[str]()

    async def ask(temporal: TemporalClient, waiting: BusyIndicator) -> Build:
        from holdfast.server.deployments.drain import drain

        def report(build: Build) -> None:
            line = deployment_table.drain_line(build)
            waiting.change(f"{line} (Ctrl-C leaves it as it is)")
            if not waiting.is_shown and not as_json and build.status == "draining" and last[-1:] != [line]:
                last.append(line)
                output.hint(line)

        return await drain(temporal, version, float(timeout), report)

    build = _asked_with(settings, f"draining {build_id}", ask)
    if as_json:
        output.as_json({"deployment": version.deployment, **build.to_dict()})
        return
    output.say(f"{version} is {build.status}: nothing is open there, and its workers can end")


def _version(settings: Settings, deployment: str | None, build_id: str) -> DeploymentVersion:
    return DeploymentVersion(deployment_name(settings.task_queue, deployment), build_id)


def _asked(settings: Settings, words: str, ask: Callable[[TemporalClient], Awaitable[T]]) -> T:
    return _asked_with(settings, words, lambda temporal, _: ask(temporal))


def _asked_with(settings: Settings, words: str, ask: Callable[[TemporalClient, BusyIndicator], Awaitable[T]]) -> T:
    async def asking(waiting: BusyIndicator) -> T:
        from holdfast.connection.temporal_client import connect

        return await ask(await connect(settings), waiting)

    with busy(words) as waiting:
        return asyncio.run(asking(waiting))
