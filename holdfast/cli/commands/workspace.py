"""`holdfast workspace`: the files that an agent's workspace has, or had when its last call ended."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command_context import ask_server
from holdfast.cli.options import AsJson, with_server
from holdfast.cli.output_file import writable, write
from holdfast.cli.screens import output
from holdfast.connection.settings import Settings
from holdfast.core.base.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.workspace.snapshot_store import SnapshotFile

STANDARD_OUTPUT = "-"


class Action(StrEnum):
    """What is done with the files."""

    LS = "ls"
    GET = "get"
    PUT = "put"


@with_server()
def workspace(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A run or a session by its id, the first digits of it, or an agent's name; a snapshot's digest, or "
            "new: no files.",
        ),
    ],
    action: Annotated[Action, typer.Argument(help="List files, get one or a folder, or put one into a new snapshot.")],
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="In the workspace; for put: a local file or folder.")
    ] = ".",
    place: Annotated[str, typer.Argument(metavar="PLACE", help="For put: where it goes in the workspace.")] = ".",
    *,
    out: Annotated[str, typer.Option("--out", "-o", help="For get: the file to write.", metavar="FILE")] = "-",
    force: Annotated[bool, typer.Option("--force", help="For get: overwrite an existing file.")] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Read the files of an agent's workspace as its last call left them, or make a snapshot to begin one with."""
    match action:
        case Action.LS:
            _list(settings, reference, path, as_json=as_json)
        case Action.GET:
            _get(settings, reference, path, out, force=force, as_json=as_json)
        case Action.PUT:
            _put(settings, reference, path, place, as_json=as_json)


def _list(settings: Settings, reference: str, path: str, *, as_json: bool) -> None:
    async def ask(holdfast: Holdfast) -> tuple[str, list[SnapshotFile], list[str]]:
        from holdfast.client.workspace_files import latest_snapshot, snapshot_files

        digest, files = await latest_snapshot(holdfast, reference), snapshot_files(holdfast)
        return digest, await files.listed(digest, path), await files.closed(digest, path)

    digest, files, closed = ask_server(settings, ask)
    if as_json:
        entries = [{**each._asdict(), "mode": f"{each.mode:o}"} for each in files]
        output.as_json({"snapshot": digest, "files": entries, "closed": closed})
        return
    for each in files:
        output.say(f"{each.size:>12,}  {_shown(each.path)}")
    for folder in closed:
        output.say(f"{'?':>12}  {_shown(folder)}/ (its mode kept its files out of the snapshot)")


def _get(settings: Settings, reference: str, path: str, out: str, *, force: bool, as_json: bool) -> None:
    file = None if out == STANDARD_OUTPUT else writable(out, force=force)
    if file is None and as_json:
        raise InvalidInput("--json and the content both need standard output; name a file with -o")

    async def ask(holdfast: Holdfast) -> bytes:
        from holdfast.client.workspace_files import latest_snapshot, snapshot_files

        return await snapshot_files(holdfast).read(await latest_snapshot(holdfast, reference), path)

    content = ask_server(settings, ask)
    if file is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    write(file, content, force=force)
    result = {"file": str(file), "bytes": len(content)}
    output.as_json(result) if as_json else output.say(f"wrote {file} ({len(content):,} bytes)")


def _put(settings: Settings, reference: str, path: str, place: str, *, as_json: bool) -> None:
    source = Path(path)
    if not source.exists():
        raise InvalidInput(f"there is no file or folder {path!r} here; name one to put")

    async def ask(holdfast: Holdfast) -> str:
        from holdfast.client.workspace_files import latest_snapshot, snapshot_files

        digest = await latest_snapshot(holdfast, reference)
        return await snapshot_files(holdfast).with_files(digest, source, place)

    made = ask_server(settings, ask)
    output.as_json({"snapshot": made}) if as_json else output.say(made)


def _shown(path: str) -> str:
    """Return a path on one line; bytes that are no text are escaped."""
    return path if path.isprintable() else ascii(path)[1:-1]
