"""What a run or a session has cost, with the runs of its subagents: by agent and model, in parts. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import LISTED_MAX
from holdfast.core.base.errors import ExecutionNotFound, HoldfastError
from holdfast.core.base.server_tools import joined_calls
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.amounts import CALLS_OF, WORKERS_MODEL, joined_models
from holdfast.core.conversation.steps import AgentStep
from holdfast.view.run_tree import ASKED_AT_ONCE, tree
from holdfast.view.run_view import RunView, recorded_run

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.core.wire.records import ExecutionRecord

ELSEWHERE: Final = "(not itemised)"
"""The agent of a line for what a total holds and no step that can be read: a run that is gone, a judge's calls."""

ROUNDING_USD: Final = 1e-9
"""Sums of the same costs in another order differ by less than this."""


@dataclass(frozen=True, slots=True)
class CostLine:
    """What an agent used of a model: `calls` answers, failed attempts and summaries too; `cost` in US dollars.

    Without a known price `unpriced` is true, and the cost leaves out what has none.
    """

    agent: str
    model: str
    calls: int = 0
    usage: Usage = NOTHING_USED
    cost: float = 0.0
    unpriced: bool = False
    server_tool_calls: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many calls of its own tools the provider made, by name; `cost` has what they cost by `usd_per_call`."""

    def __add__(self, other: CostLine) -> CostLine:
        calls, cost, unpriced = self.calls + other.calls, self.cost + other.cost, self.unpriced or other.unpriced
        ran = joined_calls((self.server_tool_calls, other.server_tool_calls))
        return CostLine(self.agent, self.model, calls, self.usage + other.usage, cost, unpriced, ran)


@dataclass(frozen=True, slots=True)
class CostReport:
    """The cost of one or several executions: the `lines` add up to `usage` and `cost`, which `holdfast show` says too.

    Subagents that are under way count once they have ended; `running` is how many there are. `more` says that older
    executions of a session, or some subagents, are not in it.
    """

    lines: tuple[CostLine, ...] = ()
    usage: Usage = NOTHING_USED
    cost: float = 0.0
    unpriced: tuple[str, ...] = ()
    executions: int = 0
    running: int = 0
    more: bool = False

    @property
    def models(self) -> tuple[CostLine, ...]:
        """The lines by model alone, the dearest first; their agent is empty."""
        return joined(replace(each, agent="") for each in self.lines)

    @property
    def server_tool_calls(self) -> Mapping[str, int]:
        """How many calls of their own tools the providers made, by name."""
        return joined_calls(each.server_tool_calls for each in self.lines)

    def __add__(self, other: CostReport) -> CostReport:
        return CostReport(
            lines=joined((*self.lines, *other.lines)),
            usage=self.usage + other.usage,
            cost=self.cost + other.cost,
            unpriced=joined_models(self.unpriced, other.unpriced),
            executions=self.executions + other.executions,
            running=self.running + other.running,
            more=self.more or other.more,
        )


@dataclass(slots=True)
class _Total:
    """What is left of an execution's total once its steps and subagents are taken off."""

    usage: Usage
    cost: float
    lines: list[CostLine] = field(default_factory=list[CostLine])

    def take(self, lines: Iterable[CostLine]) -> None:
        for each in lines:
            self.lines.append(each)
            self.usage = _less(self.usage, each.usage)
            self.cost -= each.cost

    def rest(self) -> tuple[CostLine, ...]:
        if not self.usage.total_tokens and abs(self.cost) < ROUNDING_USD:
            return ()
        return (CostLine(ELSEWHERE, "", 0, self.usage, max(0.0, self.cost)),)


def joined(lines: Iterable[CostLine]) -> tuple[CostLine, ...]:
    """Return the lines with one for each agent and model, the dearest first."""
    sums = dict[tuple[str, str], CostLine]()
    for each in lines:
        place = (each.agent, each.model)
        sums[place] = sums[place] + each if place in sums else each
    return tuple(sorted(sums.values(), key=lambda line: (-line.cost, -line.usage.total_tokens, line.agent, line.model)))


def own_lines(state: AgentState, agent: str) -> Iterator[CostLine]:
    """Yield what each step of an execution used by itself, without its subagents; `agent` is its agent, if known."""
    execution = state.running
    current = (execution.current_step,) if execution.current_step is not None else ()
    handoffs = {each.step_number: each.to_agent for each in execution.handoffs}
    agent = execution.handoffs[0].from_agent if execution.handoffs else state.active_agent or agent
    for step in (*(each.step for each in execution.step_executions), *current):
        yield from _of_step(step, agent, state.llm.model if state.llm else None)
        agent = handoffs.get(step.number, agent)


def of_execution(
    state: AgentState | None, run: RunView, children: Sequence[CostReport] = (), *, running: int = 0
) -> CostReport:
    """Return the report of a run: its own steps, those of its ended subagents, and what is left of the total.

    `state` is none where it could not be read; then the total is what `run` says.
    """
    usage, cost, unpriced = run.usage, run.cost, run.unpriced
    if state is not None:
        usage, cost, unpriced = state.usage, state.cost, state.running.unpriced
    left = _Total(usage, cost)
    if state is not None:
        left.take(own_lines(state, run.agent))
    for child in children:
        left.take(child.lines)
    return CostReport(
        lines=joined((*left.lines, *left.rest())),
        usage=usage,
        cost=cost,
        unpriced=unpriced,
        executions=1 + sum(each.executions for each in children),
        running=running + sum(each.running for each in children),
        more=run.more or any(each.more for each in children),
    )


async def run_cost(client: Holdfast, execution_id: str) -> CostReport:
    """Return the cost of a run with its subagents, under way or ended; at most as many runs as `run_tree.tree` reads.

    A run that the server has forgotten is read from its record, its subagents as one line. Raises InvalidInput,
    ExecutionNotFound, ServerUnavailable, StorageFailed.
    """
    try:
        top = await tree(client, execution_id)
    except ExecutionNotFound:
        return await _recorded(client, await client.record(execution_id))
    return await _grown(client, top, asyncio.Semaphore(ASKED_AT_ONCE))


async def session_cost(client: Holdfast, agent_id: str) -> CostReport:
    """Return the cost of a session's ended executions, the latest 1,000; they come from their records.

    Raises InvalidInput, ServerUnavailable, StorageFailed.
    """
    records = await client.records(LISTED_MAX, agent_id)
    report = CostReport(more=len(records) == LISTED_MAX)
    for record in records:
        try:
            report += await run_cost(client, record.execution_id)
        except ExecutionNotFound:
            report += await _recorded(client, record)
    return report


def to_dict(report: CostReport) -> dict[str, Any]:
    """Return the report as JSON holds it."""
    return {
        "usage": _usage(report.usage),
        "cost": report.cost,
        "unpriced": list(report.unpriced),
        "executions": report.executions,
        "running": report.running,
        "more": report.more,
        "lines": [_line(each) for each in report.lines],
        "models": [{name: value for name, value in _line(each).items() if name != "agent"} for each in report.models],
    }


def _line(line: CostLine) -> dict[str, Any]:
    names = {"agent": line.agent, "model": line.model, "calls": line.calls}
    costs = {"usage": _usage(line.usage), "cost": line.cost, "unpriced": line.unpriced}
    return {**names, **costs, "server_tool_calls": dict(line.server_tool_calls)}


def _usage(usage: Usage) -> dict[str, int]:
    parts = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    counts = {name: getattr(usage, name) for name in (*parts, "estimated_tokens")}
    return {**counts, "total_tokens": usage.total_tokens}


async def _grown(client: Holdfast, run: RunView, at_once: asyncio.Semaphore) -> CostReport:
    ended = [each for each in run.children if each.status != "in_progress"]
    state = await _state(client, run, at_once)
    children = await asyncio.gather(*(_grown(client, each, at_once) for each in ended))
    return of_execution(state, run, children, running=len(run.children) - len(ended))


async def _state(client: Holdfast, run: RunView, at_once: asyncio.Semaphore) -> AgentState | None:
    async with at_once:
        try:
            state = await client.state(run.execution_id)
        except HoldfastError:
            try:
                state = await client.recorded_state(await client.record(run.execution_id))
            except HoldfastError:
                return None
        return state if state.execution is not None else None


async def _recorded(client: Holdfast, record: ExecutionRecord) -> CostReport:
    return of_execution(await client.recorded_state(record), recorded_run(record))


def _of_step(step: AgentStep, agent: str, model: str | None) -> Iterator[CostLine]:
    response = step.inference_response or step.partial_response
    used, cost = step.overhead, step.overhead_cost
    for each in step.fallbacks:  # each model's failed attempts are its own
        model = each.route or WORKERS_MODEL
        used, cost = _less(used, each.usage), max(0.0, cost - each.cost)
        if each.usage.total_tokens:
            yield CostLine(agent, model, 0, each.usage, each.cost, model in step.unpriced)
        model = each.to
    if response is not None:
        used, cost = used + response.usage, cost + (response.cost or 0.0)
    calls = 0 if step.inference_response is None else 1
    if calls or used.total_tokens or not step.fallbacks:
        name = (response.model if response else "") or model or WORKERS_MODEL
        unpriced = {name, model, WORKERS_MODEL, *(f"{CALLS_OF}{tool}" for tool in step.server_tool_calls)}
        ran = step.server_tool_calls
        yield CostLine(agent, name, calls, used, cost, bool(unpriced & set(step.unpriced)), ran)


def _less(whole: Usage, part: Usage) -> Usage:
    names = ("input_tokens", "output_tokens", "estimated_tokens")
    left = Usage(**{name: max(0, getattr(whole, name) - getattr(part, name)) for name in names})
    return left.with_parts(
        whole.cached_tokens - part.cached_tokens,
        whole.cache_write_tokens - part.cache_write_tokens,
        whole.reasoning_tokens - part.reasoning_tokens,
    )
