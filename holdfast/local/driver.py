"""`LocalDriver` carries out the core's commands with asyncio. It decides nothing: that is `core.loop`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar, assert_never, overload
from uuid import uuid4

from holdfast.core.beginning import may_change
from holdfast.core.budget import ExecutionBudget
from holdfast.core.capabilities import Capability
from holdfast.core.commands import (
    AskApproval,
    CallModel,
    CallTool,
    CancelInFlight,
    Command,
    Emit,
    Finish,
    RunHooks,
    SpawnSubagent,
    StartTimer,
    SummariseBuffer,
)
from holdfast.core.compiling import Compiler
from holdfast.core.defining import new_agent
from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import Conflict, InvalidInput
from holdfast.core.events import (
    ApprovalGiven,
    DefinitionChanged,
    DriverFailed,
    Event,
    ExecutionStarted,
    MessageArrived,
    ModelCancelled,
    StopMode,
    StopRequested,
    TimerFired,
    subagent_cancelled,
)
from holdfast.core.frozen import replace
from holdfast.core.hooks import Hook
from holdfast.core.inference import Model
from holdfast.core.keeping import ROLES, ROLES_TOLD
from holdfast.core.limits import SUBAGENT_GRACE_SECONDS
from holdfast.core.loop import AgentLoop, user_message
from holdfast.core.messages import Message
from holdfast.core.observed import Listener, Observed
from holdfast.core.offer import Offer
from holdfast.core.state import AgentState
from holdfast.core.stopping import StopReason, StopSignal
from holdfast.core.subagents import known_subagents
from holdfast.core.texts import error_record
from holdfast.core.tools import AnyTool
from holdfast.core.verdicts import Verdict
from holdfast.local.asking import Asking
from holdfast.local.calling import Results, offer_reading
from holdfast.local.foreign import was_cancelled
from holdfast.local.formats import schema_problem
from holdfast.local.inbox import Inbox
from holdfast.local.listening import Heard, Kind, Listeners
from holdfast.local.prices import PriceList
from holdfast.local.remote import refuse_remote
from holdfast.local.work import Approver, Work

ObservedT = TypeVar("ObservedT", bound=Observed)

CANCEL_SECONDS_MAX: Final = 3.0
"""How long an execution that has ended waits for what it cancelled to come to its own end."""


def _now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> str:
    return str(uuid4())


@dataclasses.dataclass(frozen=True, slots=True)
class _Change:
    """What the agent is to become, ready to be used."""

    loop: AgentLoop
    work: Work
    budget: ExecutionBudget | None


class LocalDriver:
    """Runs one agent in this process, with the same transitions as on Temporal.

    Args:
        definition: the agent.
        model: what answers; a script in a test, a provider's client otherwise.
        tools: what it may call, before the definition's own choice among them.
        hooks: what runs at its hook places, before the definition's own choice among them, in this order.
        agents: the subagents that it, or one of them, may call.
        capabilities: the bundles of tools and hooks that it may name.
        compilers: the functions that `context.compiler` may name.
        approver: decides about calls that wait for approval; without one `decide` does.
        results: where long results of tools are kept whole (`holdfast.storage.results`); without it, what the model
            does not see of them is lost.
        prices: what tokens cost where the definition does not say; by default the table that comes with Holdfast.
        parent_agent_id: whose subagent it is, if it is one.
        depth_left: how deep agents may nest below it; the definition's `max_depth` by default.
        clock: where times come from.
        new_id: where ids come from; UUID strings.
    """

    def __init__(  # noqa: PLR0913  # one argument per thing that a worker would bring
        self,
        definition: AgentDefinition,
        *,
        model: Model,
        tools: Iterable[AnyTool] = (),
        hooks: Iterable[Hook] = (),
        agents: Iterable[AgentDefinition] = (),
        capabilities: Iterable[Capability] = (),
        compilers: Iterable[Compiler] = (),
        approver: Approver | None = None,
        results: Results | None = None,
        prices: PriceList | None = None,
        parent_agent_id: str | None = None,
        depth_left: int | None = None,
        clock: Callable[[], datetime] = _now,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        offer = Offer(tuple(tools), tuple(hooks), tuple(compilers), tuple(capabilities))
        self._offer, self._results = offer_reading(offer, results), results
        self._agents, self._model, self._approver = tuple(agents), model, approver
        self._clock, self._new_id = clock, new_id
        self._prices = prices or PriceList()
        self._parent_agent_id = parent_agent_id
        self._loop, self._work = self._equipped(definition, depth_left)
        self._change: _Change | None = None
        self._listeners = Listeners()
        self._inbox = Inbox()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._waits: set[asyncio.Task[None]] = set()  # for people; one can outlast its call
        self._unfinished: set[asyncio.Task[None]] = set()  # also what is left behind: asyncio itself holds it weakly
        self._timer: asyncio.Task[None] | None = None
        self._busy = False
        self._execution_id = ""
        self._children: list[LocalDriver] = []

    def _equipped(self, definition: AgentDefinition, depth_left: int | None) -> tuple[AgentLoop, Work]:
        """Return the rules and the work of the agent; InvalidInput when it names what this driver lacks."""
        if problem := schema_problem(definition.response_format):
            raise InvalidInput(f"agent {definition.name!r}: response_format.json_schema: {problem}")
        equipment = self._offer.equip(definition)
        refuse_remote(equipment.tools.values())
        loop = AgentLoop(
            equipment.definition,
            tools={name: tool.traits for name, tool in equipment.tools.items()},
            hooks=tuple(hook.traits for hook in equipment.hooks.values()),
            subagents=known_subagents(definition, self._agents),
            depth_left=depth_left,
        )
        asking = Asking(equipment, loop.subagents, self._model)
        return loop, Work(equipment, asking, self._approver, self._run_child, self._clock, self._results)

    @overload
    def on(self, kinds: type[ObservedT], listener: Callable[[ObservedT], object]) -> LocalDriver: ...

    @overload
    def on(self, kinds: Kind | tuple[Kind, ...], listener: Heard) -> LocalDriver: ...

    def on(self, kinds: Kind | tuple[Kind, ...], listener: Heard) -> LocalDriver:
        """Call `listener` with every event of these kinds, also with those of subagents; return the driver.

        Args:
            kinds: a class of `holdfast.core.observed` or its name, or several of them.
            listener: a function of one event, or a coroutine function: then it is awaited aside, one event after
                another, and the execution's end waits for it at most LISTENER_SECONDS_MAX.

        What a listener raises harms nobody and is logged once as a warning. Listeners that are added while an
        execution runs without any hear of the next one. Raises InvalidInput for what is no kind of event.
        """
        self._listeners.add(kinds, listener)
        return self

    def wiretap(self, listener: Listener) -> LocalDriver:
        """Call `listener` with every event; return the driver. As `on` otherwise."""
        self._listeners.add(Observed, listener)
        return self

    def off(self, listener: Heard) -> LocalDriver:
        """Call `listener` no more, whatever it listens to; return the driver. InvalidInput for one that does not."""
        self._listeners.remove(listener)
        return self

    async def execute(
        self, asked: str | AgentState, *, state: AgentState | None = None, budget: ExecutionBudget | None = None
    ) -> AgentState:
        """Return the state after the agent has dealt with what is `asked`, whatever its status.

        Args:
            asked: what the person asks, or a state whose conversation is to be gone on with. A state that is in
                progress goes on with the same execution: nothing that has ended is done again.
            state: the agent so far, for a question; a new one by default.
            budget: limits that take the place of the definition's, one by one.
        """
        return [each async for each in self.iterate(asked, state=state, budget=budget)][-1]

    async def iterate(
        self, asked: str | AgentState, *, state: AgentState | None = None, budget: ExecutionBudget | None = None
    ) -> AsyncGenerator[AgentState, None]:
        """Yield the state after every completed step, and the finished state last. Arguments as for `execute`."""
        if self._busy:
            raise Conflict("this driver runs an execution already; wait for its end, or make another driver")
        self._busy = True
        at = self._clock()
        loop = dataclasses.replace(self._loop, observed=bool(self._listeners))
        state = self._beginning(asked, state, at)
        event: Event = ExecutionStarted(
            execution_id=self._new_id(),
            messages=() if isinstance(asked, AgentState) else (user_message(asked),),
            budget=self._loop.definition.budget.overridden_by(budget or ExecutionBudget()),
            at=at,
        )
        self._inbox, self._change = Inbox(), None
        try:
            while True:
                steps_before = state.step_count
                state, commands = loop.step(state, event)
                if self._change is not None and self._may_change(state):
                    told = (each for each in commands if isinstance(each, Emit))
                    loop, event = self._changed(self._change, loop)
                    state, commands = loop.step(state, event)
                    commands = (*told, *commands)
                self._execution_id = state.running.execution_id
                for command in commands:
                    self._perform(command, state)
                if state.status.is_terminal:
                    break
                if state.step_count > steps_before:
                    yield state
                event = await self._inbox.get()
        finally:
            try:
                await self._cancel()
                await self._listeners.caught_up()
            finally:  # whoever cancels us twice does not wait for what we cancelled
                self._busy = False
        yield state

    def stop(self, reason: str = "", *, mode: StopMode = "now") -> None:
        """Ask the execution under way to stop; without one nothing happens."""
        at = self._clock()
        signal = StopSignal(reason=StopReason.USER_REQUESTED, message=reason, source="local", at=at)
        self._inbox.put(StopRequested(signal=signal, mode=mode, at=at))

    def say(self, message: str | Message) -> None:
        """Say something to the execution under way: the model sees it with its next call, and answers it.

        Raises InvalidInput for a message that speaks for the model or a tool.
        """
        said = user_message(message) if isinstance(message, str) else message
        if said.role not in ROLES:
            raise InvalidInput(f"a message of the role {said.role!r} is not taken: {ROLES_TOLD}")
        self._inbox.put(MessageArrived(message=said, at=self._clock()))

    def change(self, definition: AgentDefinition, *, budget: ExecutionBudget | None = None) -> None:
        """Make the agent another one from the next step of the execution under way on; without one nothing happens.

        Of several changes before that step the last one counts. `budget` takes the place of the execution's; its limits
        count from the execution's start. Raises InvalidInput for a definition that names what this driver lacks; the
        agent stays as it is then.
        """
        self._change = _Change(*self._equipped(definition, self._loop.depth_left), budget)

    def _may_change(self, state: AgentState) -> bool:
        idle = all(task.done() for task in self._in_flight)
        return idle and may_change(state, self._inbox.waiting)

    def _changed(self, change: _Change, before: AgentLoop) -> tuple[AgentLoop, DefinitionChanged]:
        """Become the agent of `change`; return its rules and what they are to be told."""
        self._loop, self._work, self._change = change.loop, change.work, None
        definition = change.loop.definition
        priced = replace(definition, llm=self._prices.priced(definition.llm))
        loop = dataclasses.replace(change.loop, observed=before.observed)
        return loop, DefinitionChanged(priced, self._clock(), change.budget)

    def decide(self, call_id: str, verdict: Verdict, *, execution_id: str | None = None) -> None:
        """Decide about a call that waits for approval; about any other nothing happens.

        A verdict with the digest of another call changes nothing either; a warning of the state says so then.
        `execution_id` names a subagent's execution, as its ApprovalRequested event does; our own by default.
        """
        deciding = self if execution_id is None else self._driver_of(execution_id)
        if deciding is not None:
            deciding._inbox.put(  # noqa: SLF001  # our own class
                ApprovalGiven(call_id=call_id, verdict=verdict, at=self._clock())
            )

    def _driver_of(self, execution_id: str) -> LocalDriver | None:
        if self._execution_id == execution_id:
            return self
        found = (child._driver_of(execution_id) for child in self._children)  # noqa: SLF001  # our own class
        return next(filter(None, found), None)

    def _beginning(self, asked: str | AgentState, state: AgentState | None, at: datetime) -> AgentState:
        definition = self._loop.definition
        if isinstance(asked, AgentState):
            state = asked
        elif state is None:
            state = new_agent(definition, agent_id=self._new_id(), at=at, parent_agent_id=self._parent_agent_id)
        llm = state.llm or definition.llm
        priced = self._prices.priced(llm)
        return state if priced is llm else state.with_llm(state.updated_at, priced)

    def _perform(self, command: Command, state: AgentState) -> None:  # noqa: C901, PLR0912  # one case per command
        match command:
            case StartTimer():
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.create_task(self._wait(command))
            case CallModel():
                self._start(self._work.call_model(command, state), lambda at: ModelCancelled(None, at))
            case SummariseBuffer():
                self._start(self._work.summarise(command, state), lambda at: ModelCancelled(None, at))
            case CallTool():
                self._start(self._work.call_tool(command, state.running.execution_id))
            case SpawnSubagent():
                self._start(self._work.spawn(command, state), partial(subagent_cancelled, command.call_id))
            case RunHooks():
                self._start(self._work.run_hooks(command))
            case AskApproval():
                self._start(self._work.ask_approval(command), among=self._waits)
            case CancelInFlight():
                for task in (*self._in_flight, *self._waits):
                    task.cancel()
            case Emit():
                self._listeners.tell(command.event)
            case Finish():
                pass
            case _:
                assert_never(command)

    async def _run_child(self, command: SpawnSubagent, state: AgentState) -> AgentState:
        """Run a subagent with a driver of its own; cancelling this stops its whole tree, and gives its end."""
        child = LocalDriver(
            self._loop.subagents[command.agent],
            model=self._model,
            tools=self._offer.tools,
            hooks=self._offer.hooks,
            agents=self._agents,
            capabilities=self._offer.capabilities,
            compilers=self._offer.compilers,
            approver=self._approver,
            results=self._results,
            prices=self._prices,
            parent_agent_id=state.agent_id,
            depth_left=command.depth_left,
            clock=self._clock,
            new_id=self._new_id,
        )
        if self._listeners:
            child.wiretap(self._listeners.tell)
        self._children.append(child)
        running = asyncio.create_task(child.execute(command.task, budget=command.budget))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            child.stop("the agent that called it was stopped")
            await asyncio.wait([running], timeout=SUBAGENT_GRACE_SECONDS)
            if not running.done():
                running.cancel()
                raise
            return running.result()
        finally:
            self._children.remove(child)

    def _start(
        self,
        work: Coroutine[object, object, Event],
        cancelled: Callable[[datetime], Event] | None = None,
        among: set[asyncio.Task[None]] | None = None,
    ) -> None:
        """Begin `work`; `cancelled` makes what is told when it is cancelled and tells nothing itself."""
        inbox, tasks = self._inbox, self._in_flight if among is None else among
        task = asyncio.create_task(self._guarded(work, inbox))
        tasks.add(task)
        self._unfinished.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(self._unfinished.discard)
        task.add_done_callback(lambda _: work.close())  # one that is cancelled before it began would complain
        if cancelled is not None:
            task.add_done_callback(lambda _: inbox.put(cancelled(self._clock())) if task.cancelled() else None)

    async def _guarded(self, work: Coroutine[object, object, Event], inbox: Inbox) -> None:
        """Put what comes of `work` into its execution's inbox; a fault of our own ends the run with its cause."""
        try:
            event = await work
        except BaseException as error:
            if was_cancelled(error):
                raise
            event = DriverFailed(error=error_record(error, "driver"), at=self._clock())
        inbox.put(event)

    async def _wait(self, command: StartTimer) -> None:
        await asyncio.sleep((command.fires_at - self._clock()).total_seconds())
        self._inbox.put(TimerFired(at=max(self._clock(), command.fires_at)))

    async def _cancel(self) -> None:
        in_flight = [*self._in_flight, *self._waits, *((self._timer,) if self._timer else ())]
        # the next execution neither cancels nor waits for what stays behind
        self._in_flight, self._waits, self._timer = set(), set(), None
        for task in in_flight:
            task.cancel()
        if in_flight:  # one that does not heed being cancelled is left behind
            await asyncio.wait(in_flight, timeout=CANCEL_SECONDS_MAX)
