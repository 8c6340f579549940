"""An agent's state as JSON and back, losing nothing (docs/spec.md, section 8). Reads and writes no files.

Two forms: the full one resumes an execution where it stood; the session alone (`session_only`) starts a fresh one.
Both carry `format`, the version of the form. Input is checked as strictly as values made in Python, and an
error names the fields, never their whole contents.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError
from pydantic_core import from_json as parsed
from pydantic_core import to_json as spelled

from holdfast.core.agent.execution_state import ExecutionState, SavedState
from holdfast.core.agent.hooks import AROUND_TOOLS, ENDING, Trigger
from holdfast.core.base.bounds import STATE_BYTES_MAX
from holdfast.core.base.errors import StateInvalid
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.base.stored_forms import AGENT_STATE
from holdfast.core.base.validation_errors import problem_text
from holdfast.core.conversation.messages import DEFAULT_SECTION

PROBLEMS_READ_MAX: Final = 10_000
"""The most problems of one refused state that are looked at; with more of them it is no state at all."""

PROBLEMS_SHOWN_MAX: Final = 5
"""The most problems of one refused state that the error lists."""

PROBLEM_CHARS_MAX: Final = 200
"""The longest text about one problem."""

VALUE_CHARS_MAX: Final = 60
"""The most of a refused value that an error shows."""

PATH_PARTS_MAX: Final = 16
"""The most parts of a field's place that an error shows; a state's own fields lie at most ten deep."""

StateT = TypeVar("StateT", bound=SavedState)

FORMAT: Final = AGENT_STATE.version
"""The version of the form written and read here; it changes when an older reader would misunderstand a newer form."""


def to_json(state: SavedState, *, session_only: bool = False) -> bytes:
    """Return `state` as JSON in UTF-8, on one line.

    Args:
        state: the agent.
        session_only: leave the execution out, so that what is read back starts afresh.

    Raises:
        StateInvalid: it holds what JSON cannot carry (lone surrogates), or takes more than STATE_BYTES_MAX.
    """
    try:
        data = canonical(replace(state, execution=None) if session_only else state)
    except (PydanticSerializationError, ValueError) as error:  # UnicodeEncodeError is a ValueError
        raise StateInvalid(f"the state cannot be written: {_short(str(error), PROBLEM_CHARS_MAX)}") from None
    _check_size(len(data))
    return data


def from_json(of: type[StateT], data: bytes | str) -> StateT:
    """Return the state that `to_json` wrote, as `of`; raise StateInvalid for anything else."""
    _check_size(len(data))
    try:
        state = of.model_validate_json(data, strict=True)
    except ValidationError as error:
        _check_format(data)
        raise _unreadable(error) from None
    except UnicodeEncodeError:
        raise _refused(["the text holds lone surrogates, which are not valid Unicode"], 1) from None
    _check_meaning(state)
    return state


def to_dict(state: SavedState, *, session_only: bool = False) -> dict[str, Any]:
    """Return what `to_json` writes as JSON-ready data: dicts, lists, texts, numbers, true, false and none."""
    return cast("dict[str, Any]", parsed(to_json(state, session_only=session_only)))


def from_dict(of: type[StateT], data: Mapping[str, Any]) -> StateT:
    """Return the state that `to_dict` wrote, by the same rules as `from_json`; raise StateInvalid for anything else."""
    try:
        text = spelled(data)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise _refused([f"this is not JSON-ready data: {_short(str(error), PROBLEM_CHARS_MAX)}"], 1) from None
    return from_json(of, text)


class _Envelope(BaseModel):
    """What every version of the form has."""

    format: JsonValue


def _check_size(size: int) -> None:
    if size > STATE_BYTES_MAX:
        raise StateInvalid(
            f"a saved state of {size:,} bytes is refused, at most {STATE_BYTES_MAX:,} are read; "
            "save the session alone (session_only), or summarise the conversation first"
        )


def _check_format(data: bytes | str) -> None:
    """Refuse another version with one clear sentence, whatever else is wrong."""
    try:
        version = _Envelope.model_validate_json(data).format
    except ValidationError:
        return  # there is none: the other problems say more
    if type(version) is not int or version != FORMAT:
        raise StateInvalid(
            f"the saved state has format {_brief(version)}, this Holdfast reads format {FORMAT}: "
            "read it with the Holdfast that wrote it, or update this one"
        )


def _check_meaning(state: SavedState) -> None:
    """Refuse data that fits every type and still is not a valid state."""
    if "format" not in state.model_fields_set:
        raise _refused(["format: it is missing"], 1)
    times = Counter(section.name for section in state.context.store.sections)
    problems = [f"context.store.sections: {_brief(name)} is there {n} times" for name, n in times.items() if n > 1]
    if DEFAULT_SECTION not in times:
        problems.append(f"context.store.sections: there is none called {DEFAULT_SECTION!r}")
    if state.execution is not None and not state.execution.status.is_terminal:
        problems += _misfits(state.execution)
    if problems:
        raise _refused(problems, len(problems))


def _misfits(execution: ExecutionState) -> Iterator[str]:
    """Yield the contradictions in an execution that is to be resumed."""
    step, trigger = execution.current_step, execution.hooks_under_way
    answered = step is not None and step.inference_response is not None
    if trigger is not None and (need := _unmet_need(trigger, execution)):
        yield f"execution.hooks_under_way: {trigger} {need}"
    if execution.summary_under_way and (step is None or answered or trigger is not None):
        yield "execution.summary_under_way: it needs a step whose model was not asked yet, and no hooks under way"
    requested_ids = [call.id for call in step.requested_tool_calls] if step else []
    if len(set(requested_ids)) < len(requested_ids):
        yield "execution.current_step.inference_response.tool_calls: two of them have one id"
    open_calls = () if step is not None and step.judgement is not None else execution.open_calls  # its judge's
    asked = [each for each in open_calls if each.parent_call_id is None]
    open_ids = [each.call.id for each in asked]
    ended_ids = [each.call.id for each in step.tool_executions if each.parent_call_id is None] if step else []
    if execution.guarding and (step is None or step.number > 1 or trigger is not None or execution.summary_under_way):
        yield "execution.guarding: it needs the first step, with its model call under way and nothing else"
    calls_begun = trigger not in (Trigger.AFTER_INFERENCE, *ENDING) and not execution.guarding
    if sorted((*open_ids, *ended_ids)) != (sorted(requested_ids) if calls_begun else []):
        yield "execution.open_calls: they and the step's tool_executions are not the calls that the model asked for"
    elif any(requested_ids[each.index : each.index + 1] != [each.call.id] for each in asked):
        yield "execution.open_calls: their indexes are not their places in the model's request"


def _unmet_need(trigger: Trigger, execution: ExecutionState) -> str | None:
    """Return the unmet condition for running hooks at that trigger; none when all are met."""
    step = execution.current_step
    answered = step is not None and step.inference_response is not None
    if trigger in AROUND_TOOLS:
        return "belongs to an open call"
    if trigger is Trigger.INPUT_GUARD:
        return "is said by `guarding`"
    if trigger in (Trigger.BEFORE_EXECUTION, Trigger.BEFORE_STEP):
        return "needs that no step is under way" if step is not None else None
    if trigger is Trigger.BEFORE_INFERENCE:
        return "needs a step whose model was not asked yet" if step is None or answered else None
    if trigger in ENDING:
        return "needs that every step whose model has answered is archived" if answered else None
    fits = answered and not execution.open_calls
    return None if fits else "needs a step whose model has answered, and no open calls"


def _refused(problems: list[str], total: int) -> StateInvalid:
    """Return the error that lists the first of `problems`, of which there are `total`."""
    first = problems[:PROBLEMS_SHOWN_MAX]
    more = f"; and {total - len(first):,} more" if total > len(first) else ""
    return StateInvalid(f"this is not a saved agent state: {'; '.join(first)}{more}. Restore it from an intact copy")


def _unreadable(error: ValidationError) -> StateInvalid:
    if error.error_count() > PROBLEMS_READ_MAX:  # listing them would take more memory than the input did
        return _refused([f"more than {PROBLEMS_READ_MAX:,} fields are wrong"], 1)
    problems = error.errors(include_url=False)[:PROBLEMS_SHOWN_MAX]
    return _refused([_problem(each) for each in problems], error.error_count())


def _problem(error: ErrorDetails) -> str:
    what = _short(problem_text(error), PROBLEM_CHARS_MAX)
    if not error["loc"]:
        return what
    value = "" if error["type"] in ("missing", "value_error") else f" (it is {_brief(error['input'])})"
    return f"{'.'.join(_path(error['loc']))}: {what}{value}"


def _path(loc: tuple[int | str, ...]) -> Iterator[str]:
    """Yield the parts of a field's place; the middle of a very deep one is left out."""
    half = PATH_PARTS_MAX // 2
    parts = loc if len(loc) <= PATH_PARTS_MAX else (*loc[:half], "…", *loc[-half:])
    for part in parts:
        plain = isinstance(part, int) or part == "…" or re.fullmatch(r"[\w-]{1,64}", part)
        yield str(part) if plain else _brief(part)


def _brief(value: object) -> str:
    """Return a short description of any JSON value, with at most VALUE_CHARS_MAX characters of it."""
    match value:
        case str():
            shown = ascii(value[:VALUE_CHARS_MAX])
            return shown if len(value) <= VALUE_CHARS_MAX else f"{shown}…, {len(value):,} characters"
        case list():
            return f"a list of {len(cast('list[object]', value)):,}"
        case dict():
            return f"an object of {len(cast('dict[str, object]', value)):,}"
        case int() if value.bit_length() > VALUE_CHARS_MAX:
            return f"a number of {value.bit_length():,} bits"
        case _:
            return _short(repr(value), VALUE_CHARS_MAX)


def _short(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[:chars_max] + "…"
