"""Reading a state of any size in bounded pieces: `page` cuts, `assembled` puts together again.

Messages and steps only ever grow at their end within a run, so pages read at different moments fit together as long
as all of them stop at the totals of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from pydantic import BaseModel

from holdfast.core.contracts import PageRequest, StatePage
from holdfast.core.frozen import canonical, replace
from holdfast.core.limits import PAGE_BYTES_MAX
from holdfast.core.log import Log
from holdfast.core.messages import DEFAULT_SECTION, Message
from holdfast.core.state import AgentState
from holdfast.core.steps import StepExecution

ModelT = TypeVar("ModelT", bound=BaseModel)


def fitting(items: Iterable[ModelT], bytes_max: int) -> tuple[tuple[ModelT, ...], int]:
    """Return the longest run of `items` from the first on within `bytes_max` (at least one), and its size."""
    taken: list[ModelT] = []
    used = 0
    for item in items:
        needed = len(canonical(item))
        if taken and used + needed > bytes_max:
            break
        taken.append(item)
        used += needed
    return tuple(taken), used


def page(state: AgentState, request: PageRequest, bytes_max: int = PAGE_BYTES_MAX // 2) -> StatePage:
    """Return the page of `state` that `request` asks for; at most about `bytes_max` of each kind."""
    steps: Sequence[StepExecution] = state.step_executions
    messages_total = min(len(state.messages), request.messages_total if request.messages_total is not None else 1 << 60)
    steps_total = min(len(steps), request.steps_total if request.steps_total is not None else 1 << 60)
    wanted = (state.messages[index] for index in range(request.messages_from, messages_total))
    shown, _ = fitting(wanted, bytes_max)
    done, _ = fitting((steps[index] for index in range(request.steps_from, steps_total)), bytes_max)
    return StatePage(
        head=_with_bulk(state, Log(), Log()),
        messages=shown,
        steps=done,
        messages_total=messages_total,
        steps_total=steps_total,
    )


def next_request(first: StatePage, messages_read: int, steps_read: int) -> PageRequest | None:
    """Return what to ask for after so much was read, or none when all of the first page's state is there."""
    if messages_read >= first.messages_total and steps_read >= first.steps_total:
        return None
    return PageRequest(
        messages_from=messages_read,
        steps_from=steps_read,
        messages_total=first.messages_total,
        steps_total=first.steps_total,
    )


def assembled(pages: Sequence[StatePage]) -> AgentState:
    """Return the state that the first of `pages` was cut from."""
    messages = Log(message for part in pages for message in part.messages)
    steps = Log(step for part in pages for step in part.steps)
    return _with_bulk(pages[0].head, messages, steps)


def _with_bulk(state: AgentState, messages: Log[Message], steps: Log[StepExecution]) -> AgentState:
    sections = tuple(
        replace(section, messages=messages) if section.name == DEFAULT_SECTION else section
        for section in state.store.sections
    )
    context = replace(state.context, store=replace(state.store, sections=sections))
    execution = None if state.execution is None else replace(state.execution, step_executions=steps)
    return replace(state, context=context, execution=execution)
