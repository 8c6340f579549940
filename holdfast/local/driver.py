"""`LocalDriver`: carries out the core's commands with asyncio. `core.loop.agent_loop` makes the decisions."""

from __future__ import annotations

import asyncio
import dataclasses
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar, Unpack, assert_never, overload

from pydantic import JsonValue

from holdfast.capabilities.built_in import with_built_in
from holdfast.core.agent.agent import Agent, answers_of, with_subagents
from holdfast.core.agent.answer_types import AnswerT
from holdfast.core.agent.assistants import reachable
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.context_view import Compiler
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.handoffs import conversation_holder, taken_over
from holdfast.core.agent.hooks import Hook
from holdfast.core.agent.initial_state import first_run
from holdfast.core.agent.model import Model
from holdfast.core.agent.run_result import RunResult
from holdfast.core.agent.state import UNBORN_ID, AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.agent.user_metadata import checked_metadata
from holdfast.core.base.errors import Conflict, ExecutionFailed, InvalidArguments
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    CancelInFlight,
    Command,
    Emit,
    Finish,
    HandOver,
    RequestApproval,
    RequestInput,
    RunHooks,
    SpawnSubagent,
    StartTimer,
    SummariseBuffer,
)
from holdfast.core.loop.events import (
    ApprovalDecided,
    ChangeRefused,
    DefinitionChanged,
    Event,
    ExecutionStarted,
    HandoffRefused,
    ModelCancelled,
    StepDue,
    subagent_cancelled,
)
from holdfast.core.loop.start import may_change, rests
from holdfast.core.tools.resources import Resource
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.contracts import DefinitionChange
from holdfast.core.wire.execution_events import Listener, Observed
from holdfast.core.wire.record_store import AttachmentStore, ExecutionStore
from holdfast.local.call_tasks import CallTasks, ended_child
from holdfast.local.clock import new_id, now
from holdfast.local.equipment import Equipment, Inventory
from holdfast.local.execute_options import ExecuteOptions
from holdfast.local.execution_records import recorded
from holdfast.local.executor import Approver, InputAnswerer
from holdfast.local.inbox import Inbox, message_event, stop_event
from holdfast.local.listeners import Kind, ListenerFunction, Listeners
from holdfast.local.mcp_servers import LocalMcpServers
from holdfast.local.routes import driver_model
from holdfast.mcp.server_file import McpServers
from holdfast.models.endpoint import prices_of
from holdfast.models.route_file import ModelRoutes
from holdfast.runtime.files.attachments import attachment_store
from holdfast.runtime.files.message_files import GivenFile
from holdfast.runtime.open_resources import OpenResources
from holdfast.runtime.prices import PriceList
from holdfast.runtime.tool_runner import Results, with_fetch_tool
from holdfast.storage.read_records_tool import RecordTools

ObservedT = TypeVar("ObservedT", bound=Observed)


class LocalDriver(Generic[AnswerT]):
    """Runs one agent in this process, with the same transitions as on Temporal.

    Args:
        agent: the agent with its functions, or its definition.
        model: the model, for example a script in a test; by default that of a worker in this environment.
        models: the routes, as a file like a worker's `models.yaml` or by name; by default, unless a `model` is given,
            the file that a worker would take here.
        tools: the tools offered to it; it gets those that its definition names, or `tools="all"`.
        hooks: the hooks offered to it, in this order.
        agents: the agents that it, or one of them, may call or hand the conversation to.
        capabilities: the bundles of tools and hooks that it may name.
        compilers: the functions that `context.compiler` may name.
        mcp: the MCP servers that agents may name: a file like a worker's `mcp.yaml`, or the servers by name, each as an
            entry of one; by default the file that a worker would take here. It is read where an agent names one.
        resources: what tools and hooks share; opened as an execution begins and closed at its end, for subagents too.
        approver: decides about calls that wait for approval; without one `decide` does.
        answer_input: answers the questions of agents with the capability `ask_user`; without it they are refused.
        results: stores tools' long results whole (`storage.fetch_result_tool`); else the model's part is all.
        records: stores each execution's record, subagents' too (`holdfast.storage.records`), which agents that name the
            capability `records` can read, and tools' files; without it `attachments` has those, in memory.
        prices: the prices of models where the definition has none; by default the table's at the model's endpoint.
        parent_agent_id: the agent that it is a subagent of, if any.
        depth_left: how deep agents may nest below it; the definition's `max_depth` by default.
        clock: the source of times.
        new_id: the source of ids, UUID strings.
    """

    def __init__(  # noqa: PLR0913  # one argument per thing that a worker would bring
        self,
        agent: Agent[AnswerT] | AgentDefinition,
        *,
        model: Model | None = None,
        models: ModelRoutes | None = None,
        tools: Iterable[AnyTool] = (),
        hooks: Iterable[Hook] = (),
        agents: Iterable[Agent[Any] | AgentDefinition] = (),
        capabilities: Iterable[Capability] = (),
        compilers: Iterable[Compiler] = (),
        mcp: McpServers | None = None,
        resources: Iterable[Resource] = (),
        offer: Toolset = Toolset(),  # noqa: B008  # frozen
        approver: Approver | None = None,
        answer_input: InputAnswerer | None = None,
        results: Results | None = None,
        records: ExecutionStore | None = None,
        prices: PriceList | None = None,
        parent_agent_id: str | None = None,
        depth_left: int | None = None,
        clock: Callable[[], datetime] = now,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        definition, subagents = with_subagents(agent, agents := tuple(agents))
        self._answers = answers_of(agent)
        toolset = Toolset(tuple(tools), tuple(hooks), tuple(compilers), tuple(capabilities), tuple(resources))
        toolset = toolset.joined(offer, *(each.toolset for each in (agent, *agents) if isinstance(each, Agent)))
        offered = with_fetch_tool(toolset, results)
        self.attachments: AttachmentStore = attachment_store(records)
        if records is not None:
            offered = RecordTools(records, self._whose).with_records_tool(offered)
        offered = with_built_in(offered)
        self._records = records
        self._model, self._owns_model = driver_model(model, models)
        self._clock, self._new_id, self._prices = clock, new_id, prices or prices_of(self._model)
        self._parent_agent_id = parent_agent_id
        self._owns_shared = True
        self._inventory = Inventory(
            toolset=offered,
            agents=subagents,
            model=self._model,
            mcp=LocalMcpServers(mcp),
            resources=OpenResources(toolset.takers, toolset.resources),
            results=results,
            attachments=self.attachments,
            prices=self._prices,
            approver=approver,
            answer_input=answer_input,
            run_child=self._run_child,
            clock=clock,
            depth_left=depth_left,
        )
        self._definition, self._active = definition, definition
        """The agent as it was given or changed to, and the one that has the conversation."""
        reachable(definition, subagents)  # refuses a name that is not there
        self._loop, self._executor, self._pinned = self._inventory.equip(definition, definition)
        for problem in toolset.unused_warnings((definition, *subagents)) if parent_agent_id is None else ():
            warnings.warn(problem, stacklevel=2)
        self._change: DefinitionChange | None = None
        self._listeners = Listeners()
        self._inbox = Inbox()
        self._calls = CallTasks(self._inbox, clock)
        self._busy = False
        self._execution_id = self._agent_id = ""
        self._children: list[LocalDriver] = []
        self._metadata: Mapping[str, JsonValue] = {}
        self._tenant = ""
        self._requests: dict[str, RequestApproval] = {}
        """The approval requests, the latest for each call id."""

    @overload
    def on(self, kinds: type[ObservedT], listener: Callable[[ObservedT], object]) -> LocalDriver: ...

    @overload
    def on(self, kinds: Kind | tuple[Kind, ...], listener: ListenerFunction) -> LocalDriver: ...

    def on(self, kinds: Kind | tuple[Kind, ...], listener: ListenerFunction) -> LocalDriver:
        """Call `listener` with every event of these kinds, also with those of subagents; return the driver.

        Args:
            kinds: a class of `holdfast.core.wire.execution_events` or its name, or several of them.
            listener: a function of one event, or a coroutine function: then it is awaited aside, one event after
                another, and the execution's end waits for it at most LISTENER_SECONDS_MAX.

        A listener's exceptions are caught and logged once as a warning. Listeners that are added while an execution
        runs without any take effect with the next one. Raises InvalidInput for an unknown kind of event.
        """
        self._listeners.add(kinds, listener)
        return self

    def wiretap(self, listener: Listener) -> LocalDriver:
        """Call `listener` with every event; return the driver. As `on` otherwise."""
        self._listeners.add(Observed, listener)
        return self

    def off(self, listener: ListenerFunction) -> LocalDriver:
        """Remove `listener` from all events; return the driver. InvalidInput for one that was not added."""
        self._listeners.remove(listener)
        return self

    async def run(self, question: str | AgentState, **options: Unpack[ExecuteOptions]) -> RunResult[AnswerT]:
        """Return the end of the run, `output` and all. Raises ExecutionFailed; arguments as for `execute`."""
        final = await self.execute(question, **options)
        if final.status is ExecutionStatus.FAILED:
            why = final.stop_signal.message if final.stop_signal else "for no known reason"
            raise ExecutionFailed(f"run {final.running.execution_id} failed: {why}", final.to_dict())
        return RunResult(final, self._answers)

    async def execute(self, question: str | AgentState, **options: Unpack[ExecuteOptions]) -> AgentState:
        """Return the state after the agent has dealt with `question`, whatever its status.

        Args:
            question: what the person asks, or a state whose conversation continues. A state that is in
                progress goes on with the same execution: nothing that has ended is done again.
            **options: `ExecuteOptions` tells them.
        """
        return [each async for each in self.iterate(question, **options)][-1]

    async def iterate(
        self,
        question: str | AgentState,
        *,
        state: AgentState | None = None,
        budget: ExecutionBudget | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        tenant: str = "",
        attachments: Iterable[GivenFile] = (),
    ) -> AsyncGenerator[AgentState, None]:
        """Yield the state after every completed step, and the finished state last. Arguments as for `execute`.

        The next step begins, and its model call goes out, only when the next item is requested; stops, messages and
        changes that came meanwhile apply first. The time that passes counts.
        """
        if self._busy:
            raise Conflict("this driver runs an execution already; wait for its end, or make another driver")
        self._metadata, self._tenant = checked_metadata(metadata), tenant
        at, allowed = self._clock(), self._definition.budget.overridden_by(budget or ExecutionBudget())
        self._busy = True
        self._inbox, self._change, self._requests = Inbox(), None, {}
        self._calls = CallTasks(self._inbox, self._clock)
        try:
            state = question if isinstance(question, AgentState) else state or AgentState.empty()
            self._inventory.mcp.tenant = tenant
            await self._prepare(state, allowed.ends_at(at))
            state = self._beginning(state, at)
            loop = dataclasses.replace(self._loop, observed=bool(self._listeners))
            steps_seen = state.step_count if state.status is ExecutionStatus.IN_PROGRESS else 0
            event: Event = ExecutionStarted(
                execution_id=self._new_id(),
                messages=await self._inventory.messages_of(question, attachments, self._active),
                budget=allowed,
                at=at,
                metadata=self._metadata,
                tenant=tenant,
                mcp=self._pinned,
            )
            if self._owns_shared:
                await self._inventory.resources.open(apart=False)
            while True:
                state, commands = loop.step(state, event)
                idle = self._calls.idle and not rests(state.running)
                while self._change is not None and idle and may_change(state, self._inbox.waiting):
                    emitted = (each for each in commands if isinstance(each, Emit))
                    changed, event = await self._changed(self._change, loop, state.mcp_catalog)
                    state, others = changed.step(state, event)
                    if isinstance(event, DefinitionChanged):
                        loop, commands = changed, (*emitted, *others)
                self._execution_id, self._agent_id = state.running.execution_id, state.agent_id
                for command in commands:
                    self._perform(command, state)
                if state.status.is_terminal:
                    state = await recorded(state, self._loop.definition.name, self._records)
                    break
                if (agent := state.running.handing_over) is not None and HandOver(agent.to_agent) in commands:
                    loop, event = await self._handed_over(agent.to_agent, loop, state.mcp_catalog)
                    continue
                if rests(state.running) and state.step_count > steps_seen:
                    steps_seen = state.step_count
                    yield state
                event = await self._next_event(state)
        finally:
            await self._settle()
        yield state

    async def _settle(self) -> None:
        """End what an execution has begun and opened."""
        try:
            await self._calls.end()
            await self._listeners.caught_up()
            if self._owns_shared:
                await self._inventory.mcp.close()
                await self._inventory.resources.close()
            if self._owns_model:
                await self._model.close()
        finally:  # whoever cancels us twice does not wait for what we cancelled
            self._busy = False

    async def _next_event(self, state: AgentState) -> Event:
        """Return what happens next."""
        due = not self._inbox.waiting and rests(state.running)
        return StepDue(self._clock()) if due else await self._inbox.get()

    def stop(self, reason: str = "", *, mode: StopMode = "now", context: Mapping[str, JsonValue] | None = None) -> None:
        """Ask the execution under way to stop; without one nothing happens. `context` stands in the stop signal.

        Raises InvalidInput for a reason or a context that is too long.
        """
        self._inbox.put(stop_event(reason, mode, context or {}, self._clock()))

    def say(self, message: str | Message) -> None:
        """Send the execution under way a message: the model sees it with its next call, and answers it.

        Raises InvalidInput for a message with the role of the model or a tool.
        """
        self._inbox.put(message_event(message, self._clock()))

    def change(self, definition: AgentDefinition, *, budget: ExecutionBudget | None = None) -> None:
        """Change the agent's definition from the next step on; without an execution nothing happens.

        Of several changes before that step the last one counts. `budget` replaces the execution's; its limits count
        from the execution's start. Raises InvalidInput for a definition that names what this driver lacks; the agent
        stays as it is then.
        """
        self._inventory.equip(definition, definition)
        self._change = DefinitionChange(definition=definition, budget=budget)

    async def _changed(self, change: DefinitionChange, before: AgentLoop, mcp: str | None) -> tuple[AgentLoop, Event]:
        """Apply `change`; return the new loop and the event for it, or a refusal."""
        self._change = None
        try:
            equipment = await self._inventory.equip_now(change.definition, change.definition, self._inbox, mcp)
        except Exception as error:  # noqa: BLE001  # whatever a server does
            return before, ChangeRefused(error_record(error, "worker"), self._clock())
        self._become(change.definition, equipment)
        self._definition = change.definition
        loop = dataclasses.replace(self._loop, observed=before.observed)
        return loop, DefinitionChanged(self._priced(), self._clock(), change.budget, mcp=self._pinned)

    async def _handed_over(self, agent: str, before: AgentLoop, mcp: str | None) -> tuple[AgentLoop, Event]:
        """Hand the conversation over to `agent`; return the new loop and the event for it, or a refusal."""
        agents, origin = self._inventory.all_agents(self._definition), self._definition
        try:
            successor = next(each for each in agents if each.name == agent)
            self._become(successor, await self._inventory.equip_now(successor, origin, self._inbox, mcp))
        except Exception as error:  # noqa: BLE001  # whatever a server does
            return before, HandoffRefused(error_record(error, "worker"), self._clock())
        loop = dataclasses.replace(self._loop, observed=before.observed)
        return loop, DefinitionChanged(self._priced(), self._clock(), handoff=True, mcp=self._pinned)

    def _become(self, agent: AgentDefinition, equipment: Equipment) -> None:
        self._loop, self._executor, self._pinned = equipment
        self._active = agent

    def _priced(self) -> AgentDefinition:
        return replace(self._loop.definition, llm=self._prices.priced(self._loop.definition.llm))

    def decide(self, call_id: str, verdict: Verdict, *, execution_id: str | None = None) -> None:
        """Decide about a call that waits for approval; about any other nothing happens.

        A verdict with the digest of another call changes nothing either, except for a warning.
        `execution_id` names a subagent's execution, as its ApprovalRequested event does; our own by default. Raises
        InvalidArguments for an edit that breaks the tool's schema; the call is still waiting.
        """
        deciding = self if execution_id is None else self._driver_of(execution_id)
        if deciding is not None:
            deciding._decide(call_id, verdict)  # noqa: SLF001  # our own class

    def _decide(self, call_id: str, verdict: Verdict) -> None:
        request = self._requests.get(call_id)
        if request is not None and (problem := self._executor.edit_problem(request, verdict)) is not None:
            raise InvalidArguments(f"{problem}; the call {call_id} ({request.call.name}) is still waiting")
        self._inbox.put(ApprovalDecided(call_id=call_id, verdict=verdict, at=self._clock()))

    def _driver_of(self, execution_id: str) -> LocalDriver | None:
        if self._execution_id == execution_id:
            return self
        drivers = (child._driver_of(execution_id) for child in self._children)  # noqa: SLF001  # our own class
        return next(filter(None, drivers), None)

    async def _whose(self, execution_id: str) -> str:
        """Return the agent of that execution, ours or a subagent's."""
        driver = self._driver_of(execution_id)
        return self._agent_id if driver is None else driver._agent_id  # noqa: SLF001  # our own class

    async def _prepare(self, state: AgentState, ends_at: datetime | None) -> None:
        """Become the agent that has the conversation in `state`; where it cannot be equipped now, the run ends."""
        origin = self._definition
        holder = conversation_holder(state, origin, self._inventory.all_agents(origin))
        if holder.mcp or holder is not self._active:
            ends_at = state.running.time_limit_at if state.status is ExecutionStatus.IN_PROGRESS else ends_at
            previous = state.mcp_catalog
            equipment, event = await self._inventory.equip_first(holder, origin, self._inbox, previous, ends_at)
            self._become(holder, equipment)
            if event is not None:
                self._inbox.put(event)

    def _beginning(self, state: AgentState, at: datetime) -> AgentState:
        definition = self._loop.definition
        state = taken_over(state, definition)
        agent_id = self._new_id() if state.agent_id == UNBORN_ID else state.agent_id
        state = first_run(state, definition, agent_id=agent_id, at=at, parent_agent_id=self._parent_agent_id)
        llm = state.llm or definition.llm
        priced = self._prices.priced(llm)
        return state if priced == llm else state.with_llm(priced, at=state.updated_at)

    def _perform(self, command: Command, state: AgentState) -> None:  # noqa: C901  # one case per command
        match command:
            case StartTimer():
                self._calls.set_timer(command)
            case CallModel():
                self._calls.begin(self._executor.call_model(command, state), lambda at: ModelCancelled(None, at))
            case SummariseBuffer():
                self._calls.begin(self._executor.summarise(command, state), lambda at: ModelCancelled(None, at))
            case CallTool():
                self._calls.begin(self._executor.call_tool(command, state))
            case SpawnSubagent():
                self._calls.begin(self._executor.spawn(command, state), partial(subagent_cancelled, command.call_id))
            case RunHooks():
                self._calls.begin(self._executor.run_hooks(command))
            case RequestApproval():
                self._requests[command.call.id] = command
                self._calls.begin_decision(self._executor.ask_approval(command))
            case RequestInput():
                self._calls.begin_decision(self._executor.ask_person(command, state))
            case CancelInFlight():
                self._calls.cancel()
            case Emit():
                self._listeners.notify(command.event)
            case HandOver() | Finish():
                pass  # `iterate` hands over: other rules go on from there
            case _:
                assert_never(command)

    def _share(self, caller: Inventory) -> None:
        """Use the open resources, the MCP connections and the store of files of the agent that calls this one."""
        self._owns_shared, self.attachments = False, caller.attachments
        self._inventory = self._inventory.shared_with(caller)
        self._loop, self._executor, self._pinned = self._inventory.equip(self._definition, self._definition)

    async def _run_child(self, command: SpawnSubagent, state: AgentState) -> AgentState:
        """Run a subagent with a driver of its own; cancelling this stops its whole tree, and returns its end."""
        offered = self._inventory.toolset
        child = LocalDriver(
            command.definition or self._loop.subagents[command.agent],
            model=self._model,
            tools=offered.tools,
            hooks=offered.hooks,
            agents=self._inventory.all_agents(self._definition),
            capabilities=offered.capabilities,
            compilers=offered.compilers,
            mcp=self._inventory.mcp.servers,
            resources=offered.resources,
            approver=self._inventory.approver,
            answer_input=self._inventory.answer_input,
            results=self._inventory.results,
            records=self._records,
            prices=self._prices,
            parent_agent_id=state.agent_id,
            depth_left=command.depth_left,
            clock=self._clock,
            new_id=self._new_id,
        )
        child._share(self._inventory)  # our own class
        if self._listeners:
            child.wiretap(self._listeners.notify)
        self._children.append(child)
        run = child.execute(command.task, budget=command.budget, metadata=self._metadata, tenant=self._tenant)
        running = asyncio.create_task(run)
        try:
            return await ended_child(running, child.stop)
        finally:
            self._children.remove(child)
