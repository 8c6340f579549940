"""A process that stands in for one forked from the tests' warm process: `python -I -S stand_in.py SOCKET PROGRAM ...`.

It hands over its streams, arguments, environment and folder, passes signals on, and ends as the fork ends; when it is
killed, so are the fork and what the fork has started. It imports next to nothing: a start takes 20 ms. `PROGRAM` is a
file, as after `python`. See `tests/forked.py`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType

PID_BYTES = 32
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Have the program forked, and wait for its end."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.connect(sys.argv[1])
    arguments = [os.fsencode(each) for each in sys.argv[2:]]
    variables = [name + b"=" + value for name, value in os.environb.items()]
    fields = [os.getcwdb(), str(len(arguments)).encode(), *arguments, *variables]  # noqa: PTH109  # no pathlib: it takes a start longer than all else
    socket.send_fds(line, [b"\0".join(fields)], [0, 1, 2])
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # whoever reads them sees the end when the fork closes them
        os.dup2(null, number)
    pid = int(line.recv(PID_BYTES))

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    for each in PASSED_ON:
        signal.signal(each, pass_on)
    code = int(line.recv(PID_BYTES))
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
