"""What a workspace's container is called and may do: pure functions from a profile to the arguments of Docker's API."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.core.tools.workspace_profile import WorkspaceProfile
from holdfast.workspace.backend import Workspace
from holdfast.workspace.program import PACKAGE, sources

LEASE_SECONDS: Final = 40.0
"""A container ends so long after its last renewal: within a minute of its worker's death, with time to be removed."""

RENEW_SECONDS: Final = 10.0
"""How often a worker renews the lease while a command runs: three renewals may fail."""

NAME_PREFIX: Final = "holdfast-"
NAME_CHARS_MAX: Final = 40
"""How much of a workspace's id stands in its container's name; Docker takes it as a host name's length allows."""
DIGEST_CHARS: Final = 16

LABEL: Final = "holdfast.workspace"
"""The label by which the sweep finds containers; its value is the workspace's id."""
LABEL_NAMESPACE: Final = "holdfast.namespace"
LABEL_TENANT: Final = "holdfast.tenant"
LABEL_PROFILE: Final = "holdfast.profile"

COMMAND_USER: Final = "10001:10001"
LEASE_USER: Final = "10002:10002"
"""The lease runs as a user of its own: a command can neither end it, nor renew it, nor write its files."""

FOLDER: Final = "/workspace"
RUNTIME_FOLDER: Final = "/run/workspace"
"""Where the program notes what runs; the commands' user can write there."""
RUNTIME_BYTES: Final = 64 * 1024**2

LEASE_FOLDER: Final = "/run/lease"
"""Where the lease installs the program, out of reach of commands."""
LEASE_BYTES: Final = 32 * 1024**2
"""Room for the program and the compiled standard library, which take 13 MB."""

MEGABYTE: Final = 1024**2
TEMPORARY_BYTES: Final = 64 * 1024**2
SHARED_MEMORY_BYTES: Final = 16 * 1024**2
IMAGE_VOLUME_BYTES: Final = 16 * 1024**2
"""The size of the tmpfs that stands in the place of each volume that an image declares."""
FILES_MAX: Final = 100_000
"""The most files and folders of one tmpfs: each takes memory of the kernel even where it is empty."""
OPEN_FILES_MAX: Final = 1_024
OOM_SCORE: Final = 500
"""A host out of memory ends these processes before its own."""

_PYTHON: Final = ("python3", "-I", "-S", "-X", f"pycache_prefix={LEASE_FOLDER}/compiled", "-c")
_LEASE: Final = Path(__file__).with_name("lease.py")

START_SECONDS_MAX: Final = 10
"""How long the program may take to be installed; on an idle machine it is a quarter of a second."""

START_PROGRAM: Final = f"""\
import os, sys, time
until = time.monotonic() + {START_SECONDS_MAX}
while not os.path.exists("{LEASE_FOLDER}/installed") and time.monotonic() < until:
    time.sleep(0.005)
sys.path.insert(0, "{LEASE_FOLDER}")
from {PACKAGE}.main import main
sys.exit(main(sys.argv[1:]))
"""
"""Runs what the lease has installed; a container that has just started may need a moment for that."""

PROGRAM_COMMAND: Final = (*_PYTHON, START_PROGRAM, FOLDER, RUNTIME_FOLDER)


def container_name(workspace: str, namespace: str) -> str:
    """Return the container's name: legible, legal for Docker, and different for each id and namespace."""
    legal = re.sub(r"[^a-zA-Z0-9_.-]+", "-", workspace)[:NAME_CHARS_MAX].strip("-.")
    digest = hashlib.sha256(f"{namespace}\0{workspace}".encode()).hexdigest()[:DIGEST_CHARS]
    return f"{NAME_PREFIX}{legal}-{digest}" if legal else f"{NAME_PREFIX}{digest}"


def profile_digest(profile: WorkspaceProfile) -> str:
    """Return a short digest of all fields: a container made from another profile is replaced."""
    return hashlib.sha256(profile.model_dump_json().encode()).hexdigest()[:DIGEST_CHARS]


def container_labels(workspace: Workspace, namespace: str) -> dict[str, str]:
    """Return the labels that say whose container it is, and from which profile it was made."""
    return {
        LABEL: workspace.id,
        LABEL_NAMESPACE: namespace,
        LABEL_TENANT: workspace.tenant,
        LABEL_PROFILE: profile_digest(workspace.profile),
    }


def host_options(profile: WorkspaceProfile) -> dict[str, Any]:
    """Return the arguments of `APIClient.create_host_config`: what the container is kept from.

    Docker's default seccomp profile applies, because no other is named.
    """
    return {
        "auto_remove": True,
        "init": True,
        "network_mode": profile.network,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "read_only": True,
        "privileged": False,
        "ipc_mode": "private",
        "tmpfs": {
            FOLDER: _tmpfs(profile.disk_mb * MEGABYTE, COMMAND_USER, "0700", "exec"),
            "/tmp": _tmpfs(TEMPORARY_BYTES, COMMAND_USER, "0700", "exec"),  # noqa: S108  # the container's own
            RUNTIME_FOLDER: _tmpfs(RUNTIME_BYTES, COMMAND_USER, "0700", "noexec"),
            LEASE_FOLDER: _tmpfs(LEASE_BYTES, LEASE_USER, "0755", "noexec"),
        },
        "shm_size": SHARED_MEMORY_BYTES,
        "mem_limit": profile.memory_mb * MEGABYTE,
        "memswap_limit": profile.memory_mb * MEGABYTE,
        "oom_score_adj": OOM_SCORE,
        "pids_limit": profile.pids_max,
        "nano_cpus": round(profile.cpus * 10**9),
        "log_config": {"Type": "none", "Config": {}},
        "runtime": profile.runtime,
    }


def ulimits(profile: WorkspaceProfile) -> dict[str, int]:
    """Return the limits of each process, by their names in Docker."""
    return {"core": 0, "nofile": OPEN_FILES_MAX, "fsize": profile.file_mb_max * MEGABYTE}


def container_options(profile: WorkspaceProfile) -> dict[str, Any]:
    """Return the arguments of `APIClient.create_container` besides name, labels and host configuration.

    The proxies of the worker's Docker configuration stay out: their addresses may hold passwords.
    """
    return {
        "image": profile.image,
        "entrypoint": [*_PYTHON, _LEASE.read_text()],
        "command": [f"{LEASE_SECONDS:g}", LEASE_FOLDER, f"{PACKAGE}.main", json.dumps(dict(sources()))],
        "user": LEASE_USER,
        "working_dir": FOLDER,
        "hostname": "workspace",
        "environment": {"HOME": FOLDER, "LANG": "C.UTF-8"},
        "healthcheck": {"test": ["NONE"]},
        "stop_signal": "SIGKILL",
        "use_config_proxy": False,
    }


def volume_mounts(volumes: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return mounts that cover the volumes an image declares, which would lie unbounded on the host's disk."""
    return [
        {"Target": path, "Type": "tmpfs", "TmpfsOptions": {"SizeBytes": IMAGE_VOLUME_BYTES}} for path in sorted(volumes)
    ]


def _tmpfs(size: int, user: str, mode: str, execution: str) -> str:
    uid, _, gid = user.partition(":")
    return f"size={size},nr_inodes={FILES_MAX},uid={uid},gid={gid},mode={mode},nosuid,nodev,{execution}"
