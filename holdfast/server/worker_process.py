"""The worker as a process of its own: where its code is, how to start it, and when it is ready."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from holdfast.connection.settings import DEFAULT_NAMESPACE, Settings
from holdfast.core.base.errors import MissingPart
from holdfast.core.base.extras import install_command
from holdfast.models.model_apis import ModelApi
from holdfast.models.model_choice import chosen_api

READY: Final = "worker ready"
"""The first words of the line that a worker prints when it has begun to serve."""

PARTS: Final = MappingProxyType({"temporalio": "temporal", "obstore": "temporal"})
"""What every worker needs beyond the base install, with the extra that brings it."""

NOT_FOR_DEV: Final = ("TEMPORAL_", "HOLDFAST_BUILD_ID", "HOLDFAST_DEPLOYMENT")
"""How variables begin that the worker of an embedded server is not given."""

STOP_SECONDS_MAX: Final = 20.0
"""How long a worker may take to end: the grace of its calls, and ending their commands; then it is killed."""


def app_folder() -> Path:
    """Return the folder of workflows, activities and worker.py: inside an installed wheel, else the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_app"
    return installed if installed.is_dir() else package.parent


def worker_parts(model: str | None = None) -> dict[str, str]:
    """Return the packages that a worker with this `--model` needs, and the extras that bring them.

    Raises InvalidInput where there is no such model API.
    """
    api = chosen_api(model)
    return {**PARTS, api.package: api.extra} if isinstance(api, ModelApi) else dict(PARTS)


def check_parts(parts: Mapping[str, str]) -> None:
    """Raise MissingPart when one of these packages is not installed; imports none of them."""
    for package, extra in parts.items():
        if find_spec(package) is None:
            raise MissingPart(f"a worker needs {package}, which is not installed: {install_command(extra)}")


def worker_command(
    settings: Settings,
    modules: Sequence[str],
    *,
    tools_only: bool = False,
    serving: Mapping[str, str | None] = MappingProxyType({}),
    sinks: Sequence[str] = (),
    model: str | None = None,
) -> list[str]:
    """Return the command line of a worker. `-P` keeps the current folder from shadowing our modules.

    `serving` has those of its WorkerSettings that are to win over the environment, as text; `sinks` its sinks, as
    `holdfast.sinks.sink_urls` reads them, and `model` its model, as `holdfast.models.model_choice` does.
    """
    command = [sys.executable, "-P", "-m", "worker", f"--task-queue={settings.task_queue}"]
    command += [f"--data-dir={settings.data_dir}", f"--agents={settings.agents_dir}"]
    options = (("--address", settings.address), ("--namespace", settings.namespace), ("--storage", settings.storage))
    for flag, value in options:
        command += [f"{flag}={value}"] if value else []
    command += [f"--encryption-key-file={settings.encryption_key_file}"] if settings.encryption_key_file else []
    command += [f"--mcp={settings.mcp_file}"] if settings.mcp_file else []
    command += [f"--models={settings.models_file}"] if settings.models_file else []
    command += ["--mcp-inline"] if settings.mcp_inline else []
    command += [f"--workspace={backend}" for backend in settings.workspaces]
    command += [f"--workspace-queue={settings.workspace_queue}"] if settings.workspace_queue else []
    command += ["--tools-only"] if tools_only else []
    command += [f"--{name.replace('_', '-')}={text}" for name, text in serving.items() if text is not None]
    command += [f"--sink={sink}" for sink in sinks]
    command += [f"--model={model}"] if model else []
    return [*command, *(f"--import={module}" for module in modules)]


def embedded_worker_command(
    settings: Settings, modules: Sequence[str], address: str, sinks: Sequence[str] = (), model: str | None = None
) -> list[str]:
    """Return the command line of a worker for the embedded server at `address`, wherever else the settings point."""
    embedded = replace(settings, address=address, namespace=DEFAULT_NAMESPACE)
    return worker_command(embedded, modules, sinks=sinks, model=model)


def worker_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a worker: our code first on its path; it puts the current folder last itself."""
    path = [str(app_folder()), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(part for part in path if part)}


def embedded_worker_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a worker for an embedded server: nothing in it speaks of another Temporal server.

    TLS settings would keep it from connecting, and a key for Temporal Cloud is not for whoever listens on loopback. It
    is of no build either: the worker of `dev` serves every run, and nobody would promote it.
    """
    variables = {name: value for name, value in environment.items() if not name.startswith(NOT_FOR_DEV)}
    return {**worker_environment(variables), "TEMPORAL_CONFIG_FILE": os.devnull}  # else the default file is read


class WorkerProcess:
    """A worker that ends when we do: its standard input is a pipe of ours, and its end is the worker's.

    Lines it prints go to `on_line`, from a thread of their own.
    """

    def __init__(
        self, command: Sequence[str], on_line: Callable[[str], None], environment: Mapping[str, str] | None = None
    ) -> None:
        self._on_line = on_line
        self._settled = threading.Event()
        self.ready = False
        told = worker_environment() if environment is None else environment
        self._process = self._started([*command, "--attended"], told)
        self._listener = threading.Thread(target=self._listen, name="worker-output", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; none while it runs."""
        return self._process.poll()

    def wait_until_ready(self, seconds_max: float) -> bool:
        """Return whether it serves; False when it has ended instead, or not begun to serve in time."""
        self._settled.wait(seconds_max)
        return self.ready

    def ended_within(self, seconds_max: float) -> int | None:
        """Wait for its end and return how it ended; none when it still runs."""
        try:
            return self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it without warning (SIGKILL), as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it gracefully, bounded; nothing when it has ended already."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        self._listener.join(1)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _started(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603  # our own worker, no shell
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a terminal's Ctrl-C reaches us only: we decide in which order things stop
        )

    def _listen(self) -> None:
        output = self._process.stdout
        for line in output or ():
            self._on_line(line.rstrip("\n"))  # first: whoever waits for it prints behind it
            if line.startswith(READY):
                self.ready = True
                self._settled.set()
        self._settled.set()
