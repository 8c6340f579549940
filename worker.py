"""The worker process: composition root of workflows and activities. `python -m worker --import my_tools`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from temporalio.client import Client as TemporalClient
from temporalio.worker import Worker

from activities.heartbeats import Heartbeats
from activities.hooks import Hooks
from activities.inference import Inference
from activities.logs import log_to_stderr
from activities.provider import OpenAIModel, ProviderSettings
from activities.tools import Catalog, take_up, tool_activities
from activities.transcripts import TranscriptCache
from holdfast.client.connection import connect, unshared_storage
from holdfast.client.definitions import load_agents
from holdfast.client.leaving import leave
from holdfast.client.settings import Settings
from holdfast.client.worker_process import READY
from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import HoldfastError, InvalidInput
from holdfast.core.offer import Offer
from holdfast.core.registry import AgentRegistry
from holdfast.core.subagents import SPAWN_TOOL
from holdfast.core.texts import error_record
from workflows.agent_execution import AgentExecution

GRACE: Final = timedelta(seconds=10)
"""How long calls under way may take to end after the first signal; the second one ends the process at once."""

STUBBORN_SECONDS: Final = 2.0
"""How much longer calls may take that were cancelled at the end of the grace."""

ACTIVITIES_MAX: Final = 500
"""Calls at work at once: they wait for networks, not for this machine's cores."""

CACHED_RUNS_MAX: Final = 2_000
"""Runs kept in memory between their tasks; beyond that each task replays its whole history."""

STICKY_TIMEOUT: Final = timedelta(seconds=1)
"""How long a run waits for a dead worker that knew it before another takes over (the SDK's default is 10 s)."""

INTERRUPTED: Final = 130
"""The exit code after a second signal, or one before we serve."""

HEARTBEAT_THROTTLE: Final = timedelta(seconds=0.25)
"""Heartbeats reach the server this often at the most, so a cancel is learnt in 0.6 s even where none is pushed."""


def load_offer(modules: Sequence[str]) -> Offer:
    """Import `modules` and return what they offer, in order. Raises InvalidInput for what cannot be imported."""
    offer = Offer.of_modules(_imported(name) for name in modules)
    offer.equip(AgentDefinition(name="all"))  # refuses two tools or hooks of one name
    for hook in offer.hooks:
        if hook.traits.tools is not None and not any(hook.traits.concerns(name) for name in _callable(offer)):
            there = ", ".join(_callable(offer))
            raise InvalidInput(f"the hook {hook.name!r} is for {hook.traits.tools}, which no tool matches: {there}")
    return offer


def _callable(offer: Offer) -> tuple[str, ...]:
    return (*(tool.name for tool in offer.tools), SPAWN_TOOL)


def make_worker(
    client: TemporalClient,
    settings: Settings,
    offer: Offer,
    model: OpenAIModel,
    cache: TranscriptCache | None = None,
) -> Worker:
    """Return the worker that serves `offer` and every agent on the settings' task queue."""
    inference = Inference(model, offer, cache or TranscriptCache())
    ours: list[Callable[..., Any]] = [
        inference.run,
        inference.summarise,
        Hooks(offer.hooks).run,
        Catalog(offer).resolve,
        take_up,
    ]
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=[AgentExecution],
        activities=[*ours, *tool_activities(offer.tools)],
        interceptors=[Heartbeats()],
        max_concurrent_activities=ACTIVITIES_MAX,
        max_cached_workflows=CACHED_RUNS_MAX,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=GRACE,
    )


async def serve(settings: Settings, modules: Sequence[str], *, attended: bool) -> None:
    """Serve until SIGTERM or Ctrl-C, then let what is under way end; `attended`, also end with standard input."""
    offer = load_offer(modules)
    agents = AgentRegistry.of(*load_agents(settings.agents_dir).values())
    # an agent that names what we do not have is told now, not in a run
    agents.check(tools=offer.tools, hooks=offer.hooks, capabilities=offer.capabilities, compilers=offer.compilers)
    model = OpenAIModel(ProviderSettings.from_environment())
    if problem := model.missing:
        sys.stderr.write(f"warning: {problem}\n")
    client = await connect(settings)
    if problem := unshared_storage(settings, client):
        sys.stderr.write(f"warning: {problem}\n")
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stopping)
    if attended:
        loop.add_reader(sys.stdin.fileno(), _on_input)
    async with make_worker(client, settings, offer, model):
        names = ", ".join(tool.name for tool in offer.tools) or "none"
        hooks = f", hooks: {', '.join(hook.name for hook in offer.hooks)}" if offer.hooks else ""
        _say(f"{READY}: task queue {settings.task_queue!r}, tools: {names}{hooks}")
        await stopping.wait()
        loop.call_later(GRACE.total_seconds() + STUBBORN_SECONDS, leave, 1)  # a call can refuse to be cancelled
        _say(f"worker stopping: calls under way have {GRACE.total_seconds():g} s; a second signal ends it at once")
    await model.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker and return its exit code: 0 after a graceful end, the error's own code otherwise."""
    try:
        return _run(arguments)
    except HoldfastError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:  # before we take signals ourselves
        return INTERRUPTED


class _Parser(argparse.ArgumentParser):
    """Tells what is wrong in one line, as everything else does."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{message} (see --help)")


def _run(arguments: Sequence[str] | None) -> int:
    parser = _Parser(prog="worker", description="Serve agents and their tools.")
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE")
    parser.add_argument("--address", help="the Temporal server (default: TEMPORAL_ADDRESS, else the embedded one)")
    parser.add_argument("--namespace")
    parser.add_argument("--task-queue")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--agents", type=Path, help="check the agents in this folder against the tools")
    parser.add_argument("--storage", metavar="URL", help="where large data is kept")
    parser.add_argument("--attended", action="store_true", help="end when standard input does")
    given = parser.parse_args(arguments)
    log_to_stderr()
    sys.path.append(str(Path.cwd()))  # last, so that a user's `email.py` does not take the place of Python's
    settings = Settings.from_environment(
        address=given.address,
        namespace=given.namespace,
        task_queue=given.task_queue,
        data_dir=given.data_dir,
        agents_dir=given.agents,
        storage=given.storage,
    )
    asyncio.run(serve(settings, given.modules, attended=given.attended))
    return 0


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = f"{name!r}" if error.name == name else f"{name!r}: it needs {error.name!r}"
        raise InvalidInput(f"cannot import {missing}, which is not found from {Path.cwd()}") from None
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:
        told = error_record(error, name)
        said = " ".join(f"{told.type}: {told.message}".split())
        raise InvalidInput(f"cannot import {name!r}: {said}") from error


def _on_signal(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        leave(INTERRUPTED)
    stopping.set()


def _on_input() -> None:
    """End with whoever started us: they hold the other end of standard input, and the server went with them."""
    if not os.read(sys.stdin.fileno(), 4096):
        leave(1)


def _say(text: str) -> None:
    with suppress(OSError):  # serving does not depend on whether anybody reads this
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    leave(main())
