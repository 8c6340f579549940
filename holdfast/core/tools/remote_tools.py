"""`remote_tool`: a tool whose code is elsewhere, in another worker or language. Declares it and never calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self, Unpack

from pydantic import JsonValue

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.tools.schema_arguments import any_arguments, object_schema
from holdfast.core.tools.tool_traits import RemoteOptions, traits_of, with_schema
from holdfast.core.tools.tools import Tool


@dataclass(frozen=True, slots=True)
class RemoteTool(Tool[..., Any]):
    """A schema and traits without a function; calling it raises InvalidInput."""

    def renamed(self, name: str) -> Self:
        """Raise InvalidInput: its worker serves it under its own name."""
        raise InvalidInput(
            f"the remote tool {self.name!r} cannot be called {name!r} here: its worker serves it as {self.name!r}; "
            "rename it there, and give remote_tool(name=...) that name"
        )


def remote_tool(
    *,
    name: str,
    description: str,
    parameters: Mapping[str, JsonValue],
    task_queue: str,
    heartbeats: bool = False,
    **options: Unpack[RemoteOptions],
) -> RemoteTool:
    """Declare a tool that a worker of `task_queue` serves, as an activity whose type is `name`.

    Args:
        name: what the model calls it, and the activity's type.
        description: the tool's description for the model.
        parameters: a JSON Schema object. What the model sends, and what a person puts in its place, is checked
            against it before the call; what a hook puts there is not.
        task_queue: where its worker takes calls from.
        heartbeats: its worker heartbeats every 2.5 s at least, so that its loss is noticed; without, a lost worker is
            known only when `timeout_seconds` are over.
        options: see `RemoteOptions`.

    Raises InvalidInput, naming the tool.
    """
    all_options = {**options, "task_queue": task_queue, "heartbeats": heartbeats}
    traits = traits_of(name, all_options)
    schema = object_schema(name, description, parameters, "parameters")
    return RemoteTool(
        _elsewhere(name, task_queue),
        schema,
        replace(with_schema(traits, schema), remote=True),
        any_arguments(name),
        None,
        checked_by_schema=True,
        source=f"a remote tool of the task queue {task_queue!r}",
    )


def _elsewhere(name: str, task_queue: str) -> Callable[..., NoReturn]:
    def called_here(**_: object) -> NoReturn:
        raise InvalidInput(
            f"the tool {name!r} is served by another worker, on the task queue {task_queue!r}; it cannot be called here"
        )

    return called_here
