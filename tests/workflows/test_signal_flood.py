"""What a flood's messages are measured by: what the core keeps, whichever way each of them came."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.core.base.bounds import MESSAGES_WAITING_BYTES_MAX
from holdfast.core.conversation.messages import Message
from holdfast.core.loop.events import MessageArrived
from workflows.execution.signal_flood import MessageRoom

NOW = datetime(2026, 11, 23, tzinfo=UTC)
QUARTER = Message(role="user", content="x" * (MESSAGES_WAITING_BYTES_MAX // 4))
SMALL = Message(role="user", content="x")


class Arriving:
    """Messages on their way to a state, as the handlers of signals and updates queue them."""

    def __init__(self) -> None:
        self.room = MessageRoom()
        self.waiting: tuple[Message, ...] = ()
        self.queue: list[MessageArrived] = []

    def has_room(self, message: Message) -> bool:
        return self.room.has_room(message, self.waiting, self.queue)

    def say(self, message: Message) -> None:
        """Queue it, as both ways do."""
        self.room.count(message, self.queue)
        self.queue.append(MessageArrived(message=message, at=NOW))

    def arrive(self, count: int) -> None:
        """Have the core take the first of them."""
        taken, self.queue = self.queue[:count], self.queue[count:]
        self.waiting += tuple(each.message for each in taken)


def test_a_message_is_measured_whichever_way_it_came() -> None:
    arriving = Arriving()
    for _ in range(3):
        assert arriving.has_room(QUARTER)
        arriving.say(QUARTER)
    assert not arriving.has_room(QUARTER), "three of them and their frames leave less than a quarter"
    assert arriving.has_room(SMALL)


def test_each_is_counted_once_while_it_passes_from_the_queue_to_the_state() -> None:
    arriving = Arriving()
    for _ in range(3):
        arriving.say(QUARTER)
    for _ in range(4):
        assert (arriving.has_room(QUARTER), arriving.has_room(SMALL)) == (False, True)
        arriving.arrive(1)
    arriving.waiting = arriving.waiting[1:]
    assert arriving.has_room(QUARTER), "one has gone into a step"


def test_what_the_core_refuses_takes_no_room() -> None:
    arriving = Arriving()
    for _ in range(8):
        arriving.say(Message(role="assistant", content=QUARTER.content))
    assert arriving.has_room(QUARTER)
