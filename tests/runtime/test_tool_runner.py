"""Running one tool call: whatever a tool does, the call has one readable end and the process lives."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, HookContext, hook
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import ERROR_CHARS_MAX, TOOL_RESULT_CHARS_MAX
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.base.model_retry import ModelRetry
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import AnyTool, tool
from holdfast.local import LocalDriver
from holdfast.runtime.tool_runner import ToolExited, run_tool
from holdfast.testing.script import call, say
from holdfast.testing.scripted_model import ScriptedModel

CONTEXT = ToolContext(execution_id="e", idempotency_key="k", attempt=1)
PROMPTLY_SECONDS = 60.0
FLAVOURS = ["sync", "async"]


class Mute(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError


def raising(flavour: str, error: BaseException) -> AnyTool:
    """Return a tool that raises `error`."""

    def work() -> str:
        raise error

    async def work_async() -> str:
        raise error

    chosen: Callable[[], Any] = work if flavour == "sync" else work_async
    return tool(name="work")(chosen)


async def run_with(made: AnyTool, **arguments: object) -> AgentState:
    model = ScriptedModel([call("work", **arguments), say("went on")])
    driver = LocalDriver(AgentDefinition(name="local", tools="all"), model=model, tools=[made])
    return await asyncio.wait_for(driver.execute("Do it."), PROMPTLY_SECONDS)


async def told(made: AnyTool, **arguments: object) -> ErrorRecord:
    """Return what the model was told of the one call, after which the run went on."""
    state = await run_with(made, **arguments)
    assert state.status is ExecutionStatus.COMPLETED
    assert state.final_response == "went on"
    (error,) = state.errors
    return error


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (ValueError("no such file"), "ValueError", "no such file"),
        (ValueError(), "ValueError", ""),
        (Mute(), "Mute", "(its text cannot be read: RuntimeError)"),
        (ValueError("\ud800"), "ValueError", "?"),
        (TimeoutError("mine"), "TimeoutError", "mine"),
        (ExceptionGroup("two", [ValueError("a"), ValueError("b")]), "ExceptionGroup", "two (2 sub-exceptions)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_an_error_of_a_tool_goes_back_to_the_model(
    flavour: str, raised: Exception, kind: str, message: str
) -> None:
    error = await told(raising(flavour, raised))
    assert (error.type, error.message, error.source) == (kind, message, "work")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_a_tool_cannot_end_the_process(flavour: str, raised: BaseException) -> None:
    error = await told(raising(flavour, raised))
    assert error.type == "ToolExited"
    assert type(raised).__name__ in error.message


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    "raised",
    [
        StopIteration(1),
        StopAsyncIteration("x"),
        GeneratorExit("x"),
        asyncio.CancelledError("by itself"),
        BaseException("x"),
    ],
    ids=repr,
)
async def test_an_unusual_exception_ends_the_call_and_not_the_run(flavour: str, raised: BaseException) -> None:
    error = await told(raising(flavour, raised))
    assert error.message, "the model is told something"


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_huge_error_is_cut(flavour: str) -> None:
    error = await told(raising(flavour, ValueError("x" * 10**7)))
    assert len(error.message) <= ERROR_CHARS_MAX


async def test_a_huge_result_is_cut() -> None:
    def work() -> str:
        return "x" * 5 * 10**7

    (answer,) = [m for m in (await run_with(tool(work))).messages if m.role == "tool"]
    assert len(answer.content) <= TOOL_RESULT_CHARS_MAX
    assert "cut" in answer.content


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_tool_that_takes_too_long_ends_with_an_error_that_says_so(flavour: str) -> None:
    release = threading.Event()

    def work() -> bool:
        return release.wait(PROMPTLY_SECONDS)

    async def work_async() -> None:
        await asyncio.Event().wait()

    chosen: Callable[[], Any] = work if flavour == "sync" else work_async
    try:
        error = await told(tool(name="work", timeout_seconds=0.05, attempts_max=1)(chosen))
    finally:
        release.set()
    assert "took too long" in error.message


async def test_arguments_are_checked_before_anything_runs() -> None:
    ran = False

    def work(number: int) -> int:
        nonlocal ran
        ran = True
        return number

    error = await told(tool(work), number="many")
    assert (error.type, ran) == ("InvalidArguments", False)
    assert error.message.startswith("number: Input should be a valid integer")
    with pytest.raises(InvalidArguments):
        await run_tool(tool(work), {}, CONTEXT)


async def test_a_sync_tool_runs_in_a_thread_of_its_own_with_the_callers_context() -> None:
    who = contextvars.ContextVar("who", default="nobody")
    who.set("me")

    def work() -> list[object]:
        return [threading.current_thread() is threading.main_thread(), who.get()]

    assert (await run_tool(tool(work), {}, CONTEXT)).text == '[false,"me"]'


async def test_a_result_that_cannot_be_turned_into_text_is_not_an_error_after_the_effect() -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise RuntimeError

    def work() -> object:
        return Unspeakable()

    assert await run_tool(tool(work), {}, CONTEXT)


async def test_what_a_tool_exited_with_can_be_read() -> None:
    with pytest.raises(ToolExited, match=r"SystemExit\(3\)"):
        await run_tool(raising("async", SystemExit(3)), {}, CONTEXT)


async def test_arguments_are_checked_against_a_given_schema_before_the_function_runs() -> None:
    seen: list[dict[str, Any]] = []

    @tool(schema={"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]})
    def work(**arguments: Any) -> str:  # noqa: ANN401  # JSON
        seen.append(arguments)
        return "done"

    error = await told(work, n=0)
    assert (error.type, error.message) == ("InvalidArguments", "$.n: 0 is less than the minimum of 1")
    assert seen == []
    state = await run_with(work, n=2)
    assert state.steps[0].tool_executions[0].result == "done"
    assert seen == [{"n": 2}]


async def test_what_a_hook_puts_into_a_call_is_checked_against_a_given_schema_too() -> None:
    @tool(schema={"type": "object", "additionalProperties": False})
    def work(**arguments: Any) -> str:  # noqa: ANN401  # JSON
        return repr(arguments)

    @hook("before_tool")
    def change(context: HookContext) -> Changes:
        """Change it."""
        return Changes(arguments={"step": context.step_number})

    model = ScriptedModel([call("work"), say("went on")])
    agent = AgentDefinition(name="local", tools="all", hooks="all")
    state = await LocalDriver(agent, model=model, tools=[work], hooks=[change]).execute("Do it.")
    assert state.errors[0].type == "InvalidArguments"


async def test_a_schema_that_cannot_be_checked_is_refused_before_anything_starts() -> None:
    @tool(schema={"type": "object", "properties": {"n": {"type": "number of days"}}})
    def work(**arguments: int) -> None:
        del arguments

    with pytest.raises(InvalidInput, match=r"its JSON Schema: .*'number of days' is not valid"):
        await run_with(work)


class _TooVague(ModelRetry):
    """A ModelRetry of the tool's own."""


async def test_a_model_retry_repeats_no_attempt_and_its_text_is_the_answer() -> None:
    attempts: list[int] = []

    @tool(retry_on=(Exception,))
    def work(context: ToolContext) -> str:
        attempts.append(context.attempt)
        raise _TooVague("say which one")

    state = await run_with(work)
    (execution,) = state.steps[0].tool_executions
    assert attempts == [1]
    assert (execution.outcome, execution.error) == (
        "failed",
        ErrorRecord(type="ModelRetry", message="say which one", source="work"),
    )
    assert execution.answer.content == "say which one"


async def test_a_tool_chooses_how_many_retries_of_the_model_it_answers() -> None:
    @tool(retries_max=0)
    def work() -> str:
        raise ModelRetry("say which one")

    error = await told(work)
    text = (
        "the tool asked for another try in 1 steps in a row, at most 0 are answered; do something else: say which one"
    )
    assert (error.type, error.message) == ("TooManyRetries", text)


async def test_under_fatal_errors_one_model_retry_too_many_ends_the_run() -> None:
    @tool(retries_max=1)
    def work() -> str:
        raise ModelRetry("say which one")

    model = ScriptedModel([call("work"), call("work"), say("never")])
    driver = LocalDriver(AgentDefinition(name="local", tools="all", errors="fatal"), model=model, tools=[work])
    state = await driver.execute("Do it.")
    assert (state.status, state.step_count) == (ExecutionStatus.FAILED, 2)
    assert [error.type for error in state.errors] == ["ModelRetry", "TooManyRetries"]


async def test_a_model_retry_without_a_text_is_still_readable() -> None:
    @tool
    def work() -> str:
        raise ModelRetry

    state = await run_with(work)
    assert state.steps[0].tool_executions[0].answer.content == "Error (ModelRetry): "
