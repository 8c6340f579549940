"""`holdfast dev` and `holdfast worker`: the processes that serve agents."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from typing import Annotated, Final

import typer

from holdfast.client.cli.options import Address, AgentsDir, AsJson, DataDir, Import, Namespace, TaskQueue, settings_from
from holdfast.client.embedded import EmbeddedServer
from holdfast.client.settings import Settings
from holdfast.client.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.core.errors import ServerUnavailable

READY_SECONDS_MAX: Final = 60.0
WATCH_SECONDS: Final = 0.2
RESTARTS_MAX: Final = 5
RESTARTS_WINDOW_SECONDS: Final = 60.0
"""A worker that dies more often than RESTARTS_MAX times in this time is not started again."""


def dev(
    *,
    data_dir: DataDir = None,
    port: Annotated[int, typer.Option(help="Temporal's port; 0 means any free one.")] = 7233,
    ui_port: Annotated[int, typer.Option(help="The Web UI's port; 0 means any free one.")] = 8233,
    modules: Import = None,
    agents: AgentsDir = None,
    task_queue: TaskQueue = None,
    as_json: AsJson = False,
) -> None:
    """Run a Temporal server with Web UI and a worker, until Ctrl-C."""
    settings = settings_from(data_dir=data_dir, agents_dir=agents, task_queue=task_queue)
    signal.signal(signal.SIGTERM, _interrupt)
    with EmbeddedServer.start(settings.data_dir, port=port, ui_port=ui_port) as server:
        try:
            code = _serve(server, settings, modules or [], as_json=as_json)
        except KeyboardInterrupt:
            _say("stopped the worker; now the server")
            code = 0
    raise typer.Exit(code)


def worker(
    *,
    modules: Import = None,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    data_dir: DataDir = None,
    agents: AgentsDir = None,
) -> None:
    """Run a worker against a Temporal server, until SIGTERM or Ctrl-C."""
    settings = settings_from(
        address=address, namespace=namespace, task_queue=task_queue, data_dir=data_dir, agents_dir=agents
    )
    command = worker_command(settings, modules or [])
    sys.stdout.flush()
    os.execve(command[0], command, worker_environment())  # noqa: S606  # this very interpreter, no shell


def _serve(server: EmbeddedServer, settings: Settings, modules: list[str], *, as_json: bool) -> int:
    """Keep a worker alive; return its exit code when it cannot be."""
    command = worker_command(settings, modules, address=server.address.address)
    deaths: deque[float] = deque(maxlen=RESTARTS_MAX)
    announced = False
    while True:
        with WorkerProcess(command, _say) as process:
            if not process.wait_until_ready(READY_SECONDS_MAX):
                return process.exit_code or ServerUnavailable.exit_code
            if not announced:
                announced = True
                _announce(server, as_json=as_json)
            while process.exit_code is None:
                if not server.alive:
                    raise ServerUnavailable(
                        f"the Temporal server has ended; its log is in {settings.data_dir}/server.log"
                    )
                time.sleep(WATCH_SECONDS)
        deaths.append(time.monotonic())
        if len(deaths) == RESTARTS_MAX and deaths[-1] - deaths[0] < RESTARTS_WINDOW_SECONDS:
            _say(f"the worker has ended {RESTARTS_MAX} times within {RESTARTS_WINDOW_SECONDS:g} s; giving up")
            return 1
        _say(f"the worker has ended (exit code {process.exit_code}); starting another")


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
