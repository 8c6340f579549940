"""What the demo does, from its command line to its last line: the stage, the run, and what the ledger proves.

Begun by `demo`, which comes before everything that takes a while to import.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from examples.repo_detective.crash import Crash, Ran, perform
from examples.repo_detective.evidence import Evidence, weigh
from examples.repo_detective.screen import Screen
from examples.repo_detective.stage import (
    AGENTS,
    REPOSITORY,
    USUAL_UI_PORT,
    Endpoint,
    Model,
    end_in_order,
    forget_other_servers,
    in_order,
    real_model,
    start_server,
    worker_environment,
)
from holdfast import ExecutionStatus, HoldfastError
from holdfast.client import Settings, check_question
from holdfast.errors import InvalidInput
from holdfast.server import EmbeddedServer
from holdfast.testing import Ledger

QUESTION: Final = "What does this project do, and where is the agent loop?"
RUN_PATH: Final = "namespaces/default/workflows"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for; a port of none is the usual one when it is free, 0 any free one."""

    folder: Path
    question: str
    data_dir: Path
    port: int | None
    ui_port: int | None


def run(options: Options, screen: Screen) -> int:
    """Set the stage, let the run happen on it, and show what it proves; return the exit code."""
    check_question(options.question)
    if not options.folder.is_dir():
        raise InvalidInput(f"{str(options.folder)!r} is not a folder; name the one that the question is about")
    real = real_model()
    run_id = str(uuid4())
    with ExitStack() as stage, in_order(screen.ending):
        stage.callback(screen.resting)
        screen.title("Holdfast: an agent whose worker is killed half-way")
        screen.working("starting the Temporal server")
        server = stage.enter_context(start_server(options.data_dir, options.port, options.ui_port))
        _tell_server(screen, server, options.data_dir)
        ledger = _ledger(options.data_dir, run_id)
        model = real or _scripted(screen, stage, ledger)
        if real:
            screen.fact("model", real.told)
        screen.fact("folder", str(options.folder))
        screen.fact("question", options.question)
        screen.fact("Web UI", f"{server.address.ui}/{RUN_PATH}/{run_id} (while the demo runs)", "cyan")
        # A task queue of its own: neither a worker of somebody else's takes this run, nor ours another one
        settings = Settings(
            address=server.address.address,
            namespace="default",
            task_queue=f"demo-{run_id}",
            data_dir=options.data_dir,
            agents_dir=AGENTS,
        )
        crash = Crash(settings, run_id, ledger, worker_environment(model, options.folder, ledger.path), screen)
        ran = asyncio.run(perform(crash, options.question))
        code = _show(screen, ran, ledger, scripted=real is None)
        _tell_how_to_look(screen, server, run_id, options.data_dir)
        stage.callback(end_in_order)
        screen.ending()
    return code


def _scripted(screen: Screen, stage: ExitStack, ledger: Ledger) -> Model:
    """Start the scripted model's endpoint and say so."""
    endpoint = Endpoint(ledger.path)
    stage.callback(endpoint.stop)
    model = endpoint.model()
    screen.fact("model", f"{model.told}, pid {endpoint.pid}")
    why = "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set, so there is no real model to ask"
    screen.fact("", f"({why})", "yellow")
    return model


def _ledger(data_dir: Path, run_id: str) -> Ledger:
    folder = data_dir / "demo"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"the folder {folder} for the demo's ledger cannot be made: {error.strerror}") from None
    return Ledger(folder / f"{run_id}.jsonl")


def _tell_server(screen: Screen, server: EmbeddedServer, data_dir: Path) -> None:
    address, whose = server.address, "already running" if server.attached else "started"
    screen.fact("server", f"Temporal at {address.address}, {whose}, pid {address.pid}; its data in {data_dir}")


def _show(screen: Screen, ran: Ran, ledger: Ledger, *, scripted: bool) -> int:
    """Show answer and evidence; return 0 when everything is as it must be."""
    state = ran.state
    completed = state.status is ExecutionStatus.COMPLETED
    screen.heading("Answer" if completed else f"The run ended {state.status} ({state.stop_reason}) without an answer")
    if state.current_response:
        screen.text(state.current_response)
    evidence = weigh(state, ledger.entries(), ran.cut, model_noted=scripted)
    screen.heading("What really ran, from a ledger that no part of Temporal writes")
    screen.fact("ledger", str(ledger.path))
    if evidence.tools:
        screen.tools_table(evidence.tools)
    if evidence.model:
        screen.model_table(evidence.model)
    problems = list(evidence.problems)
    if not ran.cut:
        told = "nothing was killed, because no tool call of the second step or later was met in its middle"
        if scripted:
            problems.append(told)
        elif completed:
            screen.text(f"This time {told}; ask something that takes more looking.", "yellow")
    for problem in problems:
        screen.text(f"This does not add up: {problem}.", "bold red")
    _sum_up(screen, ran, evidence, adds_up=not problems)
    return 0 if completed and not problems else 1


def _sum_up(screen: Screen, ran: Ran, evidence: Evidence, *, adds_up: bool) -> None:
    state, duration = ran.state, ran.state.execution_duration
    steps = "1 step" if state.step_count == 1 else f"{state.step_count} steps"
    seconds = duration.total_seconds() if duration else 0.0
    told = f"The run {state.status}: {steps}, {state.usage.total_tokens:,} tokens, {seconds:.1f} s"
    if adds_up and ran.cut:
        told += " with the crash in it; every call that was cut off ran again"
        told += f", and {evidence.repeated} whose end was lost" if evidence.repeated else ", none that had finished did"
    screen.heading(f"{told}.")


def _tell_how_to_look(screen: Screen, server: EmbeddedServer, run_id: str, data_dir: Path) -> None:
    if server.attached:
        screen.fact("later", f"the server goes on without us: {server.address.ui}/{RUN_PATH}/{run_id}", "cyan")
        return
    where = "" if data_dir == Path.cwd() / Settings().data_dir else f" --data-dir {shlex.quote(str(data_dir))}"
    screen.fact("later", f"`holdfast dev{where}` shows the run again:", "cyan")
    screen.fact("", f"http://127.0.0.1:{USUAL_UI_PORT}/{RUN_PATH}/{run_id}", "cyan")


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m examples.repo_detective.demo",
        description="An agent answers a question about a folder; its worker is killed half-way and the run finishes.",
    )
    parser.add_argument("folder", nargs="?", type=Path, default=REPOSITORY, help="default: this repository")
    parser.add_argument("question", nargs="?", default=QUESTION, help=f"default: {QUESTION}")
    parser.add_argument("--data-dir", type=Path, help="where the server keeps its data (default: .holdfast)")
    parser.add_argument("--port", type=int, help="the server's port (default: 7233 when free, else any free one)")
    parser.add_argument("--ui-port", type=int, help="the Web UI's port (default: 8233 when free, else any free one)")
    given = parser.parse_args(arguments)
    data_dir: Path = Settings.from_environment(data_dir=given.data_dir).data_dir
    return Options(given.folder.absolute(), given.question, data_dir.absolute(), given.port, given.ui_port)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code; every error is one line."""
    options = _options(arguments)
    forget_other_servers()
    try:
        return run(options, Screen())
    except HoldfastError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
