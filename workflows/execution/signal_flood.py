"""Drops surplus signals before they cost anything: messages without room, repeated stops.

Whether a signal is dropped depends on the signals before it, never on how many came together: only messages that the
core would keep take room, so a replay that gets the same signals in other batches drops the same ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import MESSAGES_WAITING_BYTES_MAX, MESSAGES_WAITING_MAX, WARNINGS_MAX
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.messages import Message
from holdfast.core.loop.events import MessageArrived
from holdfast.core.loop.pending_messages import ROLES

STEP_SIGNALS_MAX: Final = 256
"""The most changes by signal in one step, and the most decisions that match no waiting call; others are dropped."""

SURPLUS: Final = f"more than {MESSAGES_WAITING_MAX} messages, or {MESSAGES_WAITING_BYTES_MAX:,} bytes of them, waited"
"""The beginning of the warning that counts refused messages; a state has one of them."""


class MessageRoom:
    """The room for waiting messages: those in the state and those that have arrived since."""

    def __init__(self) -> None:
        self._measured: tuple[Message, ...] = ()
        self._measured_bytes = 0
        self._sizes = deque[int]()

    def is_full(self, waiting: Sequence[Message], arriving: Sequence[MessageArrived]) -> bool:
        """Return whether there is no room for any message."""
        return len(waiting) + len(arriving) >= MESSAGES_WAITING_MAX

    def has_room(self, message: Message, waiting: tuple[Message, ...], arriving: Sequence[MessageArrived]) -> bool:
        """Return whether there is room for `message`, which arrives now."""
        if waiting is not self._measured:
            self._measured, self._measured_bytes = waiting, sum(len(canonical(each)) for each in waiting)
        self._forget_arrived(arriving)
        return self._measured_bytes + sum(self._sizes) + len(canonical(message)) <= MESSAGES_WAITING_BYTES_MAX

    def count(self, message: Message, arriving: Sequence[MessageArrived]) -> None:
        """Note that `message` arrives after `arriving`; one that the core refuses takes no room."""
        self._forget_arrived(arriving)
        self._sizes.append(len(canonical(message)) if message.role in ROLES else 0)

    def _forget_arrived(self, arriving: Sequence[MessageArrived]) -> None:
        while len(self._sizes) > len(arriving):
            self._sizes.popleft()


class SignalCount:
    """Counts the accepted signals of each kind in the step under way, so that useless ones are dropped."""

    def __init__(self) -> None:
        self._step = -1
        self._counts = Counter[str]()

    def is_full(self, step: int, kind: str, most: int) -> bool:
        """Return whether no more of that kind are accepted in this step."""
        return self._step == step and self._counts[kind] >= most

    def count(self, step: int, kind: str) -> None:
        """Count an accepted signal."""
        if self._step != step:
            self._step = step
            self._counts.clear()
        self._counts[kind] += 1


def with_surplus(state: AgentState, count: int) -> AgentState:
    """Return the state with a warning that so many messages were refused, replacing the previous one."""
    others = [each for each in state.warnings if not each.startswith(SURPLUS)]
    text = f"{SURPLUS} for one step: {count:,} that came by signal were not accepted"
    return state.with_execution(state.updated_at, warnings=(*others, text)[-WARNINGS_MAX:])
