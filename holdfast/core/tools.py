"""`@tool`: a Python function as something a model can call. Describes and checks; running it is a shell's work.

The function's name, annotations and Google-style docstring become the schema the model sees. A parameter annotated
`ToolContext` is filled in by us and hidden from the model.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast, get_args, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from holdfast.core.errors import InvalidArguments, InvalidInput
from holdfast.core.frozen import Frozen
from holdfast.core.limits import (
    ERROR_CHARS_MAX,
    REASON_CHARS_MAX,
    TOOL_DESCRIPTION_CHARS_MAX,
    TOOL_RESULT_BYTES_MAX,
    TOOL_RESULT_CHARS_MAX,
)
from holdfast.core.messages import NAME_PATTERN
from holdfast.core.steps import ErrorRecord
from holdfast.core.texts import clamped, clamped_json

P = ParamSpec("P")
R = TypeVar("R")

TIMEOUT_SECONDS: Final = 60.0
"""How long one attempt of a tool call may take unless the tool says otherwise."""

ATTEMPTS_MAX: Final = 3
"""How often a call is begun at the most when its worker dies or it times out; an exception is never retried."""

RESERVED_NAMES: Final = frozenset({"inference", "resolve_tools", "run_hooks", "summarise", "spawn", "take_up"})
"""Names of our own activities and of the tool that calls subagents."""

_SECTION: Final = re.compile(r"(Args|Arguments|Returns|Raises|Yields|Examples?|Notes?):\s*")
_PARAMETER: Final = re.compile(r" {1,4}(\w+)(?: \([^)]*\))?: (.+)")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the call it serves.

    `idempotency_key` is the same for every attempt of one call, also after a crash, a retry or a restart: hand it to
    whatever the tool changes. `attempt` counts from 1.
    """

    execution_id: str
    idempotency_key: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StopRun:
    """What a tool returns to end the run with this step: its result for the model, and why the run is to stop."""

    result: object
    reason: str


class ToolReply(Frozen):
    """A tool's result as the bounded text the model sees, and why the tool asks to stop, if it does."""

    text: str
    stop: str | None = Field(default=None, max_length=REASON_CHARS_MAX)


class ToolTraits(Frozen):
    """What a run needs to know about a tool: how long, how often, whether it may be repeated or run beside others."""

    name: str
    timeout_seconds: float = Field(default=TIMEOUT_SECONDS, gt=0, le=24 * 3600)
    attempts_max: int = Field(default=ATTEMPTS_MAX, ge=1, le=100)
    at_most_once: bool = False
    sequential: bool = False


class ToolSchema(Frozen):
    """What the model is told about a tool; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Tool(Generic[P, R]):
    """A function with its schema and traits. Calling it calls the function."""

    function: Callable[P, R]
    schema: ToolSchema
    traits: ToolTraits
    arguments: type[BaseModel]
    context_parameter: str | None

    @property
    def name(self) -> str:
        """What the model calls it, and its activity's type."""
        return self.schema.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, unchecked."""
        return self.function(*args, **kwargs)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Return the keyword arguments for the function, converted to its types.

        Raises InvalidArguments, naming every bad field, when `arguments` do not fit the schema.
        """
        try:
            checked = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(told(error)) from None
        fields = type(checked).model_fields
        bound: dict[str, Any] = {str(field.alias): getattr(checked, name) for name, field in fields.items()}
        if self.context_parameter is not None:
            bound[self.context_parameter] = context
        return bound


AnyTool = Tool[Any, Any]


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    timeout_seconds: float = ...,
    attempts_max: int = ...,
    at_most_once: bool = ...,
    sequential: bool = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    attempts_max: int = ATTEMPTS_MAX,
    at_most_once: bool = False,
    sequential: bool = False,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of a function, sync (run in a thread) or async.

    Args:
        function: the function, when used as a bare decorator.
        name: what the model calls it; the function's own name by default.
        timeout_seconds: how long one attempt may take.
        attempts_max: how often a call is begun at the most when its worker dies or it times out.
        at_most_once: never begin a call twice; when its end is unknown, the model is told exactly that.
        sequential: run a call only while no other call of its step does.
    """

    def decorate(target: Callable[P, R]) -> Tool[P, R]:
        called = name or str(getattr(target, "__name__", ""))
        if NAME_PATTERN.fullmatch(called) is None:
            raise InvalidInput(f"{called!r} cannot name a tool: use letters, digits, `_` and `-`, at most 64 of them")
        if called in RESERVED_NAMES:
            raise InvalidInput(f"{called!r} is a name of our own; choose another with @tool(name=...)")
        attempts = 1 if at_most_once else attempts_max
        try:
            traits = ToolTraits(
                name=called,
                timeout_seconds=timeout_seconds,
                attempts_max=attempts,
                at_most_once=at_most_once,
                sequential=sequential,
            )
        except ValidationError as error:
            raise InvalidInput(f"tool {called!r}: {told(error)}") from None
        summary, about = _docstring(target)
        if len(summary) > TOOL_DESCRIPTION_CHARS_MAX:
            size = f"its docstring has {len(summary):,} characters before the sections"
            raise InvalidInput(f"tool {called!r}: {size}, at most {TOOL_DESCRIPTION_CHARS_MAX:,} are allowed")
        arguments, context_parameter = _arguments_model(called, target, about)
        parameters = arguments.model_json_schema()
        parameters.pop("title", None)
        schema = ToolSchema(name=called, description=summary, parameters=parameters)
        return Tool(target, schema, traits, arguments, context_parameter)

    return decorate if function is None else decorate(function)


def reply_of(value: object) -> ToolReply:
    """Return what a tool's return value means."""
    if isinstance(value, StopRun):
        return ToolReply(text=render_result(value.result), stop=clamped(value.reason, REASON_CHARS_MAX))
    return ToolReply(text=render_result(value))


def render_result(value: object) -> str:
    """Return a tool's result as the bounded text the model sees: text as it is, everything else as JSON."""
    return clamped_json(_as_text(value), TOOL_RESULT_BYTES_MAX, TOOL_RESULT_CHARS_MAX)


def ended_without_answer(traits: ToolTraits, why: str) -> ErrorRecord:
    """Return what the model is told of a call whose worker was lost or that took too long, in every attempt."""
    if traits.at_most_once:
        text = f"the call was begun and its outcome is unknown ({why}); it is not repeated, check before you try again"
        return ErrorRecord(type="OutcomeUnknown", message=text, source=traits.name)
    times = "its one attempt" if traits.attempts_max == 1 else f"its {traits.attempts_max} attempts"
    return ErrorRecord(type="ToolTimeout", message=f"the call did not end within {times} ({why})", source=traits.name)


def _as_text(value: object) -> str:
    """Return `value` as text, whatever it is: the call has had its effect, so this must not fail any more."""
    if isinstance(value, str):
        return value
    try:
        return to_json(value, inf_nan_mode="strings").decode()
    except Exception:  # noqa: BLE001  # a serializer of the value's own class can raise anything
        with suppress(Exception):
            return repr(value)
    return f"(a {type(value).__name__} that cannot be shown)"


def _arguments_model(
    called: str, function: Callable[..., Any], about: Mapping[str, str]
) -> tuple[type[BaseModel], str | None]:
    """Return a model of the function's parameters, and the name of the one that takes the context."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, tuple[Any, FieldInfo]] = {}
    context_parameter: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidInput(f"tool {called!r}: parameter {parameter.name!r} must be an ordinary named parameter")
        if parameter.name not in hints:
            raise InvalidInput(f"tool {called!r}: parameter {parameter.name!r} needs a type annotation")
        if ToolContext in (hints[parameter.name], *get_args(hints[parameter.name])):
            context_parameter = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        described = Field(default, alias=parameter.name, description=about.get(parameter.name))
        # fields have names of ours, because a parameter may be called like something of pydantic's (`json`, `_id`)
        fields[f"argument_{len(fields)}"] = (hints[parameter.name], cast("FieldInfo", described))
    config = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=())
    made = create_model(called, __config__=config, **cast("dict[str, Any]", fields))
    return made, context_parameter


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the docstring's text before its sections, and what its `Args:` section says of each parameter."""
    summary: list[str] = []
    about: dict[str, list[str]] = {}
    section = parameter = ""
    for line in (inspect.getdoc(function) or "").splitlines():
        if heading := _SECTION.fullmatch(line):
            section = heading[1]
        elif not section:
            summary.append(line)
        elif section in ("Args", "Arguments"):
            if entry := _PARAMETER.fullmatch(line):
                parameter = entry[1]
                about[parameter] = [entry[2]]
            elif parameter and line.strip():
                about[parameter].append(line.strip())
    return "\n".join(summary).strip(), {name: " ".join(lines) for name, lines in about.items()}


def told(error: ValidationError) -> str:
    """Return every problem in one line, each with its field."""
    problems = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return clamped("; ".join(problems), ERROR_CHARS_MAX)
