"""`ToolTraits`: what a run needs to know about a tool, read from the options of `@tool`; a history records them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict, cast

from pydantic import Field, JsonValue, ValidationError

from holdfast.core.base.bounds import ERROR_CHARS_MAX, TOOL_DESCRIPTION_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen, canonical, is_none, replace
from holdfast.core.base.json_form import SparseForm
from holdfast.core.base.retries import TOOL_RETRIES
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.truncation import FETCH_TOOL, RECORDS_TOOL
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.messages import NAME_PATTERN
from holdfast.core.tools.mcp_servers import ServerName

REQUIRED_ARGUMENTS_MAX: Final = 32
"""The most required arguments that a run checks; a tool with more checks for missing ones itself."""

LOCAL_TOOL_SECONDS_MAX: Final = 5.0
"""All attempts of one `local` tool call together: a stop waits for them."""

TASK_QUEUE_CHARS_MAX: Final = 200
"""The longest name of a tool's task queue."""

TIMEOUT_SECONDS: Final = 60.0
"""How long one attempt of a tool call may take unless the tool says otherwise."""

TIMEOUT_SECONDS_MAX: Final = 24 * 3600.0
"""The longest that a tool may say: whatever takes days is work for a run of its own."""

LOCAL_TIMEOUT_SECONDS: Final = 1.5
"""The same for a `local` tool."""

ATTEMPTS_MAX: Final = TOOL_RETRIES.attempts_max
"""The most attempts of a call that fail by themselves: by taking too long, or by raising one of `retry_on`."""

RETRIES_MAX: Final = 3
"""In how many steps in a row a tool may have the model try again, unless it says otherwise."""

LoopTool = Literal["todo", "ask_user", "go_back", "plan", "describe_agents"]
"""The tools whose calls the loop answers itself."""

DERIVED: Final = (
    "described_bytes",
    "required",
    "context",
    "remote",
    "mcp",
    "mcp_digest",
    "deferred",
    "resumable",
    "workspace",
    "loop",
)
"""Traits that are derived, not chosen."""

RESERVED_NAMES: Final = frozenset(
    {
        "inference",
        "resolve_tools",
        "run_hooks",
        "summarise",
        "cancel_answer",
        "take_up",
        "check_arguments",
        "record_execution",
        "branch_conversation",
        "find_session",
        "keep_session",
        "resolve_mcp",
        "call_mcp_tool",
        "spawn",
        "handoff",
        "search_tools",
        "call_tool",
        "run_code",
        "advance_script",
        FETCH_TOOL,
        RECORDS_TOOL,
    }
)
"""The names of our own activities and of our own tools, for subagents, handoffs, long results, records and large
catalogs."""


class ToolTraits(SparseForm):
    """What a run needs to know about a tool: timeouts, attempts, task queue, concurrency.

    `task_queue` is where its calls go, by default the one that the run's own worker serves tools on;
    `queue_seconds_max` is how long a call may wait there for a worker. `local` runs it within the workflow task.
    `heartbeats` means that its worker heartbeats every 2.5 s at least. `remote` means that the worker is not one of
    ours: it counts no attempts, so the server does.
    """

    name: str
    timeout_seconds: float = Field(default=TIMEOUT_SECONDS, gt=0, le=TIMEOUT_SECONDS_MAX)
    attempts_max: int = Field(default=ATTEMPTS_MAX, ge=1, le=100)
    at_most_once: bool = False
    sequential: bool = False
    idempotent: bool = False
    local: bool = False
    task_queue: str | None = Field(default=None, min_length=1, max_length=TASK_QUEUE_CHARS_MAX)
    queue_seconds_max: float | None = Field(default=None, gt=0, le=7 * 24 * 3600)
    heartbeats: bool = True
    remote: bool = False
    retries_max: int = Field(default=RETRIES_MAX, ge=0, le=100)
    """In how many steps in a row it may have the model try again (ModelRetry)."""
    required: tuple[str, ...] = Field(default=(), max_length=REQUIRED_ARGUMENTS_MAX)
    """The arguments without which no call of it starts."""
    mcp: ServerName | None = None
    """The MCP server that serves it; none for a tool of a worker's own."""
    mcp_digest: Digest | None = None
    """The fingerprint of what that server says of it (`McpTool.digest`): an approval is bound to it."""
    deferred: bool = False
    """Whether the model is not shown it, and finds it with the tool `search_tools`."""
    resumable: bool = False
    """Whether a call can become a task that its next attempt takes up, so that a lost worker does not end it."""
    workspace: bool = False
    """Whether it works in the run's workspace."""
    context: bool = False
    """Whether it takes a `ToolContext`: then the agent's metadata travel with each call."""
    loop: LoopTool | None = None
    """Which of the tools it is whose calls the loop answers itself; none for any other."""
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
        retries_max: in how many steps in a row it may raise ModelRetry before that becomes an ordinary error.
    """

    timeout_seconds: float
    attempts_max: int
    at_most_once: bool
    sequential: bool
    idempotent: bool
    queue_seconds_max: float
    retries_max: int


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
    """A tool as the model sees it; `parameters` is a JSON Schema object.

    `output` is the JSON Schema of its results, where it declares one; chat completions have no place for it.
    """

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    output: Mapping[str, JsonValue] | None = Field(default=None, exclude_if=is_none)


def schema_of(
    tool_name: str,
    description: str,
    parameters: Mapping[str, JsonValue],
    output: Mapping[str, JsonValue] | None = None,
) -> ToolSchema:
    """Return the tool's schema; raises InvalidInput when the description is too long."""
    if len(description) > TOOL_DESCRIPTION_CHARS_MAX:
        size = f"its description (a docstring before its sections) has {len(description):,} characters"
        raise InvalidInput(f"tool {tool_name!r}: {size}, at most {TOOL_DESCRIPTION_CHARS_MAX:,} are allowed")
    return ToolSchema(name=tool_name, description=description, parameters=parameters, output=output)


def with_schema(traits: ToolTraits, schema: ToolSchema) -> ToolTraits:
    """Return the traits with those that are derived from the schema."""
    names = schema.parameters.get("required")
    required = tuple(map(str, names)) if isinstance(names, list) else ()
    checked = required if len(required) <= REQUIRED_ARGUMENTS_MAX else ()
    return replace(traits, described_bytes=len(canonical(replace(schema, output=None))), required=checked)


def missing_arguments(traits: ToolTraits, arguments: Mapping[str, JsonValue]) -> str | None:
    """Return the error text of a call that lacks arguments, as its tool would write it; none if none is missing.

    Only the tool itself checks their values.
    """
    missing = [f"{name}: Field required" for name in traits.required if name not in arguments]
    return clamped("; ".join(missing), ERROR_CHARS_MAX) if missing else None


def check_name(name: str) -> None:
    """Raise InvalidInput when `name` cannot name a tool."""
    if NAME_PATTERN.fullmatch(name) is None:
        raise InvalidInput(f"{name!r} cannot name a tool: use letters, digits, `_` and `-`, at most 64 of them")
    if name in RESERVED_NAMES:
        raise InvalidInput(f"{name!r} is a name of our own; choose another with @tool(name=...)")


def traits_of(tool_name: str, options: Mapping[str, Any], retry_on: tuple[type[Exception], ...] = ()) -> ToolTraits:
    """Return the traits of the tool `tool_name`; raises InvalidInput with the problem."""
    check_name(tool_name)
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
