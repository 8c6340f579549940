"""The lease of a container as a program of its own, outside of any container."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast.workspace.docker import lease
from holdfast.workspace.program import PACKAGE, sources

WAIT_SECONDS_MAX = 60.0
LEASE = Path(lease.__file__)


@contextmanager
def running(folder: Path, seconds: float, module: str = f"{PACKAGE}.main") -> Generator[subprocess.Popen[bytes]]:
    folder.mkdir(exist_ok=True)
    arguments = ("-I", "-S", "-c", LEASE.read_text(), str(seconds), str(folder), module, json.dumps(dict(sources())))
    process = subprocess.Popen([sys.executable, *arguments])
    until = time.monotonic() + WAIT_SECONDS_MAX
    while not (folder / "installed").exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_it_ends_when_nobody_renews_it(tmp_path: Path) -> None:
    with running(tmp_path, 0.2) as process:
        assert process.wait(WAIT_SECONDS_MAX) == 0


def test_each_renewal_begins_the_lease_anew(tmp_path: Path) -> None:
    with running(tmp_path, 6) as process:
        began = time.monotonic()
        while time.monotonic() - began < 8:
            process.send_signal(signal.SIGURG)
            time.sleep(0.1)
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS_MAX) == 0


def test_it_installs_the_program_for_others_to_run(tmp_path: Path) -> None:
    files, runtime = tmp_path / "files", tmp_path / "runtime"
    for each in (files, runtime):
        each.mkdir()
    with running(tmp_path / "lease", 600):
        run = f"import sys; sys.path.insert(0, {str(tmp_path / 'lease')!r})\nfrom {PACKAGE}.main import main\n"
        run += "sys.exit(main(sys.argv[1:]))"
        request = b'{"op": "kill", "call": "none"}'
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", run, str(files), str(runtime)],
            input=len(request).to_bytes(4, "big") + request + bytes(4),
            capture_output=True,
            timeout=WAIT_SECONDS_MAX,
            check=True,
        )
    assert done.stdout.startswith(b"R")
    assert json.loads(done.stdout[5:]) == {"status": "done", "killed": False}


def test_a_program_that_cannot_be_imported_does_not_end_it(tmp_path: Path) -> None:
    with running(tmp_path, 600, module="absent") as process:
        assert process.poll() is None
