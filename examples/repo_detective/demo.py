"""The demo: an agent answers a question about a folder, its worker is killed half-way, and the same run finishes.

    python -m examples.repo_detective.demo [FOLDER] [QUESTION] [--data-dir DIR] [--port N] [--ui-port N]

Exit codes: 0 when the run completed and the ledger adds up, 1 when not, 130 after Ctrl-C (SIGTERM 143, SIGHUP 129),
else the error's own (`holdfast.core.base.errors`). Whatever was started has ended by then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

MISSING_PART: Final = 8
"""The exit code of `holdfast.core.base.errors.MissingPart`, which may not be there to be asked."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    ended_by: list[int] = []
    _end_like_ctrl_c(ended_by)
    try:
        from examples.repo_detective.show import main as show  # noqa: PLC0415  # a second in which Ctrl-C must work too

        return show(arguments)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: the package {error.name} is not installed; run: pip install -e '.[all]'\n")
        return MISSING_PART
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; everything the demo had started has ended\n")
        return 128 + (ended_by[0] if ended_by else signal.SIGINT)


def _end_like_ctrl_c(ended_by: list[int]) -> None:
    """Let SIGTERM and SIGHUP take the way of Ctrl-C, which ends everything in order; note which one it was."""

    def on_signal(number: int, _: FrameType | None) -> None:
        ended_by.append(number)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
    signal.signal(signal.SIGTERM, on_signal)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, on_signal)


def _leave(code: int) -> None:
    """End without interpreter finalization, which can crash under the Temporal SDK's threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main())
