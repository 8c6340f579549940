"""`holdfast dev` and `holdfast worker`: the processes that serve agents."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from holdfast.cli.busy_indicator import BusyIndicator, busy
from holdfast.cli.commands.codec import TOKEN_VARIABLE, codec_token
from holdfast.cli.options import (
    Address,
    AgentsDir,
    AsJson,
    DataDir,
    DeploymentName,
    Import,
    McpFile,
    McpInline,
    ModelApi,
    ModelsFile,
    Namespace,
    Sinks,
    Storage,
    TaskQueue,
    WorkspaceBackends,
    WorkspaceQueue,
    settings_from,
    with_worker_settings,
)
from holdfast.connection.deployment_version import version_from
from holdfast.connection.full_disk import full_disk
from holdfast.connection.settings import Settings
from holdfast.core.base.bounds import CODEC_TOKEN_CHARS_MIN
from holdfast.core.base.errors import Conflict, HoldfastError, InvalidInput, MissingPart, ServerUnavailable
from holdfast.server.embedded import EmbeddedServer
from holdfast.server.worker_process import (
    PARTS,
    WorkerProcess,
    check_parts,
    embedded_worker_command,
    embedded_worker_environment,
    worker_command,
    worker_environment,
    worker_parts,
)

TOKEN: Final = re.compile(rf"[A-Za-z0-9._~-]{{{CODEC_TOKEN_CHARS_MIN},}}")

READY_SECONDS_MAX: Final = 60.0
ENDING_SECONDS_MAX: Final = 5.0
WATCH_SECONDS: Final = 0.2
RESTARTS_MAX: Final = 6
"""So many workers in a row that each served for less than SOUND_SECONDS; then no other one is started."""

SOUND_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.5
"""How long to wait before the second worker in a row that is started again; twice as long before each further one."""

FAULT: Final = "error: "
"""How the line begins in which a worker says why it cannot serve."""

FAULTS: Final = {kind.exit_code: kind for kind in (InvalidInput, ServerUnavailable, Conflict, MissingPart)}
"""What the worker's exit code says of its fault."""


def dev(
    *,
    data_dir: DataDir = None,
    port: Annotated[int, typer.Option(help="Temporal's port; 0 means any free one.")] = 7233,
    ui_port: Annotated[int, typer.Option(help="The Web UI's port; 0 means any free one.")] = 8233,
    ui_codec_endpoint: Annotated[
        str | None,
        typer.Option(
            help="The codec server that decrypts for the Web UI, http://HOST:PORT without the token.", metavar="URL"
        ),
    ] = None,
    ui_codec_token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the codec server's token; default: HOLDFAST_CODEC_TOKEN.", metavar="FILE"),
    ] = None,
    modules: Import = None,
    agents: AgentsDir = None,
    task_queue: TaskQueue = None,
    storage: Storage = None,
    mcp_file: McpFile = None,
    mcp_inline: McpInline = False,
    workspaces: WorkspaceBackends = None,
    workspace_queue: WorkspaceQueue = None,
    sinks: Sinks = None,
    model: ModelApi = None,
    models_file: ModelsFile = None,
    as_json: AsJson = False,
) -> None:
    """Run a Temporal server with Web UI and a worker, until Ctrl-C."""
    settings = settings_from(
        data_dir=data_dir,
        agents_dir=agents,
        task_queue=task_queue,
        storage=storage,
        mcp_file=mcp_file,
        mcp_inline=mcp_inline,
        workspaces=workspaces,
        workspace_queue=workspace_queue,
        models_file=models_file,
    )
    check_parts(worker_parts(model))
    ui_codec = ui_codec_endpoint and _with_token(ui_codec_endpoint, codec_token(ui_codec_token_file))
    signal.signal(signal.SIGTERM, _interrupt)
    started = EmbeddedServer.start(settings.data_dir, port=port, ui_port=ui_port, ui_codec=ui_codec)
    with ExitStack() as stack:
        with busy("starting the Temporal server"):
            server = stack.enter_context(started)
        if server.attached and ui_codec_endpoint:
            _say(f"warning: the server of pid {server.address.pid} is already running; its Web UI stays as it is")
        command = embedded_worker_command(settings, modules or [], server.address.address, sinks or [], model)
        serving = _SupervisedWorker(server, settings, command, as_json=as_json)
        try:
            code = serving.run()
        except KeyboardInterrupt:
            if not serving.announced:
                raise
            _say("stopped the worker" + ("" if server.attached else "; stopping the server"))
            code = 0
    raise typer.Exit(code)


def _with_token(url: str, token: str | None) -> str:
    """Return the codec server's URL with the token, which comes from elsewhere: every user sees the process list."""
    path = urlsplit(url).path.strip("/")
    if TOKEN.fullmatch(path.rpartition("/")[2]):
        problem = "--ui-codec-endpoint ends with a token, which the process list shows to every user"
        raise InvalidInput(f"{problem}; give http://HOST:PORT and --ui-codec-token-file or {TOKEN_VARIABLE}")
    return f"{url.rstrip('/')}/{token}" if token else url


@with_worker_settings
def worker(
    *,
    modules: Import = None,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    data_dir: DataDir = None,
    agents: AgentsDir = None,
    tools_only: Annotated[
        bool, typer.Option("--tools-only", help="Serve only the tools that name the task queue, no agents.")
    ] = False,
    storage: Storage = None,
    mcp_file: McpFile = None,
    mcp_inline: McpInline = False,
    workspaces: WorkspaceBackends = None,
    workspace_queue: WorkspaceQueue = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Where to serve metrics: a port of 127.0.0.1, or HOST:PORT; default: HOLDFAST_METRICS, else nowhere.",
            metavar="HOST:PORT",
        ),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            help="Where to answer /live and /ready: a port of 127.0.0.1, or HOST:PORT; default: HOLDFAST_HEALTH.",
            metavar="HOST:PORT",
        ),
    ] = None,
    sinks: Sinks = None,
    model: ModelApi = None,
    models_file: ModelsFile = None,
    build_id: Annotated[
        str | None,
        typer.Option(
            help="The build of a deployment that this worker is; default: HOLDFAST_BUILD_ID, else none.", metavar="ID"
        ),
    ] = None,
    deployment: DeploymentName = None,
    **serving: str | None,
) -> None:
    """Run a worker against a Temporal server, until SIGTERM or Ctrl-C."""
    settings = settings_from(
        address=address,
        namespace=namespace,
        task_queue=task_queue,
        data_dir=data_dir,
        agents_dir=agents,
        storage=storage,
        mcp_file=mcp_file,
        mcp_inline=mcp_inline,
        workspaces=workspaces,
        workspace_queue=workspace_queue,
        models_file=models_file,
    )
    check_parts(PARTS if tools_only else worker_parts(model))
    version_from(settings.task_queue, build_id, deployment)  # refuses what the worker would refuse
    serving.update(metrics=metrics, health=health, build_id=build_id, deployment=deployment)
    command = worker_command(
        settings, modules or [], tools_only=tools_only, serving=serving, sinks=sinks or [], model=model
    )
    sys.stdout.flush()
    os.execve(command[0], command, worker_environment())  # noqa: S606  # this very interpreter, no shell


class _SupervisedWorker:
    """A worker kept alive beside the embedded server."""

    def __init__(self, server: EmbeddedServer, settings: Settings, command: list[str], *, as_json: bool) -> None:
        self.announced = False
        self._server = server
        self._data_dir = settings.data_dir
        self._command = command
        self._as_json = as_json
        self._starting = True
        self._full = False
        self._fault: str | None = None
        self._waiting = BusyIndicator()

    def run(self) -> int:
        """Serve until the server ends or a signal comes; raises what is wrong when not even the first worker can."""
        deaths = 0
        while deaths < RESTARTS_MAX:
            self._pause(PAUSE_SECONDS * 2.0 ** (deaths - 1) if deaths else 0.0)
            self._starting, self._fault = True, None
            started_at = time.monotonic()
            with WorkerProcess(self._command, self._on_output, embedded_worker_environment()) as process:
                ready = self._ready(process)
                if not ready and not self.announced:
                    return self._not_ready(process)
                self._starting = False
                if not self.announced:
                    self.announced = True
                    _announce(self._server, process.pid, as_json=self._as_json)
                elif ready:
                    _say(f"the new worker has the pid {process.pid}")
                if ready:
                    self._watch(process)
            deaths = 1 if time.monotonic() - started_at > SOUND_SECONDS else deaths + 1
            again = "starting another" if deaths < RESTARTS_MAX else "no other is started"
            why = f": {self._fault}" if self._fault else ""
            _say(f"the worker has ended (exit code {process.exit_code}){why}; {again}")
        _say(
            f"the worker has ended {RESTARTS_MAX} times in a row and is not started again; "
            "the server runs until Ctrl-C, but nothing serves its agents"
        )
        while True:
            self._pause(WATCH_SECONDS)  # raises when the server ends

    def _ready(self, process: WorkerProcess) -> bool:
        """Wait until the worker serves, and say so meanwhile; what it prints, from another thread, ends that line."""
        self._waiting.show_later("starting the worker")
        try:
            return process.wait_until_ready(READY_SECONDS_MAX)
        finally:
            self._waiting.done()

    def _pause(self, seconds: float) -> None:
        """Wait so long; raise when the server ends meanwhile."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            self._check_server()
            time.sleep(min(WATCH_SECONDS, remaining))

    def _on_output(self, line: str) -> None:
        """Pass on what the worker prints; keep what stops its start for ourselves to tell, as JSON where that is it."""
        if self._starting and line.startswith(FAULT):
            self._fault = line.removeprefix(FAULT)
        else:
            self._waiting.done()
            _say(line)

    def _not_ready(self, process: WorkerProcess) -> int:
        code = process.ended_within(ENDING_SECONDS_MAX)  # its output ends a little before it does
        if code is None:
            raise ServerUnavailable(f"the worker was not ready within {READY_SECONDS_MAX:g} s; see its output")
        if self._fault is not None:
            raise FAULTS.get(code, HoldfastError)(self._fault)
        if code <= 0:
            raise ServerUnavailable(f"the worker ended before it was ready (exit code {code}); see its output")
        return code

    def _watch(self, process: WorkerProcess) -> None:
        """Return when the worker has ended; raise when the server has."""
        while process.exit_code is None:
            self._check_server()
            time.sleep(WATCH_SECONDS)

    def _check_server(self) -> None:
        if not self._server.alive:
            why = self._server.fault or f"its log is in {self._data_dir}/server.log"
            raise ServerUnavailable(f"the Temporal server has ended; {why}")
        if (full := full_disk(self._data_dir)) and not self._full:
            _say(f"warning: {full}; the server cannot store anything until there is space")
        self._full = full is not None


def _announce(server: EmbeddedServer, worker_pid: int, *, as_json: bool) -> None:
    address = server.address
    if as_json:
        data = {"address": address.address, "ui": address.ui, "data_dir": address.data_dir, "attached": server.attached}
        sys.stdout.write(json.dumps(data) + "\n")
    else:
        using = f" (the server of pid {address.pid}, which keeps running)" if server.attached else ""
        end = "Ctrl-C stops this worker" if server.attached else "Ctrl-C stops all"
        sys.stdout.write(
            f"\n  Web UI    {address.ui}\n  Temporal  {address.address}{using}\n  data      {address.data_dir}\n"
            f"  worker    pid {worker_pid}\n\n"
            f'  Another terminal: holdfast run AGENT "question"      {end}\n\n'
        )
    sys.stdout.flush()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
