"""The accounts of agents that spend: how a model counts tokens, what each was charged, and what must hold of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.core.base.safe_text import json_size
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.commands import Command, SpawnSubagent, StartTimer

ROUNDING_USD = 1e-9


@dataclass(frozen=True)
class Counter:
    """How many tokens the model counts: `per_token` bytes each, texts as JSON or as they are, tags around them."""

    per_token: int
    escaped: bool
    tags: int

    def of(self, messages: tuple[Message, ...]) -> int:
        return sum(self._of(each) for each in messages)

    def of_bytes(self, count: int) -> int:
        return math.ceil(count / self.per_token) + self.tags

    def _of(self, message: Message) -> int:
        said = self.of_bytes(self._bytes(message.text) + len(message.tool_call_id or ""))
        return said + sum(
            self.of_bytes(len((call.id + call.name).encode()) + self._bytes(call.arguments_text)) + self.tags
            for call in message.tool_calls
        )

    def _bytes(self, text: str) -> int:
        return json_size(text) - 2 if self.escaped else len(text.encode())


@dataclass(eq=False)
class Agent:
    """One agent of the tree with its account: what its own model calls used, as the model's side counts."""

    definition: AgentDefinition
    budget: ExecutionBudget
    parent: Agent | None
    spawned_by: SpawnSubagent | None
    loop: AgentLoop
    state: AgentState
    spent: Usage = NOTHING_USED
    cost: float = 0.0
    first_over: tuple[int, float] = (0, 0.0)
    """How many tokens and US dollars its first call's own input takes beyond the half that is kept for it."""
    children: list[Agent] = field(default_factory=list["Agent"])
    pending: list[Command] = field(default_factory=list[Command])
    asked_input: int = 0
    asked_of: LLM = field(default_factory=LLM)
    timer: StartTimer | None = None
    told: bool = False

    @property
    def own(self) -> bool:
        return self.parent is None or self.definition.budget_policy == "own"

    @property
    def ended(self) -> bool:
        return self.state.status.is_terminal

    def tree(self, *, others_too: bool = False) -> list[Agent]:
        """It and everyone below it whose spending counts toward its budget; others' too where that is asked."""
        below = (each for each in self.children if others_too or not each.own)
        return [self, *(agent for each in below for agent in each.tree(others_too=others_too))]


def assert_within(agent: Agent) -> int:
    """Check what the model's side counted below `agent`; return whether its budget was too small for its first call."""
    budget, tree = agent.budget, agent.tree()
    used = sum((each.spent for each in tree), NOTHING_USED)
    cost = sum(each.cost for each in tree)
    tokens_over = cost_over = 0.0
    if agent.own:  # its first call's input may take more than the half of the budget that is kept for it
        tokens_over, cost_over = agent.first_over
    name = f"{agent.definition.name} of {len(tree)}"
    if budget.max_tokens is not None:
        assert used.total_tokens <= budget.max_tokens + tokens_over, f"{name}: {used} against {budget.max_tokens}"
    if budget.max_cost is not None:
        assert cost <= budget.max_cost + cost_over + ROUNDING_USD, f"{name}: {cost} USD against {budget.max_cost}"
    if budget.max_steps is not None:
        steps = sum(each.state.step_count for each in tree)
        overridden = sum(each.state.running.continuation.overrides for each in tree)
        assert steps <= budget.max_steps + overridden, f"{name}: {steps} steps against {budget.max_steps}"
        if agent.state.stop_reason is StopReason.STEPS_LIMIT and len(agent.tree(others_too=True)) == 1:
            assert agent.state.step_count >= budget.max_steps, f"{name}: stopped before its last step"
    passed = budget.max_tokens is not None and used.total_tokens > budget.max_tokens
    return passed or (budget.max_cost is not None and cost > budget.max_cost + ROUNDING_USD)


def assert_all_of_it_is_known(root: Agent) -> None:
    """What every call used, failed and cancelled ones too, has come up to the root; what nobody told, as a bound."""
    tree = root.tree(others_too=True)
    told, billed = root.state.usage, sum((each.spent for each in tree), NOTHING_USED)
    assert told.input_tokens >= billed.input_tokens
    assert told.output_tokens >= billed.output_tokens
    assert told.total_tokens - told.estimated_tokens <= billed.total_tokens
    if not told.estimated_tokens:
        assert told == billed
    cost = sum(each.cost for each in tree)
    assert root.state.cost >= cost - ROUNDING_USD
    assert told.estimated_tokens or root.state.cost <= cost + ROUNDING_USD
