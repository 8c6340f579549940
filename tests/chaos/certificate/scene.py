"""A `Scene` of the certificate: an agent, what its model says, and what people do meanwhile. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import CONTINUE_EVENTS
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.testing.script import DEFAULT_USAGE, Reply

AMPLE_TOKENS_MAX: Final = 200_000
SECONDS_MAX: Final = 900.0
COST_MAX: Final = 1.0
"""More than the tokens can cost. These three limits must hold; they are not meant to end a run."""

Model = Callable[[dict[str, Any]], Reply]
"""What answers a request; it depends on the request alone, so an attempt that is repeated gets the same answer."""


Reported = Callable[[dict[str, Any]], tuple[int, int]]
"""The prompt and completion tokens that the answer to a request reports: what the provider bills."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The moment at which the model has been asked for its turn `turn` (the first is 0)."""

    turn: int


@dataclass(frozen=True, slots=True)
class Begun:
    """The moment at which the tool has begun."""

    tool: str


@dataclass(frozen=True, slots=True)
class Waits:
    """The moment at which a call waits for a person."""


Moment = Asked | Begun | Waits


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody does once the moment has come.

    `approve` allows the call that waits, `open` lets the tool `hold` go on, `inject` sends a message to the execution
    under way.
    """

    when: Moment
    do: Literal["approve", "inject", "open", "stop"]
    text: str = ""
    mode: StopMode = "now"


@dataclass(frozen=True, slots=True)
class Scene:
    """One row of the certificate. Each of `asks` is answered by an execution of its own: with several, in a session.

    `once` names the tools whose outcome may be unknown after a fault: those that never begin twice. In a `timed` scene
    the time limit ends the run, at a place that depends on the faults. In a `spent` scene the token limit does; a lost
    attempt counts, so a fault can end it earlier.
    """

    name: str
    about: str
    agent: AgentDefinition
    model: Model
    subagents: tuple[AgentDefinition, ...] = ()
    asks: tuple[str, ...] = ("go",)
    deeds: tuple[Deed, ...] = ()
    budget: ExecutionBudget = field(
        default_factory=lambda: ExecutionBudget(max_tokens=AMPLE_TOKENS_MAX, max_seconds=SECONDS_MAX, max_cost=COST_MAX)
    )
    continue_events: int = CONTINUE_EVENTS
    once: frozenset[str] = frozenset()
    timed: bool = False
    spent: bool = False
    reported: Reported = lambda _: DEFAULT_USAGE
    parallel: bool = False
    """Calls run at the same time: their events may come in another order."""
    sink: bool = False
    """The worker delivers the events to a file as well."""

    @property
    def definition(self) -> AgentDefinition:
        """The agent with its budget."""
        return replace(self.agent, budget=self.budget)

    @property
    def session(self) -> bool:
        """Whether it is a session's, not a single run's."""
        return len(self.asks) > 1

    @property
    def mcp(self) -> bool:
        """Whether the agent uses an MCP server."""
        return bool(self.agent.mcp)

    @property
    def workspace(self) -> bool:
        """Whether the agent has a workspace."""
        return self.agent.workspace is not None
