"""The first program of a workspace's container. It ends, and so does the container, when nobody renews its lease.

It runs inside the container, alone: standard library only, Python 3.9 or later. Its arguments are the seconds of a
lease, a folder that it alone may write to, the name of the program's main module, and the program's modules as JSON.

A worker renews the lease with SIGURG, which the container's init passes on to this process. The agent's commands run
as another user and cannot send it. SIGURG does nothing to a process that is not ready for it.
"""

import json
import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Install the program, then wait until the lease is over or SIGTERM comes."""
    seconds, folder, module, sources = float(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    signals = {signal.SIGURG, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    install(folder, module, sources)
    while True:
        received = signal.sigtimedwait(signals, seconds)
        if received is None or received.si_signo == signal.SIGTERM:
            return


def install(folder: str, module: str, sources: str) -> None:
    """Write the program's modules below `folder`, compile them with all that they import, and say so by a file.

    Images of Python come without compiled files, and their file system is read-only: without this each command would
    compile the standard library anew, which takes 60 to 80 ms.
    """
    for name, source in json.loads(sources).items():
        path = os.path.join(folder, *name.split(".")) + ".py"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
    sys.path.insert(0, folder)
    with suppress(Exception):  # the first command shows why; the lease goes on
        __import__(module)
    with open(os.path.join(folder, "installed"), "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    main()
