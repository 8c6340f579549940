"""Groups of processes: who belongs to a command, and how all of them are ended. Runs inside: Python 3.9, stdlib alone.

A command leads a session of its own. What it starts may leave that session; the program makes itself the parent of
orphans, where the system lets it, and ends its descendants as well, so that nothing outlives a call.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time

GRACE_SECONDS = 0.25
"""How long a group has between SIGTERM and SIGKILL: a stop is to take half a second."""

SWEEPS_MAX = 50
"""How often descendants are looked for: a fork bomb makes new ones while they are ended."""

SESSION, STARTED = 3, 19
"""Places behind the name in /proc/PID/stat."""

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


def adopt_orphans() -> bool:
    """Have orphans of ours become our children; return whether the system does so."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_closed(*, closed: bool) -> None:
    """Close our memory and descriptors to processes of our user: a command could answer in our name, and live on."""
    _prctl(_PR_SET_DUMPABLE, int(not closed))


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes  # noqa: PLC0415  # a small image has none

        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def started_at(pid: int) -> str:
    """Return when a process began, in the system's ticks; empty for one that is gone. With the pid it names it."""
    fields = _fields(pid)
    return fields[STARTED] if len(fields) > STARTED else ""


def _fields(pid: int) -> list[str]:
    """Return what /proc says of a process behind its name: state, parent, group, session."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].decode("ascii", "replace").split()
    except OSError:
        return []


def _members(session: int | None, ancestor: int | None) -> set[int]:
    """Return the living processes of a session, and the descendants of `ancestor`."""
    found: set[int] = set()
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _fields(int(name))
        if len(fields) <= SESSION:
            continue
        parents[int(name)] = int(fields[1])
        if fields[0] not in "ZX" and session is not None and int(fields[SESSION]) == session:
            found.add(int(name))
    for pid in parents if ancestor is not None else ():
        above = parents.get(pid)
        seen: set[int] = set()
        while above and above != ancestor and above not in seen:
            seen.add(above)
            above = parents.get(above)
        if above == ancestor:
            found.add(pid)
    found.discard(os.getpid())
    return found


def send(pid: int, number: int) -> bool:
    """Send a signal to a process; return whether it was there."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def end_session(session: int, grace: float = GRACE_SECONDS) -> None:
    """End the processes of a session that another program leads: SIGTERM, a grace, SIGKILL; wait until all are gone."""
    for pid in _members(session, None):
        send(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while _members(session, None) and time.monotonic() < deadline:
        time.sleep(0.01)
    _kill_all(session, None)


def end_descendants(session: int, statuses: dict[int, int], *, grace: float) -> None:
    """End a session and all our descendants: SIGTERM, a grace, SIGKILL. Adds their wait statuses to `statuses`."""
    ours = os.getpid()
    if grace:
        for pid in _members(session, ours):
            send(pid, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline:
            statuses.update(reap())
            if not _members(session, ours):
                return
            time.sleep(0.01)
    statuses.update(_kill_all(session, ours))


def _kill_all(session: int, ancestor: int | None) -> dict[int, int]:
    statuses: dict[int, int] = {}
    for _ in range(SWEEPS_MAX):
        if ancestor is not None:
            statuses.update(reap())
        alive = _members(session, ancestor)
        if not alive:
            break
        for pid in alive:  # stopped first, none can start another while the rest are ended
            send(pid, signal.SIGSTOP)
        for pid in alive:
            send(pid, signal.SIGKILL)
        time.sleep(0.01)
    return statuses


def reap() -> dict[int, int]:
    """Collect the children that have ended; return their statuses by pid."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = status


def call_file(runtime: str, call: str) -> str:
    """Return the path of the file that holds the pid of a call's command."""
    return os.path.join(runtime, "call-" + hashlib.sha256(call.encode("utf-8", "surrogatepass")).hexdigest()[:32])


def kill_call(runtime: str, call: str) -> bool:
    """End the command of a call, whoever has started it; return whether there was one."""
    try:
        with open(call_file(runtime, call), encoding="ascii") as file:
            pid, _, began = file.read().partition(" ")
    except OSError:
        return False
    if not pid.isdigit() or started_at(int(pid)) != began:
        return False
    end_session(int(pid))
    return True
