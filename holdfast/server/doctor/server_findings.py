"""Findings about a Temporal server, its namespace and its workers: pure functions from facts to findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.connection.queue_routing import SEEN_MAX
from holdfast.connection.rpc_errors import worker_for
from holdfast.connection.search_attribute_check import Attribute, complete, remedies, shortcomings
from holdfast.connection.temporal_client import Target
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.wire.contracts import waiting_queue
from holdfast.core.wire.tool_catalog import ToolCatalog
from holdfast.server.doctor.dns_rebinding import FORGED, ExposedPort
from holdfast.server.doctor.findings import Finding, fine, warned, wrong

CONFIGURATION: Final = "configuration"
SERVER: Final = "server"
NAMESPACE: Final = "namespace"
ATTRIBUTES: Final = "search attributes"
SERVER_SETTINGS: Final = "server settings"
CLOCK: Final = "clock"
WORKFLOWS: Final = "workflow worker"
TOOLS: Final = "tools"
TOOL_QUEUES: Final = "tool queues"
WEB_ACCESS: Final = "web access"

RETENTION_WANTED: Final = timedelta(days=1)
"""With less than this a run that ended yesterday cannot be looked at."""

APART_WARNED_SECONDS: Final = 2.0
APART_MAX_SECONDS: Final = 300.0
"""Buckets and certificates refuse a clock that is further off than some minutes."""

ANY_AGENT: Final = AgentDefinition(name="any", tools="all", hooks="all")
"""Asked for where the folder has no agents: it gets all tools that the worker has."""

SHOWN_MAX: Final = 5
"""So many workers or names one line shows."""

DYNAMIC_CONFIG: Final = "deploy/temporal/dynamic-config.yaml"


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """What the server says of a namespace and of what it can do there."""

    name: str
    retention: timedelta
    takes_updates: bool
    pushes_cancels: bool
    """Whether a stop reaches a running call without waiting for its heartbeat."""
    starts_activities: bool
    """Whether a worker can be asked what it offers without a run."""


@dataclass(frozen=True, slots=True)
class Poller:
    """One who asks a queue for work. `silent_seconds` is how long ago it last did, by this machine's clock."""

    identity: str
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class ServingWorker:
    """A worker of the queue, as it describes itself."""

    identity: str
    host: str
    sdk: str


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A reading of the server's clock between two of ours; seconds of the same epoch."""

    before: float
    server: float
    after: float


NO_WORKER_ANSWERED: Final = "no worker of the task queue has answered in time"
"""The problem where no worker answered: the definition may be fine."""


@dataclass(frozen=True, slots=True)
class AgentTools:
    """What workers say of one agent: the tools it gets, or why it cannot be served."""

    agent: str
    catalog: ToolCatalog | None
    problem: str = ""


def configuration(target: Target, task_queue: str) -> Finding:
    """Tell where commands go, and why there."""
    tls = ", TLS" if target.tls else ""
    where = f"{target.address}{tls}, namespace {target.namespace!r}, task queue {task_queue!r}"
    return fine(CONFIGURATION, f"{where}; the address is {target.decided_by}")


def namespace(facts: NamespaceFacts) -> Finding:
    """Judge how long runs are remembered."""
    result = f"{facts.name!r} keeps ended runs for {_time(facts.retention)}"
    if facts.retention < RETENTION_WANTED:
        command = f"temporal operator namespace update --namespace {facts.name} --retention 30d"
        return warned(NAMESPACE, f"{result}: later, lists and `show` do not have them", f"run `{command}`")
    return fine(NAMESPACE, result)


def search_attributes(attributes: Sequence[Attribute], namespace: str) -> Finding:
    """Judge what runs can be listed by: without one of them they are started without any."""
    if complete(attributes):
        return fine(ATTRIBUTES, f"all {len(attributes)} are registered")
    remedy = "; ".join((*remedies(attributes, namespace), "run `holdfast setup`"))
    return warned(ATTRIBUTES, f"{shortcomings(attributes)}: runs start without any and cannot be found by them", remedy)


def server_settings(facts: NamespaceFacts) -> Finding:
    """Judge what can be seen of the server's own settings."""
    if not facts.takes_updates:
        result = "the server accepts no updates: messages, decisions and sessions need them"
        return wrong(SERVER_SETTINGS, result, "use a Temporal server of 1.25 or later with updates on")
    if not facts.pushes_cancels:
        result = "cancelling waits for a running call's next heartbeat, up to 1.2 s"
        return warned(SERVER_SETTINGS, result, f"set frontend.WorkerCommandsEnabled, as {DYNAMIC_CONFIG} does")
    return fine(SERVER_SETTINGS, "a stop reaches running calls at once")


def web_access(doors: Sequence[ExposedPort]) -> Finding:
    """Judge whether a web page that somebody opens on a machine that reaches the server could drive it."""
    if not doors:
        return fine(WEB_ACCESS, "every HTTP port found on the server rejects unknown host names")
    where = _some(f"{each.host}:{each.port} ({'Web UI' if each.web_ui else 'HTTP API'})" for each in doors)
    result = f"{where} answers under any host name: any web page can start, stop and approve runs (DNS rebinding)"
    api = f"set frontend.httpAllowedHosts to names of your own on the server (as {FORGED!r})"
    ui = "put a proxy that checks the Host header, or a sign-in, in front of the Web UI"
    needed = [words for words, web_ui in ((api, False), (ui, True)) if web_ui in {each.web_ui for each in doors}]
    return warned(WEB_ACCESS, result, "; ".join((*needed, "`holdfast dev` does both")))


def clock(moment: ClockReading) -> Finding:
    """Judge how far this machine's clock is from the server's: deadlines are told in ours and kept in the server's."""
    ahead = max(moment.before - moment.server, 0.0) or min(moment.after - moment.server, 0.0)
    if abs(ahead) < APART_WARNED_SECONDS:
        return fine(CLOCK, f"within {APART_WARNED_SECONDS:g} s of the server's")
    result = f"this machine's clock is {abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    remedy = "set both by NTP (`timedatectl set-ntp true`): deadlines are off by as much"
    return (wrong if abs(ahead) > APART_MAX_SECONDS else warned)(CLOCK, result, remedy)


def worker(check: str, task_queue: str, pollers: Sequence[Poller], serving: Sequence[ServingWorker]) -> Finding:
    """Judge whether anybody serves a queue: without a worker everything waits.

    The server remembers a worker for five minutes after its end: one that was silent too long does not count.
    """
    if not pollers:
        return wrong(check, f"no worker serves the task queue {task_queue!r}: runs wait", worker_for(task_queue))
    alive = [each for each in pollers if each.silent_seconds <= SEEN_MAX.total_seconds()]
    shown = alive or pollers
    result = f"{len(shown)} on {task_queue!r}: {_some(_worker_text(each, serving) for each in shown)}"
    if not alive:
        silent = min(each.silent_seconds for each in pollers)
        return warned(
            check, f"{result}; the last one asked for work {silent:.0f} s ago", "is it still running? see its log"
        )
    return fine(check, result)


def tools(equipment: Sequence[AgentTools], left_out: int, offered: AgentTools | None = None) -> Finding:
    """Judge whether the worker offers what the agents of the folder name; ANY_AGENT alone stands for none there.

    `offered` is what ANY_AGENT gets: beside it, agents that take no tools or no hooks are named.
    """
    bad = [each for each in equipment if each.catalog is None]
    bad.sort(key=lambda each: each.problem == NO_WORKER_ANSWERED)  # a wrong definition comes first
    if bad:
        more = f" (so do {len(bad) - 1} more)" if len(bad) > 1 else ""
        remedy = "correct the definition, or start the worker with what it names: `holdfast worker --import MODULE`"
        if bad[0].problem == NO_WORKER_ANSWERED:
            remedy = "start a worker; if workers have builds, one of the current build"
        return wrong(TOOLS, f"{bad[0].problem}{more}", remedy)
    names = _some(sorted({tool.name for each in equipment if each.catalog for tool in each.catalog.tools})) or "none"
    if [each.agent for each in equipment] == [ANY_AGENT.name]:
        return fine(TOOLS, f"the worker offers: {names}")
    more = f"; {left_out} more agents were not checked" if left_out else ""
    idle = _idle(equipment, offered.catalog if offered else None)
    return fine(TOOLS, f"the worker has all that the agents name: {names}{more}{idle}")


def _idle(equipment: Sequence[AgentTools], offered: ToolCatalog | None) -> str:
    """Return which agents take none of the tools, or of the hooks, that are offered."""
    if offered is None:
        return ""
    catalogs = [(each.agent, each.catalog) for each in equipment if each.catalog]
    without_tools = [agent for agent, catalog in catalogs if offered.tools and not catalog.tools]
    without_hooks = [agent for agent, catalog in catalogs if offered.hooks and not catalog.hooks]
    return "".join(
        f"; {kind}: none for {_some(agents)} (offered: {_some(each.name for each in there)})"
        for kind, agents, there in (("tools", without_tools, offered.tools), ("hooks", without_hooks, offered.hooks))
        if agents
    )


def named_queues(equipment: Iterable[AgentTools], task_queue: str) -> dict[str, tuple[str, ...]]:
    """Return the queues that calls of the agents' tools can go to, besides the worker's own, each with its tools."""
    queues: dict[str, set[str]] = {}
    for each in equipment:
        for tool in each.catalog.tools if each.catalog else ():
            if tool.task_queue not in (None, task_queue):
                queues.setdefault(tool.task_queue or "", set()).add(tool.name)
            elif not tool.local:
                queues.setdefault(waiting_queue(task_queue), set()).add(tool.name)
    return {queue: tuple(sorted(names)) for queue, names in sorted(queues.items())}


def tool_queues(asked: Sequence[tuple[str, Sequence[str], float | None]]) -> Finding:
    """Judge whether the queues of tools are served.

    Each is a queue, the tools it is for, and how many seconds ago its last worker asked for work; none where the server
    remembers no worker. It remembers one for five minutes after its end.
    """
    unserved = [each for each in asked if each[2] is None or each[2] > SEEN_MAX.total_seconds()]
    if not unserved:
        queues = _some(repr(queue) for queue, *_ in asked)
        return fine(TOOL_QUEUES, f"served: {queues}" if asked else "no tool names a queue")
    queue, names, silent = unserved[0]
    result = f"no worker serves {_some(repr(queue) for queue, *_ in unserved)}: calls of {_some(names)} wait"
    last = "" if silent is None else f"; the last one asked {queue!r} for work {silent:.0f} s ago: it is gone or full"
    return warned(
        TOOL_QUEUES,
        result + last,
        f"start `holdfast worker --tools-only --task-queue {queue}`, or that queue's own worker",
    )


def _worker_text(poller: Poller, serving: Sequence[ServingWorker]) -> str:
    for each in serving:
        if each.identity == poller.identity:
            return f"{poller.identity} ({each.sdk}, host {each.host})"
    return poller.identity


def _some(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - SHOWN_MAX} more" if len(every) > SHOWN_MAX else ""
    return ", ".join(every[:SHOWN_MAX]) + more


def _time(time: timedelta) -> str:
    days = time / timedelta(days=1)
    return f"{days:g} days" if days >= 1 else f"{time / timedelta(hours=1):g} h"
