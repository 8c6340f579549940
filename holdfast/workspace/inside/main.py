"""One operation in a workspace, from its request to its result. Runs inside: Python 3.9, the standard library alone.

Every operation of the tools says which files it is for: `execution`, the run that asks, and `files`, the digest of the
snapshot that its last recorded call left. Where the workspace has others, nothing is done: the result is `stale`, and
the caller restores them first.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from typing import Any

from holdfast.workspace.inside.commands import run
from holdfast.workspace.inside.file_operations import edit, list_files, read, write
from holdfast.workspace.inside.frames import Gone, read_request, write_result
from holdfast.workspace.inside.paths import Refused, Root, problem_of, shown
from holdfast.workspace.inside.processes import kill_call
from holdfast.workspace.inside.search import search
from holdfast.workspace.inside.snapshots import is_current, restore, take

LOCK_SECONDS_MAX = 10.0
"""How long an operation waits for another one in the workspace: one that was stopped takes a moment to end."""

Operation = Callable[[Root, str, dict[str, Any], bytes], dict[str, Any]]

OPERATIONS: dict[str, Operation] = {
    "run": run,
    "read": read,
    "write": write,
    "edit": edit,
    "list": list_files,
    "search": search,
    "restore": restore,
}

CHANGING = ("run", "write", "edit")
"""The operations after which a snapshot is made, and which never overlap in a workspace."""


def main(arguments: list[str]) -> int:
    """Carry out the request on standard input; `arguments` are the root and the runtime folder."""
    path, runtime = arguments
    os.umask(0o022)
    try:
        request, body = read_request()
        write_result(_result(Root(path), runtime, request, body))
    except Gone:
        return 1
    return 0


def _result(root: Root, runtime: str, request: dict[str, Any], body: bytes) -> dict[str, Any]:
    name = request.get("op")
    if name == "kill":
        return {"status": "done", "killed": kill_call(runtime, str(request["call"]))}
    operation = OPERATIONS.get(str(name))
    if operation is None:
        return {"status": "refused", "message": f"there is no operation {shown(str(name))}"}
    lock = os.open(os.path.join(runtime, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if name in CHANGING or name == "restore":
            _lock(lock)
        current = is_current(runtime, request)
        if name == "restore" and current:  # a call beside this one has done it, and may be reading by now
            return {"status": "done"}
        if name != "restore" and not current:
            return {"status": "stale"}
        result: dict[str, Any] = operation(root, runtime, request, body)
        result["status"] = "done"
    except Refused as refused:
        result = {"status": "refused", "message": str(refused)}
    except OSError as error:
        result = {"status": "refused", "message": problem_of(error)}
    try:
        if name in CHANGING and result["status"] == "done" and request.get("snapshot"):
            result["snapshot"] = take(root, runtime, request)
        return result
    finally:
        os.close(lock)


def _lock(lock: int) -> None:
    deadline = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Refused("another call is still at work in this workspace; try again when it has ended") from None
            time.sleep(0.02)
        else:
            return
