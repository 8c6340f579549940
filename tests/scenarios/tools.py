"""The tools that the agents of all scenarios may use, and the gate at which one of them waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from holdfast.core.base.model_retry import ModelRetry
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_results import StopRun
from holdfast.core.tools.tools import AnyTool, tool
from tests.pictures import PNG

GATE_SECONDS_MAX = 90


class Gate:
    """Where the tool `wait` stands: it says when it has come and goes on when it is let through."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()


class Crowd:
    """Those calls of the tool `crowd` that are running; it tells each how many there were at the most."""

    def __init__(self) -> None:
        self._now = self._most = 0
        self._changed = threading.Condition()

    def stay(self, patience_seconds: float) -> int:
        """Return the most there have been at once, as soon as nobody is alone here, or patience ends."""
        with self._changed:
            self._now += 1
            self._most = max(self._most, self._now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._most > 1, patience_seconds)
            self._now -= 1
            return self._most


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first one.
        b: the second one.
    """
    return a + b


@tool
async def echo(text: str, times: int = 1) -> dict[str, list[str]]:
    """Return the text."""
    if times < 1:
        raise ModelRetry(f"{times} times is too few; give 1 or more")
    return {"said": [text] * times}


@tool
def whoami(context: ToolContext) -> list[str | int]:
    """Tell what a tool knows about its call."""
    return [context.execution_id, context.idempotency_key, context.attempt]


@tool
def broken(length: int = 0) -> str:
    """Raise an error."""
    raise LookupError("nothing there" + "!" * length)


@tool
def leaving() -> str:
    """Try to end the process."""
    raise SystemExit(3)


@tool
async def giving_up() -> str:
    """Raise a cancellation that nobody asked for."""
    raise asyncio.CancelledError


@tool(local=True, idempotent=True)
def recall(what: str, context: ToolContext) -> list[str | int]:
    """Tell what a tool within the workflow task knows about its call."""
    return [what, context.idempotency_key, context.attempt]


@tool(retry_on=(ConnectionError,))
async def flaky(good_attempt: int, context: ToolContext) -> str:
    """Fail until that attempt."""
    return _failing(good_attempt, context)


@tool(local=True, idempotent=True, retry_on=(ConnectionError,))
def flaky_local(good_attempt: int, context: ToolContext) -> str:
    """Fail until that attempt, within the workflow task."""
    return _failing(good_attempt, context)


def _failing(good_attempt: int, context: ToolContext) -> str:
    if context.attempt < good_attempt:
        raise ConnectionResetError(f"attempt {context.attempt}")
    return f"attempt {context.attempt} went well"


@tool(local=True, idempotent=True, timeout_seconds=0.2, attempts_max=2)
async def slow_local() -> str:
    """Take too long, within the workflow task."""
    return await _never()


@tool(timeout_seconds=0.2, attempts_max=1)
async def slow() -> str:
    """Take too long."""
    return await _never()


@tool(timeout_seconds=0.2, at_most_once=True)
async def slow_once() -> str:
    """Take too long and never be begun again."""
    return await _never()


@tool
async def four_seconds() -> str:
    """Take four seconds."""
    await asyncio.sleep(4)
    return "four seconds later"


@tool
def enough() -> StopRun:
    """Ask to stop."""
    return StopRun("enough", reason="nothing is left to do")


@tool
def draw(context: ToolContext) -> dict[str, int]:
    """Draw a chart, with notes."""
    context.attach(PNG, name="chart.png")
    context.attach(b"three bars", name="notes.txt")
    return {"bars": 3}


async def _never() -> str:
    await asyncio.Event().wait()
    return "never"


def tools_at(gate: Gate) -> Sequence[AnyTool]:
    """Return every tool of these scenarios; `wait` stands at `gate`, and `crowd` is empty."""

    @tool
    def wait() -> str:
        """Wait at the gate."""
        gate.reached.set()
        gate.opened.wait(GATE_SECONDS_MAX)
        return "let through"

    people = Crowd()

    @tool
    def crowd(patience_seconds: float) -> int:
        """Wait for company."""
        return people.stay(patience_seconds)

    @tool(sequential=True)
    def queue(patience_seconds: float) -> int:
        """Wait for company that does not come."""
        return people.stay(patience_seconds)

    still = (add, echo, whoami, broken, leaving, giving_up, recall, flaky, flaky_local)
    return (*still, slow_local, slow, slow_once, four_seconds, enough, wait, crowd, queue, draw)
