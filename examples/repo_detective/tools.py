"""The detective's tools: `list_files`, `read_file` and `search_text` over the one folder that HOLDFAST_FOLDER names.

    HOLDFAST_FOLDER=~/my_project holdfast worker --import examples.repo_detective.tools

Everything they read can reach the model: point them at what it may see. How the folder is kept is `folder`'s.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from examples.repo_detective.folder import READ_BYTES_MAX, FileText, Folder, shown
from examples.repo_detective.globbing import Glob
from examples.repo_detective.recording import recorded
from holdfast import ToolContext, tool
from holdfast.errors import InvalidInput

FOLDER: Final = "HOLDFAST_FOLDER"

CALL_SECONDS_MAX: Final = 30.0
"""One attempt of a call; a walk ends by itself long before."""

FILES_LISTED_MAX: Final = 400
LINES_MAX: Final = 400
LINE_CHARS_MAX: Final = 400
TEXT_CHARS_MAX: Final = 20_000
"""The most text of a file that one read_file returns; it ends at a whole line and says where to go on."""

TEXT_SEARCHED_CHARS_MAX: Final = 200
MATCHES_MAX: Final = 60
MATCHES_PER_FILE_MAX: Final = 6
MATCH_CHARS_MAX: Final = 200
SEARCHED_BYTES_MAX: Final = 64 * 1024 * 1024
"""How much one search reads before it ends."""


@tool(timeout_seconds=CALL_SECONDS_MAX)
def list_files(pattern: str = "**/*", *, context: ToolContext) -> str:
    """List the files of the folder with their sizes, the upper ones first.

    Links, version control, dependencies and caches are left out.

    Args:
        pattern: which files, such as `**/*.py`, `src/**` or `README*`; a pattern without `/` looks at any depth.
        context: the call itself; the model does not see it.
    """
    with recorded("list_files", context), _folder() as folder:
        walk = folder.walk(Glob.parse(pattern))
        found = list(walk)
    lines = [f"{each.path} ({each.size:,} bytes)" for each in found[:FILES_LISTED_MAX]]
    if len(found) > FILES_LISTED_MAX:
        lines.append(f"[cut: the first {FILES_LISTED_MAX} of {len(found):,} files; a narrower pattern shows the rest]")
    head = f"{_count(len(found), 'file')} in {shown(folder.path.name)} {_verb(len(found))} {pattern!r}"
    return _joined(head, lines, walk.cut)


@tool(timeout_seconds=CALL_SECONDS_MAX)
def read_file(
    path: str,
    start_line: Annotated[int, Field(ge=1)] = 1,
    lines: Annotated[int, Field(ge=1, le=LINES_MAX)] = 200,
    *,
    context: ToolContext,
) -> str:
    """Read lines of a text file; each comes with its number.

    Args:
        path: the file, relative to the folder, as list_files shows it.
        start_line: the first line to read, counted from 1.
        lines: how many lines to read, 400 at the most.
        context: the call itself; the model does not see it.
    """
    with recorded("read_file", context), _folder() as folder:
        text = folder.read(path)
    total = len(text.lines)
    if total and start_line > total:
        raise InvalidInput(
            f"{shown(path)} ends at line {total:,}{_reach(text)}; start_line {start_line:,} is behind it"
        )
    if not total:
        return f"{shown(path)} is empty"
    chosen = _fitting(
        f"{number}: {_cut(text.lines[number - 1], LINE_CHARS_MAX)}"
        for number in range(start_line, min(total, start_line + lines - 1) + 1)
    )
    last = start_line + len(chosen) - 1
    more = f"goes on at start_line {last + 1:,}" if last < total else ""
    return _joined(f"{shown(path)}, lines {start_line:,} to {last:,} of {total:,}{_reach(text)}", chosen, more)


@tool(timeout_seconds=CALL_SECONDS_MAX)
def search_text(text: str, pattern: str = "**/*", *, context: ToolContext) -> str:
    """Search the folder's text files for a text and return each line that holds it as `path:line: text`.

    The text is taken as it is, not as a regular expression; upper and lower case are the same.

    Args:
        text: what to look for, a part of one line.
        pattern: in which files, as for list_files.
        context: the call itself; the model does not see it.
    """
    lines: list[str] = []
    matches = files = searched = 0
    with recorded("search_text", context), _folder() as folder:
        wanted = _checked(text)
        walk = folder.walk(Glob.parse(pattern))
        for found in walk:
            try:
                hits = _hits(found.path, folder.read_names(found.names), wanted)
            except InvalidInput:
                continue  # binary, gone or not readable: nothing to find there
            searched += min(found.size, READ_BYTES_MAX)
            matches, files = matches + len(hits), files + bool(hits)
            lines += hits[:MATCHES_PER_FILE_MAX]
            if len(hits) > MATCHES_PER_FILE_MAX:
                lines.append(f"[{len(hits) - MATCHES_PER_FILE_MAX:,} more in {found.path}]")
            if len(lines) >= MATCHES_MAX or searched > SEARCHED_BYTES_MAX:
                walk.cut = walk.cut or "the search ended early; a longer text or a narrower pattern finds the rest"
                break
    head = f"{_count(matches, 'line')} in {_count(files, 'file')} {'holds' if matches == 1 else 'hold'} {text!r}"
    return _joined(head, lines, walk.cut)


@contextmanager
def _folder() -> Generator[Folder]:
    """Open the folder; its name is read when a tool runs, so that importing this module asks for nothing."""
    named = os.environ.get(FOLDER)
    if not named:
        raise InvalidInput(f"{FOLDER} is not set: it names the folder that the tools may read; set it for the worker")
    with Folder.opened(Path(named)) as folder:
        yield folder


def _checked(text: str) -> str:
    if not text.strip():
        raise InvalidInput("the text to search for is empty")
    if len(text) > TEXT_SEARCHED_CHARS_MAX:
        raise InvalidInput(f"the text has {len(text):,} characters, at most {TEXT_SEARCHED_CHARS_MAX} are allowed")
    if "\n" in text or "\0" in text:
        raise InvalidInput("the text to search for is a part of one line: no line ends, no NUL")
    return text.casefold()


def _hits(path: str, text: FileText, wanted: str) -> list[str]:
    """Return `path:line: text` for every line that holds `wanted`, which is casefolded."""
    return [
        f"{path}:{number}: {_cut(line.strip(), MATCH_CHARS_MAX)}"
        for number, line in enumerate(text.lines, start=1)
        if wanted in line.casefold()
    ]


def _fitting(lines: Iterable[str]) -> list[str]:
    """Return the first lines that fit TEXT_CHARS_MAX together, at least one."""
    chosen: list[str] = []
    left = TEXT_CHARS_MAX
    for line in lines:
        left -= len(line) + 1
        if chosen and left < 0:
            break
        chosen.append(line)
    return chosen


def _joined(head: str, lines: list[str], note: str) -> str:
    return "\n".join([f"{head}:" if lines else head, *lines, *([f"[{note}]"] if note else [])])


def _cut(line: str, chars_max: int) -> str:
    return line if len(line) <= chars_max else f"{line[:chars_max]} [cut]"


def _reach(text: FileText) -> str:
    return f" (only the first {READ_BYTES_MAX:,} of {text.size:,} bytes can be read)" if text.is_cut else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _verb(number: int) -> str:
    return "matches" if number == 1 else "match"
