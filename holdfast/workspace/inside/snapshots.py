"""Snapshots: which files there are, by digest; and having them again. Runs inside: Python 3.9, stdlib alone.

A manifest is one JSON text: `{"files": [[path, mode, size, sha256]], "folders": [[path, mode]], "links": [[path,
target]]}`, each list sorted by path. Its SHA-256 names the snapshot: equal files give equal snapshots. Times and owners
are not in it; FIFOs, sockets and devices are left out. Where the program may not look into a folder, the manifest has
`"closed": [path]`, too: the snapshot lacks what these folders hold.

The runtime folder has an index of the last manifest with the facts of each file (size, times, inode), so that only
changed files are read; and the state: which run used the workspace last, and the snapshots it has left, each with the
call that left it. A run whose recorded snapshot is among them may go on: a call whose result was lost had its effect.
Any other needs a restore, also where the files are as they once were: another machine's calls may have made them so.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import time
from typing import Any

from holdfast.workspace.inside.file_operations import DEPTH_MAX, walk
from holdfast.workspace.inside.frames import CONTENT, write_frame
from holdfast.workspace.inside.paths import Refused, Root, problem_of, shown

FILES_MAX = 5_000
"""The most entries of a snapshot."""

FILE_BYTES_MAX = 16 * 1024 * 1024
"""The largest file of a snapshot: as large as an attachment."""

TOTAL_BYTES_MAX = 128 * 1024 * 1024
"""The most bytes of all files of a snapshot: a restore carries them in one request."""

CLOSED_SHOWN_MAX = 10
"""How many closed folders a result names."""

LINEAGE_MAX = 256
"""How many snapshots of one run the state remembers; an older one is restored."""

UNSETTLED_SECONDS = 0.1
"""A file changed this lately is read again the next time: its times may not tell a further change apart."""

_Index = dict[str, list[Any]]


def is_current(runtime: str, request: dict[str, Any]) -> bool:
    """Return whether the workspace has the files that the run is to have; the run then counts as its user."""
    run, files = request["execution"], request["files"]
    state = _state(runtime)
    if state["execution"] == run and [files, request.get("left_by")] in state["lineage"]:
        return True
    if state["lineage"][-1][0] != files:
        return False
    if state["execution"] != run:
        _write_json(runtime, "state", {"execution": run, "lineage": [[files, request.get("left_by")]]})
    return True


def take(root: Root, runtime: str, request: dict[str, Any]) -> dict[str, Any]:
    """Make a snapshot: pass on its manifest and the content that `files`, the snapshot before, does not have.

    Returns its digest, and in `closed` the first folders that were closed to the program, with how many they are;
    `left_out` with the reason where the files pass the bounds.
    """
    try:
        manifest, index, unsettled = _scan(root, _read_json(runtime, "index", {}))
    except Refused as refused:
        return {"left_out": str(refused)}
    except OSError as error:  # a command may have closed a file to us
        return {"left_out": problem_of(error)}
    data = json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    _write_json(runtime, "index", {path: entry for path, entry in index.items() if path not in unsettled})
    closed = [shown(path) for path in manifest.get("closed", [])]
    taken: dict[str, Any] = {"digest": digest, "contents": 0}
    if closed:
        taken["closed"] = {"folders": closed[:CLOSED_SHOWN_MAX], "count": len(closed)}
    before = _state(runtime)["lineage"]
    state = {"execution": request["execution"], "lineage": [*before[-LINEAGE_MAX:], [digest, request["call"]]]}
    if digest == before[-1][0] == request["files"]:
        _write_json(runtime, "state", state)
        return taken
    earlier = set(_read_json(runtime, "contents-" + request["files"], []))
    wanted: dict[str, str] = {}
    for path, _, _, content in manifest["files"]:
        if content not in earlier:
            wanted.setdefault(content, path)
    write_frame_list(data)
    for path in wanted.values():
        with os.fdopen(root.open_file(path), "rb") as file:
            write_frame_list(file.read(FILE_BYTES_MAX))
    _write_json(runtime, "contents-" + digest, sorted({entry[3] for entry in manifest["files"]}))
    _write_json(runtime, "state", state)
    for name in os.listdir(runtime):
        if name.startswith("contents-") and name[9:] not in (digest, request["files"]):
            os.unlink(os.path.join(runtime, name))
    taken["contents"] = 1 + len(wanted)
    return taken


def write_frame_list(data: bytes) -> None:
    """Pass on one content behind its length: it may take several frames."""
    write_frame(CONTENT, struct.pack(">I", len(data)) + data)


def restore(root: Root, runtime: str, request: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Have exactly the files of the snapshot in the body: its manifest and contents, each behind its length."""
    contents = _contents(body)
    data = contents.pop(0)
    digest = hashlib.sha256(data).hexdigest()
    if digest != request["files"]:
        raise Refused("the manifest to restore has the digest {}, {} was asked for".format(digest, request["files"]))
    manifest = json.loads(data)
    by_digest = {hashlib.sha256(each).hexdigest(): each for each in contents}
    # until it is whole, the files are nobody's
    _write_json(runtime, "state", {"execution": None, "lineage": [[None, None]]})
    _empty(root.path)
    for path, _ in manifest["folders"]:
        os.mkdir(os.path.join(root.path, path))
    for path, mode, _, sha in manifest["files"]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(os.path.join(root.path, path), flags, 0o600), "wb") as file:
            file.write(by_digest[sha])
            os.fchmod(file.fileno(), mode)
    for path, target in manifest["links"]:
        os.symlink(target, os.path.join(root.path, path))
    for path, mode in reversed(manifest["folders"]):
        os.chmod(os.path.join(root.path, path), mode)
    _write_json(runtime, "index", {})
    _write_json(runtime, "contents-" + digest, sorted({entry[3] for entry in manifest["files"]}))
    _write_json(runtime, "state", {"execution": request["execution"], "lineage": [[digest, request.get("left_by")]]})
    return {"files": len(manifest["files"])}


EMPTY = hashlib.sha256(b'{"files":[],"folders":[],"links":[]}').hexdigest()
"""The snapshot of a workspace without files."""


def _scan(root: Root, before: _Index) -> tuple[dict[str, Any], _Index, list[str]]:
    files: list[list[Any]] = []
    folders: list[list[Any]] = []
    links: list[list[Any]] = []
    index: _Index = {}
    unsettled: list[str] = []
    closed: set[str] = set()
    total = 0
    folder = root.open_folder(".")
    try:
        for path, facts, target in walk(folder, DEPTH_MAX, closed=closed):
            if len(files) + len(folders) + len(links) >= FILES_MAX:
                raise Refused(f"there are more than {FILES_MAX:,} files")
            mode = stat.S_IMODE(facts.st_mode) & 0o777
            if stat.S_ISDIR(facts.st_mode):
                folders.append([path, mode])
                if path.count("/") + 1 >= DEPTH_MAX:
                    raise Refused(f"folders are more than {DEPTH_MAX} deep")
            elif stat.S_ISLNK(facts.st_mode):
                links.append([path, target])
            elif stat.S_ISREG(facts.st_mode):
                total += facts.st_size
                if facts.st_size > FILE_BYTES_MAX:
                    raise Refused(f"{shown(path)} has {facts.st_size:,} bytes, more than {FILE_BYTES_MAX:,}")
                if total > TOTAL_BYTES_MAX:
                    raise Refused(f"the files have more than {TOTAL_BYTES_MAX:,} bytes in all")
                signature = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
                entry = before.get(path)
                sha = entry[4] if entry and entry[:4] == signature else _sha(root, path)
                index[path] = [*signature, sha]
                if abs(time.time() - facts.st_ctime) < UNSETTLED_SECONDS:
                    unsettled.append(path)
                files.append([path, mode, facts.st_size, sha])
    finally:
        os.close(folder)
    manifest = {"files": sorted(files), "folders": sorted(folders), "links": sorted(links)}
    return {**manifest, "closed": sorted(closed)} if closed else manifest, index, unsettled


def _sha(root: Root, path: str) -> str:
    digest = hashlib.sha256()
    with os.fdopen(root.open_file(path), "rb") as file:
        while True:
            piece = file.read(1024 * 1024)
            if not piece:
                return digest.hexdigest()
            digest.update(piece)


def _empty(path: str) -> None:
    import shutil  # noqa: PLC0415  # a restore is rare, and each command would wait for it

    for entry in list(os.scandir(path)):
        if entry.is_dir(follow_symlinks=False):
            _open_up(entry.path)
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _open_up(path: str) -> None:
    """Have a folder and those below it writable: a command may have closed them to us."""
    os.chmod(path, 0o700)
    for entry in list(os.scandir(path)):
        if entry.is_dir(follow_symlinks=False):
            _open_up(entry.path)


def _contents(body: bytes) -> list[bytes]:
    contents: list[bytes] = []
    at = 0
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at)
        contents.append(body[at + 4 : at + 4 + size])
        at += 4 + size
    return contents


def _state(runtime: str) -> dict[str, Any]:
    state: dict[str, Any] = _read_json(runtime, "state", {"execution": None, "lineage": [[EMPTY, None]]})
    return state


def _read_json(runtime: str, name: str, default: Any) -> Any:  # noqa: ANN401  # JSON
    try:
        with open(os.path.join(runtime, name), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return default


def _write_json(runtime: str, name: str, value: Any) -> None:  # noqa: ANN401  # JSON
    path = os.path.join(runtime, name)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.rename(path + ".new", path)
