"""The sessions of a storm: what is said in them, and what must hold of each, and of all together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast import AgentDefinition
from holdfast.client import Holdfast
from holdfast.client.agent_handle import AgentHandle
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ServerUnavailable
from holdfast.testing import assert_every_call_answered
from holdfast.testing.ledger import Ledger
from holdfast.testing.script import Call, Reply, calls, say
from tests.chaos.certificate.checks import UNKNOWN, sequence_problems

AnswerT = TypeVar("AnswerT")

FRIEND: Final = AgentDefinition(name="friend", tools=("pay",))
PAID_TURN: Final = 1
"""In which turn, from 0 on, the model asks for the `at_most_once` tool before it answers."""

DELAY: Final = 0.2
TOKENS: Final = 120
"""What the endpoint bills for an answer."""

AGAIN_SECONDS: Final = 0.2


def reply(request: dict[str, Any]) -> Reply:
    """Answer what was said last; in one turn, pay first."""
    messages = request["messages"]
    said = next(each["content"] for each in reversed(messages) if each["role"] == "user")
    if messages[-1]["role"] == "user" and said.endswith(f".{PAID_TURN}"):
        return calls(Call("pay", {"amount": 5, "seconds": 0.05}), delay_seconds=DELAY)
    return say(f"re {said}", delay_seconds=DELAY)


@dataclass
class Figures:
    """What was seen."""

    worker_kills: int = 0
    server_kills: int = 0
    begun: int = 0
    ended: int = 0
    turns: int = 0
    acknowledged: set[str] = field(default_factory=set[str])
    """The ids of the messages that were acknowledged."""
    answered: dict[str, float] = field(default_factory=dict[str, float])
    """When each message's answer was there, by its id."""
    unavailable: Counter[str] = field(default_factory=Counter[str])
    """How often a sender was told that nobody answers, by the beginning of the reason."""
    reported: int = 0
    estimated: int = 0
    """Tokens, in all sessions that have ended."""
    model_calls: int = 0
    billed: int = 0
    """Model calls that were answered, by the endpoint's ledger."""
    payments: int = 0
    unknown: int = 0
    """Payments whose outcome the model was told to be unknown."""
    events: int = 0
    """Session events, all numbered without a gap."""
    in_storm: int = 0
    """How many messages were acknowledged before the faults ended."""
    under_way: frozenset[str] = frozenset()
    quiet_at: float = 0.0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list[str])

    def calm_at(self, moment: float) -> None:
        """Note that there are no faults from now on."""
        self.quiet_at, self.in_storm = moment, len(self.acknowledged)
        self.under_way = frozenset(self.acknowledged.difference(self.answered))

    @property
    def drained_seconds(self) -> float:
        """How long after the faults' end the last message that was under way then had its answer."""
        return max((self.answered[each] - self.quiet_at for each in self.under_way if each in self.answered), default=0)

    @property
    def holds(self) -> bool:
        """Whether everything held, and faults of both kinds have met."""
        return not self.problems and min(self.worker_kills, self.server_kills) > 0

    def line(self, seconds: float) -> str:
        """Return how far it is."""
        kills = f"{self.worker_kills} workers and {self.server_kills} servers killed"
        counts = f"{self.begun} sessions begun, {self.ended} ended, {len(self.answered)} messages answered"
        return f"{seconds:5.0f} s  {counts}; {kills}; {len(self.problems)} problems"

    def report(self) -> str:
        """Return all of it on some lines."""
        tokens = f"{self.reported} tokens reported, {self.estimated} estimated for lost attempts"
        drained = f"those under way at the faults' end had their answers {self.drained_seconds:.1f} s after it"
        kills = f"{self.worker_kills} workers and {self.server_kills} servers killed"
        acknowledged = f"{len(self.acknowledged)} messages acknowledged ({self.in_storm} under faults)"
        lines = (
            f"{self.ended} of {self.begun} sessions ended in {self.seconds:.0f} s; {kills}",
            f"{acknowledged}, {len(self.answered)} answered; {drained}",
            f"{self.model_calls} model calls begun, {self.billed} answered; {tokens}, {self.billed * TOKENS} billed",
            f"{self.payments} payments begun; {self.unknown} told as of unknown outcome",
            f"{self.events} session events",
            f"senders told that nobody answers: {dict(self.unavailable)}",
            f"problems: {len(self.problems)}",
        )
        return "\n".join(lines)


async def talk(holdfast: Holdfast, name: str, turns: int, figures: Figures) -> None:
    """Say so many things to an agent, one after the other as they are answered, whatever dies meanwhile; judge it."""
    figures.begun += 1
    agent = holdfast.agent(definition=FRIEND)
    states = [await _answered(agent, f"{name}.{turn}", figures) for turn in range(turns)]
    await retried(agent.close, figures)
    events = await retried(agent.events, figures)
    numbers = [(each.sequence, each.id.partition("/")[0]) for each in events]
    figures.events += len(numbers)
    figures.problems += [f"{name}: {each}" for each in (*_problems(name, states), *sequence_problems("it", numbers))]
    for state in states:
        figures.estimated += state.usage.estimated_tokens
        figures.reported += state.usage.total_tokens - state.usage.estimated_tokens
    paid = {each.call.id: each for state in states for step in state.steps for each in step.tool_executions}
    figures.unknown += sum(each.error is not None and each.error.type == UNKNOWN for each in paid.values())
    figures.problems += [f"{name}: {each.error}" for each in paid.values() if each.error and each.error.type != UNKNOWN]
    figures.ended += 1


async def _answered(agent: AgentHandle, message_id: str, figures: Figures) -> AgentState:
    receipt = await retried(lambda: agent.send(message_id, message_id=message_id), figures)
    figures.acknowledged.add(message_id)
    answer = await retried(lambda: agent.answer(receipt), figures)
    figures.answered.setdefault(message_id, time.monotonic())
    return answer


async def retried(ask: Callable[[], Awaitable[AnswerT]], figures: Figures) -> AnswerT:
    """Return what was asked for, asking again for as long as nobody answers; any other error is a fault."""
    while True:
        try:
            return await ask()
        except ServerUnavailable as error:
            figures.unavailable[error.message.partition(" in time: ")[2][:40] or error.message[:40]] += 1
            await asyncio.sleep(AGAIN_SECONDS)


def _problems(name: str, states: list[AgentState]) -> Iterator[str]:
    """Return what is wrong with a session whose turns ended in these states."""
    said: list[tuple[str, str]] = []
    for turn in range(len(states)):
        paid = [("assistant", ""), ("tool", "")] if turn == PAID_TURN else []
        said += [("user", f"{name}.{turn}"), *paid, ("assistant", f"re {name}.{turn}")]
    heard = [(each.role, "" if each.role == "tool" else each.text) for each in states[-1].messages]
    if heard != said:
        yield f"the conversation is {heard}"
    for turn, state in enumerate(states):
        if state.final_response != f"re {name}.{turn}":
            yield f"turn {turn} is answered with {state.final_response!r}"
        try:
            assert_every_call_answered(state)
        except AssertionError as error:
            yield f"turn {turn}: {error}"
        reported = state.usage.total_tokens - state.usage.estimated_tokens
        if reported < TOKENS * (2 if turn == PAID_TURN else 1) or reported % TOKENS:
            yield f"turn {turn}: {reported} tokens are counted as reported"


def whole_problems(figures: Figures, model: Path, tools: Path) -> Iterator[str]:
    """Return what is wrong with all sessions together, by the ledgers; count what these have."""
    phases = Counter(each.phase for each in Ledger(model).entries())
    figures.model_calls, figures.billed = phases["started"], phases["finished"]
    begun = Counter(each.key for each in Ledger(tools).entries(name="pay", phase="started"))
    figures.payments = len(begun)
    yield from (f"a payment was begun {times} times" for times in begun.values() if times > 1)
    if figures.begun != figures.ended:
        yield f"{figures.begun} sessions were begun, {figures.ended} have ended"
    if missing := figures.acknowledged.difference(figures.answered):
        yield f"{len(missing)} acknowledged messages have no answer: {sorted(missing)[:5]}"
    used = figures.reported + figures.estimated
    if used < figures.billed * TOKENS:
        yield f"{used} tokens are counted, {figures.billed * TOKENS} were billed"
    if figures.reported > figures.billed * TOKENS:
        yield f"{figures.reported} tokens are counted as reported, {figures.billed * TOKENS} were billed"
    if not figures.ended - figures.unknown <= figures.payments <= figures.begun:
        yield f"{figures.ended} sessions have paid {figures.payments} times; {figures.unknown} outcomes are unknown"
