"""`Inventory`: what an in-process driver has for its agents, and the rules and executor that it makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from holdfast.core.agent.assistants import callable_agents
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.handoffs import definition_digest
from holdfast.core.agent.model import Model, problem_with, problem_with_files
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.tool_selection import check_server_tools, check_tool_choice
from holdfast.core.agent.toolset import AgentToolset, Toolset, with_mcp_tools
from holdfast.core.base.bounds import TOOLS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace as with_changes
from holdfast.core.conversation.attachments import Attachment, kinds_of
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.messages import Message, user_message
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.events import DriverFailed, Event, TimerFired
from holdfast.core.tools.mcp_changes import PinnedCatalog
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.core.wire.tool_catalog import needed_kinds
from holdfast.local.executor import Approver, Executor, InputAnswerer, RunChild
from holdfast.local.inbox import Inbox, is_stop
from holdfast.local.mcp_servers import ListedTools, LocalMcpServers
from holdfast.local.model_calls import ModelCalls
from holdfast.local.script_calls import with_code_mode
from holdfast.local.searched_tools import shown_tools
from holdfast.runtime.answer_check import schema_problem
from holdfast.runtime.files.message_files import GivenFile, message_files, stored_files
from holdfast.runtime.model_call_changes import ModelCallCheck
from holdfast.runtime.open_resources import OpenResources
from holdfast.runtime.prices import PriceList
from holdfast.runtime.remote_tool_checks import check_schemas, refuse_remote
from holdfast.runtime.tool_runner import Results


class Equipment(NamedTuple):
    """The loop and the executor of one agent, and the catalog of its MCP servers, if they are listed."""

    loop: AgentLoop
    executor: Executor
    pinned: PinnedCatalog | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a driver has for its agents: `agents` are those that may be called or handed to, in the order given."""

    toolset: Toolset
    agents: Sequence[AgentDefinition]
    model: Model
    mcp: LocalMcpServers
    resources: OpenResources
    results: Results | None
    attachments: AttachmentStore
    prices: PriceList
    approver: Approver | None
    answer_input: InputAnswerer | None
    run_child: RunChild
    clock: Callable[[], datetime]
    depth_left: int | None

    def shared_with(self, caller: Inventory) -> Inventory:
        """Return this inventory with the resources, MCP connections and files of the agent that calls this one."""
        return replace(self, mcp=caller.mcp, resources=caller.resources, attachments=caller.attachments)

    async def messages_of(
        self, question: str | AgentState, files: Iterable[GivenFile], definition: AgentDefinition
    ) -> tuple[Message, ...]:
        """Return the question as a message with its files, which are stored; none for a state.

        Raises InvalidInput for files that cannot be sent, and those that the agent's model does not take.
        """
        read = await asyncio.to_thread(message_files, files)
        if isinstance(question, AgentState):
            if read:
                raise InvalidInput("a state is no question that files could come with; give `state` and a question")
            return ()
        kinds = kinds_of(each if isinstance(each, Attachment) else each.attachment for each in read)
        if problem := problem_with_files(self.model, definition.llm, kinds):
            raise InvalidInput(f"agent {definition.name!r}: {problem}")
        return (user_message(question, await stored_files(read, self.attachments)),)

    def all_agents(self, origin: AgentDefinition) -> tuple[AgentDefinition, ...]:
        """Return the agents that may be called or handed to, `origin` among them."""
        return tuple({each.name: each for each in (*self.agents, origin)}.values())

    def equip(
        self, definition: AgentDefinition, origin: AgentDefinition, listed: ListedTools | None = None
    ) -> Equipment:
        """Return what the agent runs with. Raises InvalidInput, UnknownTool and so on when it names what is not here.

        Its conversation began with `origin`. `listed` are the tools of its MCP servers. An agent whose servers are not
        listed yet gets no tools or hooks, and what else it names is not checked.
        """
        agents = self.all_agents(origin)
        if problem := schema_problem(definition.response_format):
            raise InvalidInput(f"agent {definition.name!r}: response_format.json_schema: {problem}")
        needed = needed_kinds(definition, ())
        if problem := problem_with(self.model, definition.llm) or problem_with_files(
            self.model, definition.llm, needed
        ):
            raise InvalidInput(f"agent {definition.name!r}: {problem}")
        self.mcp.check(definition)
        if definition.mcp and listed is None:
            toolset = AgentToolset(definition, {}, {}, None)
        else:
            toolset = self._toolset_for(definition, listed.tools if listed else ())
        callees = callable_agents(definition, agents)
        window = self.prices.window_of(definition.llm.model) if definition.mcp else None
        offered = shown_tools(toolset.tools, bool(callees["subagents"]) + bool(callees["handoffs"]), window)
        if len(offered.shown) > TOOLS_MAX:
            problem = f"agent {definition.name!r} has {len(offered.shown)} tools of its own"
            raise InvalidInput(f"{problem}, and in-process at most {TOOLS_MAX}; name those it needs under `tools`")
        offered = with_code_mode(offered, toolset.tools, definition.code)
        loop = AgentLoop(
            toolset.definition,
            tools={each.name: each for each in offered.traits},
            hooks=tuple(hook.traits for hook in toolset.hooks.values()),
            **callees,
            origin_digest=definition_digest(origin),
            depth_left=self.depth_left,
            step_by_step=True,
        )
        shown = (*offered.shown, *loop.own_tools)
        if listed is not None or not definition.mcp:
            names = tuple(each.name for each in shown)
            check_tool_choice(definition.name, definition.llm.tool_choice, names)
            check_server_tools(definition.name, definition.llm.server_tools, names)
        model_calls = ModelCalls(toolset, shown, self.model, self.attachments)
        executor = Executor(
            loop,
            offered.with_search(toolset),
            model_calls,
            self.approver,
            self.answer_input,
            self.run_child,
            self.clock,
            results=self.results,
            resources=self.resources,
            attachments=self.attachments,
            check=ModelCallCheck(self.model, self.prices),
        )
        return Equipment(loop, executor, listed.pinned if listed else None)

    async def equip_now(
        self, definition: AgentDefinition, origin: AgentDefinition, inbox: Inbox, previous: str | None
    ) -> Equipment:
        """Return what the agent runs with, its MCP servers listed now; as `equip`, and as listing.

        Raises InvalidInput when a stop or the time limit comes into `inbox` meanwhile.
        """
        if not definition.mcp:
            return self.equip(definition, origin)
        listed = await self.mcp.listed(definition, inbox, previous)
        if listed is None:
            raise InvalidInput(f"the run was to end while the MCP servers of {definition.name!r} were listed")
        return self.equip(definition, origin, listed)

    async def equip_first(
        self,
        definition: AgentDefinition,
        origin: AgentDefinition,
        inbox: Inbox,
        previous: str | None,
        ends_at: datetime | None,
    ) -> tuple[Equipment, Event | None]:
        """Return what an agent begins a run with, and the event that ends the run if its MCP servers were not listed.

        A stop in `inbox` and the time limit at `ends_at` do not wait for a server that starts. The stop has its event.
        """
        if not definition.mcp:
            return self.equip(definition, origin), None
        seconds = None if ends_at is None else max((ends_at - self.clock()).total_seconds(), 0)
        try:
            listed = await self.mcp.listed(definition, inbox, previous, seconds)
            equipment = self.equip(definition, origin, listed)
        except Exception as error:  # noqa: BLE001  # whatever a server does
            failed = DriverFailed(error_record(error, "worker"), self.clock(), lost=False)
            return self.equip(definition, origin), failed
        if listed is not None or ends_at is None or any(map(is_stop, inbox.waiting)):
            return equipment, None
        return equipment, TimerFired(max(self.clock(), ends_at))

    def _check_questions(self, definition: AgentDefinition, equipped: AgentToolset) -> None:
        """Refuse an agent that would ask a person where nobody answers."""
        if self.answer_input is None and any(each.traits.loop == "ask_user" for each in equipped.tools.values()):
            problem = f"agent {definition.name!r} may ask a person (ask_user), and nobody is here to answer"
            raise InvalidInput(f"{problem}; give the driver answer_input=, or run the agent on Temporal")

    def _toolset_for(self, definition: AgentDefinition, mcp_tools: Sequence[AnyTool]) -> AgentToolset:
        offered, named = self.toolset, definition
        if definition.mcp:
            offered, named = with_mcp_tools(offered, definition, mcp_tools)
        equipped = offered.equip(named)
        refuse_remote(equipped.tools.values())
        self._check_questions(definition, equipped)
        check_schemas(equipped.tools.values())
        # the definition itself names no tools of its servers
        return replace(equipped, definition=with_changes(equipped.definition, tools=definition.tools))
