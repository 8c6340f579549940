"""Runs a script of Code Mode, in a process of its own, up to the calls that it waits for (docs/code-mode.md).

It runs from its beginning each time, with the results of its calls so far. What it can see is the same each time: the
clock stands still, random numbers have a fixed seed, and there are no files, no network and no environment.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from holdfast.core.base.bounds import ARGUMENTS_BYTES_MAX, ERROR_CHARS_MAX
from holdfast.core.base.call_digest import call_digest
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.extras import install_command
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse
from holdfast.core.tools.code_mode import RUN_CODE, SCRIPT_CHARS_MAX, function_names, parameters_of
from holdfast.core.tools.tool_results import bounded_result
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.script_contracts import ScriptAdvance, ScriptCall, ScriptRequest
from holdfast.runtime.remote_tool_checks import checked_calls

if TYPE_CHECKING:  # an extra
    import pydantic_monty

SCRIPT_CPU_SECONDS_MAX: Final = 2
"""How long a script may compute, in CPU time: a busy machine takes nothing of it. Whole seconds, as RLIMIT_CPU has."""

SCRIPT_SECONDS_MAX: Final = 10.0
"""How long it may take in all, waits for its calls left out: other scripts of the worker wait for their turn."""

COUNTS_CPU: Final = hasattr(resource, "prlimit")
"""Whether CPU time can be counted: on Linux. Elsewhere computing takes SCRIPT_CPU_SECONDS_MAX at most by the clock."""

PROCESS_SECONDS_MAX: Final = SCRIPT_SECONDS_MAX + 2.0
"""When its process is killed, should it not end by itself."""

OUT_OF_CPU: Final = "SIGXCPU"
"""In the interpreter's report of a process that the kernel has ended at its CPU limit."""

SCRIPT_MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most memory of a script; a worker runs a few at once (`activities.scripts`)."""

RECURSION_MAX: Final = 200
"""The deepest recursion of a script."""

SUSPENSIONS_MAX: Final = 2_000
"""How often a script may look up names, ask for what it may not have, and wait for calls."""

PRINTED_BYTES_MAX: Final = 64 * 1024
"""The most that a script may print; what the model sees of it is bounded by the step."""

FROZEN_CLOCK: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""The time that a script sees."""

SEED: Final = 0
"""The seed of its random numbers."""


def check_installed() -> None:
    """Raise InvalidInput where the interpreter of scripts is not installed."""
    if find_spec("pydantic_monty") is None:
        raise InvalidInput(f"`code` needs the package pydantic-monty here; {install_command('monty')}")


class ScriptProcessLost(Exception):
    """The script's process ended by no fault of the script: another attempt can do better."""


class _Ended(Exception):
    """The script cannot go on, for the reason in `error`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.error = ErrorRecord(type=kind, message=clamped(message, ERROR_CHARS_MAX), source=RUN_CODE)


def advance(request: ScriptRequest, tools: Mapping[str, AnyTool]) -> ScriptAdvance:
    """Run the script with the results of its calls so far; return the calls that it makes next, or its end.

    `tools` are those of the request, by name. It blocks for as long as the script computes. Raises ScriptProcessLost.
    """
    import pydantic_monty as monty  # noqa: PLC0415  # an extra

    code = request.code
    if not isinstance(code, str) or len(code) > SCRIPT_CHARS_MAX:
        text = f"`code` is a text of at most {SCRIPT_CHARS_MAX:,} characters"
        return ScriptAdvance(error=ErrorRecord(type="InvalidArguments", message=text, source=RUN_CODE))
    printed = monty.CollectString(max_bytes=PRINTED_BYTES_MAX)
    script = _Script(request, tools)
    try:
        with (
            monty.Monty(min_processes=1, max_processes=1, request_timeout=PROCESS_SECONDS_MAX) as pool,
            pool.checkout(limits=LIMITS, os_policy=_POLICY, script_name="script.py") as session,
        ):
            limit_cpu(session.worker_pid)
            ended = script.run(session.feed_start(code, print_callback=printed))
            if ended is None:
                return ScriptAdvance(calls=script.next_calls())
            return ScriptAdvance(output=_output(printed.output, ended.output, script.unawaited))
    except monty.MontyCrashedError as error:
        if error.timed_out:
            text = f"it took more than {SCRIPT_SECONDS_MAX:g} s and was ended"
        elif OUT_OF_CPU in str(error):
            text = f"it computed for more than {SCRIPT_CPU_SECONDS_MAX} s and was ended"
        else:
            raise ScriptProcessLost(str(error)) from error
        failed = _Ended("ScriptFailed", "\n".join(filter(None, (text, printed.output.rstrip())))).error
    except monty.MontyError as error:
        shown = error.display() if isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError) else str(error)
        shown = clamped(shown, ERROR_CHARS_MAX // 2)
        failed = _Ended("ScriptFailed", "\n".join(filter(None, (shown, printed.output.rstrip())))).error
    except _Ended as error:
        failed = error.error
    return ScriptAdvance(error=failed)


LIMITS: Final[pydantic_monty.ResourceLimits] = {
    "max_feed_duration_secs": SCRIPT_SECONDS_MAX if COUNTS_CPU else SCRIPT_CPU_SECONDS_MAX,
    "max_memory": SCRIPT_MEMORY_BYTES_MAX,
    "max_recursion_depth": RECURSION_MAX,
    "max_suspensions": SUSPENSIONS_MAX,
}

_POLICY: Final[pydantic_monty.OSPolicy] = {
    "datetime": FROZEN_CLOCK,
    "sleep": "zero",
    "process_time": "zero",
    "random_start": {"seed": SEED},
}


def limit_cpu(pid: int | None) -> None:
    """Have the kernel end a script's process at its CPU limit, without a core file; SCRIPT_SECONDS_MAX holds anyway."""
    if pid is None or not COUNTS_CPU:
        return
    with suppress(OSError):  # it has just died, which its first answer shows
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        resource.prlimit(pid, resource.RLIMIT_CPU, (SCRIPT_CPU_SECONDS_MAX, SCRIPT_CPU_SECONDS_MAX + 1))


class _Script:
    """One run of a script: the calls that it has made, in order, and the answers to what it asks for."""

    def __init__(self, request: ScriptRequest, tools: Mapping[str, AnyTool]) -> None:
        self._request = request
        self._tools = tools
        self._functions = function_names(name for name in request.tools if name in tools)
        self._calls: list[ScriptCall] = []
        self._ids: list[int] = []
        self._compared = 0
        self._bytes_left = ARGUMENTS_BYTES_MAX

    @property
    def unawaited(self) -> int:
        """How many of its calls have no result: it never waited for them."""
        return len(self._calls) - len(self._request.results)

    def run(self, snapshot: pydantic_monty.SyncSnapshot) -> pydantic_monty.MontyComplete | None:
        """Run to the end; none where it waits for calls that have no result yet. Raises MontyError and _Ended."""
        import pydantic_monty as monty  # noqa: PLC0415  # an extra

        while True:
            match snapshot:
                case monty.MontyComplete():
                    self._compare()
                    if self.unawaited < 0:
                        raise _diverged(f"it made {len(self._calls)} calls, and {len(self._request.results)} before")
                    return snapshot
                case monty.NameLookupSnapshot():
                    snapshot = snapshot.resume()  # the name stays undefined: functions are called, nothing else
                case monty.FunctionSnapshot() if snapshot.is_os_function:
                    snapshot = snapshot.resume_not_handled()
                case monty.FunctionSnapshot():
                    snapshot = snapshot.resume(self._called(snapshot))
                case monty.FutureSnapshot():
                    answers = self._answers(snapshot.pending_call_ids)
                    if answers is None:
                        return None
                    snapshot = snapshot.resume(answers)

    def next_calls(self) -> tuple[ScriptCall, ...]:
        """Return the calls without a result; those of remote tools that do not fit their schema are malformed."""
        new = self._calls[len(self._request.results) :]
        asked = tuple(ToolCall(id="", name=each.tool, arguments=each.arguments) for each in new)
        checked = checked_calls(InferenceResponse(tool_calls=asked), self._tools.values()).tool_calls
        return tuple(ScriptCall(tool=each.name, arguments=each.arguments, malformed=each.malformed) for each in checked)

    def _called(self, snapshot: pydantic_monty.FunctionSnapshot) -> pydantic_monty.ExternalResult:
        name = str(snapshot.function_name)
        if name not in self._functions:
            return {"exception": NameError(f"name {name!r} is not defined")}
        if len(self._calls) >= self._request.calls_max:
            text = f"the scripts of one step make at most {self._request.calls_max} calls; go on in another step"
            return {"exception": RuntimeError(text)}
        tool = self._tools[self._functions[name]]
        try:
            call = _call(tool, snapshot.args, snapshot.kwargs)
        except TypeError as error:
            return {"exception": error}
        self._bytes_left -= len(to_json(call.arguments))
        if self._bytes_left < 0:
            text = f"the arguments of a script's calls take at most {ARGUMENTS_BYTES_MAX:,} bytes together"
            return {"exception": RuntimeError(text)}
        self._calls.append(call)
        self._ids.append(snapshot.call_id)
        return {"future": ...}

    def _answers(self, pending: list[int]) -> dict[int, pydantic_monty.ExternalSettledResult] | None:
        """Return the results of the calls that wait; none where a call has none yet."""
        results = self._request.results
        self._compare()
        if len(self._calls) > len(results):
            return None
        answers: dict[int, pydantic_monty.ExternalSettledResult] = {}
        for id_, result in zip(self._ids, results, strict=False):
            if id_ in pending:
                error = result.error
                answers[id_] = {"return_value": result.value} if error is None else {"exception": RuntimeError(error)}
        return answers

    def _compare(self) -> None:
        """Raise _Ended where the script asks for something else than it did before; each call is looked at once."""
        pairs = zip(self._calls[self._compared :], self._request.results[self._compared :], strict=False)
        for call, result in pairs:
            self._compared += 1
            if call.tool != result.tool:
                raise _diverged(f"it called {call.tool} where it had called {result.tool} before")
            if result.digest not in (None, call_digest(call.tool, call.arguments)):
                raise _diverged(f"its call {self._compared}, of {call.tool}, had other arguments before")


def _diverged(text: str) -> _Ended:
    return _Ended("ScriptDiverged", f"{text}: another version of the interpreter may have taken it over")


def _call(tool: AnyTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ScriptCall:
    """Return a call with its arguments by name, as JSON. Raises TypeError."""
    names = parameters_of(tool.schema)
    if len(args) > len(names):
        raise TypeError(f"{tool.name} takes at most {len(names)} arguments, {len(args)} were given")
    given = dict(zip(names, args, strict=False))
    if twice := given.keys() & kwargs.keys():
        raise TypeError(f"{tool.name} got the argument {min(twice)!r} twice")
    try:
        arguments = cast("dict[str, JsonValue]", from_json(to_json(_ordered({**given, **kwargs}))))
        return ScriptCall(tool=tool.name, arguments=arguments)
    except ValidationError as error:  # a number that is none, or what nests too deep
        raise TypeError(f"{tool.name}: its arguments are no JSON: {problems_text(error)}") from None
    except (PydanticSerializationError, ValueError) as error:
        raise TypeError(f"{tool.name}: its arguments are no JSON: {error}") from None


def _ordered(value: Any) -> Any:  # noqa: ANN401  # whatever a script can make
    """Return `value` with its sets as sorted lists: the order of a set of Python's is another in each process."""
    match value:
        case dict():
            return {key: _ordered(each) for key, each in cast("Mapping[Any, Any]", value).items()}
        case list() | tuple():
            return [_ordered(each) for each in cast("list[Any]", value)]
        case set() | frozenset():
            return sorted(map(_ordered, cast("set[Any]", value)), key=to_json)
        case _:
            return value


def _output(printed: str, value: object, unawaited: int) -> str:
    """Return what the model sees of a script that has ended."""
    parts = [printed.rstrip()] if printed.strip() else []
    if value is not None:
        try:
            parts.append(value if isinstance(value, str) else to_json(_ordered(value)).decode())
        except (PydanticSerializationError, ValueError):
            parts.append(repr(value))
    if unawaited:
        parts.append(f"({unawaited} calls were not awaited, so they were not made)")
    return bounded_result("\n".join(parts)) or "(it printed nothing, and its last line has no value)"
