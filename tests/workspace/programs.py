"""The program of workspaces, started as a backend starts it, in two folders of a test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.workspace.inside.frames import request_bytes
from holdfast.workspace.inside.snapshots import EMPTY
from holdfast.workspace.program import program

SECONDS_MAX = 60

UNPRIVILEGED = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.geteuid() == 0 else ()
"""Starts a program that modes hold for: root's capabilities open every folder."""

modes_hold = pytest.mark.skipif(
    bool(UNPRIVILEGED) and shutil.which("setpriv") is None,
    reason="root needs setpriv, which lays its capabilities down",
)


@dataclass
class Ran:
    """What one request brought."""

    result: dict[str, Any] = field(default_factory=dict[str, Any])
    output: bytes = b""
    contents: bytes = b""


@dataclass
class Inside:
    """A workspace in two folders; `files` is the digest of the last snapshot, `left_by` the call that has left it."""

    root: Path
    runtime: Path
    files: str = EMPTY
    prefix: tuple[str, ...] = ()
    left_by: str | None = None
    calls: int = 0

    @classmethod
    def below(cls, path: Path, prefix: tuple[str, ...] = ()) -> Inside:
        """Return a workspace in new folders below `path`; the command `prefix` starts its program."""
        made = cls(path / "files", path / "runtime", prefix=prefix)
        for each in (made.root, made.runtime):
            each.mkdir(parents=True)
        return made

    def start(self, header: dict[str, Any], body: bytes = b"") -> subprocess.Popen[bytes]:
        """Start the program with a request; its input stays open."""
        known = {"execution": "run", "files": self.files, "left_by": self.left_by, "snapshot": True}
        common = {**known, "call": "call", "timeout": SECONDS_MAX}
        argv = [*self.prefix, sys.executable, "-I", "-S", "-c", program(), str(self.root), str(self.runtime)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(request_bytes({**common, **header}, body))
        process.stdin.flush()
        return process

    def ask(self, header: dict[str, Any], body: bytes = b"") -> Ran:
        """Carry out a request to its end, as the next call."""
        self.calls += 1
        call = str(header.get("call", f"call {self.calls}"))
        with self.start({**header, "call": call}, body) as process:
            assert process.stdout is not None
            ran = answer(process.stdout.read())
        snapshot: dict[str, Any] = ran.result.get("snapshot") or {}
        if "digest" in snapshot:
            self.files, self.left_by = str(snapshot["digest"]), call
        return ran

    def shell(self, text: str, **header: object) -> Ran:
        """Run a command."""
        return self.ask({"op": "run", "shell": text, **header})


def answer(data: bytes) -> Ran:
    """Read the frames of an answer."""
    ran, result = Ran(), b""
    while data:
        size = int.from_bytes(data[1:5], "big")
        kind, piece, data = data[:1], data[5 : 5 + size], data[5 + size :]
        if kind == b"O":
            ran.output += piece
        elif kind == b"B":
            ran.contents += piece
        else:
            result += piece
    ran.result = json.loads(result) if result else {}
    return ran


def alive(mark: str) -> list[int]:
    """Return the living processes whose command line holds `mark`."""
    found: list[int] = []
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            line, stat = (each / "cmdline").read_bytes(), (each / "stat").read_text()
        except OSError:
            continue
        if mark.encode() in line and stat.rpartition(")")[2].split()[0] != "Z":
            found.append(int(each.name))
    return found
