"""`OpenRuns`: the runs that callers have begun and that have not ended, each followed once for all who wait for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Final

from holdfast.client import Holdfast
from holdfast.client.validation import check_id
from holdfast.client.worker_presence import unserved
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import (
    Conflict,
    ExecutionExists,
    ExecutionFailed,
    ExecutionNotFound,
    HoldfastError,
    InvalidInput,
    ServerUnavailable,
)
from holdfast.core.conversation.display_text import on_a_line
from holdfast.mcp_serve.requests import MARK, RunRequest
from holdfast.mcp_serve.run_progress import LINE_CHARS_MAX, RunProgress

OPEN_RUNS_MAX: Final = 256
"""The most runs that are followed at the same time: each costs a long poll to the server."""

LINES_MAX: Final = 100
"""The most lines of progress that are held for a caller that is slow to take them."""

ALIVE_SECONDS: Final = 10.0
"""How often a caller hears of a run of which there is nothing new: clients give up after a minute of silence."""

SILENCE_SECONDS_MAX: Final = 120.0
"""How long the Temporal server is waited for while it does not answer."""

AGAIN_SECONDS: Final = 1.0
"""The pause before the Temporal server is asked again."""

STOP_SECONDS_MAX: Final = 120.0
"""How long a stop that nobody waits for is tried: a server that restarts is back by then, and the run costs money."""

END_SECONDS_MAX: Final = 5.0
"""How long stops that are under way may take when the program ends."""

LAST_LINES_SECONDS: Final = 0.5
"""How long an answer waits for the progress that came before it."""

SOURCE: Final = "mcp"
"""Who asks for a stop, as the run's state has it."""

LOGGER: Final = logging.getLogger("holdfast.mcp_serve")

Report = Callable[[str], Awaitable[None]]
"""Takes a line of progress."""


class OpenRun:
    """A run under way. `state` or `error` is there once it has ended, or once it cannot be followed any more."""

    def __init__(self, run_id: str, mark: str) -> None:
        self.run_id: Final = run_id
        self.mark: Final = mark
        self.progress = RunProgress(run_id)
        self.began = asyncio.Event()
        self.state: AgentState | None = None
        self.error: HoldfastError | None = None
        self.callers = 0
        """How many calls wait for its end."""
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._count = 0
        self._news = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be told of it."""
        return self.state is not None or self.error is not None

    def add(self, line: str | None = None) -> None:
        """Wake everybody who waits, with a line of progress if there is one."""
        if line is not None:
            self._lines.append(line)
            self._count += 1
        self._news.set()
        self._news = asyncio.Event()

    def lines_after(self, count: int) -> tuple[list[str], int]:
        """Return the lines since there were `count`, as far as they are held, and how many there are now."""
        missed = min(self._count - count, len(self._lines))
        return list(self._lines)[len(self._lines) - missed :], self._count

    async def news(self, seconds_max: float) -> bool:
        """Return whether something was new within so many seconds."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


class OpenRuns:
    """The open runs of one server, whose agents are `agents`. Use it within one event loop, and close it."""

    def __init__(self, client: Holdfast, agents: dict[str, AgentDefinition]) -> None:
        self._client = client
        self._agents = agents
        self._runs: dict[str, OpenRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._followers: dict[str, asyncio.Task[None]] = {}

    async def begin(self, request: RunRequest) -> OpenRun:
        """Return the run of a request: a new one, or the one that the same request has begun before.

        Raises InvalidInput where its idempotency key belongs to another request, Conflict where too many runs are open,
        ServerUnavailable; nothing is begun then.
        """
        if request.run_id not in self._runs:
            await self._check_served()
        if request.run_id not in self._runs:  # the same request may have come meanwhile
            run = self._admitted(request.run_id, request.mark)
            self._follow(run, self._begun(run, request))
        run = self._runs[request.run_id]
        _check_same(run.mark, request)
        return run

    async def find(self, run_id: str) -> OpenRun:
        """Return a run of one of the agents that this server, or one like it, has begun; it may have ended.

        Raises InvalidInput, ExecutionNotFound, ServerUnavailable, Conflict.
        """
        run_id = check_id(run_id, "run id")
        if run_id in self._runs:
            return self._runs[run_id]
        state = await self._state(run_id)
        mark = state.metadata.get(MARK)
        ours = isinstance(mark, str) and mark.partition(":")[0] in self._agents
        if not ours or state.parent_agent_id is not None:  # a subagent's run has its parent's metadata
            raise _unknown(run_id)
        return await self._taken_up(run_id, str(mark), state)

    async def wait(self, run: OpenRun, seconds_max: float | None, report: Report) -> None:
        """Return when the run is over, or after so many seconds; meanwhile report what is new."""
        ends_at = None if seconds_max is None else time.monotonic() + seconds_max
        reported, silent_since = 0, time.monotonic()
        run.callers += 1
        try:
            while True:
                lines, reported = run.lines_after(reported)
                for line in lines:
                    await report(line)
                left = ALIVE_SECONDS if ends_at is None else ends_at - time.monotonic()
                if run.is_over or left <= 0:
                    return
                if await run.news(min(left, ALIVE_SECONDS)):
                    silent_since = time.monotonic()
                elif left >= ALIVE_SECONDS:
                    await report(await self._silence(run, time.monotonic() - silent_since))
        finally:
            run.callers -= 1

    async def stop(self, run: OpenRun, reason: str) -> None:
        """Ask the run to stop; return when the server has taken note. Raises ServerUnavailable."""
        await run.began.wait()
        if not run.is_over:
            await self._client.stop(run.run_id, reason, source=SOURCE)

    def stop_later(self, run: OpenRun, reason: str) -> None:
        """Have the run stopped although whoever asked for it has gone; a silent Temporal server is asked again.

        A stop that does not reach it in STOP_SECONDS_MAX is logged.
        """
        self._start(self._stopped(run, reason))

    async def close(self) -> None:
        """Let stops under way reach the server, in bounded time, and follow nothing any more. The runs go on."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_SECONDS_MAX)
        tasks = [*self._tasks, *self._followers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _stopped(self, run: OpenRun, reason: str) -> None:
        await run.began.wait()
        ends_at = time.monotonic() + STOP_SECONDS_MAX
        while True:
            try:
                await self.stop(run, reason)
            except ServerUnavailable as error:
                if time.monotonic() >= ends_at:
                    LOGGER.warning("run %s goes on: its stop has not reached the server: %s", run.run_id, error.message)
                    return
                await asyncio.sleep(AGAIN_SECONDS)
            except HoldfastError:  # it has ended, or is not there any more
                return
            else:
                return

    async def _check_served(self) -> None:
        if (target := await unserved(self._client.temporal, self._client.settings.task_queue)) is not None:
            problem = f"{target.problem}, so nothing was begun"
            raise ServerUnavailable(f"{problem}; {target.remedy}, then call again")

    def _start(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _admitted(self, run_id: str, mark: str) -> OpenRun:
        if len(self._runs) >= OPEN_RUNS_MAX:
            raise Conflict(f"{OPEN_RUNS_MAX} runs of this server are open; wait for one, or stop one, and call again")
        return self._runs.setdefault(run_id, OpenRun(run_id, mark))

    async def _taken_up(self, run_id: str, mark: str, state: AgentState) -> OpenRun:
        if state.status.is_terminal:
            ended = OpenRun(run_id, mark)
            ended.began.set()
            try:
                ended.state = await self._client.result(run_id)
            except ExecutionFailed as error:
                ended.error = error
            return ended
        if run_id not in self._runs:
            run = self._admitted(run_id, mark)
            run.began.set()
            self._follow(run, self._until_over(run))
        return self._runs[run_id]

    def _follow(self, run: OpenRun, following: Coroutine[Any, Any, None]) -> None:
        async def followed() -> None:
            try:
                await following
            except HoldfastError as error:
                run.error = error
            except Exception as error:  # or its callers would wait for ever
                LOGGER.exception("following run %s failed", run.run_id)
                run.error = HoldfastError(f"run {run.run_id} cannot be followed: {type(error).__name__}; ask `get_run`")
            finally:
                run.began.set()
                del self._runs[run.run_id], self._followers[run.run_id]
                run.add()

        self._followers[run.run_id] = asyncio.create_task(followed())

    async def _begun(self, run: OpenRun, request: RunRequest) -> None:
        agent, metadata = self._agents[request.agent], {**request.metadata, MARK: request.mark}
        try:
            await self._client.start(agent, request.message, execution_id=run.run_id, metadata=metadata)
        except ExecutionExists:  # an earlier process of this server has begun it
            state = await self._state(run.run_id)
            _check_same(state.metadata.get(MARK), request)
        run.began.set()
        await self._until_over(run)

    async def _until_over(self, run: OpenRun) -> None:
        watching = asyncio.create_task(self._watch(run))
        try:
            state = await self._result(run.run_id)
            await asyncio.wait([watching], timeout=LAST_LINES_SECONDS)
            run.state = state
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, run: OpenRun) -> None:
        """Add a line for what happens in the run. Its end is `result`'s to tell."""
        with suppress(HoldfastError):
            async with aclosing(self._client.watch(run.run_id)) as events:
                async for event in events:
                    if (line := run.progress.line(event)) is not None:
                        run.add(line)

    async def _result(self, run_id: str) -> AgentState:
        gives_up_at: float | None = None
        while True:
            try:
                return await self._client.result(run_id)
            except ServerUnavailable as error:
                now = time.monotonic()
                gives_up_at = gives_up_at or now + SILENCE_SECONDS_MAX
                if now > gives_up_at:
                    raise ServerUnavailable(f"{error.message}; the run {run_id} may go on: ask `get_run`") from None
            await asyncio.sleep(AGAIN_SECONDS)

    async def _state(self, run_id: str) -> AgentState:
        try:
            return await self._client.state(run_id)
        except ExecutionNotFound:
            raise _unknown(run_id) from None

    async def _silence(self, run: OpenRun, seconds: float) -> str:
        """Return what to say of a run that does nothing one can see."""
        with suppress(HoldfastError):
            queue = self._client.settings.task_queue
            if (target := await unserved(self._client.temporal, queue, run.run_id)) is not None:
                return f"waits for a worker: {target.problem}"
        if run.progress.waiting:
            waiting = "; ".join(each.about for each in run.progress.waiting.values())
            return on_a_line(f"step {run.progress.step}: {waiting}", LINE_CHARS_MAX)
        return f"step {run.progress.step}: at work, nothing new for {seconds:.0f} s"


def _check_same(mark: object, request: RunRequest) -> None:
    if mark != request.mark:
        problem = "the idempotency key was used for another request"
        raise InvalidInput(f"{problem} (run {request.run_id}); send the same arguments, or another key")


def _unknown(run_id: str) -> ExecutionNotFound:
    return ExecutionNotFound(f"no run {run_id} of this server's agents; use the id that an agent's tool returned")
