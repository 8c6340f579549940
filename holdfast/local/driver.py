"""`LocalDriver` carries out the core's commands with asyncio. It decides nothing: that is `core.loop`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, assert_never
from uuid import uuid4

from holdfast.core.budget import ExecutionBudget
from holdfast.core.commands import CallModel, CallTool, CancelInFlight, Command, Finish, StartTimer
from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import Conflict, ModelFailure
from holdfast.core.events import (
    Event,
    ExecutionStarted,
    ModelAnswered,
    ModelFailed,
    StopMode,
    StopRequested,
    TimerFired,
    ToolFailed,
    ToolReturned,
)
from holdfast.core.inference import Model, ModelRequest
from holdfast.core.loop import AgentLoop, new_agent, user_message
from holdfast.core.registry import resolve
from holdfast.core.retries import MODEL_RETRIES
from holdfast.core.state import AgentState, call_name, named_id
from holdfast.core.steps import InferenceResponse
from holdfast.core.stopping import StopReason, StopSignal
from holdfast.core.texts import error_record
from holdfast.core.tools import AnyTool, ToolContext, ended_without_answer
from holdfast.local.calling import is_ordinary, run_tool


def _now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> str:
    return str(uuid4())


class LocalDriver:
    """Runs one agent in this process, with the same transitions as on Temporal.

    Args:
        definition: the agent.
        model: what answers; a script in a test, a provider's client otherwise.
        tools: what it may call, before the definition's own choice among them.
        clock: where times come from.
        new_id: where ids come from; UUID strings.
    """

    def __init__(
        self,
        definition: AgentDefinition,
        *,
        model: Model,
        tools: Iterable[AnyTool] = (),
        clock: Callable[[], datetime] = _now,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        self._definition = definition
        self._model = model
        self._tools = {tool.name: tool for tool in resolve(definition, tuple(tools))}
        self._loop = AgentLoop(frozenset(self._tools))
        self._clock = clock
        self._new_id = new_id
        self._inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._busy = False

    async def execute(
        self, question: str, *, state: AgentState | None = None, budget: ExecutionBudget | None = None
    ) -> AgentState:
        """Return the state after the agent has dealt with `question`, whatever its status.

        Args:
            question: what the person asks.
            state: the agent so far; a new one by default.
            budget: limits that take the place of the definition's, one by one.
        """
        return [each async for each in self.iterate(question, state=state, budget=budget)][-1]

    async def iterate(
        self, question: str, *, state: AgentState | None = None, budget: ExecutionBudget | None = None
    ) -> AsyncGenerator[AgentState, None]:
        """Yield the state after every completed step, and the finished state last. Arguments as for `execute`."""
        if self._busy:
            raise Conflict("this driver runs an execution already; wait for its end, or make another driver")
        self._busy = True
        at = self._clock()
        state = state or new_agent(self._definition, agent_id=self._new_id(), at=at)
        event: Event = ExecutionStarted(
            execution_id=self._new_id(),
            messages=(user_message(question),),
            budget=self._definition.budget.overridden_by(budget or ExecutionBudget()),
            at=at,
        )
        self._inbox = asyncio.Queue()
        try:
            while True:
                steps_before = state.step_count
                state, commands = self._loop.step(state, event)
                for command in commands:
                    self._perform(command, state)
                if state.status.is_terminal:
                    break
                if state.step_count > steps_before:
                    yield state
                event = await self._inbox.get()
        finally:
            self._busy = False
            await self._cancel()
        yield state

    def stop(self, reason: str = "", *, mode: StopMode = "now") -> None:
        """Ask the execution under way to stop; without one nothing happens."""
        at = self._clock()
        signal = StopSignal(reason=StopReason.USER_REQUESTED, message=reason, source="local", at=at)
        self._inbox.put_nowait(StopRequested(signal=signal, mode=mode, at=at))

    def _perform(self, command: Command, state: AgentState) -> None:
        match command:
            case StartTimer():
                self._start(self._wait(command))
            case CallModel():
                self._start(self._call_model(command, state))
            case CallTool():
                self._start(self._call_tool(command, state.running.execution_id))
            case CancelInFlight():
                for task in self._in_flight:
                    task.cancel()
            case Finish():
                pass
            case _:
                assert_never(command)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _cancel(self) -> None:
        in_flight = list(self._in_flight)
        for task in in_flight:
            task.cancel()
        await asyncio.gather(*in_flight, return_exceptions=True)

    async def _wait(self, command: StartTimer) -> None:
        await asyncio.sleep((command.fires_at - self._clock()).total_seconds())
        self._inbox.put_nowait(TimerFired(at=max(self._clock(), command.fires_at)))

    async def _call_model(self, command: CallModel, state: AgentState) -> None:
        request = ModelRequest(
            llm=state.llm or self._definition.llm,
            system_prompt=state.context.system_prompt,
            messages=tuple(message.for_model() for message in state.messages),
            tools=tuple(tool.schema for tool in self._tools.values()),
            max_output_tokens=command.max_output_tokens,
        )
        try:
            response = await _answered(self._model, request)
        except BaseException as error:  # whatever the model's client raises ends the execution as data
            if isinstance(error, asyncio.CancelledError) and is_ordinary(error):
                raise
            self._inbox.put_nowait(ModelFailed(error=error_record(error, "model"), at=self._clock()))
        else:
            self._inbox.put_nowait(ModelAnswered(response=response, at=self._clock()))

    async def _call_tool(self, command: CallTool, execution_id: str) -> None:
        tool, call = self._tools[command.call.name], command.call
        key = named_id(execution_id, call_name(command.step_number, command.index))
        started_at = self._clock()
        event: Event
        try:
            result = await _attempted(tool, call.arguments, ToolContext(execution_id, key, attempt=1))
        except _TookTooLong:
            record = ended_without_answer(tool.traits, "it took too long")
            event = ToolFailed(call_id=call.id, error=record, started_at=started_at, at=self._clock())
        except Exception as error:  # noqa: BLE001  # whatever a tool raises goes back to the model
            record = error_record(error, call.name)
            event = ToolFailed(call_id=call.id, error=record, started_at=started_at, at=self._clock())
        else:
            event = ToolReturned(call_id=call.id, result=result, started_at=started_at, at=self._clock())
        self._inbox.put_nowait(event)


async def _answered(model: Model, request: ModelRequest, attempt: int = 1) -> InferenceResponse:
    """Ask the model, and again where that can help, as often and after the same waits as on Temporal."""
    try:
        return await model(request)
    except ModelFailure as failure:
        if not failure.again or attempt >= MODEL_RETRIES.attempts_max:
            raise
        wait = failure.after.total_seconds() if failure.after else MODEL_RETRIES.wait_seconds(attempt)
    await asyncio.sleep(wait)
    return await _answered(model, request, attempt + 1)


class _TookTooLong(Exception):
    """No attempt of a tool call ended in time."""


async def _attempted(tool: AnyTool, arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Run the tool; begin it again when it takes too long, as often as its traits allow."""
    limit = asyncio.timeout(tool.traits.timeout_seconds)
    try:
        async with limit:
            return await run_tool(tool, arguments, context)
    except TimeoutError:
        if not limit.expired():
            raise  # the tool's own
    if context.attempt >= tool.traits.attempts_max:
        raise _TookTooLong
    return await _attempted(tool, arguments, replace(context, attempt=context.attempt + 1))
