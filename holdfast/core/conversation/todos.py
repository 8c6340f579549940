"""`Todo`: an item of an agent's own list of what is to do, which a model writes and people watch. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.validation_errors import problems_text

TODOS_MAX: Final = 50
"""The most items of a list: each page of the state holds it, and the model is shown it whole."""

TODO_CHARS_MAX: Final = 300
"""The longest item, in characters: a line of work, which a screen shows as one."""

WRITE_TODOS: Final = "write_todos"
"""The tool that writes the list."""

MAKE_PLAN: Final = "make_plan"
"""The tool that has it planned."""

PLANNED: Final = "the list is now:\n"
"""How the result of a plan begins; the items follow, a line each."""

TodoStatus = Literal["pending", "in_progress", "done"]

MARKS: Final[dict[TodoStatus, str]] = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}
"""How an item's status is shown to people and to the model."""


PLANNED_MARK: Final = f"{MARKS['pending']} "
"""How the line of an item begins that a plan gives."""

TodoText = Annotated[str, Field(min_length=1, max_length=TODO_CHARS_MAX, pattern=r"\S")]


class Todo(Frozen):
    """One item, a line of text."""

    text: TodoText
    status: TodoStatus = "pending"

    @property
    def line(self) -> str:
        """The item on one line, its status first."""
        return f"{MARKS[self.status]} {' '.join(self.text.split())}"


class TodoList(Frozen):
    """A whole list, as one call of the tool gives it."""

    items: tuple[Todo, ...] = Field(max_length=TODOS_MAX)


def todos_of(arguments: JsonMap) -> tuple[tuple[Todo, ...], str | None]:
    """Return the items that a call gives, and what is wrong with them, if anything."""
    try:
        return TodoList.model_validate(dict(arguments)).items, None
    except ValidationError as error:
        return (), problems_text(error)


def todo_text(todos: Iterable[Todo]) -> str:
    """Return the items, a line each."""
    return "\n".join(each.line for each in todos)


def progress(todos: Sequence[Todo]) -> str:
    """Return how far a list is, in a few words."""
    return f"{sum(each.status == 'done' for each in todos)} of {len(todos)} done"


def written(todos: Sequence[Todo]) -> str:
    """Return the result of a call that has written the list."""
    return f"written: {progress(todos)}" if todos else "written: the list is empty"


def list_of_call(tool: str, arguments: JsonMap, result: str | None) -> tuple[Todo, ...] | None:
    """Return the list that a call has made, told by its result; none for a call that made none."""
    if tool == WRITE_TODOS:
        todos, problem = todos_of(arguments)
        return todos if problem is None and result == written(todos) else None
    if tool != MAKE_PLAN or result is None or not result.startswith(PLANNED):
        return None
    lines = result.removeprefix(PLANNED).splitlines()
    return tuple(Todo(text=each.removeprefix(PLANNED_MARK)) for each in lines if each.startswith(PLANNED_MARK))


def is_open(todos: Iterable[Todo]) -> bool:
    """Return whether anything is left to do."""
    return any(each.status != "done" for each in todos)
