"""`read_records`: the tool by which an agent reads what it did in earlier executions. It reads only its own records.

The agent is not an argument: the calling run is asked which agent it belongs to, so a manipulated model cannot read
another agent's records.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final

from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import RECORDED_TEXT_CHARS_MAX
from holdfast.core.base.errors import InvalidArguments, InvalidInput, RecordNotFound
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.truncation import RECORDS_TOOL
from holdfast.core.conversation.steps import AgentStep
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import AnyTool, tool
from holdfast.core.wire.record_store import ExecutionStore
from holdfast.core.wire.records import ExecutionRecord

RECORD_SHOWN_CHARS_MAX: Final = 20_000
"""The most that one call shows, in characters."""

RECORDED_CALL_CHARS_MAX: Final = 500
"""How many characters are shown of a recorded call's arguments, and of its result."""

CAPABILITY: Final = "records"
"""The capability that contains the tool; an agent can also name the tool itself."""

LISTED: Final = 20
"""How many records are listed by default."""

LISTED_MAX: Final = 100

Whose = Callable[[str], Awaitable[str]]
"""Returns the agent id of an execution."""


class RecordTools:
    """The tool that reads one record store."""

    def __init__(self, records: ExecutionStore, whose: Whose) -> None:
        self._records = records
        self._whose = whose

    def with_records_tool(self, toolset: Toolset) -> Toolset:
        """Return `toolset` with the tool, for agents that name it or the capability; unchanged if it has one."""
        if any(tool.name == RECORDS_TOOL for tool in toolset.tools):
            return toolset
        bundle = Capability(name=CAPABILITY, tools=(RECORDS_TOOL,))
        return replace(toolset, tools=(*toolset.tools, self.tool()), capabilities=(*toolset.capabilities, bundle))

    def tool(self) -> AnyTool:
        """Return the tool."""

        @tool(name="records", idempotent=True)
        async def made(  # noqa: D417  # the context is hidden from the model
            context: ToolContext, execution_id: str | None = None, from_step: int = 1, limit: int = LISTED
        ) -> str:
            """Look at what you did in your earlier executions: list them, or read one step by step.

            Args:
                execution_id: the one to read, as the list names it; leave it out to get the list, newest first.
                from_step: of the one to read, the first step to show.
                limit: how many executions to list, or how many steps to show, at the most.
            """
            agent_id = await self._whose(context.execution_id)
            if execution_id is None:
                return await self.listed(agent_id, limit)
            return await self.read(agent_id, execution_id, from_step, limit)

        # the name is reserved: no other tool can have it
        schema = made.schema.model_copy(update={"name": RECORDS_TOOL})
        return replace(made, schema=schema, traits=made.traits.model_copy(update={"name": RECORDS_TOOL}))

    async def listed(self, agent_id: str, limit: int) -> str:
        """Return the agent's latest records as text, one paragraph each, newest first. Raises StorageFailed."""
        records = await self._records.by_agent(agent_id, max(1, min(limit, LISTED_MAX)))
        if not records:
            return "There are no records yet: each is written when its execution has ended."
        share = RECORD_SHOWN_CHARS_MAX // len(records)
        return "\n\n".join(clamped(_shown(record), share) for record in records)

    async def read(self, agent_id: str, execution_id: str, from_step: int, limit: int) -> str:
        """Return one of the agent's records as text: the question, the steps as far as they fit, the answer.

        Raises InvalidArguments for a record that the agent does not have; StorageFailed.
        """
        try:
            record = await self._records.by_id(execution_id)
        except (RecordNotFound, InvalidInput):
            record = None
        if record is None or record.agent_id != agent_id:
            problem = f"{execution_id[:80]!r} is none of your records"
            raise InvalidArguments(f"{problem}; call {RECORDS_TOOL} without an execution_id to see which there are")
        if not 1 <= from_step <= max(1, record.step_count):
            raise InvalidArguments(f"the record has {record.step_count} steps; read from one of those")
        state = await self._records.state_of(record)
        steps = state.steps[from_step - 1 :][: max(1, limit)]
        return "\n\n".join(_fitting(record, steps))


def _fitting(record: ExecutionRecord, steps: tuple[AgentStep, ...]) -> Iterator[str]:
    """Yield the record, then its steps as far as they fit, and how to read on."""
    head = _shown(record)
    yield head
    room = RECORD_SHOWN_CHARS_MAX - len(head)
    for place, step in enumerate(steps):
        text = _step(step)
        if place and len(text) > room:
            yield f"[the steps before {step.number}; {RECORDS_TOOL}(from_step={step.number}) reads on]"
            return
        room -= len(text)
        yield clamped(text, RECORD_SHOWN_CHARS_MAX)
    if steps and steps[-1].number < record.step_count:
        following = steps[-1].number + 1
        yield f"[the steps before {following}; {RECORDS_TOOL}(from_step={following}) reads on]"


def _shown(record: ExecutionRecord) -> str:
    ended = f"{record.status} ({record.stop_reason})" if record.stop_reason else record.status
    when = f"{record.completed_at:%Y-%m-%d %H:%M} UTC"
    lines = [
        f"execution {record.number}, id {record.execution_id}: {ended} at {when}, {record.step_count} steps",
        f"asked: {record.task}",
        f"answered: {record.answer}" if record.answer else f"no answer. {record.why}".rstrip(),
    ]
    return "\n".join(lines)


def _step(step: AgentStep) -> str:
    text, lines = step.text_so_far, [f"step {step.number}"]
    if text.strip():
        lines.append(clamped(text, RECORDED_TEXT_CHARS_MAX))
    for each in step.tool_executions:
        call = clamped(each.call.arguments_text, RECORDED_CALL_CHARS_MAX)
        lines.append(f"called {each.call.name}({call}): {clamped(each.answer.text, RECORDED_CALL_CHARS_MAX)}")
    lines += [f"error {error.type}: {error.message}" for error in step.errors]
    return "\n".join(lines)
