"""`holdfast dev` and `holdfast worker`: the processes that serve agents."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from contextlib import ExitStack
from typing import Annotated, Final

import typer

from holdfast.client.cli.busy import busy
from holdfast.client.cli.options import (
    Address,
    AgentsDir,
    AsJson,
    DataDir,
    Import,
    Namespace,
    Sinks,
    Storage,
    TaskQueue,
    settings_from,
    with_worker_settings,
)
from holdfast.client.embedded import EmbeddedServer
from holdfast.client.settings import Settings
from holdfast.client.worker_process import (
    WorkerProcess,
    check_parts,
    embedded_worker_command,
    embedded_worker_environment,
    worker_command,
    worker_environment,
)
from holdfast.core.errors import Conflict, HoldfastError, InvalidInput, MissingPart, ServerUnavailable

READY_SECONDS_MAX: Final = 60.0
ENDING_SECONDS_MAX: Final = 5.0
WATCH_SECONDS: Final = 0.2
RESTARTS_MAX: Final = 5
RESTARTS_WINDOW_SECONDS: Final = 60.0
"""A worker that dies more often than RESTARTS_MAX times in this time is not started again."""

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
        str | None, typer.Option(help="Where the Web UI asks for what is encrypted: a codec server's.", metavar="URL")
    ] = None,
    modules: Import = None,
    agents: AgentsDir = None,
    task_queue: TaskQueue = None,
    storage: Storage = None,
    sinks: Sinks = None,
    as_json: AsJson = False,
) -> None:
    """Run a Temporal server with Web UI and a worker, until Ctrl-C."""
    settings = settings_from(data_dir=data_dir, agents_dir=agents, task_queue=task_queue, storage=storage)
    check_parts()
    signal.signal(signal.SIGTERM, _interrupt)
    started = EmbeddedServer.start(settings.data_dir, port=port, ui_port=ui_port, ui_codec=ui_codec_endpoint)
    with ExitStack() as stack:
        with busy("starting the Temporal server"):
            server = stack.enter_context(started)
        if server.attached and ui_codec_endpoint:
            _say(f"warning: the server of pid {server.address.pid} runs already, and its Web UI stays as it is")
        serving = _Serving(server, settings, modules or [], sinks or [], as_json=as_json)
        try:
            code = serving.run()
        except KeyboardInterrupt:
            if not serving.announced:
                raise
            _say("stopped the worker; now the server")
            code = 0
    raise typer.Exit(code)


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
        bool, typer.Option("--tools-only", help="Serve the tools that name the task queue, and no agents.")
    ] = False,
    storage: Storage = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Where metrics can be read, a port of 127.0.0.1 or HOST:PORT; else HOLDFAST_METRICS, else nowhere.",
            metavar="HOST:PORT",
        ),
    ] = None,
    sinks: Sinks = None,
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
    )
    check_parts()
    serving["metrics"] = metrics
    command = worker_command(settings, modules or [], tools_only=tools_only, serving=serving, sinks=sinks or [])
    sys.stdout.flush()
    os.execve(command[0], command, worker_environment())  # noqa: S606  # this very interpreter, no shell


class _Serving:
    """A worker kept alive beside the embedded server."""

    def __init__(
        self, server: EmbeddedServer, settings: Settings, modules: list[str], sinks: list[str], *, as_json: bool
    ) -> None:
        self.announced = False
        self._server = server
        self._data_dir = settings.data_dir
        self._command = embedded_worker_command(settings, modules, server.address.address, sinks)
        self._as_json = as_json
        self._starting = True
        self._fault: str | None = None

    def run(self) -> int:
        """Serve; return an exit code, or raise what is wrong, when no worker can."""
        deaths: deque[float] = deque(maxlen=RESTARTS_MAX)
        while True:
            self._starting, self._fault = True, None
            with WorkerProcess(self._command, self._heard, embedded_worker_environment()) as process:
                with busy("starting the worker"):
                    ready = process.wait_until_ready(READY_SECONDS_MAX)
                if not ready:
                    return self._not_ready(process)
                self._starting = False
                if not self.announced:
                    self.announced = True
                    _announce(self._server, as_json=self._as_json)
                self._watch(process)
            deaths.append(time.monotonic())
            if len(deaths) == RESTARTS_MAX and deaths[-1] - deaths[0] < RESTARTS_WINDOW_SECONDS:
                _say(f"the worker has ended {RESTARTS_MAX} times within {RESTARTS_WINDOW_SECONDS:g} s; giving up")
                return 1
            _say(f"the worker has ended (exit code {process.exit_code}); starting another")

    def _heard(self, line: str) -> None:
        """Pass on what the worker prints; keep what stops its start for ourselves to tell, as JSON where that is it."""
        if self._starting and line.startswith(FAULT):
            self._fault = line.removeprefix(FAULT)
        else:
            _say(line)

    def _not_ready(self, process: WorkerProcess) -> int:
        code = process.ended_within(ENDING_SECONDS_MAX)  # its output ends a little before it does
        if code is None:
            raise ServerUnavailable(f"the worker was not ready within {READY_SECONDS_MAX:g} s; see what it said")
        if self._fault is not None:
            raise FAULTS.get(code, HoldfastError)(self._fault)
        if code <= 0:
            raise ServerUnavailable(f"the worker ended before it was ready (exit code {code}); see what it said")
        return code

    def _watch(self, process: WorkerProcess) -> None:
        """Return when the worker has ended; raise when the server has."""
        while process.exit_code is None:
            if not self._server.alive:
                raise ServerUnavailable(f"the Temporal server has ended; its log is in {self._data_dir}/server.log")
            time.sleep(WATCH_SECONDS)


def _announce(server: EmbeddedServer, *, as_json: bool) -> None:
    address = server.address
    if as_json:
        told = {"address": address.address, "ui": address.ui, "data_dir": address.data_dir, "attached": server.attached}
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        using = f" (the server of pid {address.pid}, which goes on without us)" if server.attached else ""
        sys.stdout.write(
            f"\n  Web UI    {address.ui}\n  Temporal  {address.address}{using}\n  data      {address.data_dir}\n\n"
            '  Another terminal: holdfast run AGENT "question"      Ctrl-C ends all\n\n'
        )
    sys.stdout.flush()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
