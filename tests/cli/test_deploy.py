"""`holdfast deploy` and what `holdfast doctor` says of builds: what is refused, and how it says what there is."""

from __future__ import annotations

import asyncio
import queue
import signal
from pathlib import Path

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.workflowservice.v1 import CreateWorkerDeploymentVersionRequest

from holdfast.client import Holdfast, Settings
from holdfast.server.worker_process import worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from tests.cli.doctor_findings import by_check, once_found, once_sound
from tests.cli.page import examples, keys
from tests.cli.program import Project, beside
from tests.forked import WarmWorker
from tests.server.builds import AGENT, SECONDS_MAX, Deploy, answering, worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(400)]

BUILDS = "worker builds"


async def without_workers(client: Holdfast, deployment: str, build_id: str) -> None:
    """Have the server know a build that no worker is of."""
    version = WorkerDeploymentVersion(deployment_name=deployment, build_id=build_id)
    request = CreateWorkerDeploymentVersionRequest(
        namespace=client.temporal.namespace, deployment_version=version, identity="a test", request_id=build_id
    )
    await client.temporal.workflow_service.create_worker_deployment_version(request)


async def note_of_another(settings: Settings) -> str:
    """Start a worker without a build beside the others, and return the note that it prints."""
    noted: queue.SimpleQueue[str] = queue.SimpleQueue()
    command = worker_command(settings, ["tests.server.build_tools"])
    process = WarmWorker(
        command, lambda line: noted.put(line) if "gets no runs" in line else None, worker_environment()
    )
    try:
        return await asyncio.to_thread(noted.get, timeout=SECONDS_MAX)
    finally:
        await asyncio.to_thread(process.stop)


@pytest.mark.slow
async def test_only_a_build_with_workers_is_promoted_and_the_doctor_says_what_runs_wait_for(
    settings: Settings, tmp_path: Path
) -> None:
    deploy, name = Deploy(settings, tmp_path), settings.task_queue
    unknown = await deploy("status")
    assert unknown.code == 2
    assert f"there is no deployment '{name}'" in unknown.err
    async with FakeOpenAI(answering()) as endpoint, worker(settings, endpoint, "v1"):
        where = {**beside(settings), "OPENAI_BASE_URL": endpoint.base_url, "HOLDFAST_MODEL": "scripted"}
        project, client = Project(tmp_path, where), await Holdfast.connect(settings)
        waiting = await asyncio.to_thread(once_found, {BUILDS, "tools"}, lambda: project.run("doctor", "--json"))
        line = by_check(waiting)[BUILDS]
        assert line["found"] == f"workers of 'v1' serve '{name}', and no build is current: runs wait for ever"
        assert line["remedy"] == f"`holdfast deploy promote v1 --deployment {name}`"
        await without_workers(client, name, "v0")
        refused = await deploy("promote", "v11")
        assert refused.code == 2
        assert f"error: deployment '{name}' has no build 'v11' (a new build is listed" in refused.err
        assert refused.err.endswith("; did you mean 'v1'?\n")
        unserved = await deploy("promote", "v0", "--json")
        assert unserved.code == 7
        assert "no worker of build 'v0'" in unserved.document["error"]["message"]
        assert (await deploy("ramp", "v1", "101")).code == 2
        assert (await deploy("promote", "v 1")).code == 2
        ramped = await deploy.done("ramp", "v1", "25")
        status, shown = await deploy.done("status"), await deploy("status")
        assert await deploy.done("ramp", "v1", "0") == {**ramped, "percent": 0}
        promoted = await deploy.done("promote", "v1")
        assert (promoted["current"], promoted["before"]) == ("v1", None)
        sound = await asyncio.to_thread(once_sound, lambda: project.run("doctor", "--json"))
        assert by_check(sound)[BUILDS]["found"] == f"'v1' of '{name}' is current; polling: 'v1'"
        assert "build 'v1' is current, so this worker without a build gets no runs" in await note_of_another(settings)
        current = await deploy("ramp", "v1", "10")
        assert current.code == 7
        assert f"build 'v1' of deployment '{name}' is current" in current.err
        assert (await client.run(AGENT, "build")).output == "v1"  # a queue is active while it has had work lately
        uncovered = await deploy("promote", "v0", "--allow-no-pollers")
        assert uncovered.code == 7, "it has none of the current build's queues"
        assert "missing active task queues" in uncovered.err
        assert (await client.run(AGENT, "build")).output == "v1"
    documented = examples("holdfast deploy")
    assert [keys(each) for each in documented[:3]] == [keys(status), keys(promoted), keys(ramped)]
    assert {each["build_id"]: (each["status"], each["percent"], each["workers"]) for each in status["builds"]} == {
        "v0": ("inactive", None, 0),
        "v1": ("ramping", 25, 1),
    }
    assert f"deployment {name}: no build is current" in shown.out
    assert [line.split()[:2] for line in sorted(shown.out.splitlines()[2:])] == [["v0", "inactive"], ["v1", "ramping"]]


@pytest.mark.slow
async def test_draining_says_what_is_open_until_nothing_is(settings: Settings, tmp_path: Path) -> None:
    deploy, gate = Deploy(settings, tmp_path), tmp_path / "open"
    async with FakeOpenAI(answering()) as endpoint, worker(settings, endpoint, "v1"):
        client = await Holdfast.connect(settings)
        await deploy.done("promote", "v1")
        current = await deploy("drain", "v1")
        assert current.code == 7
        assert "is current: it gets new runs; promote another one first" in current.err
        run = await client.start(AGENT, f"gate:{gate}")
        async with worker(settings, endpoint, "v2"):
            await deploy.done("promote", "v2")
            late = await deploy("drain", "v1", "--timeout", "0")
            assert late.code == 7
            assert f"is not drained after 0 s: open: 1 run, 0 sessions ({run})" in late.err
            project = Project(tmp_path, beside(settings))
            with project.started("deploy", "drain", "v1") as draining:
                await asyncio.to_thread(draining.heard, "v1: open: 1 run, 0 sessions")
                draining.process.send_signal(signal.SIGINT)
                assert (await asyncio.to_thread(draining.ended)).code == 130
            gate.touch()
            assert (await client.result(run)).final_response == "v1"
            drained = await deploy.done("drain", "v1", "--timeout", "180")
            assert (drained["build_id"], drained["status"]) == ("v1", "drained")
            again = await deploy("drain", "v1")
            assert again.code == 0
            assert "is drained: nothing is open there, and its workers can end" in again.out
    assert keys(drained) == keys(examples("holdfast deploy")[3])
