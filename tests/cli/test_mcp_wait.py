"""A run whose MCP server cannot be listed: what people see of it before it begins, and when it has failed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.client import Holdfast
from tests.cli.program import Project, Running, start_id

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

WHY = "the MCP server 'broken'"


@dataclass(frozen=True, slots=True)
class Broken:
    """A project whose agent has a server that ends at once, and `holdfast dev` in it."""

    project: Project
    dev: Running


@pytest.fixture(scope="module")
def broken(
    endpoint: str, built: Path, named_server: str | None, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Broken]:
    """It is shared: each test has runs of its own."""
    own = Project.at(tmp_path_factory.mktemp("broken") / "project", endpoint, built, named_server)
    command = json.dumps([sys.executable, "-c", "import sys; sys.exit(7)"])
    (own.folder / "mcp.yaml").write_text(f"servers:\n  broken:\n    command: {command}\n")
    (own.folder / "agents" / "asker.yaml").write_text("name: asker\nsystem_prompt: Be brief.\nmcp: [broken]\n")
    with own.dev() as dev:
        yield Broken(own, dev)


@pytest.mark.slow
def test_whoever_follows_a_run_sees_why_it_does_not_begin(broken: Broken) -> None:
    project = broken.project
    with project.started("run", "asker", "hello") as running:
        line = running.heard(WHY)
        assert "waiting for the agent's MCP servers, attempt" in line
        assert "it has ended with code 7" in line
    id_ = start_id(project, "asker")
    with project.started("watch", id_) as watching, project.started("watch", id_, "--json") as as_json:
        assert "it has ended with code 7" in watching.heard(WHY)
        event = json.loads(as_json.heard(WHY))
    assert (event["kind"], event["step_number"]) == ("AttemptFailed", 0)


@pytest.mark.slow
@pytest.mark.parametrize("view", [(), ("--steps",), ("--transcript",), ("--events",), ("--debug",)])
def test_each_view_of_a_run_that_has_not_begun_says_what_there_is(broken: Broken, view: tuple[str, ...]) -> None:
    id_ = start_id(broken.project, "asker")
    for options in (view, (*view, "--json")):
        shown = broken.project.run("show", id_, *options)
        assert (shown.code, "Traceback" in shown.err) == (0, False), shown


@pytest.mark.slow
def test_a_run_that_has_not_begun_is_shown_with_what_it_waits_for_and_can_be_stopped(broken: Broken) -> None:
    project = broken.project
    id_ = start_id(project, "asker")
    with project.started("watch", id_) as watching:
        watching.heard(WHY)
    shown = project.run("show", id_)
    assert "it has ended with code 7" in shown.out + shown.err
    assert project.run("show", id_, "--json").document["model_wait"]["step_number"] == 0
    for listing in (("list",), ("tree", id_)):
        listed = project.run(*listing)
        assert (listed.code, "Traceback" in listed.err) == (0, False), listed
    exported = project.run("export", id_)
    assert (exported.code, "has not begun yet" in exported.err) == (2, True)
    assert project.run("stop", id_).code == 0
    assert project.run("watch", id_).code == 3


@pytest.mark.slow
def test_a_run_that_the_server_has_ended_before_it_began_is_shown_so(broken: Broken) -> None:
    project = broken.project
    id_ = start_id(project, "asker")
    with project.started("watch", id_) as watching:
        watching.heard(WHY)

    async def terminate() -> None:
        holdfast = await Holdfast.connect(project.settings)
        await holdfast.temporal.get_workflow_handle(id_).terminate(reason="enough")

    asyncio.run(terminate())
    for view in ((), ("--steps",)):
        plain, as_json = project.both("show", id_, *view)
        assert plain.out == "the server has ended this run (terminated): it had not begun yet\n"
        assert as_json.document == {"execution_id": id_, "status": "terminated"}
