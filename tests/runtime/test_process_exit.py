"""How a process ends that used the Temporal SDK: after the SDK's threads, and as it would have ended otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

STILL_AT_WORK = """
import os, threading, time
from holdfast.runtime.process_exit import settle_at_exit

def hand_over():
    time.sleep(0.02)  # without the interpreter's lock, as a thread of the SDK
    os.write(1, b"left")

settle_at_exit()
settle_at_exit()
threading.Thread(target=hand_over, daemon=True).start()
"""

CONNECTING = """
import asyncio
from holdfast.client import Holdfast, Settings

async def main():
    threading.Thread(target=hand_over, daemon=True).start()
    await Holdfast.connect(Settings(address="no address"))

asyncio.run(main())
"""


def ended(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.parametrize(
    ("last", "code", "said"), [("", 0, ""), ("raise SystemExit(5)", 5, ""), ("raise ValueError('mine')", 1, "mine\n")]
)
def test_a_thread_still_at_work_leaves_python_before_the_process_ends_as_it_was_to(
    last: str, code: int, said: str
) -> None:
    done = ended(STILL_AT_WORK + last)
    assert (done.returncode, done.stdout) == (code, "left")
    assert done.stderr.endswith(said)
    assert bool(done.stderr) == bool(said)


@pytest.mark.slow
def test_connecting_is_enough_for_that() -> None:
    without = STILL_AT_WORK.partition("settle_at_exit()")[0]
    done = ended(without + CONNECTING)
    assert (done.returncode, done.stdout) == (1, "left")
    assert "is not HOST:PORT" in done.stderr
