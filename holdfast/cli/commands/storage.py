"""`holdfast storage gc`: deletes what nothing in the store's namespaces refers to any more, by way of a trash."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli.busy_indicator import busy
from holdfast.cli.help_format import Group
from holdfast.cli.options import AsJson, with_server
from holdfast.cli.screens import output
from holdfast.connection.settings import Settings
from holdfast.core.base.safe_text import printable

if TYPE_CHECKING:
    from holdfast.server.garbage.collection import Report, Rules
    from holdfast.server.garbage.collector import StoreUsers
    from holdfast.server.garbage.registration import StoreUser

storage = typer.Typer(name="storage", help="Look after the store of large data.", cls=Group)

LINES_MAX: Final = 1_000
"""How many names a dry run prints; with --json it has more."""


@storage.callback()
def _storage() -> None:
    """Look after the store of large data."""


@storage.command()
@with_server()
def gc(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would go; move and delete nothing.")] = False,
    older_than: Annotated[
        str,
        typer.Option(
            help="Move only what was not written for so long, such as 72h or 30d; at least 48h.", metavar="TIME"
        ),
    ] = "72h",
    trash: Annotated[
        str,
        typer.Option(
            help="Delete for good what was in the trash for so long, such as 7d; at least 24h.", metavar="TIME"
        ),
    ] = "7d",
    with_namespace: Annotated[
        list[str] | None,
        typer.Option(
            help="A further namespace of this server that uses the store; its runs are read, too. Repeatable.",
            metavar="NAME",
        ),
    ] = None,
    without_namespace: Annotated[
        list[str] | None,
        typer.Option(help="The id of a namespace that used the store and is gone for good. Repeatable.", metavar="ID"),
    ] = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Move to the trash what no run, session or record refers to, and delete what was there for days."""
    from holdfast.server.garbage.collection import Rules
    from holdfast.server.garbage.collector import StoreUsers
    from holdfast.server.namespaces import retention_of

    rules = Rules(retention_of(older_than), retention_of(trash), dry_run)
    users = StoreUsers(tuple(with_namespace or ()), tuple(without_namespace or ()))
    report, read = asyncio.run(_collect(settings, rules, users))
    output.as_json(_json(report, read)) if as_json else _show(report, read)


async def _collect(settings: Settings, rules: Rules, users: StoreUsers) -> tuple[Report, tuple[StoreUser, ...]]:
    from holdfast.cli.command_context import connected
    from holdfast.server.garbage.collector import collect_garbage
    from holdfast.storage.object_store import objects_at

    with busy("collecting garbage") as indicator:
        temporal = (await connected(settings)).temporal
        objects = objects_at(settings.storage_place)
        return await collect_garbage(temporal, objects, settings.data_dir, rules, users, indicator.change)


def _show(report: Report, read: tuple[StoreUser, ...]) -> None:
    names = ", ".join(printable(each.namespace) for each in read)
    resumed = ", continuing an interrupted collection" if report.resumed else ""
    output.say(
        f"{report.runs_read:,} runs read in {names}{resumed}; store folders checked: {', '.join(report.folders)}"
    )
    would = "would be " if report.dry_run else ""
    rows = (
        ("in use", "used"),
        ("unused, and not old enough", "young"),
        (f"unused: {would}moved to the trash", "trashed"),
        (f"in use again: {would}taken out of the trash", "restored"),
        ("in the trash", "waiting"),
        (f"long in the trash: {would}deleted for good", "deleted"),
    )
    for words, name in rows:
        counts = {folder: getattr(each, name) for folder, each in report.folders.items()}
        total = sum(each.objects for each in counts.values())
        size = sum(each.bytes for each in counts.values())
        split = ", ".join(f"{folder} {each.objects:,}" for folder, each in counts.items() if each.objects)
        output.say(f"{total:>9,} objects {size:>17,} bytes  {words}" + (f" ({split})" if split else ""))
    if report.dry_run:
        for verb, listed in (("trash", report.trashed_names), ("delete", report.deleted_names)):
            for name in listed[:LINES_MAX]:
                output.say(f"{verb} {printable(name)}")
            if len(listed) > LINES_MAX:
                output.hint(f"more than {LINES_MAX:,} to {verb}; --json lists more of them")


def _json(report: Report, read: tuple[StoreUser, ...]) -> dict[str, Any]:
    document: dict[str, Any] = asdict(report)
    return {"namespaces": [each._asdict() for each in read], **document}
