"""`python -I -S fork_request.py DOOR PROGRAM ARGUMENTS`: have the warm process of `tests/forked.py` fork a program.

It has our streams, environment and folder and ends when we do, with all of its group; signals are passed on, and we end
as it ends. We import little: it is to cost nothing beside the start that it saves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

PID_BYTES = 32
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)


def main(door: str, program: str, *arguments: str) -> int:
    """Return the program's exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is somebody to pass them on to
    line, theirs = socket.socketpair()
    request = {"program": program, "arguments": arguments, "environment": dict(os.environ), "terminal": False}
    request["folder"] = os.getcwd()  # noqa: PTH109  # pathlib takes 10 ms
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as warm:
        warm.connect(door)
        socket.send_fds(warm, [json.dumps(request).encode()], [0, 1, 2, theirs.fileno()])
        theirs.close()
        pid = int(line.recv(PID_BYTES))

    def pass_on(number: int, _: FrameType | None) -> None:
        try:  # noqa: SIM105  # contextlib is one more import
            os.kill(pid, number)
        except ProcessLookupError:  # it has ended, and we are about to
            pass

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    for stream in (0, 1):  # they are the program's alone
        os.close(stream)
    code = int(line.recv(PID_BYTES))
    if code < 0 and -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
