"""What runs around the demo's one run: server, model endpoint and worker, as processes that end with us."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from examples.repo_detective import recording, tools
from holdfast import HoldfastError
from holdfast.client import Settings
from holdfast.errors import InvalidInput, PortTaken
from holdfast.server import EmbeddedServer, WorkerProcess, refuse_taken, worker_command

REPOSITORY: Final = Path(__file__).resolve().parents[2]
AGENTS: Final = Path(__file__).resolve().parent / "agents"
TOOLS: Final = "examples.repo_detective.tools"
USUAL_PORT: Final = 7233
USUAL_UI_PORT: Final = 8233
DEFAULT_MODEL: Final = "gpt-4.1-mini"
"""Who answers when there is a key for the OpenAI API and no HOLDFAST_MODEL."""

START_SECONDS_MAX: Final = 60.0
"""How long a process of ours may take to serve; it takes about 1 s on an idle machine."""

STOP_SECONDS_MAX: Final = 3.0
PAUSE_SECONDS: Final = 1.2
"""How long each tool call pauses in the middle, so that the kill lands inside one."""

LINES_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class Model:
    """Who answers, and the environment variables that say so to the worker."""

    name: str
    told: str
    environment: Mapping[str, str]


def real_model(environment: Mapping[str, str] = os.environ) -> Model | None:
    """Return the model that the environment names; none where a script has to stand in. Raises InvalidInput."""
    base_url = environment.get("OPENAI_BASE_URL")
    if not (base_url or environment.get("OPENAI_API_KEY") or environment.get("OPENAI_API_KEY_FILE")):
        return None
    name = environment.get("HOLDFAST_MODEL")
    if base_url and not name:
        raise InvalidInput(
            "OPENAI_BASE_URL is set, but which model to ask there is not; set HOLDFAST_MODEL to its name"
        )
    name = name or DEFAULT_MODEL
    where = f"the endpoint at {urlsplit(base_url).hostname}" if base_url else "the OpenAI API"  # no key may be shown
    return Model(name, f"{name}, asked at {where}", {"HOLDFAST_MODEL": name})


class Endpoint:
    """The scripted model as a process of its own; it ends when its standard input does, a pipe of ours."""

    def __init__(self, ledger: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # our own module, no shell
            [sys.executable, "-P", "-m", "examples.repo_detective.endpoint", str(ledger)],
            env=our_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C reaches us only: we decide in which order things stop
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def model(self) -> Model:
        """Wait until it serves and return it as the model to ask. Raises HoldfastError when it does not."""
        output = self._process.stdout
        assert output is not None  # noqa: S101  # it is a pipe
        ready, _, _ = select.select([output], [], [], START_SECONDS_MAX)
        line = output.readline().strip() if ready else ""
        if not line.startswith("http"):
            raise HoldfastError(f"the scripted model's endpoint did not start: {line or 'it says nothing'}")
        environment = {
            "OPENAI_BASE_URL": line,
            "OPENAI_API_KEY": "scripted",
            "HOLDFAST_MODEL": "scripted",
            "NO_PROXY": f"{os.environ.get('NO_PROXY', '')},127.0.0.1",
            "no_proxy": f"{os.environ.get('no_proxy', '')},127.0.0.1",
        }
        return Model("scripted", f"a script, over a real OpenAI-compatible endpoint at {line}", environment)

    def stop(self) -> None:
        """End it, bounded."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS_MAX)
        self._process.kill()
        self._process.wait()


class DemoWorker:
    """A worker process that serves the detective's tools, and the last lines it printed."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self._said: deque[str] = deque(maxlen=LINES_KEPT)
        self._process = WorkerProcess(worker_command(settings, [TOOLS]), self._said.append, environment)
        self.pid = self._process.pid

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, bounded."""
        self._process.stop()

    @property
    def ready(self) -> bool:
        """Whether it serves. Raises HoldfastError when it has ended instead."""
        if self._process.exit_code is not None and not self._process.ready:
            said = self._said[-1] if self._said else "it said nothing"
            raise HoldfastError(f"the worker did not start: {said.removeprefix('error: ')}")
        return self._process.ready


def start_server(data_dir: Path, port: int | None, ui_port: int | None) -> EmbeddedServer:
    """Start the embedded server, or use the one that runs on `data_dir`; a port of none is the usual one if free."""
    return EmbeddedServer.start(data_dir, port=_free(port, USUAL_PORT), ui_port=_free(ui_port, USUAL_UI_PORT))


def worker_environment(model: Model, folder: Path, ledger: Path) -> dict[str, str]:
    """Return the environment of the demo's workers; the only one that knows the model's address and key."""
    return {
        **our_environment(),
        **model.environment,
        tools.FOLDER: str(folder),
        recording.LEDGER: str(ledger),
        recording.PAUSE: str(PAUSE_SECONDS),
    }


def our_environment() -> dict[str, str]:
    """Return our environment with this repository's code on the path."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


@contextmanager
def in_order(told: Callable[[], None]) -> Generator[None]:
    """Within it Ctrl-C works; once it is left by that or by an error, that is `told` and what follows ends in order."""
    try:
        yield
    except BaseException:
        end_in_order()
        told()
        raise


def end_in_order() -> None:
    """From now on signals change nothing: everything is ending, each part within its bound."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def forget_other_servers() -> None:
    """Drop what would lead to another Temporal server or namespace: the demo has its own."""
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:
        del os.environ[name]
    os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull


def _free(port: int | None, usual: int) -> int:
    if port is not None:
        return port
    try:
        refuse_taken(usual, "--port")
    except PortTaken:
        return 0
    return usual
