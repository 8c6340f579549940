"""The worker process: composition root of workflows and activities. `python -m worker --import my_tools`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, NoReturn, Self, TypedDict

from temporalio.client import Client as TemporalClient
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.heartbeats import Heartbeats
from activities.hooks import Hooks
from activities.inference import Inference
from activities.logs import log_to_stderr
from activities.provider import OpenAIModel, ProviderSettings
from activities.records import RecordKeeping, whose
from activities.sinks import EventSinks
from activities.tools import Catalog, ToolSlots, take_up, tool_activities
from activities.transcripts import TranscriptCache
from holdfast.client.connection import connect, converter_of, unshared_storage
from holdfast.client.definitions import load_agents
from holdfast.client.leaving import leave
from holdfast.client.refusals import refusal
from holdfast.client.settings import Settings
from holdfast.client.worker_process import READY
from holdfast.client.worker_settings import WorkerSettings
from holdfast.core.contracts import waiting_queue
from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import HoldfastError, InvalidInput
from holdfast.core.offer import Offer
from holdfast.core.registry import AgentRegistry
from holdfast.core.remote import RemoteTool
from holdfast.core.sink_contracts import EVENT_SINK, SinkStart, sink_id, sink_queue
from holdfast.core.subagents import SPAWN_TOOL
from holdfast.core.texts import error_record
from holdfast.core.tools import AnyTool
from holdfast.local.calling import Results, offer_reading
from holdfast.local.prices import PriceList
from holdfast.local.remote import check_remote
from holdfast.processes import kill_all
from holdfast.sinks.batches import Sink
from holdfast.sinks.configured import sinks_from
from holdfast.storage.history import RecordReading
from holdfast.storage.objects import objects_at
from holdfast.storage.parts import EncodedParts
from holdfast.storage.payloads import records_of
from holdfast.storage.results import KeptResults
from workflows.agent_execution import AgentExecution
from workflows.agent_session import AgentSession
from workflows.event_sink import EventSink

STUBBORN_SECONDS: Final = 2.0
"""How much longer calls may take that were cancelled at the end of the grace."""

REFUSED_MAX: Final = 50
"""Slots for tool calls that are on their way to the waiting queue; each takes one for a moment."""

OPTIONS: Final = {each.name: str(each.metadata["about"]) for each in fields(WorkerSettings)}
"""What can be set of a worker, and what it means."""

PROBE: Final = "probe"
"""What is written when a worker starts, to learn whether its storage is there."""

INTERRUPTED: Final = 130
"""The exit code after a second signal, or one before we serve."""


class Workers:
    """The parts of one worker process, begun and ended together; their graces run at the same time."""

    def __init__(self, *parts: Worker, begun: Callable[[], Awaitable[None]] | None = None) -> None:
        self.parts: Final = parts
        self._begun = begun

    async def __aenter__(self) -> Self:
        for part in self.parts:
            await part.__aenter__()
        if self._begun is not None:
            await self._begun()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ends = await asyncio.gather(
            *(part.__aexit__(kind, error, trace) for part in self.parts), return_exceptions=True
        )
        for end in ends:  # a part that cannot serve any more has cancelled our task, and says here why
            if end is not None:
                raise end


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


def make_worker(  # noqa: PLR0913  # the worker is put together here
    client: TemporalClient,
    settings: Settings,
    offer: Offer,
    model: OpenAIModel,
    cache: TranscriptCache | None = None,
    serving: WorkerSettings = WorkerSettings(),  # noqa: B008  # frozen
    results: Results | None = None,
    prices: PriceList | None = None,
    *,
    sinks: Sequence[Sink] = (),
) -> Workers:
    """Return what serves `offer` and every agent on the settings' task queue.

    Tools have slots of their own there and, beyond those, in a queue of their own: hung ones keep no model call, hook
    or workflow from running. `results` keeps what is too long to be shown to a model. `sinks` are told the events of
    all executions of the task queue (`holdfast.sinks`), each by one worker at a time of those that have it.
    """
    prices = prices or PriceList(model=model.settings.model, base_url=model.settings.base_url)
    inference = Inference(model, offer, cache or TranscriptCache())
    records = records_of(client.data_converter)
    keeping = RecordKeeping(records)
    ours: list[Callable[..., Any]] = [
        inference.run,
        inference.summarise,
        Hooks(offer.hooks).run,
        Catalog(offer, prices).resolve,
        take_up,
        keeping.record,
        keeping.branch,
        keeping.find_session,
        keeping.keep_session,
    ]
    tools = _served_on(settings.task_queue, offer.tools, also_unnamed=True)
    agents = Worker(
        client,
        task_queue=settings.task_queue,
        workflows=[AgentExecution, AgentSession],
        activities=[*ours, *tool_activities(tools, ToolSlots(serving.tool_slots), results)],
        max_concurrent_workflow_tasks=serving.workflow_slots,
        max_concurrent_activities=serving.inference_slots + serving.tool_slots + REFUSED_MAX,
        max_concurrent_local_activities=serving.local_slots,
        max_cached_workflows=serving.cached_runs,
        # An update of 2 to 4 MB passes the server. To refuse it is to send it back, and the SDK's check would not let
        # it through: the run could do nothing more until the server forgets it. What is large of ours is kept outside.
        disable_payload_error_limit=True,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=serving.sticky_seconds),
        workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(serving.workflow_pollers),
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(serving.activity_pollers),
        **_alike(serving),
    )
    parts = [agents]
    if tools:
        queue = waiting_queue(settings.task_queue)
        parts.append(_tools_part(client, queue, tools, serving, serving.waiting_slots, results))
    starts = [SinkStart(consumer=each.name, task_queue=settings.task_queue) for each in sinks]
    delivering = EventSinks(sinks, records)
    parts += (_sink_part(client, start, delivering, serving) for start in starts)
    return Workers(*parts, begun=partial(_begin_sinks, client, starts))


def _sink_part(client: TemporalClient, start: SinkStart, delivering: EventSinks, serving: WorkerSettings) -> Worker:
    """Return what serves one sink, on a queue that only workers with that sink poll, with slots of its own."""
    return Worker(
        client,
        task_queue=sink_queue(start),
        workflows=[EventSink],
        activities=[delivering.deliver],
        max_concurrent_workflow_tasks=2,
        max_concurrent_activities=2,  # one that has just ended, and the next
        max_cached_workflows=0,  # a task a day needs no cache, and no sticky queue
        workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=serving.grace_seconds),
    )


async def _begin_sinks(client: TemporalClient, starts: Sequence[SinkStart]) -> None:
    """Have the server see to it that each sink is served; nothing where it does already. Raises ServerUnavailable."""
    for start in starts:
        try:
            await client.start_workflow(
                EVENT_SINK,
                start,
                id=sink_id(start),
                task_queue=sink_queue(start),
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"events of {start.task_queue} to {start.consumer}",
            )
        except RPCError as error:
            raise refusal(error) from None


def make_tools_worker(
    client: TemporalClient, settings: Settings, offer: Offer, serving: WorkerSettings, results: Results | None = None
) -> Workers:
    """Return what serves the tools that name the settings' task queue, and nothing else; InvalidInput without any."""
    tools = _served_on(settings.task_queue, offer.tools)
    if not tools:
        for each in offer.tools:
            if isinstance(each, RemoteTool) and each.traits.task_queue == settings.task_queue:
                here = f"{each.name!r}, which names the task queue {settings.task_queue!r}, is a remote tool"
                raise InvalidInput(f"{here}: there is no code of it here; start the worker that has it")
        named = sorted({tool.traits.task_queue for tool in offer.tools if tool.traits.task_queue})
        there = f"the queues named are {named}" if named else "none names a queue"
        raise InvalidInput(
            f"no tool here names the task queue {settings.task_queue!r}: {there}; see @tool(task_queue=)"
        )
    return Workers(_tools_part(client, settings.task_queue, tools, serving, serving.tool_slots, results))


def _served_on(task_queue: str, tools: Sequence[AnyTool], *, also_unnamed: bool = False) -> list[AnyTool]:
    """Return the tools of ours that name the queue, and those that name none."""
    ours = (tool for tool in tools if not isinstance(tool, RemoteTool))
    return [
        tool for tool in ours if tool.traits.task_queue == task_queue or (also_unnamed and not tool.traits.task_queue)
    ]


def _tools_part(
    client: TemporalClient,
    task_queue: str,
    tools: Sequence[AnyTool],
    serving: WorkerSettings,
    slots: int,
    results: Results | None,
) -> Worker:
    return Worker(
        client,
        task_queue=task_queue,
        activities=tool_activities(tools, results=results),
        max_concurrent_activities=slots,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(serving.activity_pollers),
        **_alike(serving),
    )


def _alike(serving: WorkerSettings) -> _Alike:
    throttle = timedelta(seconds=serving.heartbeat_throttle_seconds)
    return _Alike(
        interceptors=[Heartbeats()],
        max_heartbeat_throttle_interval=throttle,
        default_heartbeat_throttle_interval=throttle,
        graceful_shutdown_timeout=timedelta(seconds=serving.grace_seconds),
    )


class _Alike(TypedDict):
    """What all parts of a worker process have in common."""

    interceptors: list[Heartbeats]
    max_heartbeat_throttle_interval: timedelta
    default_heartbeat_throttle_interval: timedelta
    graceful_shutdown_timeout: timedelta


async def serve(
    settings: Settings,
    serving: WorkerSettings,
    modules: Sequence[str],
    *,
    attended: bool,
    tools_only: bool,
    sinks: Sequence[str] = (),
) -> None:
    """Serve until SIGTERM or Ctrl-C, then let what is under way end; `attended`, also end with standard input."""
    objects = objects_at(settings.storage_place)
    records = records_of(converter_of(settings))
    results = KeptResults(EncodedParts(objects, records.codec) if records.codec else objects)
    offer = load_offer(modules)
    if not tools_only:
        offer = offer_reading(offer, results)
        offer = RecordReading(records, whose).offered(offer)
    check_remote(offer.tools)
    delivering = _sinks_for(sinks, tools_only=tools_only)
    model = None if tools_only else _model_for(settings, offer)
    client = await connect(settings)
    await objects.write(PROBE, PROBE.encode())  # told now: a run that must go on in a new one would wait for it
    if problem := unshared_storage(settings, client):
        sys.stderr.write(f"warning: {problem}\n")
    if model is None:
        workers = make_tools_worker(client, settings, offer, serving, results)
    else:
        prices = PriceList.from_environment(model=model.settings.model, base_url=model.settings.base_url)
        workers = make_worker(
            client, settings, offer, model, serving=serving, results=results, prices=prices, sinks=delivering
        )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stopping)
    if attended:
        loop.add_reader(sys.stdin.fileno(), _on_input)
    async with workers:
        tools = (tool.name for tool in offer.tools if model or tool.traits.task_queue == settings.task_queue)
        hooks = f", hooks: {', '.join(hook.name for hook in offer.hooks)}" if model and offer.hooks else ""
        where = f"{client.service_client.config.target_host}, namespace {client.namespace!r}"
        what = f"task queue {settings.task_queue!r}, tools: {', '.join(tools) or 'none'}{hooks}"
        events = f", events to: {', '.join(each.name for each in delivering)}" if delivering else ""
        _say(f"{READY}: {where}, {what}{events}")
        await stopping.wait()
        grace = serving.grace_seconds
        loop.call_later(grace + STUBBORN_SECONDS, _end, 1)  # a call can refuse to be cancelled
        _say(f"worker stopping: calls under way have {grace:g} s; a second signal ends it at once")
    if model:
        await model.close()


def _sinks_for(given: Sequence[str], *, tools_only: bool) -> tuple[Sink, ...]:
    """Return the sinks; InvalidInput where this worker cannot have any: it must answer for the agents itself."""
    if tools_only and given:
        raise InvalidInput("a worker of tools alone serves no sinks; give --sink to one that serves the agents")
    return () if tools_only else sinks_from(given)


def _model_for(settings: Settings, offer: Offer) -> OpenAIModel:
    """Return the model, after a look at the agents: one that names what we do not have is told now, not in a run."""
    agents = AgentRegistry.of(*load_agents(settings.agents_dir).values())
    agents.check(tools=offer.tools, hooks=offer.hooks, capabilities=offer.capabilities, compilers=offer.compilers)
    model = OpenAIModel(ProviderSettings.from_environment())
    if problem := model.missing:
        sys.stderr.write(f"warning: {problem}\n")
    return model


def _end(code: int) -> NoReturn:
    """End at once, with every process that tools have started."""
    kill_all()
    leave(code)


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
    parser.add_argument("--encryption-key-file", type=Path, metavar="FILE", help="the keys that encrypt what is kept")
    parser.add_argument("--attended", action="store_true", help="end when standard input does")
    parser.add_argument("--sink", dest="sinks", action="append", default=[], metavar="SINK")
    parser.add_argument("--tools-only", action="store_true", help="serve the tools that name the task queue, no agents")
    for name, about in OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="N", help=about)
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
        encryption_key_file=given.encryption_key_file,
    )
    serving = WorkerSettings.from_environment(**{name: getattr(given, name) for name in OPTIONS})
    ways = {"attended": given.attended, "tools_only": given.tools_only}
    asyncio.run(serve(settings, serving, given.modules, sinks=given.sinks, **ways))
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
        _end(INTERRUPTED)
    stopping.set()


def _on_input() -> None:
    """End with whoever started us: they hold the other end of standard input, and the server went with them."""
    if not os.read(sys.stdin.fileno(), 4096):
        _end(1)


def _say(text: str) -> None:
    with suppress(OSError):  # serving does not depend on whether anybody reads this
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _end(main())
