"""Paging of states: `page` cuts a state of any size into bounded pages, `StateReader` reassembles it.

Within a run, messages (of all sections, one after another) and steps only grow at their end. So pages read at different
moments fit together as long as all of them stop at the totals of the first. The one exception: when older messages are
moved to be summarised, and when they have been, everything is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from pydantic import BaseModel

from holdfast.core.agent.state import AgentState
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.bounds import PAGE_BYTES_MAX
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import StepExecution
from holdfast.core.wire.contracts import PageRequest, StatePage

ModelT = TypeVar("ModelT", bound=BaseModel)


def fitting(items: Iterable[ModelT], bytes_max: int, *, at_least: int = 0) -> tuple[ModelT, ...]:
    """Return the first of `items` that take at most `bytes_max` together, but `at_least` of them in any case."""
    result: list[ModelT] = []
    used = 0
    for item in items:
        used += len(canonical(item))
        if len(result) >= at_least and used > bytes_max:
            break
        result.append(item)
    return tuple(result)


def page(state: AgentState, request: PageRequest, bytes_max: int = PAGE_BYTES_MAX) -> StatePage:
    """Return the page of `state` that `request` asks for: its head; messages and steps share the rest of the room."""
    sections = tuple(len(section.messages) for section in state.store.sections)
    head = without_bulk(state)
    each_max = max(0, bytes_max - len(canonical(head))) // 2
    steps: Sequence[StepExecution] = state.step_executions
    messages_total = _total(request.messages_total, sum(sections))
    steps_total = _total(request.steps_total, len(steps))
    return StatePage(
        head=head,
        messages=fitting(_messages_between(state, request.messages_from, messages_total), each_max, at_least=1),
        steps=fitting((steps[at] for at in range(request.steps_from, steps_total)), each_max, at_least=1),
        sections=sections,
        messages_total=messages_total,
        steps_total=steps_total,
    )


class StateReader:
    """Collects pages into a state, and later only additions.

    `refreshed()` gives the first request of a reading; `take` adds a page and returns the next request, or none.
    """

    def __init__(self) -> None:
        self.head: AgentState | None = None
        self._sections: tuple[AppendList[Message], ...] = ()
        self._steps: AppendList[StepExecution] = AppendList()
        self._first: StatePage | None = None
        self._layout: tuple[int, ...] = ()
        """Changes when messages move: the lengths of all sections but the last, and how often they moved."""

    @property
    def state(self) -> AgentState:
        """The state as of the latest complete reading; ValueError before the first."""
        if self.head is None:
            raise ValueError("no page has been read yet")
        return with_bulk(self.head, self._sections, self._steps)

    def refreshed(self) -> PageRequest:
        """Begin a new reading from where the last one ended."""
        self._first = None
        return PageRequest(messages_from=self._messages_read, steps_from=len(self._steps))

    def take(self, page: StatePage) -> PageRequest | None:
        """Add a page; the first one of a reading fixes the state, the others only bring the rest of it."""
        moved = page.head.execution.compactions if page.head.execution else 0
        layout = (*page.sections[:-1], moved)
        if layout != self._layout:
            stale = self._messages_read > 0
            self._layout, self._sections = layout, _nothing(page.sections)
            if stale:
                return self.refreshed()
        first = self._first = self._first or page
        self._sections = _continued(self._sections, page.messages, first.sections)
        self._steps = self._steps.extend(page.steps)
        if self._messages_read < first.messages_total or len(self._steps) < first.steps_total:
            return PageRequest(
                messages_from=self._messages_read,
                steps_from=len(self._steps),
                messages_total=first.messages_total,
                steps_total=first.steps_total,
            )
        self.head = first.head
        return None

    @property
    def _messages_read(self) -> int:
        return sum(map(len, self._sections))


def moved_on(before: AgentState | None, after: AgentState | None) -> bool:
    """Return whether anything but the time differs between two readings of a run."""
    return before is None or after is None or before.at(after.updated_at) != after


def _nothing(sections: Sequence[object]) -> tuple[AppendList[Message], ...]:
    return tuple(AppendList() for _ in sections)


def _continued(
    read: tuple[AppendList[Message], ...], messages: Sequence[Message], lengths: Sequence[int]
) -> tuple[AppendList[Message], ...]:
    """Return the sections `read` so far, filled up with `messages` to `lengths`, one after another."""
    filled: list[AppendList[Message]] = []
    for section, length in zip(read, lengths, strict=True):
        room = length - len(section)
        filled.append(section.extend(messages[:room]))
        messages = messages[room:]
    return tuple(filled)


def _messages_between(state: AgentState, start: int, stop: int) -> Iterator[Message]:
    """Yield the messages of all sections at places `start` up to, not including, `stop`."""
    for section in state.store.sections:
        length = len(section.messages)
        for at in range(min(start, length), min(stop, length)):
            yield section.messages[at]
        start, stop = max(0, start - length), max(0, stop - length)


def _total(requested: int | None, available: int) -> int:
    return available if requested is None else min(requested, available)


def without_bulk(state: AgentState) -> AgentState:
    """Return the state without its messages and steps."""
    return with_bulk(state, _nothing(state.store.sections), AppendList())


def with_bulk(
    state: AgentState, sections: Sequence[AppendList[Message]], steps: AppendList[StepExecution]
) -> AgentState:
    """Return the state with these messages in its sections, one log for each, and with these steps."""
    filled = tuple(
        replace(section, messages=messages) for section, messages in zip(state.store.sections, sections, strict=True)
    )
    context = replace(state.context, store=replace(state.store, sections=filled))
    execution = None if state.execution is None else replace(state.execution, step_executions=steps)
    return replace(state, context=context, execution=execution)
