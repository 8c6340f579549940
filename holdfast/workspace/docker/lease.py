"""The first program of a workspace's container. It ends, and so does the container, when nobody renews its lease.

It runs inside the container, alone: standard library only, Python 3.9 or later. Its arguments are the seconds of a
lease, a folder that it alone may write to, and the source of the runner.

A worker renews the lease with SIGURG, which the runtime passes on to this process. The agent's commands run as another
user and cannot send it. SIGURG does nothing to a process that is not ready for it.
"""

import os
import signal
import sys

RUNNER = "holdfast_runner"


def main() -> None:
    """Put the runner into the folder, then wait until the lease is over or SIGTERM comes."""
    seconds, folder, source = float(sys.argv[1]), sys.argv[2], sys.argv[3]
    signals = {signal.SIGURG, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    install(folder, source)
    while True:
        received = signal.sigtimedwait(signals, seconds)
        if received is None or received.si_signo == signal.SIGTERM:
            return


def install(folder: str, source: str) -> None:
    """Write the runner under its final name once it is complete, and compile it with all that it imports.

    Images of Python come without compiled files, and their file system is read-only: without this each command would
    compile the standard library anew, which takes 60 to 80 ms.
    """
    unfinished = os.path.join(folder, "unfinished")
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(source)
    sys.path.insert(0, folder)
    os.rename(unfinished, os.path.join(folder, RUNNER + ".py"))
    try:
        __import__(RUNNER)
    except Exception:  # noqa: BLE001  # the command that needs it shows why; the lease goes on
        return


if __name__ == "__main__":
    main()
