"""What a worker process serves: its Temporal workers, built from workflows, activities, tools and slots.

`worker.py` is the program around it: it reads the command line and the environment, connects, and calls `make_worker`
or `make_tools_worker`. This module parses nothing, connects to nothing and starts no process: tests use it directly.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypedDict

from temporalio.client import Client as TemporalClient
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion, WorkflowIDConflictPolicy
from temporalio.service import RPCError
from temporalio.worker import Interceptor, PollerBehaviorSimpleMaximum, Worker, WorkerDeploymentConfig

from activities.guardian_link import GuardianLink
from activities.heartbeats import Heartbeats
from activities.hooks import Hooks
from activities.inference import Inference
from activities.mcp import McpTools
from activities.records import RecordActivities
from activities.scripts import Scripts
from activities.sinks import EventSinks
from activities.tools import Catalog, ToolSlots, take_up, tool_activities
from activities.transcript_cache import TranscriptCache
from holdfast.capabilities.built_in import with_built_in
from holdfast.connection.deployment_version import DeploymentVersion
from holdfast.connection.recorded_tasks import is_recorded
from holdfast.connection.rpc_errors import refusal, rpc_message, says_away
from holdfast.connection.settings import Settings
from holdfast.connection.temporal_client import may_be_pushed, when_there
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.agent.model import Model
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import REASON_CHARS_MAX
from holdfast.core.base.errors import InvalidInput, ServerUnavailable, ServerUnreachable
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.tools.remote_tools import RemoteTool
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.contracts import limited_queue, waiting_queue
from holdfast.core.wire.sink_contracts import EVENT_SINK, SinkStart, sink_id, sink_queue
from holdfast.mcp.pool import McpPool
from holdfast.models.endpoint import prices_of
from holdfast.models.rate_limits.route_queues import limits_of
from holdfast.runtime.model_call_changes import ModelCallCheck
from holdfast.runtime.open_resources import NO_RESOURCES, OpenResources
from holdfast.runtime.prices import PriceList
from holdfast.runtime.tool_runner import Results
from holdfast.runtime.user_code import start_apart
from holdfast.server.queue_limits import write_missing_limits
from holdfast.server.worker_health import polled_queues
from holdfast.sinks.sink import Sink
from holdfast.storage.data_converter import is_sealed, records_of
from workflows.details_query import DetailsQuery
from workflows.event_sink import EventSink
from workflows.replay_guard import DOUBT_SECONDS, Doubt
from workflows.sender_authentication import SenderCheck
from workflows.workflow_runner import WORKFLOWS, AgentWorkflowRunner

if TYPE_CHECKING:  # an extra
    from holdfast.telemetry.spans import Spans

LOGGER: Final = logging.getLogger("holdfast.worker")

LIMITED_POLLERS: Final = 5
"""Requests at once for calls of a route with rate limits, at least. Each brings one call: with two, a worker got 6 a
second of the 9.5 that the server allowed."""

QUEUE_BYTES_MAX: Final = 1_000
"""The longest name of a task queue that servers take by default."""

LOOK_UPS_MAX: Final = 16
"""How many runs are looked up on the server at once."""

LOOK_UP_SECONDS_MAX: Final = 5.0
"""How long a run may take to be looked up; then it is given up, before its lost task is given again."""

DOUBTS_MAX: Final = 5_000
"""How many runs wait to be looked up; a further one is given up at once, which costs a replay."""

REFUSED_MAX: Final = 50
"""Slots for tool calls that are on their way to the waiting queue; each takes one for a moment."""


class DoubtfulTasks:
    """Looks up on the server what a worker's guard doubts, and has the worker give up the runs that it doubts rightly.

    Create it in the worker's event loop.
    """

    def __init__(self, temporal: TemporalClient, give_up: Callable[[str], None]) -> None:
        self._temporal, self._give_up = temporal, give_up
        self._loop = asyncio.get_running_loop()
        self._at_once = asyncio.Semaphore(LOOK_UPS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    def look_up(self, doubt: Doubt) -> None:
        """Look that up after a while. Called by any thread."""
        with suppress(RuntimeError):  # the loop is closed: the worker has ended
            self._loop.call_soon_threadsafe(self._begin, doubt)

    def _begin(self, doubt: Doubt) -> None:
        if len(self._tasks) >= DOUBTS_MAX:
            self._give_up(doubt.run_id)
            return
        task = self._loop.create_task(self._look_up(doubt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_up(self, doubt: Doubt) -> None:
        await asyncio.sleep(DOUBT_SECONDS)
        recorded = False
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_UP_SECONDS_MAX), self._at_once:
                if not doubt.is_idle():
                    return
                recorded = await is_recorded(self._temporal, doubt.workflow_id, doubt.run_id, doubt.started_id)
        if not recorded and doubt.is_idle():
            with suppress(RuntimeError):  # the worker has ended
                self._give_up(doubt.run_id)


class Workers:
    """The Temporal workers of one process, started and stopped together; their grace periods run at the same time."""

    def __init__(
        self,
        *parts: Worker,
        ready: Callable[[], Awaitable[None]],
        at_end: Callable[[], Awaitable[None]] | None = None,
        resources: OpenResources = NO_RESOURCES,
    ) -> None:
        self._resources = resources
        self.parts: Final = parts
        self.task_queues: Final = polled_queues(parts)
        self._ready = ready
        self._at_end = at_end
        self._leaving = False
        self._runs: list[asyncio.Task[None]] = []
        self._lost: ServerUnavailable | None = None
        self._entered: asyncio.Task[Any] | None = None

    def not_polling(self) -> str | None:
        """Return why this process takes no new calls; None while every part polls its task queue.

        A part whose polls the server refuses ends, and the process with it.
        """
        if self._leaving:
            return "stopping: it takes no new calls"
        away = [part.task_queue for part in self.parts if not part.is_running]
        return f"it does not poll the task queue {', '.join(map(repr, away))}" if away else None

    @property
    def closing_seconds(self) -> float:
        """How long it may take, after the calls, to close what the tools share."""
        return self._resources.closing_seconds

    async def __aenter__(self) -> Self:
        await self._ready()  # a polling worker gets calls at once
        await self._resources.open(apart=True)
        self._entered = asyncio.current_task()
        self._runs = [asyncio.create_task(self._run(part)) for part in self.parts]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        await asyncio.gather(*(part.shutdown() for part in self.parts))
        await asyncio.gather(*self._runs)
        await self._resources.close()
        if self._at_end is not None:
            await self._at_end()
        if self._lost is not None and kind is asyncio.CancelledError:
            raise self._lost

    async def _run(self, part: Worker) -> None:
        """Run a part to its end. What it cannot poll any more for ends our block at once, and all other parts with it.

        A part itself fails only after its calls have ended, which nobody cancels any more: cancels come with polls.
        """

        async def lose(error: BaseException) -> None:
            if self._lost is None and not self._leaving:
                self._lost = _refused(part.task_queue, error)
                if self._entered is not None:
                    self._entered.cancel()

        # an option of its constructor; only here is it known what is to end
        part._config["on_fatal_error"] = lose  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        try:
            await part.run()
        except Exception as error:  # noqa: BLE001  # whatever it is, the part does not poll
            await lose(error)


def _refused(task_queue: str, error: BaseException) -> ServerUnavailable:
    why = " ".join(str(error.__cause__ or error).split())[:REASON_CHARS_MAX]
    problem = f"the worker cannot serve the task queue {task_queue!r} any more: {why}"
    return ServerUnavailable(f"{problem}; may it still, by its key or certificate? `holdfast doctor` checks the server")


def make_worker(  # noqa: PLR0913  # the worker is put together here
    client: TemporalClient,
    settings: Settings,
    toolset: Toolset,
    model: Model,
    cache: TranscriptCache | None = None,
    serving: WorkerSettings = WorkerSettings(),  # noqa: B008  # frozen
    results: Results | None = None,
    prices: PriceList | None = None,
    *,
    sinks: Sequence[Sink] = (),
    guardian: GuardianLink | None = None,
    mcp: Mapping[str, McpServer] | None = None,
    version: DeploymentVersion | None = None,
) -> Workers:
    """Return the workers that serve `toolset` and every agent on the settings' task queue.

    Tools have slots of their own there and, beyond those, in a queue of their own: hung ones keep no model call, hook
    or workflow from running. `results` keeps what is too long to be shown to a model. `sinks` are told the events of
    all executions of the task queue (`holdfast.sinks`), each by one worker at a time of those that have it. Where the
    settings have traces on, `client` must have been connected with the same ones. `guardian` tells the server when this
    process dies; without one its calls are noticed when their heartbeats stay away. `mcp` are the MCP servers that
    agents may name; the settings say whether they may describe others. `version` is their build; sinks have none.
    """
    traces, toolset = _traces_of(settings), with_built_in(toolset)
    heartbeats, prices = Heartbeats(guardian), prices or prices_of(model)
    records, slots = records_of(client.data_converter), ToolSlots(serving.tool_slots)
    pool = McpPool(mcp or {}, os.environ, inline=settings.mcp_inline)
    servers = McpTools(pool, records, slots, results, traces.spans)
    inference = Inference(model, toolset, cache or TranscriptCache(), traces.spans, servers, records)
    heartbeats.on_run_over = inference.give_up
    runner, limits = AgentWorkflowRunner(observer=guardian), limits_of(model)
    record_activities, catalog = RecordActivities(records, runner.execution), Catalog(toolset, prices, servers, model)
    tools = _served_on(settings.task_queue, toolset.tools, also_unnamed=True)
    resources = OpenResources((*tools, *toolset.hooks), toolset.resources)
    hooks = Hooks(toolset.hooks, resources, ModelCallCheck(model, prices))
    ours = _our_activities(inference, hooks, catalog, servers, record_activities, Scripts(toolset.tools, servers))
    activities_of = partial(
        tool_activities, tools, results=results, spans=traces.spans, resources=resources, attachments=records
    )
    agents = Worker(
        client,
        task_queue=settings.task_queue,
        workflows=WORKFLOWS,
        workflow_runner=runner,
        activities=[*ours, *activities_of(slots=slots)],
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
        **_alike(serving, version, heartbeats, *_interceptors(client), *traces.workflows),
    )
    parts = [giving_up(agents, runner)]
    if tools or mcp or settings.mcp_inline:
        queue = waiting_queue(settings.task_queue)
        activities = [*activities_of(), McpTools(pool, records, results=results, spans=traces.spans).call]
        parts.append(_activities_part(client, queue, activities, serving, serving.waiting_slots, heartbeats, version))
    parts += _limited_parts(client, settings.task_queue, limits, inference, serving, heartbeats, version)
    write_limits = partial(write_missing_limits, client, settings.task_queue, limits)
    starts = [SinkStart(consumer=each.name, task_queue=settings.task_queue) for each in sinks]
    delivering, begin = EventSinks(sinks, records), partial(_begin_sinks, client, starts, serving.server_wait_seconds)
    parts += (_sink_part(client, start, delivering, serving) for start in starts)
    ready = partial(_make_ready, client, heartbeats, prices, write_limits, begin)
    return Workers(*parts, ready=ready, resources=resources, at_end=pool.close)


def giving_up(worker: Worker, runner: AgentWorkflowRunner) -> Worker:
    """Return the worker, which removes from its cache what the runner's guard wants to have removed."""
    # the SDK's core offers it and its Python part has no public name for it
    give_up = worker._bridge_worker.request_workflow_eviction  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    runner.memory.give_up, runner.memory.look_up = give_up, DoubtfulTasks(worker.client, give_up).look_up
    return worker


def _limited_parts(
    client: TemporalClient,
    task_queue: str,
    limits: Iterable[str],
    inference: Inference,
    serving: WorkerSettings,
    heartbeats: Heartbeats,
    version: DeploymentVersion | None,
) -> Iterator[Worker]:
    """Yield what serves the routes that have `limits`, each in a queue of its own. Raises InvalidInput."""
    calls: list[Callable[..., Any]] = [inference.run, inference.summarise]
    polling = replace(serving, activity_pollers=max(serving.activity_pollers, LIMITED_POLLERS))
    for route in limits:
        queue = limited_queue(task_queue, route)
        if len(queue.encode()) > QUEUE_BYTES_MAX:
            raise InvalidInput(f"the task queue of the route {route[:40]!r} has a name that is too long; shorten one")
        yield _activities_part(client, queue, calls, polling, serving.inference_slots, heartbeats, version)


def _our_activities(
    inference: Inference,
    hooks: Hooks,
    catalog: Catalog,
    servers: McpTools,
    records: RecordActivities,
    scripts: Scripts,
) -> list[Callable[..., Any]]:
    """Return the activities of every worker that serves agents; those of its tools come besides."""
    return [
        *(inference.run, inference.summarise, inference.cancel),
        hooks.run,
        *(catalog.resolve, catalog.check),
        *(servers.resolve, servers.call, servers.search),
        *(take_up, scripts.advance),
        *(records.record, records.branch, records.find_session, records.keep_session),
    ]


async def _make_ready(
    client: TemporalClient,
    heartbeats: Heartbeats,
    prices: PriceList | None = None,
    *preparations: Callable[[], Awaitable[None]],
) -> None:
    """Prepare everything that calls need before polling starts: earlier calls would have to wait for it."""
    for prepare in preparations:
        await prepare()
    if may_be_pushed(client):
        await heartbeats.ask(client)
    start_apart()
    if prices is not None:
        await asyncio.to_thread(prices.load)
    if heartbeats.guardian is not None and not await heartbeats.guardian.until_ready():
        LOGGER.warning("the worker's guardian has not started: calls are lost for longer if this process dies")


def _sink_part(client: TemporalClient, start: SinkStart, delivering: EventSinks, serving: WorkerSettings) -> Worker:
    """Return the worker that serves one sink, with its own slots, on a queue that only workers with that sink poll."""
    return Worker(
        client,
        task_queue=sink_queue(start),
        workflows=[EventSink],
        activities=[delivering.deliver],
        max_concurrent_workflow_tasks=2,
        max_concurrent_activities=2,  # the one that has just ended, and the next
        max_cached_workflows=0,  # a task a day needs no cache, and no sticky queue
        workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=serving.grace_seconds),
    )


async def _begin_sinks(client: TemporalClient, starts: Sequence[SinkStart], seconds_max: float) -> None:
    """Start the workflow of each sink unless it runs; wait for a server that is away. Raises ServerUnavailable."""
    clock = asyncio.get_running_loop().time
    gives_up_at = clock() + seconds_max
    for begin in (partial(_begin_sink, client, start) for start in starts):
        await when_there(begin, seconds_max=max(0.0, gives_up_at - clock()), report=LOGGER.warning)


async def _begin_sink(client: TemporalClient, start: SinkStart) -> None:
    try:
        await client.start_workflow(
            EVENT_SINK,
            start,
            id=sink_id(start),
            task_queue=sink_queue(start),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"events of {start.task_queue} to {start.consumer}",
            rpc_timeout=ASK_TIMEOUT,
        )
    except RPCError as error:
        if says_away(error):
            raise ServerUnreachable(f"no answer for the sink {start.consumer!r} ({rpc_message(error)})") from None
        raise refusal(error) from None


def make_tools_worker(
    client: TemporalClient,
    settings: Settings,
    toolset: Toolset,
    serving: WorkerSettings,
    results: Results | None = None,
    guardian: GuardianLink | None = None,
    version: DeploymentVersion | None = None,
) -> Workers:
    """Return the workers for the tools that name the settings' task queue. Raises InvalidInput if none does."""
    tools = _served_on(settings.task_queue, toolset.tools)
    if not tools:
        for each in toolset.tools:
            if isinstance(each, RemoteTool) and each.traits.task_queue == settings.task_queue:
                here = f"{each.name!r}, which names the task queue {settings.task_queue!r}, is a remote tool"
                raise InvalidInput(f"{here}: its code is not here; start the worker that has it")
        queues = sorted({tool.traits.task_queue for tool in toolset.tools if tool.traits.task_queue})
        there = f"the queues named are {queues}" if queues else "none names a queue"
        raise InvalidInput(
            f"no tool here names the task queue {settings.task_queue!r}: {there}; see @tool(task_queue=)"
        )
    resources = OpenResources(tools, toolset.resources)
    spans = _traces_of(settings).spans
    records = records_of(client.data_converter)
    activities = tool_activities(tools, results=results, spans=spans, resources=resources, attachments=records)
    heartbeats = Heartbeats(guardian)
    slots = serving.tool_slots
    part = _activities_part(client, settings.task_queue, activities, serving, slots, heartbeats, version)
    return Workers(part, ready=partial(_make_ready, client, heartbeats), resources=resources)


def _served_on(task_queue: str, tools: Sequence[AnyTool], *, also_unnamed: bool = False) -> list[AnyTool]:
    """Return this worker's tools that name the queue, and those that name none."""
    ours = (tool for tool in tools if not isinstance(tool, RemoteTool) and tool.traits.loop is None)
    return [
        tool for tool in ours if tool.traits.task_queue == task_queue or (also_unnamed and not tool.traits.task_queue)
    ]


def _activities_part(
    client: TemporalClient,
    task_queue: str,
    activities: Sequence[Callable[..., Any]],
    serving: WorkerSettings,
    slots: int,
    heartbeats: Heartbeats,
    version: DeploymentVersion | None,
) -> Worker:
    return Worker(
        client,
        task_queue=task_queue,
        activities=activities,
        max_concurrent_activities=slots,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(serving.activity_pollers),
        **_alike(serving, version, heartbeats),
    )


class _Traces(NamedTuple):
    """A worker's tracing; empty if traces are off."""

    spans: Spans | None = None
    workflows: tuple[Interceptor, ...] = ()


def _traces_of(settings: Settings) -> _Traces:
    if not settings.telemetry.traces:
        return _Traces()
    from holdfast.telemetry.traces import tracing  # noqa: PLC0415  # an extra
    from workflows.tracing import WorkflowsTraced  # noqa: PLC0415  # an extra

    tracer = tracing(settings.telemetry)
    return _Traces(tracer.spans, (WorkflowsTraced(tracer),)) if tracer else _Traces()


def _interceptors(client: TemporalClient) -> tuple[Interceptor, ...]:
    """Return the interceptors of every workflow's handlers."""
    return DetailsQuery(), SenderCheck(sealed=is_sealed(client.data_converter))


def _alike(serving: WorkerSettings, version: DeploymentVersion | None, *interceptors: Interceptor) -> _Alike:
    throttle = timedelta(seconds=serving.heartbeat_throttle_seconds)
    return _Alike(
        interceptors=list(interceptors),
        max_heartbeat_throttle_interval=throttle,
        default_heartbeat_throttle_interval=throttle,
        graceful_shutdown_timeout=timedelta(seconds=serving.grace_seconds),
        deployment_config=_pinned(version) if version else None,
    )


def _pinned(version: DeploymentVersion) -> WorkerDeploymentConfig:
    """Return the deployment's configuration: a run ends on the build that it began with."""
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(version.deployment, version.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


class _Alike(TypedDict):
    """The options that all Temporal workers of a process share."""

    interceptors: list[Interceptor]
    max_heartbeat_throttle_interval: timedelta
    default_heartbeat_throttle_interval: timedelta
    graceful_shutdown_timeout: timedelta
    deployment_config: WorkerDeploymentConfig | None
