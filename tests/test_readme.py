"""What README.md tells the reader to type works as it stands there."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from typer.main import get_command

from holdfast import LLM, AgentDefinition, ExecutionBudget, tool
from holdfast.cli.main import app
from holdfast.client import Settings
from holdfast.core.tools.tool_traits import ToolOptions
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, call, say

README = Path(__file__).resolve().parents[1] / "README.md"
SECONDS_MAX = 90


AGENTS_PAGE = README.parent / "docs" / "agents.md"


def blocks(language: str, page: Path = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_what_a_reader_writes_into_a_clone_is_no_change_of_it() -> None:
    pages = README.read_text() + (README.parent / "docs" / "start.md").read_text()
    written = {*re.findall(r"`(my_\w+\.py|agents/\w+\.\w+)`", pages), *re.findall(r"> (agents/\S+)", pages)}
    assert {"my_tools.py", "my_script.py", "agents/ada.md", "agents/clerk.md"} <= written
    command = ["git", "check-ignore", *written]
    done = subprocess.run(command, cwd=README.parent, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        pytest.skip("no clone")
    assert set(done.stdout.split()) == written


def test_the_page_on_agents_shows_code_that_runs() -> None:
    *_, refund, _, answers = blocks("python", AGENTS_PAGE)
    for code in (refund, answers):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done


def test_the_page_on_agents_names_every_field_and_tool_option() -> None:
    page = AGENTS_PAGE.read_text()
    fields = {*AgentDefinition.model_fields, *LLM.model_fields, *ExecutionBudget.model_fields} - {"llm", "budget"}
    options = {*inspect.signature(tool).parameters, *ToolOptions.__optional_keys__} - {"function", "options"}
    assert "at_most_once" in options
    missing = {name for name in fields | options if name not in page}
    assert not missing


def clerk(request: dict[str, Any]) -> Reply:
    """Look an order up and tell of it; to any other question, tell what was asked first."""
    asked = [message["content"] for message in request["messages"] if message["role"] == "user"]
    if request["messages"][-1]["role"] == "tool":
        return say("It left the warehouse this morning.")
    return call("find_order", number=17) if "order" in asked[-1] else say(f"You asked: {asked[0]}")


class FirstAgent(NamedTuple):
    """What the first screen tells to type: how the agent is made, and how it is asked."""

    making: str
    asking: list[str]


def first_agent() -> FirstAgent:
    making, asking = (
        re.search(rf"^{words}.*", "".join(blocks("sh")), re.MULTILINE) for words in ("mkdir", "holdfast run")
    )
    assert making is not None
    assert asking is not None
    program, *words = shlex.split(asking[0], comments=True)
    return FirstAgent(making[0], [str(Path(sys.executable).with_name(program)), *words])


@pytest.mark.slow
@pytest.mark.temporal
def test_the_agents_and_the_programs_run(settings: Settings, tmp_path: Path) -> None:
    tools, living = blocks("python")
    first = first_agent()
    [following] = [each for each in blocks("python", AGENTS_PAGE) if ".follow(" in each]
    (agent,) = blocks("markdown")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "clerk.md").write_text(agent)
    subprocess.run(["/bin/bash", "-c", first.making], cwd=tmp_path, check=True)
    (tmp_path / "my_tools.py").write_text(tools)
    with FakeOpenAI.in_thread(clerk) as endpoint:
        environment = {
            **worker_environment(),
            "OPENAI_BASE_URL": endpoint.base_url,
            "HOLDFAST_MODEL": "scripted",
            "HOLDFAST_TASK_QUEUE": settings.task_queue,
            "TEMPORAL_ADDRESS": settings.address or "",
        }
        environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
        heard: list[str] = []
        with WorkerProcess(worker_command(settings, ["my_tools"]), heard.append, environment) as worker:
            assert worker.wait_until_ready(SECONDS_MAX), heard
            answered, lived, followed = (
                subprocess.run(
                    command,
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=SECONDS_MAX,
                    check=False,
                )
                for command in (first.asking, [sys.executable, "-c", living], [sys.executable, "-c", following])
            )
    assert "You asked: Why is the sky blue?" in answered.stdout, answered
    told, asked = lived.stdout.splitlines()
    assert told.endswith("completed It left the warehouse this morning."), lived
    assert asked == "You asked: Where is order 17?"
    assert followed.stdout.splitlines()[-2:] == ["completed 2", "It left the warehouse this morning."], followed
    assert [message["content"] for message in endpoint.requests[2].body["messages"] if message["role"] == "tool"] == [
        "order 17 left the warehouse this morning"
    ]


def test_every_command_the_readme_shows_exists() -> None:
    shown = set(re.findall(r"`holdfast ([\w-]+)", README.read_text())) | set(
        re.findall(r"^holdfast ([\w-]+)", "".join(blocks("sh")), re.MULTILINE)
    )
    known = set(cast("Any", get_command(app)).commands)
    assert {"dev", "run"} <= shown <= known
