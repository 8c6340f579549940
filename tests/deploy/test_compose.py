"""compose.yaml as it really runs, its server on PostgreSQL: started, used, and each part of it killed under a run."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.garbage.collection import UNUSED_HOURS
from tests.deploy.running import COMMAND_SECONDS, Stack, wait_until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

SLOW_CALLS = 4
RUN_SECONDS_MAX = 600.0
OBJECTS = "/var/lib/holdfast/objects"


def fetched(stack: Stack, port: str, path: str) -> Any:  # noqa: ANN401  # JSON
    """Return what a published port answers, read as JSON."""
    with urllib.request.urlopen(f"http://127.0.0.1:{stack.env[port]}{path}", timeout=COMMAND_SECONDS) as answer:
        return json.load(answer)


def operator(stack: Stack, *command: str) -> Any:  # noqa: ANN401  # JSON
    """Return what `temporal operator` prints, in a container like that which prepares the namespace."""
    line = ("run", "--rm", "-T", "--entrypoint", "temporal", "temporal-namespace", "operator", *command, "-o", "json")
    return json.loads(stack.compose(*line))


def test_everything_that_has_a_check_is_healthy_and_what_runs_once_has_succeeded(stack: Stack) -> None:
    for service in ("postgresql", "temporal", "temporal-ui", "worker"):
        stack.until_healthy(service)
    for service in ("temporal-schema", "temporal-namespace"):
        stack.compose("run", "--rm", "-T", service)  # a second time it leaves what is there as it is


def test_the_namespace_keeps_executions_for_30_days_and_knows_the_search_attributes(stack: Stack) -> None:
    config = operator(stack, "namespace", "describe", "default")["config"]
    assert config["workflowExecutionRetentionTtl"] == f"{30 * 24 * 3600}s"
    attributes = operator(stack, "search-attribute", "list")["customAttributes"]
    kinds = {name: kind.removeprefix("INDEXED_VALUE_TYPE_") for name, kind in attributes.items()}
    assert {name: kind for name, kind in kinds.items() if name.startswith("Holdfast")} == {
        "HoldfastAgent": "KEYWORD",
        "HoldfastStatus": "KEYWORD",
        "HoldfastStopReason": "KEYWORD",
        "HoldfastSteps": "INT",
        "HoldfastTokens": "INT",
        "HoldfastCost": "DOUBLE",
        "HoldfastEstimatedTokens": "INT",
        "HoldfastCachedTokens": "DOUBLE",
        "HoldfastUnpriced": "KEYWORD",
        "HoldfastTenant": "KEYWORD",
        "HoldfastParent": "KEYWORD",
        "HoldfastWaiting": "KEYWORD",
    }


def test_an_agent_runs_to_its_end_and_the_web_ui_lists_it(stack: Stack) -> None:
    said = stack.compose("run", "--rm", "-T", "client", "run", "assistant", "What is six times seven?", "--json")
    result = json.loads(said)
    assert (result["status"], result["final_response"]) == ("completed", "Six times seven is 42.")
    assert result["steps"] == 2
    assert stack.ledger().count(kind="model", name="fake", phase="finished") == 2
    listed = fetched(stack, "TEMPORAL_UI_PORT", "/api/v1/namespaces/default/workflows")["executions"]
    assert listed, "the Web UI asks the server"


def test_the_database_password_stays_in_its_file(stack: Stack) -> None:
    password = (Path(stack.env["SECRETS"]) / "postgres_password").read_text().strip()
    for service in ("postgresql", "temporal"):
        assert password not in json.dumps(stack.inspect(service))
        assert password not in stack.compose("logs", service)


def test_doctor_finds_nothing_to_mend_from_the_workers_place(stack: Stack) -> None:
    stack.until_healthy("worker")
    report = stack.inside("worker", "holdfast", "doctor").splitlines()
    assert len(report) > 10
    assert [line for line in report if not line.startswith("ok ")] == []


def test_a_collection_beside_the_worker_moves_what_nothing_refers_to(stack: Stack) -> None:
    digest = hashlib.sha256(stack.name.encode()).hexdigest()
    name = f"payloads/{digest[:2]}/{digest}"
    plant = f"""if 1:
        import os, pathlib, time
        path = pathlib.Path("{OBJECTS}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"unused")
        os.utime(path, (time.time() - {UNUSED_HOURS + 1} * 3600,) * 2)
    """
    stack.inside("worker", "python", "-c", plant)

    def places() -> list[bool]:
        paths = (f"{OBJECTS}/{name}", f"{OBJECTS}/trash/{name}")
        look = f"import json, os; print(json.dumps([os.path.exists(path) for path in {paths}]))"
        return list(json.loads(stack.inside("worker", "python", "-c", look)))

    assert stack.beside_the_worker("storage", "gc", "--dry-run", "--json").count(name) == 1
    assert places() == [True, False]
    stack.beside_the_worker("storage", "gc")
    assert places() == [False, True]


def test_a_worker_that_compose_stops_ends_by_itself(stack: Stack) -> None:
    stack.until_healthy("worker")
    stack.compose("stop", "worker")
    state = stack.inspect("worker", stopped=True)["State"]
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    assert "worker stopping" in stack.compose("logs", "worker")
    stack.compose("start", "worker")
    stack.until_healthy("worker")


def test_prometheus_reads_the_workers_and_the_server(stack: Stack) -> None:
    stack.compose("--profile", "watch", "up", "--detach", "--no-build", "--no-deps", "prometheus")

    def up() -> set[str]:
        try:
            targets = fetched(stack, "PROMETHEUS_PORT", "/api/v1/targets")["data"]["activeTargets"]
        except OSError:
            return set()  # it starts
        return {each["labels"]["job"] for each in targets if each["health"] == "up"}

    wait_until(lambda: up() == {"holdfast-workers", "temporal"}, "Prometheus reads both")
    rules = fetched(stack, "PROMETHEUS_PORT", "/api/v1/rules")["data"]["groups"]
    assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}


def test_a_run_survives_the_death_of_every_part(stack: Stack) -> None:
    began = time.monotonic()
    started = stack.compose("run", "--rm", "-T", "client", "run", "slow", "What is six times seven?", "--detach")
    run_id = started.split()[-1]

    def reached(calls: int) -> Callable[[], bool]:
        return lambda: stack.ledger().count(name="slow", phase="started") >= calls

    # the worker's death repeats the call that it had under way
    for calls, part in ((2, "worker"), (4, "temporal"), (5, "postgresql")):
        wait_until(reached(calls), f"the model has been called {calls} times", RUN_SECONDS_MAX)
        stack.crash(part)
        print(f"{time.monotonic() - began:.1f} s: {part} was killed, and docker has started it")  # noqa: T201
    for part in ("worker", "temporal", "postgresql"):
        assert stack.inspect(part)["RestartCount"] == 1
        stack.until_healthy(part)
    # whoever follows a run gives up before the server is back; the run does not
    stack.compose("run", "--rm", "-T", "client", "watch", run_id, seconds=RUN_SECONDS_MAX)
    print(f"{time.monotonic() - began:.1f} s: the run has ended")  # noqa: T201
    result = json.loads(stack.inside("worker", "holdfast", "show", run_id, "--json"))
    assert (result["status"], result["final_response"]) == ("completed", "Six times seven is still 42.")
    assert result["steps"] == SLOW_CALLS


def test_what_was_kept_is_there_after_down_and_up(stack: Stack) -> None:
    before = fetched(stack, "TEMPORAL_UI_PORT", "/api/v1/namespaces/default/workflows")["executions"]
    stack.compose("--profile", "watch", "down", "--timeout", "30")
    stack.compose("up", "--detach", "--no-build", seconds=RUN_SECONDS_MAX)
    stack.until_healthy("worker")
    after = fetched(stack, "TEMPORAL_UI_PORT", "/api/v1/namespaces/default/workflows")["executions"]
    assert {each["execution"]["workflowId"] for each in after} >= {each["execution"]["workflowId"] for each in before}
