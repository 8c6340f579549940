"""`search`: lines that match a pattern, in the files below a folder. Runs inside: Python 3.9, stdlib alone.

A regular expression can take for ever, and nothing interrupts it but the end of its process: so it runs in a child.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import signal
import stat
from collections.abc import Iterator
from typing import Any

from holdfast.workspace.inside.file_operations import BINARY_CHECK_BYTES, DEPTH_MAX, walk
from holdfast.workspace.inside.paths import Refused, Root, problem_of, shown

MATCHES_MAX = 200
"""The most matches that one search shows."""

LINE_CHARS_MAX = 400
"""How much of a matching line is shown."""

SEARCHED_BYTES_MAX = 4 * 1024 * 1024
"""How much of one file is searched."""

SECONDS_MAX = 20
"""How long one search may take."""


def search(root: Root, _runtime: str, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    """Return the lines that match `pattern`, literally unless `regex`, in the files whose names match `glob`."""
    try:
        pattern = re.compile(request["pattern"] if request.get("regex") else re.escape(request["pattern"]))
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(f"the pattern is no regular expression of Python's: {error}") from None
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS_MAX)
        code = 1
        try:
            os.close(reader)
            answer = json.dumps(_answer(root, request, pattern)).encode()
            with os.fdopen(writer, "wb") as file:
                file.write(answer)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        raise Refused(f"the search took more than {SECONDS_MAX} s; simplify the pattern or name a folder")
    if status:
        raise Refused(f"the search ended without a result (wait status {status})")
    result: dict[str, Any] = json.loads(answer)
    if "refused" in result:
        raise Refused(result["refused"])
    return result


def _answer(root: Root, request: dict[str, Any], pattern: re.Pattern[str]) -> dict[str, Any]:
    try:
        return _matches(root, request, pattern)
    except Refused as refused:
        return {"refused": str(refused)}
    except OSError as error:
        return {"refused": problem_of(error)}


def _matches(root: Root, request: dict[str, Any], pattern: re.Pattern[str]) -> dict[str, Any]:
    path, glob = request.get("path") or ".", request.get("glob")
    matches: list[dict[str, Any]] = []
    files = 0
    folder = root.open_folder(path)
    try:
        for place, facts, _ in walk(folder, DEPTH_MAX):
            if not stat.S_ISREG(facts.st_mode) or (glob and not _fits(place, glob)):
                continue
            files += 1
            for number, line in _lines(root, os.path.join(path, place)):
                if pattern.search(line) is None:
                    continue
                if len(matches) == MATCHES_MAX:
                    return {"matches": matches, "files": files, "more": True}
                matches.append({"path": shown(place), "line": number, "text": line[:LINE_CHARS_MAX]})
    finally:
        os.close(folder)
    return {"matches": matches, "files": files, "more": False}


def _fits(place: str, glob: str) -> bool:
    return fnmatch.fnmatchcase(place, glob) or fnmatch.fnmatchcase(os.path.basename(place), glob)


def _lines(root: Root, path: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text file; none of one that is binary or cannot be read."""
    try:
        with os.fdopen(root.open_file(path), "rb") as file:
            content = file.read(SEARCHED_BYTES_MAX)
    except (OSError, Refused):
        return
    if b"\0" in content[:BINARY_CHECK_BYTES]:
        return
    for number, line in enumerate(content.split(b"\n"), 1):
        yield number, line.decode("utf-8", "replace")
