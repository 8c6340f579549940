"""What a malicious command in a workspace would try. It runs inside; one JSON object per attempt goes to stdout.

Nothing it does changes anything where it is let: files are only opened, system calls get arguments that do no harm.
Its arguments: a file of the host, an address of another container, a port there, and what is
on the command line of a process of the host.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterator

HOST_FILE, NEIGHBOUR, PORT, HOST_MARK = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]

NUMBERS = {
    "ptrace": 101,
    "syslog": 103,
    "personality": 135,
    "pivot_root": 155,
    "chroot": 161,
    "acct": 163,
    "mount": 165,
    "swapon": 167,
    "reboot": 169,
    "sethostname": 170,
    "iopl": 172,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "clock_settime": 227,
    "kexec_load": 246,
    "add_key": 248,
    "keyctl": 250,
    "unshare": 272,
    "perf_event_open": 298,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "finit_module": 313,
    "bpf": 321,
    "umount2": 166,
    "mknod": 133,
    "capset": 126,
    "setuid": 105,
}
"""The system calls of x86-64."""

LIBC = ctypes.CDLL(None, use_errno=True)

ADDRESS_NO_RANDOMIZE = 0x0040000
UNSHARE_USER = 0x10000000
UNSHARE_MOUNTS = 0x00020000
PTRACE_ATTACH = 16


def call(name: str, *arguments: int | bytes | None) -> None:
    """Make a system call; a refusal is an OSError."""
    if LIBC.syscall(NUMBERS[name], *(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


def lease_pid() -> int:
    """The process that keeps the container: the child of the first one."""
    for each in os.listdir("/proc"):
        if each.isdigit():
            with open(f"/proc/{each}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            if fields[1] == "1" and os.stat(f"/proc/{each}").st_uid != os.getuid():
                return int(each)
    return 1


def connected(address: str, port: int) -> None:
    with socket.create_connection((address, port), timeout=3):
        pass


def status(field: str) -> str:
    with open("/proc/self/status") as file:
        return next(line.split()[1] for line in file if line.startswith(f"{field}:"))


def expect(field: str, value: str) -> None:
    """Be refused where the kernel says of this process what it should."""
    if status(field) == value:
        raise PermissionError(errno.EPERM, f"{field} is {value}")


def written(path: str) -> None:
    opened(path, os.O_WRONLY)


def made(path: str) -> None:
    opened(path, os.O_WRONLY | os.O_CREAT)


def read(path: str) -> None:
    """Read something: an empty file, or a folder with nothing in it, is Docker's mask over the real one."""
    if os.path.isdir(path):
        if not os.listdir(path):
            raise PermissionError(errno.EACCES, "masked: empty")
        return
    with open(path, "rb") as file:
        if not file.read(16):
            raise PermissionError(errno.EACCES, "masked: empty")


def device(path: str) -> None:
    opened(path, os.O_RDONLY | os.O_NONBLOCK)


def visible(mark: str) -> None:
    """Look for a process of the host by what is on its command line."""
    for each in os.listdir("/proc"):
        if each.isdigit() and int(each) not in {os.getpid(), os.getppid()}:
            with open(f"/proc/{each}/cmdline", "rb") as file:
                if mark.encode() in file.read():
                    return
    raise ProcessLookupError(errno.ESRCH, "no such process here")


def raw_socket(family: int, protocol: int) -> None:
    socket.socket(family, socket.SOCK_RAW, protocol).close()


def secret() -> None:
    """Look for what a worker's environment would hold."""
    names = sorted(name for name in os.environ if any(each in name for each in ("KEY", "TOKEN", "TEMPORAL", "PROXY")))
    if not names:
        raise FileNotFoundError(errno.ENOENT, f"only {', '.join(sorted(os.environ))}")


def abstract_socket() -> None:
    """Look for containerd's sockets, which have no file (CVE-2020-15257)."""
    with open("/proc/net/unix") as file:
        if not any("@" in line for line in file):
            raise FileNotFoundError(errno.ENOENT, "none in this network namespace")


def became_root() -> None:
    """Run a program of root's with its setuid bit, and see as whom it runs."""
    program = next(
        path for path in ("/usr/bin/su", "/bin/su", "/usr/bin/passwd", "/usr/bin/mount") if os.path.exists(path)
    )
    if not os.stat(program).st_mode & 0o4000:
        raise PermissionError(errno.EPERM, f"{program} has no setuid bit")
    expect("NoNewPrivs", "1")


def attempts() -> Iterator[tuple[str, str, Callable[[], None]]]:
    """Yield area, attempt and action."""
    yield "host files", "read a file of the host", lambda: read(HOST_FILE)
    yield "host files", "read /etc/shadow", lambda: read("/etc/shadow")
    yield "host files", "enter /proc/1/root", lambda: opened("/proc/1/root/etc", os.O_RDONLY)
    yield "host files", "open a file by its handle", lambda: call("open_by_handle_at", -100, b"\0" * 64, 0)
    yield "root file system", "write to /etc/passwd", lambda: written("/etc/passwd")
    yield "root file system", "put a file into /usr/bin", lambda: made("/usr/bin/intruder")
    yield "root file system", "remount / writable", lambda: call("mount", b"none", b"/", None, 0x20 | 0x1000, None)
    yield "root file system", "unmount /proc/sys", lambda: call("umount2", b"/proc/sys", 0)
    for name in ("core_pattern", "modprobe", "hostname"):
        yield "kernel settings", f"write /proc/sys/kernel/{name}", lambda name=name: written(f"/proc/sys/kernel/{name}")  # type: ignore[misc]
    yield "kernel settings", "write /proc/sysrq-trigger", lambda: written("/proc/sysrq-trigger")
    yield "kernel settings", "make a cgroup", lambda: os.mkdir("/sys/fs/cgroup/intruder")
    yield "kernel settings", "read /proc/kcore", lambda: read("/proc/kcore")
    yield "kernel settings", "read /proc/keys", lambda: read("/proc/keys")
    yield "kernel settings", "read /sys/firmware", lambda: read("/sys/firmware")
    yield "kernel settings", "read the kernel's log", lambda: call("syslog", 3, ctypes.create_string_buffer(16).raw, 16)
    for path in ("/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/net/tun"):
        yield "devices", f"open {path}", lambda path=path: device(path)  # type: ignore[misc]
    yield "devices", "make a device node", lambda: call("mknod", b"/tmp/disk", 0o060600, os.makedev(254, 0))
    yield "devices", "reach I/O ports", lambda: call("iopl", 3)
    yield "mounts and namespaces", "mount a tmpfs", lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None)
    yield "mounts and namespaces", "mount /proc anew", lambda: call("mount", b"proc", b"/tmp", b"proc", 0, None)
    yield "mounts and namespaces", "make a user namespace", lambda: call("unshare", UNSHARE_USER)
    yield "mounts and namespaces", "make a mount namespace", lambda: call("unshare", UNSHARE_MOUNTS)
    yield "mounts and namespaces", "enter the first process's namespace", namespace_entered
    yield "mounts and namespaces", "chroot", lambda: call("chroot", b"/tmp")
    yield "mounts and namespaces", "pivot_root", lambda: call("pivot_root", b"/", b"/")
    yield "privileges", "become root by setuid(0)", lambda: call("setuid", 0)
    yield "privileges", "become root by a setuid program", became_root
    yield "privileges", "have an effective capability", lambda: expect("CapEff", "0" * 16)
    yield "privileges", "have a capability left to gain", lambda: expect("CapBnd", "0" * 16)
    yield "privileges", "run without seccomp", lambda: expect("Seccomp", "2")
    yield "privileges", "switch off address randomization", lambda: call("personality", ADDRESS_NO_RANDOMIZE)
    yield "kernel", "load a module", lambda: call("init_module", b"", 0, b"")
    yield "kernel", "load a module from a file", lambda: call("finit_module", 0, b"", 0)
    yield "kernel", "unload a module", lambda: call("delete_module", b"intruder", 0)
    yield "kernel", "load another kernel", lambda: call("kexec_load", 0, 0, None, 0)
    yield "kernel", "reboot", lambda: call("reboot", 0, 0, 0, None)
    yield "kernel", "load a BPF program", lambda: call("bpf", 5, b"\0" * 128, 128)
    yield "kernel", "read performance events", lambda: call("perf_event_open", b"\0" * 128, 0, -1, -1, 0)
    yield "kernel", "add a key", lambda: call("add_key", b"user", b"intruder", b"x", 1, -2)
    yield "kernel", "set the clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time())
    yield "kernel", "use a swap file", lambda: call("swapon", b"/tmp/swap", 0)
    yield "kernel", "keep accounts of processes", lambda: call("acct", None)
    yield "kernel", "change the host name", lambda: call("sethostname", b"workspace", 9)
    yield "other processes", "see a process of the host", lambda: visible(HOST_MARK)
    yield "other processes", "end the container's first process", lambda: os.kill(1, 9)
    yield "other processes", "end the lease", lambda: os.kill(lease_pid(), 9)
    yield "other processes", "renew the lease", lambda: os.kill(lease_pid(), 23)
    yield "other processes", "trace the lease", lambda: call("ptrace", PTRACE_ATTACH, lease_pid(), None, None)
    yield "other processes", "read the lease's memory", lambda: opened(f"/proc/{lease_pid()}/mem", os.O_RDONLY)
    yield "other processes", "replace the runner", lambda: made("/run/lease/holdfast_runner.py")
    yield "network", "reach the metadata service", lambda: connected("169.254.169.254", 80)
    yield "network", "reach the Internet", lambda: connected("192.0.2.1", 443)
    yield "network", "reach the host", lambda: connected("172.17.0.1", PORT)
    yield "network", "reach another container", lambda: connected(NEIGHBOUR, PORT)
    yield "network", "look up a name", lambda: resolved("example.com")
    yield "network", "open a raw socket", lambda: raw_socket(socket.AF_INET, socket.IPPROTO_ICMP)
    yield "network", "open a packet socket", lambda: raw_socket(socket.AF_PACKET, 3)
    yield "Docker", "reach Docker's socket in /var/run", lambda: unix_connected("/var/run/docker.sock")
    yield "Docker", "reach containerd's socket", lambda: unix_connected("/run/containerd/containerd.sock")
    yield "Docker", "reach a socket without a file", abstract_socket
    yield "secrets", "read the worker's environment", secret


def namespace_entered() -> None:
    file = os.open("/proc/1/ns/mnt", os.O_RDONLY)
    call("setns", file, 0)


def resolved(name: str) -> None:
    try:
        socket.getaddrinfo(name, 80)
    except socket.gaierror as error:
        raise ConnectionError(errno.ENETUNREACH, str(error)) from error


def unix_connected(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened_socket:
        opened_socket.connect(path)


def main() -> None:
    if platform.machine() != "x86_64":
        raise SystemExit(f"the numbers of system calls are those of x86_64, not {platform.machine()}")
    for area, attempt, action in attempts():
        sys.stdout.flush()
        child = os.fork()  # one that gets somewhere does not change the place for the next
        if child:
            os.waitpid(child, 0)
            continue
        print(json.dumps({"area": area, "attempt": attempt, **outcome(action)}), flush=True)
        os._exit(0)


def outcome(action: Callable[[], None]) -> dict[str, str | bool]:
    try:
        action()
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        return {"refused": True, "error": name, "answer": error.strerror or str(error)}
    return {"refused": False, "error": "", "answer": ""}


if __name__ == "__main__":
    main()
