"""Small runs that together walk every way through the loop; each is told once and driven in-process and on Temporal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from holdfast.core.budget import ExecutionBudget
from holdfast.core.definition import LLM
from holdfast.core.events import StopMode
from holdfast.core.limits import CALLS_PER_STEP_MAX
from holdfast.core.state import ExecutionStatus
from holdfast.core.stopping import StopReason
from holdfast.core.tools import AnyTool, ToolContext, tool
from holdfast.testing.script import Call, Script, Turn, call, calls, say

GATE_SECONDS_MAX = 30

Ending = tuple[ExecutionStatus, StopReason]

COMPLETED: Ending = (ExecutionStatus.COMPLETED, StopReason.COMPLETED)
FAILED: Ending = (ExecutionStatus.FAILED, StopReason.ERROR)


def stopped(reason: StopReason) -> Ending:
    return ExecutionStatus.STOPPED, reason


class Gate:
    """Where the tool `wait` stands: it says when it has come and goes on when it is let through."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop from outside, at a moment that both drivers can be held at."""

    when: Literal["the model is asked", "the gate is reached"]
    mode: StopMode = "now"
    reason: str = "enough"


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


@tool(timeout_seconds=0.2, attempts_max=1)
async def slow() -> str:
    """Take too long."""
    return await _never()


@tool(timeout_seconds=0.2, at_most_once=True)
async def slow_once() -> str:
    """Take too long and never be begun again."""
    return await _never()


async def _never() -> str:
    await asyncio.Event().wait()
    return "never"


def tools_at(gate: Gate) -> Sequence[AnyTool]:
    """Return every tool of these scenarios; `wait` stands at `gate`."""

    @tool
    def wait() -> str:
        """Wait at the gate."""
        gate.reached.set()
        gate.opened.wait(GATE_SECONDS_MAX)
        return "let through"

    return (add, echo, whoami, broken, leaving, giving_up, slow, slow_once, wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run: what the model says, what it may use, whether it is stopped, and how it must end."""

    name: str
    script: Script
    ends: Ending = COMPLETED
    budget: ExecutionBudget = field(default_factory=ExecutionBudget)
    llm: LLM = field(default_factory=LLM)
    tools: tuple[str, ...] | None = None
    stop: Stop | None = None
    check: Callable[[list[str]], bool] = all
    """Whether the tools' answers, in order, are what they should be."""


def asks(name: str, arguments: str) -> Turn:
    """Return a turn whose arguments go out as they are, JSON or not."""
    return calls(Call(name, arguments))


WAITING = calls(Call("add", {"a": 1, "b": 2}), Call("wait"))

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(name="an answer at once", script=[say("42")]),
    Scenario(name="an empty answer", script=[say("")]),
    Scenario(name="a tool and an answer", script=[call("add", a=1, b=2), say("3")], check=lambda said: said == ["3"]),
    Scenario(
        name="parallel tools",
        script=[calls(Call("add", {"a": 1, "b": 2}), Call("echo", {"text": "hi"}), text="let me see"), say("done")],
        check=lambda said: said == ["3", '{"said":["hi"]}'],
    ),
    Scenario(name="several steps", script=[*(call("add", a=n, b=n) for n in range(5)), say("done")]),
    Scenario(name="a tool that knows its call", script=[calls(Call("whoami"), Call("whoami")), say("done")]),
    Scenario(
        name="a tool that raises",
        script=[calls(Call("broken"), Call("add", {"a": 1, "b": 2})), say("anyway")],
        check=lambda said: said == ["Error (LookupError): nothing there", "3"],
    ),
    Scenario(
        name="a tool that raises at length",
        script=[call("broken", length=100_000), say("anyway")],
        check=lambda said: len(said[0]) < 2_100,
    ),
    Scenario(name="a tool that exits", script=[call("leaving"), say("anyway")]),
    Scenario(name="a tool that cancels itself", script=[call("giving_up"), say("anyway")]),
    Scenario(
        name="a tool that takes too long",
        script=[call("slow"), say("anyway")],
        check=lambda said: "took too long" in said[0],
    ),
    Scenario(
        name="a tool whose outcome is unknown",
        script=[call("slow_once"), say("anyway")],
        check=lambda said: "outcome is unknown" in said[0],
    ),
    Scenario(
        name="a large result",
        script=[call("echo", text="ü" * 1_000, times=100), say("long")],
        check=lambda said: len(said[0]) == 50_000,
    ),
    Scenario(
        name="odd characters",
        script=[call("echo", text="\x00\x1b[31m😀\u202e\n\u2028"), say("\x00😀\u202e\r\n")],
    ),
    Scenario(
        name="an unknown tool",
        script=[call("ad", a=1, b=2), say("sorry")],
        check=lambda said: "did you mean 'add'?" in said[0],
    ),
    Scenario(
        name="a tool that this agent may not use",
        script=[call("echo", text="hi"), say("sorry")],
        tools=("add",),
        check=lambda said: said[0].startswith("Error (UnknownTool)"),
    ),
    Scenario(
        name="arguments that are no JSON",
        script=[asks("add", '{"a": 1, "b'), asks("add", '{"a": NaN, "b": 1}'), asks("add", "[]"), say("sorry")],
        check=lambda said: all("not a usable JSON object" in each for each in said),
    ),
    Scenario(
        name="arguments that do not fit",
        script=[call("add", a="many", b=1), call("add", a=1), call("add", a=1, b=2, c=3), say("sorry")],
        check=lambda said: all(each.startswith("Error (InvalidArguments)") for each in said),
    ),
    Scenario(
        name="call ids that are empty or repeated",
        script=[calls(*(Call("add", {"a": n, "b": 0}, id=id_) for n, id_ in enumerate(["", "x", "x", ""]))), say("ok")],
        check=lambda said: said == ["0", "1", "2", "3"],
    ),
    Scenario(
        name="more calls than a step runs",
        script=[calls(*[Call("add", {"a": 1, "b": 1})] * (CALLS_PER_STEP_MAX + 2)), say("many")],
        check=lambda said: [each[:5] for each in said] == ["2"] * CALLS_PER_STEP_MAX + ["Error"] * 2,
    ),
    Scenario(
        name="the last step allowed",
        script=[call("add", a=1, b=1), call("add", a=2, b=2), say("too late")],
        budget=ExecutionBudget(max_steps=2),
        ends=stopped(StopReason.STEPS_LIMIT),
    ),
    Scenario(
        name="no step allowed",
        script=[say("too late")],
        budget=ExecutionBudget(max_steps=0),
        ends=stopped(StopReason.STEPS_LIMIT),
    ),
    Scenario(
        name="tokens spent before the tools",
        script=[call("add", a=1, b=1), calls(*[Call("add", {"a": 1, "b": 1})] * 2), say("too late")],
        budget=ExecutionBudget(max_tokens=230),
        ends=stopped(StopReason.TOKEN_LIMIT),
        check=lambda said: [each[:17] for each in said] == ["2", "Error (Cancelled)", "Error (Cancelled)"],
    ),
    Scenario(
        name="an answer cut by the last token",
        script=[say("I was about to s", finish_reason="length")],
        budget=ExecutionBudget(max_tokens=120),
        ends=stopped(StopReason.TOKEN_LIMIT),
    ),
    Scenario(name="an endpoint that reports no usage", script=[say("no idea", usage=None)]),
    Scenario(
        name="a limit on the output",
        script=[say("short", finish_reason="length")],
        llm=LLM(max_output_tokens=20, temperature=0),
    ),
    Scenario(
        name="a deadline in the past",
        script=[say("too late")],
        budget=ExecutionBudget(deadline=datetime(2020, 1, 1, tzinfo=UTC)),
        ends=stopped(StopReason.TIME_LIMIT),
    ),
    Scenario(
        name="the time is up during a tool",
        script=[WAITING, say("too late")],
        budget=ExecutionBudget(max_seconds=1),
        ends=stopped(StopReason.TIME_LIMIT),
        check=lambda said: said[0] == "3" and said[1].startswith("Error (Cancelled)"),
    ),
    Scenario(
        name="the time is up during a model call",
        script=[call("add", a=1, b=1), Turn(hang=True)],
        budget=ExecutionBudget(max_seconds=1),
        ends=stopped(StopReason.TIME_LIMIT),
        check=lambda said: said == ["2"],
    ),
    Scenario(
        name="a stop during a model call",
        script=[Turn(hang=True)],
        stop=Stop("the model is asked"),
        ends=stopped(StopReason.USER_REQUESTED),
    ),
    Scenario(
        name="a stop during a tool",
        script=[calls(Call("wait"), Call("no such tool")), say("too late")],
        stop=Stop("the gate is reached"),
        ends=stopped(StopReason.USER_REQUESTED),
        check=lambda said: said[0] == "Error (Cancelled): the run was stopped (user_requested: enough)",
    ),
    Scenario(
        name="a stop after the step",
        script=[call("wait"), say("too late")],
        stop=Stop("the gate is reached", mode="after_step"),
        ends=stopped(StopReason.USER_REQUESTED),
        check=lambda said: said == ["let through"],
    ),
    Scenario(
        name="an endpoint that refuses",
        script=[call("add", a=1, b=1), Turn(status=400, text="temperature must be lower")],
        ends=FAILED,
    ),
)
