"""The worker program, `python -m worker --import my_tools`: options, connection, signals, exit code.

Here the parts meet: settings, tools, model, storage and sinks. `workers.py` makes Temporal workers of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from temporalio.client import Client as TemporalClient

from activities.guardian_link import GuardianLink
from activities.log_format import log_to_stderr
from activities.records import whose
from holdfast.capabilities.built_in import with_built_in
from holdfast.capabilities.worker_capabilities import with_configured
from holdfast.client.definition_files import known_agents
from holdfast.connection.deployment_version import DeploymentVersion, version_from
from holdfast.connection.queue_routing import queue_routing
from holdfast.connection.rpc_errors import answered
from holdfast.connection.search_attribute_setup import attributes
from holdfast.connection.settings import Settings
from holdfast.connection.temporal_client import (
    connect_when_there,
    converter_of,
    core_runtime,
    target,
    unshared_storage,
    when_there,
)
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.agent import agents_in
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.handoffs import HANDOFF_TOOL
from holdfast.core.agent.model import Model
from holdfast.core.agent.registry import AgentRegistry
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.tools.tool_names import check_names
from holdfast.mcp.server_file import read_servers, start_problems
from holdfast.models.endpoint import prices_of
from holdfast.models.model_apis import APIS
from holdfast.models.model_choice import model_from
from holdfast.models.route_file import read_routes
from holdfast.models.routed_model import RoutedModel
from holdfast.runtime.imports import imported_module
from holdfast.runtime.prices import PriceList
from holdfast.runtime.process_exit import leave
from holdfast.runtime.remote_tool_checks import check_schemas
from holdfast.runtime.subprocesses import kill_all
from holdfast.runtime.tool_runner import with_fetch_tool
from holdfast.server.deployments.versions import routes_runs
from holdfast.server.doctor.server_findings import search_attributes
from holdfast.server.garbage.registration import register
from holdfast.server.health_endpoint import HealthEndpoint, health_address
from holdfast.server.worker_health import StorageProbe, WorkerHealth, check_server
from holdfast.server.worker_process import READY
from holdfast.sinks.sink import Sink
from holdfast.sinks.sink_urls import sinks_from
from holdfast.storage.data_converter import records_of
from holdfast.storage.fetch_result_tool import ResultStore
from holdfast.storage.object_store import Objects, objects_at
from holdfast.storage.parts import EncodedParts
from holdfast.storage.read_records_tool import RecordTools
from holdfast.telemetry.metrics_endpoint import metrics_address
from holdfast.workspace.calls import WorkspaceCalls
from holdfast.workspace.tools import WorkspaceTools
from holdfast.workspace.worker_backends import WorkspaceBackends
from workers import make_tools_worker, make_worker

STUBBORN_SECONDS: Final = 2.0
"""How much longer calls may take that were cancelled at the end of the grace."""

START_END_SECONDS_MAX: Final = 15.0
"""How long a start that a signal has cancelled may take to end: a resource that is open has 10 s to close."""

OPTIONS: Final = {each.name: str(each.metadata["about"]) for each in fields(WorkerSettings)}
"""The worker settings, each with its description."""

NOTES_MAX: Final = 5
"""For how many agents a starting worker prints notes."""

INTERRUPTED: Final = 130
"""The exit code after a second signal, or one before we serve."""

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a model may take to close its connections."""


def load_toolset(modules: Sequence[str]) -> Toolset:
    """Import `modules` and return what they and their agents offer, in order. Raises InvalidInput."""
    imported = [imported_module(name) for name in modules]
    toolset = Toolset.of_modules(imported).joined(*(agent.toolset for agent in agents_in(imported)))
    toolset.equip(AgentDefinition(name="all", tools="all", hooks="all"))  # refuses two tools or hooks of one name
    for hook in toolset.hooks:
        if hook.traits.tools is not None and not any(hook.traits.concerns(name) for name in _callable(toolset)):
            there = ", ".join(_callable(toolset))
            raise InvalidInput(f"the hook {hook.name!r} is for {hook.traits.tools}, which no tool matches: {there}")
    return toolset


def _callable(toolset: Toolset) -> tuple[str, ...]:
    return (*(tool.name for tool in toolset.tools), SPAWN_TOOL, HANDOFF_TOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What a worker is told besides its settings.

    It ends with its standard input if `attended`, and serves the tools of its task queue alone if `tools_only`. `model`
    is the value of `--model`, `metrics` the HOST:PORT of the metrics. With a `version` it is a build of a deployment,
    and gets work once that is current.
    """

    attended: bool = False
    tools_only: bool = False
    sinks: Sequence[str] = ()
    model: str | None = None
    metrics: str | None = None
    version: DeploymentVersion | None = None


async def serve(
    settings: Settings, serving: WorkerSettings, options: ServeOptions, health: WorkerHealth | None = None
) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running calls end; `health` gets what it must check."""
    tools_only, version, metrics = options.tools_only, options.version, options.metrics
    objects = objects_at(settings.storage_place)
    records = records_of(converter_of(settings))
    results = ResultStore(EncodedParts(objects, records.codec))
    workspaces = WorkspaceBackends(settings.workspaces, settings.data_dir, target(settings).namespace)
    calls = WorkspaceCalls(workspaces.by_name, records)
    toolset = load_toolset(settings.modules).joined(_workspace_tools(settings, calls, alone=tools_only))
    if not tools_only:
        configured = with_configured(with_fetch_tool(toolset, results), os.environ, settings.agents_dir)
        toolset = RecordTools(records, whose).with_records_tool(configured)
    check_names(toolset.tools)
    check_schemas(toolset.tools)
    servers = {} if tools_only else read_servers(settings.mcp_file)
    delivering = _sinks_for(options.sinks, tools_only=tools_only)
    model, prices = None, None
    if not tools_only:
        model, prices = _model_for(settings, with_built_in(toolset), options.model, servers)
    stopping = _SignalHandler()
    client, probe = await _connected(settings, serving, objects, metrics)
    for problem in filter(None, (unshared_storage(settings, client), settings.telemetry.problem, workspaces.warning)):
        sys.stderr.write(f"warning: {problem}\n")
    guardian = GuardianLink(client, model.variables if model else ())
    if model is None:
        workers = make_tools_worker(client, settings, toolset, serving, results, guardian, version)
    else:
        workers = make_worker(
            client,
            settings,
            toolset,
            model,
            serving=serving,
            results=results,
            prices=prices,
            sinks=delivering,
            guardian=guardian,
            mcp=servers,
            version=version,
        )
    stopping.guardian = guardian
    if options.attended:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _on_input, guardian)
    if health is not None:
        server = partial(check_server, client, workers.task_queues)
        health.watch(workers.not_polling, server=server, storage=probe.check)
    async with guardian, workspaces, calls, workers:
        what = _offer(client, settings, toolset, servers, version, tools_only=tools_only)
        events = f", events to: {', '.join(each.name for each in delivering)}" if delivering else ""
        read_at = f", metrics: http://{metrics}/metrics" if metrics else ""
        _say(f"{READY}: {what}{events}{read_at}")
        grace = serving.grace_seconds
        notes_task = asyncio.create_task(
            _print_start_notes(client, version, settings.task_queue, tools_only=tools_only)
        )
        try:
            await stopping.wait()
        finally:  # also where the server refuses our polls, which cancels us: a call that never ends must not keep us
            notes_task.cancel()
            longest = grace + STUBBORN_SECONDS + workers.closing_seconds + calls.closing_seconds
            # a call that ends from now on may not reach the server
            code = 0 if stopping.received and not guardian.has_running_calls else 1
            asyncio.get_running_loop().call_later(longest, _end_overdue, longest, guardian, code)
        _say(f"worker stopping: calls under way have {grace:g} s; a second signal ends it at once")
    if model:
        await _close(model)


async def _with_health(address: str | None, serving: Callable[..., Awaitable[None]]) -> None:
    """Answer at `address` how the worker is, from before it connects until its calls have ended."""
    health = WorkerHealth()
    async with AsyncExitStack() as stack:
        if address:
            await stack.enter_async_context(HealthEndpoint(address, health.problems))
            _say(f"health: http://{address}/live and http://{address}/ready")
        await serving(health=health)


async def _connected(
    settings: Settings, serving: WorkerSettings, objects: Objects, metrics: str | None
) -> tuple[TemporalClient, StorageProbe]:
    """Connect, write to the storage and register there; wait for a server that is away, in all as long as was said."""
    clock = asyncio.get_running_loop().time
    gives_up_at = clock() + serving.server_wait_seconds
    runtime = core_runtime(metrics)
    client = await connect_when_there(settings, runtime=runtime, seconds_max=serving.server_wait_seconds, report=_say)
    probe = StorageProbe(objects)
    await probe.write()  # fail now where we cannot: a run that must continue as new would wait for it
    # before any run's object: a garbage collection must know of our runs
    registering = partial(register, client, objects)
    probe.expect(await when_there(registering, seconds_max=max(0.0, gives_up_at - clock()), report=_say))
    return client, probe


class _SignalHandler:
    """What SIGINT and SIGTERM do: the first one ends the start or the serving, the second one the process.

    While the worker starts it polls nothing, so the first one cancels the task that made this.
    """

    def __init__(self) -> None:
        self.guardian: GuardianLink | None = None
        self._received = asyncio.Event()
        self._starting = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self._received.is_set():
            _end(INTERRUPTED, self.guardian)
        self._received.set()
        if self._starting is not None:
            _say("worker stopping before it serves; a second signal ends it at once")
            asyncio.get_running_loop().call_later(START_END_SECONDS_MAX, _end, INTERRUPTED, self.guardian)
            self._starting.cancel()

    @property
    def received(self) -> bool:
        """Whether there was a signal."""
        return self._received.is_set()

    async def wait(self) -> None:
        """Serve until the first signal."""
        self._starting = None
        await self._received.wait()


def _offer(
    client: TemporalClient,
    settings: Settings,
    toolset: Toolset,
    servers: Mapping[str, McpServer],
    version: DeploymentVersion | None,
    *,
    tools_only: bool,
) -> str:
    """Return where the worker serves, and what."""
    queue = settings.task_queue
    tools = (tool.name for tool in toolset.tools if not tools_only or tool.traits.task_queue == queue)
    hooks = f", hooks: {', '.join(hook.name for hook in toolset.hooks)}" if toolset.hooks and not tools_only else ""
    where = f"{client.service_client.config.target_host}, namespace {client.namespace!r}"
    mcp = f", MCP servers: {', '.join(servers)}" if servers else ""
    build = f", {version}" if version else ""
    return f"{where}, task queue {queue!r}, tools: {', '.join(tools) or 'none'}{hooks}{mcp}{build}"


async def _print_start_notes(
    client: TemporalClient, version: DeploymentVersion | None, task_queue: str, *, tools_only: bool
) -> None:
    await _note_idle(client, version, task_queue)
    if not tools_only:
        await _note_search_attributes(client)


async def _note_idle(client: TemporalClient, version: DeploymentVersion | None, task_queue: str) -> None:
    """Say so where the worker gets no runs: no build of its deployment is current, or it has none and another is."""
    with suppress(HoldfastError):
        if version is None:
            if current := (await answered(queue_routing(client, task_queue))).current:
                remedy = f"end it, or start it with `--build-id {current[1]}`"
                _say(f"note: build {current[1]!r} is current, so this worker without a build gets no runs; {remedy}")
        elif not await routes_runs(client, version.deployment):
            command = f"holdfast deploy promote {version.build_id} --deployment {version.deployment}"
            _say(f"note: no build of deployment {version.deployment!r} is current, so it gets no runs; `{command}`")


async def _note_search_attributes(client: TemporalClient) -> None:
    """Say so where the namespace lacks search attributes: runs still work but cannot be found by them."""
    with suppress(HoldfastError):
        finding = search_attributes(await attributes(client), client.namespace)
        if finding.remedy:
            _say(f"note: search attributes of namespace {client.namespace!r}: {finding.result}; {finding.remedy}")


def _workspace_tools(settings: Settings, calls: WorkspaceCalls, *, alone: bool) -> Toolset:
    """Return the tools of workspaces, where the settings have any; a worker that is for tools `alone` serves them."""
    if not settings.workspaces and not settings.workspace_queue:
        return Toolset()
    return WorkspaceTools(calls, settings.task_queue if alone else settings.workspace_queue).toolset()


async def _close(model: Model) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await model.close()
    except Exception as error:  # noqa: BLE001  # of a custom model: the worker has ended well all the same
        sys.stderr.write(f"warning: the model could not be closed: {type(error).__name__}: {error}\n")


def _idle_agents(agents: AgentRegistry, toolset: Toolset) -> list[str]:
    """Return a line for each agent that takes no tool or no hook though there are some: most often a forgotten line."""
    lines = agents.choices(tools=toolset.tools, hooks=toolset.hooks, capabilities=toolset.capabilities)
    idle = [line for line in lines if "none (" in line]
    more = [f"{len(idle) - NOTES_MAX} more agents take no tools or no hooks; see `holdfast doctor`"]
    return idle[:NOTES_MAX] + (more if len(idle) > NOTES_MAX else [])


def _sinks_for(urls: Sequence[str], *, tools_only: bool) -> tuple[Sink, ...]:
    """Return the sinks. Raises InvalidInput for a tools-only worker, which cannot have any: it runs no agents."""
    if tools_only and urls:
        raise InvalidInput("a worker with --tools-only serves no sinks; give --sink to one that serves agents")
    return () if tools_only else sinks_from(urls)


def _model_for(
    settings: Settings, toolset: Toolset, chosen: str | None, servers: Mapping[str, McpServer]
) -> tuple[RoutedModel, PriceList]:
    """Return the model and its prices, after checking the agents: what one lacks is reported now, not in a run."""
    definitions = known_agents(settings).values()
    agents = AgentRegistry.of(*definitions)
    if not toolset.workspaces:  # its capability would be said to be missing
        for each in definitions:
            toolset.check_workspace(each)
    agents.check(
        tools=toolset.tools, hooks=toolset.hooks, capabilities=toolset.capabilities, compilers=toolset.compilers
    )
    for problem in start_problems(servers, agents, os.environ, inline=settings.mcp_inline):
        sys.stderr.write(f"warning: {problem}\n")
    model = RoutedModel(model_from(chosen), read_routes(settings.models_file))
    prices = prices_of(model, os.environ)
    for note in _idle_agents(agents, toolset):
        sys.stderr.write(f"note: {note}\n")
    if problem := model.missing:
        sys.stderr.write(f"warning: {problem}\n")
    return model, prices


def _end(code: int, guardian: GuardianLink | None = None) -> NoReturn:
    """Exit at once and kill every process that tools have started; the guardian reports the interrupted calls."""
    if guardian is not None:
        guardian.leave()
    kill_all()
    leave(code)


def _end_overdue(seconds: float, guardian: GuardianLink, code: int) -> NoReturn:
    """Exit that long after the worker was to stop: with 1 if calls still run, else with `code`."""
    if guardian.has_running_calls:
        what, code = "error: the worker ends without calls that still run after {:g} s: they count as lost", 1
    else:
        what = "warning: the worker has not stopped within {:g} s though no call runs: does the Temporal server answer?"
    sys.stderr.write(f"{what.format(seconds)}\n")
    _end(code, guardian)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker and return its exit code: 0 after a graceful end, the error's own code otherwise."""
    try:
        return _run(arguments)
    except HoldfastError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):  # a signal before we serve
        return INTERRUPTED


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, as the rest of the program does."""

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
    parser.add_argument("--encryption-key-file", type=Path, metavar="FILE", help="the encryption keys")
    parser.add_argument("--mcp", type=Path, metavar="FILE", help="the MCP servers that agents may name")
    parser.add_argument("--mcp-inline", action="store_true", help="let definitions describe MCP servers themselves")
    parser.add_argument("--workspace", dest="workspaces", action="append", default=[], metavar="BACKEND")
    parser.add_argument("--workspace-queue", metavar="QUEUE", help="where the tools of workspaces are served")
    parser.add_argument("--attended", action="store_true", help="end when standard input does")
    parser.add_argument("--sink", dest="sinks", action="append", default=[], metavar="SINK")
    parser.add_argument(
        "--model", metavar="MODEL", help=f"{', '.join(APIS)}, or python:MODULE:NAME (default: HOLDFAST_MODEL_API)"
    )
    parser.add_argument("--models", type=Path, metavar="FILE", help="the routes to models that agents may name")
    parser.add_argument("--tools-only", action="store_true", help="serve the tools that name the task queue, no agents")
    for name, about in OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="N", help=about)
    parser.add_argument("--metrics", metavar="HOST:PORT", help="where to serve metrics")
    parser.add_argument("--health", metavar="HOST:PORT", help="where to answer /live and /ready")
    parser.add_argument("--build-id", metavar="ID", help="the build of a deployment that this worker is")
    parser.add_argument("--deployment", metavar="NAME", help="the deployment (default: the task queue's name)")
    options = parser.parse_args(arguments)
    log_to_stderr()
    settings = Settings.from_environment(
        address=options.address,
        namespace=options.namespace,
        task_queue=options.task_queue,
        data_dir=options.data_dir,
        agents_dir=options.agents,
        modules=options.modules,
        storage=options.storage,
        encryption_key_file=options.encryption_key_file,
        mcp_file=options.mcp,
        mcp_inline=options.mcp_inline,
        workspaces=options.workspaces,
        workspace_queue=options.workspace_queue,
        models_file=options.models,
    )
    serving = WorkerSettings.from_environment(**{name: getattr(options, name) for name in OPTIONS})
    told = ServeOptions(
        attended=options.attended,
        tools_only=options.tools_only,
        sinks=options.sinks,
        model=options.model,
        metrics=metrics_address(options.metrics),
        version=version_from(settings.task_queue, options.build_id, options.deployment),
    )
    asyncio.run(_with_health(health_address(options.health), partial(serve, settings, serving, told)))
    return 0


def _on_input(guardian: GuardianLink) -> None:
    """Exit with the process that started us, which holds the other end of standard input; its server is gone too."""
    if not os.read(sys.stdin.fileno(), 4096):
        _end(1, guardian)


def _say(text: str) -> None:
    with suppress(OSError):  # serving does not depend on a reader
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _end(main())
