"""`holdfast export`: everything known about a run, as one file."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli.busy_indicator import busy
from holdfast.cli.command_context import connected, run_id_of
from holdfast.cli.options import AsJson, ExecutionId, with_server
from holdfast.cli.screens import output as out
from holdfast.connection.settings import Settings
from holdfast.core.base.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from holdfast.view.report import Report


class Format(StrEnum):
    """What an exported run can be."""

    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


SUFFIXES: Final = {".json": Format.JSON, ".md": Format.MARKDOWN, ".markdown": Format.MARKDOWN, ".html": Format.HTML}
STANDARD_OUTPUT: Final = "-"


@with_server()
def export(
    execution_id: ExecutionId,
    *,
    form: Annotated[
        Format | None, typer.Option("--format", help="The format; default: by the file's suffix, else json.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file to write; - is standard output.", metavar="FILE")
    ] = STANDARD_OUTPUT,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Export everything known about a run: as JSON, a Markdown report, or an HTML page with a timeline."""
    chosen = form or _by_suffix(output)
    file = None if output == STANDARD_OUTPUT else _writable(output, force=force)
    if as_json and file is None and chosen is not Format.JSON:
        raise InvalidInput(f"--json and {chosen} both need standard output; name a file with -o")
    text = _rendered(asyncio.run(_read(settings, execution_id)), chosen)
    if file is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    _write(file, text, force=force)
    result = {"execution_id": execution_id, "format": chosen.value, "file": str(file), "bytes": file.stat().st_size}
    out.as_json(result) if as_json else out.say(f"wrote {file} ({result['bytes']:,} bytes)")


async def _read(settings: Settings, execution_id: str) -> Report:
    with busy("reading the run"):
        from holdfast.view.report import read_report

        holdfast = await connected(settings)
        return await read_report(holdfast, await run_id_of(holdfast, execution_id))


def _by_suffix(output: str) -> Format:
    suffix = Path(output).suffix.lower()
    if suffix and output != STANDARD_OUTPUT and suffix not in SUFFIXES:
        raise InvalidInput(f"the suffix {suffix} names no format; choose --format json, markdown or html")
    return SUFFIXES.get(suffix, Format.JSON)


def _writable(output: str, *, force: bool) -> Path:
    """Return the file, which can be written as far as one can see. Raises InvalidInput, Conflict."""
    file = Path(output)
    if not file.parent.is_dir():
        raise InvalidInput(f"there is no folder {str(file.parent)!r} to write {file.name!r} into; create it first")
    if file.is_dir():
        raise InvalidInput(f"{output!r} is a folder; name a file in it")
    if file.exists() and not force:
        raise _exists(file)
    return file


def _exists(file: Path) -> Conflict:
    return Conflict(f"the file {str(file)!r} already exists; choose another name, or overwrite it with --force")


def _rendered(report: Report, chosen: Format) -> str:
    match chosen:
        case Format.JSON:
            from holdfast.view.report import to_json_dict

            return json.dumps(to_json_dict(report)) + "\n"
        case Format.MARKDOWN:
            from holdfast.view.markdown import to_markdown

            return to_markdown(report)
        case Format.HTML:
            from holdfast.view.html import to_html

            return to_html(report)


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write the file whole or not at all: beside its place first. Raises InvalidInput, Conflict."""
    file = file.resolve()  # a link stays, what it leads to is written
    if file.exists() and not file.is_file():
        raise InvalidInput(f"{str(file)!r} is not a regular file; write to standard output with `-o -`")
    try:
        with NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, prefix=f".{file.name}.", delete=False) as part:
            path = Path(part.name)
            try:
                part.write(text)
                part.flush()
                _put(path, file, force=force)
            finally:
                path.unlink(missing_ok=True)
    except FileExistsError:
        raise _exists(file) from None
    except OSError as error:
        raise InvalidInput(
            f"{str(file)!r} cannot be written: {error.strerror or error}; choose another place"
        ) from None


def _put(path: Path, file: Path, *, force: bool) -> None:
    path.chmod(0o666 & ~_umask())
    if not force:
        with suppress(PermissionError):  # a file system without hard links
            os.link(path, file)
            return
    path.replace(file)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
