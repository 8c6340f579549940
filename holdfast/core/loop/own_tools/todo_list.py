"""The agent's list of what is to do: written by its calls, and shown to it again where it would lose sight of it."""

from __future__ import annotations

from typing import Final

from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.conversation.todos import Todo, is_open, todo_text, todos_of, written
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import TodosChanged

REMINDER: Final = "Your list of what is to do, as you wrote it last:"
"""How a message begins that shows the agent its list."""


def write(transition: Transition, call: ToolCall) -> tuple[str | None, ErrorRecord | None]:
    """Replace the list by the one that `call` gives; return what the model is told."""
    todos, problem = todos_of(call.arguments)
    if problem is not None:
        return None, ErrorRecord(type="InvalidArguments", message=problem, source=call.name)
    change(transition, todos)
    return written(todos), None


def change(transition: Transition, todos: tuple[Todo, ...]) -> None:
    """Make `todos` the list, and tell those who watch where it is another one."""
    if todos != transition.todos:
        transition.emit(TodosChanged, todos=todos)
    transition.todos = todos


def show_again(transition: Transition) -> None:
    """Have the next model call show the list, if anything in it is left to do and the agent can write it.

    For where the call that wrote it is out of the model's sight: after a summary, and in the next execution.
    """
    writes = any(each.loop == "todo" for each in transition.rules.tools.values())
    if not writes or not is_open(transition.todos):
        return
    text = f"{REMINDER}\n{todo_text(transition.todos)}"
    others = tuple(each for each in transition.execution.waiting_messages if not each.text.startswith(REMINDER))
    message = Message(role="user", content=text, metadata={"is_trace": True})
    transition.change(waiting_messages=(*others, message))
