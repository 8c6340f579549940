"""`holdfast export`: everything known about a run, as one file."""

from __future__ import annotations

import asyncio
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli.busy_indicator import busy
from holdfast.cli.command_context import connected, run_id_of
from holdfast.cli.options import AsJson, ExecutionId, with_server
from holdfast.cli.output_file import writable, write
from holdfast.cli.screens import output as out
from holdfast.connection.settings import Settings
from holdfast.core.base.errors import InvalidInput

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
    file = None if output == STANDARD_OUTPUT else writable(output, force=force)
    if as_json and file is None and chosen is not Format.JSON:
        raise InvalidInput(f"--json and {chosen} both need standard output; name a file with -o")
    text = _rendered(asyncio.run(_read(settings, execution_id)), chosen)
    if file is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write(file, text.encode(), force=force)
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
