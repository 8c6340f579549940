"""The program `holdfast`, also `python -m holdfast`: takes Ctrl-C from its first moment on, then loads the commands."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def main() -> NoReturn:
    """Run the command line and end the process with the documented exit code.

    While the commands are loaded (half a second) nothing is under way, so Ctrl-C ends the process at once; later it is
    the command's business. An ignored SIGINT, as a shell gives its background jobs, stays ignored.
    """
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    from holdfast.cli.main import main as command_line  # noqa: PLC0415  # this is what takes its time

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command_line()


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
