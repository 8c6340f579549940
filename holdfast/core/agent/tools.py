"""`@tool`: makes a Python function a tool that a model can call. Describes and checks tools; the drivers run them.

The function's name, annotations and Google-style docstring become the schema the model sees. A parameter annotated
`ToolContext` is filled in by us and hidden from the model.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack, cast, get_args, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from holdfast.core.agent.retries import TOOL_RETRIES
from holdfast.core.base.bounds import (
    ERROR_CHARS_MAX,
    REASON_CHARS_MAX,
    TOOL_DESCRIPTION_CHARS_MAX,
    TOOL_RESULT_BYTES_MAX,
    TOOL_RESULT_CHARS_MAX,
)
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import HoldfastError, InvalidArguments, InvalidInput
from holdfast.core.base.frozen import Frozen, canonical, replace
from holdfast.core.base.safe_text import clamped, encodable
from holdfast.core.base.truncation import FETCH_TOOL, RECORDS_TOOL, shortened
from holdfast.core.base.validation_errors import problem_text
from holdfast.core.conversation.attempt_tally import LOST_SECONDS_MAX, WORKER_LOST
from holdfast.core.conversation.messages import NAME_PATTERN
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.conversation.stop_reasons import StopContext

REQUIRED_ARGUMENTS_MAX: Final = 32
"""The most required arguments that a run checks; a tool with more checks for missing ones itself."""

LOCAL_TOOL_SECONDS_MAX: Final = 5.0
"""All attempts of one `local` tool call together: a stop waits for them."""

TASK_QUEUE_CHARS_MAX: Final = 200
"""The longest name of a tool's task queue."""

_STOP_CONTEXT: Final = TypeAdapter[Mapping[str, JsonValue]](StopContext)

P = ParamSpec("P")
R = TypeVar("R")

TIMEOUT_SECONDS: Final = 60.0
"""How long one attempt of a tool call may take unless the tool says otherwise."""

LOCAL_TIMEOUT_SECONDS: Final = 1.5
"""The same for a `local` tool."""

ATTEMPTS_MAX: Final = TOOL_RETRIES.attempts_max
"""The most attempts of a call that fail by themselves: by taking too long, or by raising one of `retry_on`."""

DERIVED: Final = ("described_bytes", "required", "context", "remote")
"""Traits that are derived, not chosen."""

RESERVED_NAMES: Final = frozenset(
    {
        "inference",
        "resolve_tools",
        "run_hooks",
        "summarise",
        "take_up",
        "check_arguments",
        "record_execution",
        "branch_conversation",
        "find_session",
        "keep_session",
        "spawn",
        FETCH_TOOL,
        RECORDS_TOOL,
    }
)
"""The names of our own activities and of our own tools, for subagents, long results and records."""

_SECTION: Final = re.compile(r"(Args|Arguments|Returns|Raises|Yields|Examples?|Notes?):\s*")
_PARAMETER: Final = re.compile(r" {1,4}(\w+)(?: \([^)]*\))?: (.+)")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the call it serves.

    `idempotency_key` is the same for every attempt of one call, also after a crash, a retry or a restart: hand it to
    whatever the tool changes. `attempt` counts from 1. `metadata` are the agent's, with what its run was given, as they
    stood when the call was asked for.
    """

    execution_id: str
    idempotency_key: str
    attempt: int
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class StopRun:
    """Returned by a tool to end the run with this step: its result for the model, and why the run is to stop.

    `context` goes with the stop signal, a small JSON object; one that is too large or not JSON is left out.
    """

    result: object
    reason: str
    context: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


class ToolReply(Frozen):
    """A tool's result as the bounded text the model sees, and why the tool asks to stop, if it does."""

    text: str
    stop: str | None = Field(default=None, max_length=REASON_CHARS_MAX)
    stop_context: StopContext = Field(default_factory=dict[str, JsonValue])


class ToolTraits(Frozen):
    """What a run needs to know about a tool: timeouts, attempts, task queue, concurrency.

    `task_queue` is where its calls go, by default the one that the run's own worker serves tools on;
    `queue_seconds_max` is how long a call may wait there for a worker. `local` runs it within the workflow task.
    `heartbeats` means that its worker heartbeats every 2.5 s at least. `remote` means that the worker is not one of
    ours: it counts no attempts, so the server does.
    """

    name: str
    timeout_seconds: float = Field(default=TIMEOUT_SECONDS, gt=0, le=24 * 3600)
    attempts_max: int = Field(default=ATTEMPTS_MAX, ge=1, le=100)
    at_most_once: bool = False
    sequential: bool = False
    idempotent: bool = False
    local: bool = False
    task_queue: str | None = Field(default=None, min_length=1, max_length=TASK_QUEUE_CHARS_MAX)
    queue_seconds_max: float | None = Field(default=None, gt=0, le=7 * 24 * 3600)
    heartbeats: bool = True
    remote: bool = False
    required: tuple[str, ...] = Field(default=(), max_length=REQUIRED_ARGUMENTS_MAX)
    """The arguments without which no call of it starts."""
    context: bool = False
    """Whether it takes a `ToolContext`: then the agent's metadata travel with each call."""
    described_bytes: int = Field(default=0, ge=0)
    """The size of its schema in every request, in bytes of JSON."""


class RemoteOptions(TypedDict, total=False):
    """The options of a tool that hold wherever it runs.

    Args:
        timeout_seconds: how long one attempt may take.
        attempts_max: how often a call may fail by itself: take too long, or raise one of `retry_on`. For a tool of
            another language also: how often it is begun at the most.
        at_most_once: never begin a call twice; when its outcome is unknown, the model is told so.
        sequential: run a call only while no other call of its step does.
        idempotent: repeating a call is harmless.
        queue_seconds_max: how long a call may wait for a worker of its `task_queue`; as long as the run by default.
    """

    timeout_seconds: float
    attempts_max: int
    at_most_once: bool
    sequential: bool
    idempotent: bool
    queue_seconds_max: float


class ToolOptions(RemoteOptions, total=False):
    """The further options of `@tool`.

    Args:
        local: run within the workflow task: one history event instead of six, but a stop waits for it. Only for what
            is `idempotent` and takes under 100 ms; all attempts together may take LOCAL_TOOL_SECONDS_MAX.
        task_queue: where calls go: to a worker of ours that serves only the tools of that queue.
    """

    local: bool
    task_queue: str


class ToolSchema(Frozen):
    """A tool as the model sees it; `parameters` is a JSON Schema object."""

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
    retry_on: tuple[type[Exception], ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """What the model calls it, and its activity's type."""
        return self.schema.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, unchecked."""
        return self.function(*args, **kwargs)

    def tries_again(self, error: BaseException) -> bool:
        """Return whether a call that raised `error` is retried while it has attempts left.

        Never for what we raise ourselves: arguments that do not fit will not fit the next time.
        """
        return isinstance(error, self.retry_on) and not isinstance(error, HoldfastError)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Return the keyword arguments for the function, converted to its types.

        Raises InvalidArguments, naming every bad field, when `arguments` do not fit the schema.
        """
        try:
            checked = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(problems_text(error)) from None
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
    *, name: str | None = None, retry_on: tuple[type[Exception], ...] = (), **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    retry_on: tuple[type[Exception], ...] = (),
    **options: Unpack[ToolOptions],
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of a function, sync (run in a thread) or async.

    Args:
        function: the function, when used as a bare decorator.
        name: what the model calls it; the function's own name by default.
        retry_on: exceptions after which a call is begun again, with a growing wait, up to `attempts_max`; any other
            goes to the model at once.
        options: see `ToolOptions` and `RemoteOptions`.

    Raises InvalidInput, naming the tool, for what cannot be offered to a model and for options that contradict each
    other.
    """

    def decorate(target: Callable[P, R]) -> Tool[P, R]:
        tool_name = name or str(getattr(target, "__name__", ""))
        traits = traits_of(tool_name, options, retry_on)
        summary, about = _docstring(target)
        arguments, context_parameter = _arguments_model(tool_name, target, about)
        parameters = arguments.model_json_schema()
        parameters.pop("title", None)
        schema = schema_of(tool_name, summary, parameters)
        traits = replace(with_schema(traits, schema), context=context_parameter is not None)
        return Tool(target, schema, traits, arguments, context_parameter, retry_on=retry_on)

    return decorate if function is None else decorate(function)


def schema_of(tool_name: str, description: str, parameters: Mapping[str, JsonValue]) -> ToolSchema:
    """Return the tool's schema; raises InvalidInput when the description is too long."""
    if len(description) > TOOL_DESCRIPTION_CHARS_MAX:
        size = f"its description (a docstring before its sections) has {len(description):,} characters"
        raise InvalidInput(f"tool {tool_name!r}: {size}, at most {TOOL_DESCRIPTION_CHARS_MAX:,} are allowed")
    return ToolSchema(name=tool_name, description=description, parameters=parameters)


def with_schema(traits: ToolTraits, schema: ToolSchema) -> ToolTraits:
    """Return the traits with those that are derived from the schema."""
    names = schema.parameters.get("required")
    required = tuple(map(str, names)) if isinstance(names, list) else ()
    checked = required if len(required) <= REQUIRED_ARGUMENTS_MAX else ()
    return replace(traits, described_bytes=len(canonical(schema)), required=checked)


def missing_arguments(traits: ToolTraits, arguments: Mapping[str, JsonValue]) -> str | None:
    """Return the error text of a call that lacks arguments, as its tool would write it; none if none is missing.

    Only the tool itself checks their values.
    """
    missing = [f"{name}: Field required" for name in traits.required if name not in arguments]
    return clamped("; ".join(missing), ERROR_CHARS_MAX) if missing else None


def traits_of(tool_name: str, options: Mapping[str, Any], retry_on: tuple[type[Exception], ...] = ()) -> ToolTraits:
    """Return the traits of the tool `tool_name`; raises InvalidInput with the problem."""
    if NAME_PATTERN.fullmatch(tool_name) is None:
        raise InvalidInput(f"{tool_name!r} cannot name a tool: use letters, digits, `_` and `-`, at most 64 of them")
    if tool_name in RESERVED_NAMES:
        raise InvalidInput(f"{tool_name!r} is a name of our own; choose another with @tool(name=...)")
    allowed = [name for name in ToolTraits.model_fields if name not in ("name", *DERIVED)]
    for unknown in sorted(options.keys() - set(allowed)):
        raise InvalidInput(f"tool {tool_name!r} is given the option {unknown!r}, {nearest(unknown, allowed)}")
    if problem := _contradiction(options, retry_on):
        raise InvalidInput(f"tool {tool_name!r}: {problem}")
    usual: dict[str, Any] = {
        "attempts_max": 1 if options.get("at_most_once") else ATTEMPTS_MAX,
        "timeout_seconds": LOCAL_TIMEOUT_SECONDS if options.get("local") else TIMEOUT_SECONDS,
    }
    try:
        traits = ToolTraits(name=tool_name, **{**usual, **options})
    except ValidationError as error:
        raise InvalidInput(f"tool {tool_name!r}: {problems_text(error)}") from None
    if traits.local and (longest := traits.timeout_seconds * traits.attempts_max) > LOCAL_TOOL_SECONDS_MAX:
        text = f"{traits.attempts_max} attempts of {traits.timeout_seconds:g} s can take {longest:g} s"
        raise InvalidInput(f"tool {tool_name!r}: {text}, a `local` tool has {LOCAL_TOOL_SECONDS_MAX:g} s: a stop waits")
    return traits


def _contradiction(options: Mapping[str, Any], retry_on: object) -> str | None:
    """Return which options contradict each other, and what to do; none when none do."""
    once, local = bool(options.get("at_most_once")), bool(options.get("local"))
    attempts: object = options.get("attempts_max")
    again = bool(retry_on)
    kinds = cast("tuple[object, ...]", retry_on) if isinstance(retry_on, tuple) else (None,)
    cases = (
        (once and bool(options.get("idempotent")), "it is `at_most_once` or `idempotent`, not both"),
        (
            once and attempts not in (None, 1),
            f"`at_most_once` is one attempt, not {attempts}; leave out `attempts_max`",
        ),
        (once and again, "`at_most_once` is never begun again; leave out `retry_on`"),
        (again and attempts == 1, "`retry_on` needs an `attempts_max` of 2 or more"),
        (local and not options.get("idempotent"), "`local` is for tools that are `idempotent` too"),
        (local and options.get("task_queue") is not None, "`local` runs in the workflow's own worker; no `task_queue`"),
        (
            options.get("queue_seconds_max") is not None and options.get("task_queue") is None,
            "`queue_seconds_max` is about a `task_queue` of its own; name one",
        ),
        (
            not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds),
            "`retry_on` is a tuple of exception classes, such as (ConnectionError,)",
        ),
    )
    return next((text for contradicts, text in cases if contradicts), None)


def reply_of(value: object) -> ToolReply:
    """Return the reply for a tool's return value."""
    return reply_with(bounded_result(whole_text(value)), value)


def reply_with(text: str, value: object) -> ToolReply:
    """Return `text` as the reply of a tool that returned `value`; a StopRun asks to stop the run. Never raises."""
    if not isinstance(value, StopRun):
        return ToolReply(text=text)
    return ToolReply(text=text, stop=clamped(str(value.reason), REASON_CHARS_MAX), stop_context=_fitting(value.context))


def whole_text(value: object) -> str:
    """Return a tool's result as text, however long: text as it is, everything else as JSON.

    Never raises: the call has had its effect.
    """
    return encodable(_as_text(value.result if isinstance(value, StopRun) else value))


def _fitting(context: object) -> Mapping[str, JsonValue]:
    try:
        return _STOP_CONTEXT.validate_python(context)
    except (ValueError, RecursionError) as error:
        return {"left_out": clamped(str(error), REASON_CHARS_MAX)}


def bounded_result(text: str) -> str:
    """Return a tool's result cut to the length that the model sees."""
    return shortened(text, TOOL_RESULT_BYTES_MAX, TOOL_RESULT_CHARS_MAX)


def never_begun(traits: ToolTraits) -> ErrorRecord:
    """Return the error of a call that no worker took in time."""
    deadline = f"within {traits.queue_seconds_max:g} s" if traits.queue_seconds_max else "in time"
    text = f"no worker took the call from the task queue {traits.task_queue!r} {deadline}; it was not begun"
    return ErrorRecord(type="ToolUnavailable", message=text, source=traits.name)


def left_unbegun(traits: ToolTraits) -> ErrorRecord:
    """Return the error of a call with one attempt whose worker shut down before it began."""
    return ErrorRecord(type="ToolUnavailable", message="the worker shut down; it was not begun", source=traits.name)


def ended_without_answer(traits: ToolTraits, why: str) -> ErrorRecord:
    """Return the error of a call whose every attempt lost its worker or took too long."""
    if traits.at_most_once:
        text = f"the call was begun and its outcome is unknown ({why}); it is not repeated, check before you try again"
        return ErrorRecord(type="OutcomeUnknown", message=text, source=traits.name)
    times = "its one attempt" if traits.attempts_max == 1 else f"its {traits.attempts_max} attempts"
    return ErrorRecord(type="ToolTimeout", message=f"the call did not end within {times} ({why})", source=traits.name)


def killed_workers(traits: ToolTraits, deaths: int) -> ErrorRecord:
    """Return the error of a call that kills its worker each time it begins."""
    died = f"the worker died {deaths} times while running this call"
    text = f"{died}, so it will not be retried; try a different approach"
    return ErrorRecord(type=WORKER_LOST, message=text, source=traits.name)


def lost_too_long(traits: ToolTraits, losses: int) -> ErrorRecord:
    """Return the error of a call whose workers were lost again and again."""
    minutes = LOST_SECONDS_MAX / 60
    text = f"its workers were lost {losses} times in more than {minutes:g} minutes; whether it has run is unknown"
    return ErrorRecord(type=WORKER_LOST, message=text, source=traits.name)


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
    tool_name: str, function: Callable[..., Any], about: Mapping[str, str]
) -> tuple[type[BaseModel], str | None]:
    """Return a model of the function's parameters, and the name of the one that takes the context."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, tuple[Any, FieldInfo]] = {}
    context_parameter: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidInput(f"tool {tool_name!r}: parameter {parameter.name!r} must be an ordinary named parameter")
        if parameter.name not in hints:
            raise InvalidInput(f"tool {tool_name!r}: parameter {parameter.name!r} needs a type annotation")
        if ToolContext in (hints[parameter.name], *get_args(hints[parameter.name])):
            context_parameter = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        field_info = Field(default, alias=parameter.name, description=about.get(parameter.name))
        # fields have names of ours, because a parameter may be called like something of pydantic's (`json`, `_id`)
        fields[f"argument_{len(fields)}"] = (hints[parameter.name], cast("FieldInfo", field_info))
    config = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=())
    model = create_model(tool_name, __config__=config, **cast("dict[str, Any]", fields))
    return model, context_parameter


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the docstring's text before its sections, and the `Args:` description of each parameter."""
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


def problems_text(error: ValidationError) -> str:
    """Return every problem in one line, each with its field."""
    problems = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem_text(problem)}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return clamped("; ".join(problems), ERROR_CHARS_MAX)
