"""Scripted tools: real `Tool`s that play results in order and keep what they were called with. Runs nothing real.

    gate = Hold()
    charge = scripted_tool("charge", {"paid": 5}, CardDeclined("no funds"), gate, at_most_once=True)

Each call takes the next result (an attempt that is repeated after a crash or a timeout is a call, too); the count is
the process's own. They are async: in a worker they run on its tools' loop, in the in-process driver on its own.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, Unpack, cast

from pydantic import ConfigDict, JsonValue, create_model
from pydantic_core import to_jsonable_python

from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.base.frozen import replace as changed
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_traits import ToolOptions
from holdfast.core.tools.tools import AnyTool, Tool, tool
from holdfast.testing.holds import Hold
from holdfast.testing.ledger import Ledger

CALLS_RECORDED_MAX: Final = 1_000
"""Records kept by one tool; the oldest go first."""

ANY_OBJECT: Final[Mapping[str, JsonValue]] = {"type": "object", "properties": {}, "additionalProperties": True}

CallOutcome: TypeAlias = Literal["pending", "finished", "failed", "cancelled"]


class ResultsExhausted(HoldfastError):
    """A scripted tool was called more often than its script foresaw, and was told not to repeat its last result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call as the tool saw it; times are Unix seconds."""

    number: int
    """Counts the tool's calls from 0."""
    arguments: Mapping[str, Any]
    """As the model sent them."""
    context: ToolContext | None
    """None when a test called the tool itself."""
    started_at: float
    ended_at: float | None = None
    outcome: CallOutcome = "pending"
    error: str = ""


class _Playback:
    """Plays the results and keeps the records; calls may come from several threads."""

    def __init__(self, name: str, results: tuple[object, ...], *, repeat: bool, ledger: Ledger | None) -> None:
        self._name = name
        self._results = results
        self._repeat = repeat
        self._ledger = ledger
        self._lock = threading.Lock()
        self._records = OrderedDict[int, CallRecord]()
        self._count = 0

    @property
    def records(self) -> tuple[CallRecord, ...]:
        with self._lock:
            return tuple(self._records.values())

    async def play(self, arguments: Mapping[str, Any], context: ToolContext | None) -> object:
        record = self._started(arguments, context)
        try:
            value = await self._result(record.number)
        except Exception as error:
            self._ended(record, "failed", f"{type(error).__name__}: {error}")
            raise
        except BaseException as error:
            self._ended(record, "cancelled", type(error).__name__)
            raise
        self._ended(record, "finished")
        return value

    async def _result(self, number: int) -> object:
        if number >= len(self._results) and not (self._repeat and self._results):
            problem = (
                f"the scripted tool {self._name!r} has {len(self._results)} results and was called {number + 1} times"
            )
            raise ResultsExhausted(f"{problem}; give it more results, or exhausted='repeat'")
        result = self._results[min(number, len(self._results) - 1)]
        if isinstance(result, Hold):
            return await result.stand()
        if isinstance(result, BaseException):
            raise result.with_traceback(None)  # the same error may be raised again
        return result

    def _started(self, arguments: Mapping[str, Any], context: ToolContext | None) -> CallRecord:
        with self._lock:
            record = CallRecord(number=self._count, arguments=arguments, context=context, started_at=time.time())
            self._count += 1
            self._records[record.number] = record
            if len(self._records) > CALLS_RECORDED_MAX:
                self._records.popitem(last=False)
        self._note(record, "started")
        return record

    def _ended(self, record: CallRecord, outcome: CallOutcome, error: str = "") -> None:
        ended = replace(record, ended_at=time.time(), outcome=outcome, error=error)
        with self._lock:
            if record.number in self._records:
                self._records[record.number] = ended
        self._note(ended, outcome)

    def _note(self, record: CallRecord, phase: str) -> None:
        if self._ledger is None:
            return
        key = record.context.idempotency_key if record.context else ""
        attempt = record.context.attempt if record.context else None
        detail: dict[str, Any] = {"number": record.number, "attempt": attempt, "arguments": record.arguments}
        if record.error:
            detail["error"] = record.error
        self._ledger.append("tool", self._name, phase, key=key, detail=to_jsonable_python(detail, fallback=repr))


@dataclass(frozen=True, slots=True)
class ScriptedTool(Tool[..., Any]):
    """A tool that plays its results; made by `scripted_tool`."""

    playing: _Playback

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The latest `CALLS_RECORDED_MAX` calls, in the order they began; refused arguments are no call."""
        return self.playing.records

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Check `arguments` as the tool does that this one stands for, and return them as the model sent them.

        Raises InvalidArguments, naming every bad field.
        """
        Tool[..., Any].bind(self, arguments, context)
        return {**arguments, CONTEXT_PARAMETER: context}


CONTEXT_PARAMETER: Final = "holdfast_context"
"""Where `bind` puts the context; no parameter that a test would name."""


def scripted_tool(
    name: str,
    *results: object,
    ledger: Ledger | Path | None = None,
    like: Callable[..., Any] | AnyTool | None = None,
    schema: Mapping[str, JsonValue] | None = None,
    exhausted: Literal["repeat", "error"] = "repeat",
    **traits: Unpack[ToolOptions],
) -> ScriptedTool:
    """Return a tool that gives one of `results` per call, in order; `.calls` keeps what it was called with.

    Args:
        name: what the model calls it.
        results: a value to return, an exception to raise, or a `Hold` that keeps the call until the test lets it go.
        ledger: where each start and end is noted (`started`; `finished`, `failed` or `cancelled`) under the call's
            idempotency key, for tests whose process does not outlive the call.
        like: a function or tool whose parameters and description it borrows; its arguments are checked as that
            tool's would be, and results against its return annotation. Without it any JSON object is accepted.
        schema: a JSON Schema object that the model is shown instead; nothing is checked against it.
        exhausted: what comes after the last result: the last one again, or the error ResultsExhausted.
        traits: `timeout_seconds`, `at_most_once` and all other options, as `@tool` takes them.

    Raises InvalidInput for what `@tool` refuses, for `like` with `schema`, and for no results to repeat.
    """
    if like is not None and schema is not None:
        raise InvalidInput(f"tool {name!r}: `like` and `schema` both say what it takes; give one of them")
    if not results and exhausted == "repeat":
        raise InvalidInput(f"tool {name!r} has no result to give; name one, or exhausted='error'")
    ledger_file = Ledger(ledger) if isinstance(ledger, Path) else ledger
    playing = _Playback(name, results, repeat=exhausted == "repeat", ledger=ledger_file)

    async def played(*, holdfast_context: ToolContext | None = None, **arguments: Any) -> object:  # noqa: ANN401  # JSON
        return await playing.play(arguments, holdfast_context)

    real = _stood_for(name, like, schema, traits)
    parts: dict[str, Any] = {field.name: getattr(real, field.name) for field in fields(real)} | {"function": played}
    return ScriptedTool(**parts, playing=playing)


def _stood_for(
    name: str, like: Callable[..., Any] | AnyTool | None, schema: Mapping[str, JsonValue] | None, traits: ToolOptions
) -> AnyTool:
    """Return the tool whose schema, traits and checks a scripted one has."""
    if like is not None:
        if getattr(like, "checked_by_schema", False):
            return _by_schema(name, cast("AnyTool", like), traits)
        function: Callable[..., Any] = getattr(like, "function", like)
        return tool(name=name, **traits)(function)

    async def anything() -> None:
        """Do what the script says."""

    real = tool(name=name, **traits)(anything)
    arguments = create_model(name, __config__=ConfigDict(extra="allow"))
    model_schema = changed(real.schema, parameters=dict(schema or ANY_OBJECT))
    return replace(cast("AnyTool", real), schema=model_schema, arguments=arguments)


def _by_schema(name: str, like: AnyTool, traits: ToolOptions) -> AnyTool:
    """Return a tool with the JSON Schema of `like`."""

    async def anything(**arguments: Any) -> None:  # noqa: ANN401  # JSON
        del arguments

    return cast(
        "AnyTool",
        tool(name=name, description=like.schema.description, schema=like.schema.parameters, **traits)(anything),
    )
